"""Trains a Transformer, or continues the run of the same name.

python train.py experiment=quickstart
python train.py model=big trainer.devices=8
python train.py -m ablation='glob(*)' sweep=table3
python train.py --help
"""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from aiayn import entry
from aiayn.config import Config
from aiayn.error_messages import one_line_errors


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(composed: DictConfig) -> None:
    with one_line_errors(Config):
        conf = Path(__file__).with_name("conf")
        config = entry.resolve_config(composed, entry.choices_of_single_run(), conf)
        if config.init_from is None:  # else the prepared corpus depends on that run's tokenizer, and is checked later
            from aiayn.data.prepare import check_text

            check_text(config.data)
        with entry.loading():
            from aiayn.training.run import train  # imports torch: only once configuration and text are checked

        train(config, chosen=entry.chosen_options(HydraConfig.get().overrides.task, conf))


if __name__ == "__main__":
    entry.run(main, Config)
