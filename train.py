"""Trains a Transformer, or continues where an earlier start of the same run stopped.

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


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(composed: DictConfig) -> None:
    with entry.one_line_errors(Config):
        conf = Path(__file__).with_name("conf")
        config = entry.resolve_config(composed, entry.choices_of_single_run(), conf)
        if config.init_from is None:  # else only that run's tokenizer tells which prepared corpus is meant
            from aiayn.data.prepare import check_text

            check_text(config.data)
        with entry.loading():
            from aiayn.training.run import train  # torch comes in only once configuration and text hold

        train(config, chosen=entry.chosen_options(HydraConfig.get().overrides.task, conf))


if __name__ == "__main__":
    entry.run(main, Config)
