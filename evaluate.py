"""Translates a test set with a trained run and scores the text.

python evaluate.py run=outputs/quickstart
python evaluate.py --help
"""

from typing import NoReturn

import hydra
from omegaconf import DictConfig

from aiayn import entry
from aiayn.config import EvaluateConfig
from aiayn.error_messages import one_line_errors
from aiayn.signals import exit_signal, handle_signals


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(composed: DictConfig) -> None:
    with one_line_errors(EvaluateConfig):
        config = entry.check_config(composed, EvaluateConfig)
        with entry.loading():
            from aiayn.evaluation.evaluate import evaluate  # imports torch: only once the configuration is checked

        with handle_signals(_interrupt):
            evaluate(config)


def _interrupt(number: int, frame: object) -> NoReturn:
    # KeyboardInterrupt, because no `except Exception` on the way catches it.
    raise KeyboardInterrupt(exit_signal(number))


if __name__ == "__main__":
    entry.run(main, EvaluateConfig)
