"""The Hydra applications `train` and `evaluate`, started by train.py and evaluate.py or by `aiayn`.

One wrapper stands before Hydra. It rewrites the arguments as Hydra has to read them, and turns what
is raised into one line and its exit code.
"""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from aiayn import __version__
from aiayn.config import compose, program
from aiayn.config.messages import (
    groups,
    hydra_errors_explained,
    no_such_option,
    refuse_overrides,
    refuse_repeated,
)
from aiayn.config.rules import options_of, require
from aiayn.config.schema import Config
from aiayn.config.stored import from_dict
from aiayn.errors import ConfigError, RefusedError, one_line_errors
from aiayn.runs.continuation import check_typed_options, read_options
from aiayn.runs.run_folder import RunFolder, find_checkpoint, folder_of, read_json
from aiayn.signals import end_with_parent, handle_signals, interrupt, refuse_windows


def train(script: str | None = None) -> None:
    """Trains or resumes the run that the command line describes. script is train.py; None:
    `aiayn train`.
    """
    _start_application("train", Config, _train_composed, script)


def evaluate(script: str | None = None) -> None:
    """Scores the run that the command line names. script is evaluate.py; None: `aiayn evaluate`."""
    from aiayn.config.evaluate import EvaluateConfig

    _start_application("evaluate", EvaluateConfig, _evaluate_composed, script)


def _train_composed(composed: DictConfig) -> float | None:
    """Trains with the options that Hydra has composed. A row of a sweep returns the value for its
    sweeper.
    """
    settings = HydraConfig.get()
    # The overrides as they were typed; iterating over them would interpolate.
    typed: Any = OmegaConf.to_container(settings.overrides.task)
    options = compose.resolve_options(composed, settings.runtime.choices, typed)
    if settings.mode == RunMode.MULTIRUN:  # started by one of Hydra's own launchers
        from aiayn.sweep.runner import run_row

        return run_row(options, settings, typed)
    _train_checked(options, typed)
    return None


def _train_row(file: Path) -> None:
    """Trains a row of a sweep with the options that the sweep has checked. Raises ConfigError."""
    row = read_json(file)
    if not row:
        raise ConfigError(f"--row={file}: cannot be read; start the sweep again")
    _train_checked(from_dict(Config, row["options"]), set(row["chosen"]))


def _train_checked(options: Config, chosen: Collection[str]) -> None:
    refuse_windows()
    check_typed_options(options)
    trainer = options.trainer
    if trainer.needs_gpus:
        # Before text, which may have to be downloaded; only torch knows which GPUs there are.
        from aiayn.hardware import choose_hardware

        choose_hardware(trainer)
    # With init_from the prepared corpus depends on that run's tokenizer, and is checked later.
    if options.init_from is None:
        from aiayn.data.preparation import check_text

        check_text(options.data)
    # Imports torch: only once configuration and text are checked
    from aiayn.training.run import train

    train(options, chosen=chosen)


def _evaluate_composed(composed: DictConfig) -> None:
    """Scores a run with the options that Hydra has composed."""
    from aiayn.config.evaluate import EvaluateConfig

    config = compose.check_config(composed, EvaluateConfig).with_run_folders()
    find_checkpoint(Path(config.run), config.checkpoint)
    stored = None
    with suppress(RefusedError):  # a checkpoint by itself
        stored = read_options(RunFolder(folder_of(Path(config.run))))
    if stored and (config.test or stored.data.source == "files"):  # else it is not loaded twice
        from aiayn.evaluation.test_set import read_test_set

        read_test_set(config, stored.data)
    # Imports torch: only once the configuration is checked
    from aiayn.evaluation.evaluate import evaluate

    scores, folder = evaluate(config), RunFolder(folder_of(Path(config.run)))
    if folder.wandb_id.exists():
        from aiayn.training.wandb_run import send_scores

        send_scores(folder, scores)


