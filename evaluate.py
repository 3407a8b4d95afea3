"""Translates a test set with a trained run and scores the text.

python evaluate.py run=outputs/quickstart
python evaluate.py --help
"""

from typing import NoReturn

import hydra
from omegaconf import DictConfig

from aiayn import entry
from aiayn.config import EvaluateConfig
from aiayn.signals import exit_signal, handle_signals


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(composed: DictConfig) -> None:
    with entry.one_line_errors(EvaluateConfig):
        config = entry.check_config(composed, EvaluateConfig)
        with entry.loading():
            from aiayn.evaluation.evaluate import evaluate  # torch comes in only once the configuration holds

        with handle_signals(_interrupt):
            evaluate(config)


def _interrupt(number: int, frame: object) -> NoReturn:
    # Nothing on the way takes this for an error of its own.
    raise KeyboardInterrupt(exit_signal(number))


if __name__ == "__main__":
    entry.run(main, EvaluateConfig)
