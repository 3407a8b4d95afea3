"""The Hydra applications `train` and `evaluate`, started by train.py and evaluate.py or by `aiayn`."""

from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from aiayn.config import compose as entry
from aiayn.config import program
from aiayn.config.messages import one_line_errors
from aiayn.config.schema import EvaluateConfig, Options
from aiayn.runs.run_folder import find_checkpoint
from aiayn.signals import exit_signal, handle_signals


def train(script: str | None = None) -> None:
    """Trains, or continues, the run that the command line describes. script is train.py; None: `aiayn train`."""
    with program.started_as(script, None if script else "train"):
        main = hydra.main(version_base="1.3", config_path=str(program.conf_folder()), config_name="train")(_train)
        entry.run(main, Options)


def evaluate(script: str | None = None) -> None:
    """Scores the run that the command line names. script is evaluate.py; None: `aiayn evaluate`."""
    with program.started_as(script, None if script else "evaluate"):
        main = hydra.main(version_base="1.3", config_path=str(program.conf_folder()), config_name="evaluate")(_evaluate)
        entry.run(main, EvaluateConfig)


def _train(composed: DictConfig) -> None:
    with one_line_errors(Options):
        conf = program.conf_folder()
        choices, overrides = entry.choices_of_single_run(), HydraConfig.get().overrides.task
        config = entry.resolve_config(composed, choices, overrides, conf)
        if config.init_from is None:  # else the prepared corpus depends on that run's tokenizer, and is checked later
            from aiayn.data.prepare import check_text

            check_text(config.data)
        with entry.loading():
            from aiayn.training.run import train  # imports torch: only once configuration and text are checked

        train(config, chosen=entry.chosen_options(overrides, conf))


def _evaluate(composed: DictConfig) -> None:
    with one_line_errors(EvaluateConfig):
        config = entry.check_config(composed, EvaluateConfig)
        find_checkpoint(Path(config.run), config.checkpoint)
        with entry.loading():
            from aiayn.evaluation.evaluate import evaluate  # imports torch: only once the configuration is checked

        with handle_signals(_interrupt):
            evaluate(config)


def _interrupt(number: int, frame: object) -> NoReturn:
    # KeyboardInterrupt, because no `except Exception` on the way catches it.
    raise KeyboardInterrupt(exit_signal(number))