def _start_application(
    name: str, schema: type, job: Callable[[DictConfig], float | None], script: str | None
) -> None:
    """Answers --help and --version, and has Hydra do everything else."""
    with (
        program.started_as(script, None if script else name),
        one_line_errors(),
        handle_signals(interrupt),
    ):
        end_with_parent()
        arguments = _parse(sys.argv[1:], schema)
        refuse_repeated(arguments.overrides, schema, "" if arguments.multirun else "-m ")
        sources = compose.Sources(
            arguments.config_name or name, arguments.config_path, arguments.config_dir
        )
        if arguments.version:
            print(f"aiayn {__version__}")
        elif arguments.help:
            from aiayn.config.help import help_text

            print(help_text(sources, arguments.overrides, schema))
        elif arguments.row:
            _train_row(Path(arguments.row))
        else:
            if arguments.cfg and schema is Config:  # Hydra would show it unchecked
                options = compose.compose_training(arguments.overrides, sources)
                # Own text implies data.source=files
                arguments.overrides.append(f"data.source={options.data.source}")
            elif arguments.cfg:
                compose.compose_evaluation(arguments.overrides, sources)
            _run_hydra(name, schema, job, arguments)


def _run_hydra(
    name: str,
    schema: type,
    job: Callable[[DictConfig], float | None],
    arguments: argparse.Namespace,
) -> None:
    """Has Hydra compose the options and run one job or a sweep. Raises ConfigError for what it
    cannot compose.
    """
    typed = sys.argv[1:]

    @hydra.main(version_base="1.3", config_path=str(program.conf_folder()), config_name=name)
    def application(composed: DictConfig) -> float | None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return job(composed)
        sys.argv[1:] = typed
        # Hydra would print its own line about an error that passes through it.
        with one_line_errors(), hydra_errors_explained(schema):
            return job(composed)

    # Else Hydra prints its own errors over several lines and exits with 1.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    compose.register(schema)
    with hydra_errors_explained(schema):
        refuse_overrides(arguments.overrides, schema, arguments.multirun)
        # Hydra's parser knows neither options on both sides of a flag nor, in the jobs of a sweep,
        # abbreviated flags.
        sys.argv[1:] = []
        for argument, value in vars(arguments).items():
            if value and argument != "overrides":
                flag = f"--{argument.replace('_', '-')}"
                sys.argv.append(flag if value is True else f"{flag}={value}")
        sys.argv += [compose.for_hydra(override, schema) for override in arguments.overrides]
        application()


class _FlagParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; options are written key=value, and --help lists them")


def _parse(arguments: Sequence[str], schema: type) -> argparse.Namespace:
    """Reads Hydra's flags, abbreviated ones included, and options before and after them. Raises
    ConfigError.
    """
    parser = _FlagParser(add_help=False)
    parser.add_argument("overrides", nargs="*")
    for flags in (
        "-m --multirun",
        "-r --run",
        "-h --help",
        "--hydra-help",
        "--resolve",
        "--version",
    ):
        parser.add_argument(*flags.split(), action="store_true")
    for flags in ("-p --package", "-cp --config-path", "-cn --config-name", "-cd --config-dir"):
        parser.add_argument(*flags.split())
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--info", "-i", nargs="?", const="all")
    parser.add_argument("--row")  # `sweep/jobs.py` writes it
    for argument in arguments:
        key, sign, _ = argument.partition("=")
        is_flag = "config" in key or key in ("--cfg", "--info", "--row")
        if sign and not is_flag and key.startswith("-"):
            option = key.lstrip("-")
            is_known = option in (*options_of(schema), *groups(schema))
            remedy = f"write {option}=VALUE" if is_known else no_such_option(option, schema)
            raise ConfigError(f"{key}: options have no dashes; {remedy}")
    parsed = parser.parse_intermixed_args(list(arguments))
    modes = [f"--{flag}" for flag in ("run", "multirun", "cfg", "info") if getattr(parsed, flag)]
    require(len(modes) <= 1, f"{' and '.join(modes)}: use only one of them")
    return parsed
