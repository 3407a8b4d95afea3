"""What `train`, `evaluate` and the jobs of a sweep begin with: from Hydra's composition to checked options."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path, PurePath
from typing import Any, NoReturn, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers import oc

from aiayn import __version__
from aiayn.config.extensions import check_extensions
from aiayn.config.messages import (
    COMPOSITION_ERRORS,
    file_group_error,
    one_line,
    one_line_errors,
    refuse_flags,
    refuse_unsupported,
)
from aiayn.config.program import conf_folder
from aiayn.config.schema import NAME_CHARACTERS, EvaluateConfig, ModelConfig, ModelOptions, OptimOptions, Options
from aiayn.config.settle import open_options
from aiayn.config.stored import flatten, from_plain, is_option, is_section, option_names
from aiayn.config.suggestions import FILE_GROUPS, no_such_option
from aiayn.errors import ConfigError

T = TypeVar("T")

MODEL_OPTIONS = {name for name in option_names(Options) if name.startswith("model.")}


def run(main: Callable[[], None], schema: type) -> None:
    """Runs a Hydra application. Errors in its command line end it with one line and exit code 2."""
    if "--version" in sys.argv[1:]:
        with one_line_errors(schema):
            print(f"aiayn {__version__}")
        return
    register(schema)
    # For --help Hydra copies its whole store ninety times, a third of the time that --help takes. It never changes the
    # store, and copies what it takes out of it.
    ConfigStore.__deepcopy__ = lambda store, memo: store
    # Else Hydra prints its own errors over several lines and exits with 1.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    argparse.ArgumentParser.error = refuse_flags
    # Else Hydra's parser takes options before or after a flag, not on both sides.
    argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_intermixed_args
    with one_line_errors(schema):
        refuse_unsupported(sys.argv[1:], schema)
        try:
            main()
        except ValueError as error:
            if cause := file_group_error(error, sys.argv[1:], schema):
                raise cause from error
            raise


def register(schema: type) -> None:
    """Makes a schema class the first entry of the defaults list, so that Hydra checks names and types against it."""
    node = OmegaConf.structured(schema)
    for section in (node, *(node[option.name] for option in fields(schema) if is_section(option.type))):
        OmegaConf.set_readonly(section, None)  # which frozen classes are, so that Hydra could not compose
    if schema is Options:
        OmegaConf.set_struct(node.extension, False)  # any name may follow extension.
    ConfigStore.instance().store(name="schema", node=node)


def check_config(composed: DictConfig, schema: type[T]) -> T:
    """Returns the composed options as an instance of the schema.

    Raises ConfigError for unknown, missing or impossible ones.
    """
    for key in flatten(OmegaConf.to_container(composed, resolve=False)):
        if not is_option(key, schema):  # `+key=value` passes Hydra's own check of names
            raise ConfigError(no_such_option(key, schema))
    resolved = _resolved(composed)
    missing = OmegaConf.missing_keys(composed)
    if missing:
        raise ConfigError(f"{min(missing)} is missing: set {min(missing)}=VALUE")
    return from_plain(schema, resolved)


def _resolved(composed: DictConfig) -> dict[str, Any]:
    """Returns the options with their interpolations resolved. Raises ConfigError if one of them asks the environment.

    Options are stored in config.yaml and in every checkpoint, where no secret may be.
    """
    asked: list[str] = []

    def ask(name: str, *default: str) -> str | None:
        asked.append(name)
        return oc.env(name, *default)

    OmegaConf.register_new_resolver("oc.env", ask, replace=True)
    try:
        return OmegaConf.to_container(composed, resolve=True)
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
        if asked:
            raise ConfigError(
                f"${{oc.env:{asked[0]}}}: an option takes its value from the environment, and options are stored in "
                f"config.yaml and in every checkpoint; if it is no secret let the shell insert it, KEY=${asked[0]}"
            )


def resolve_config(composed: DictConfig, choices: Mapping[str, str], overrides: Sequence[str], conf: Path) -> Options:
    """Returns the checked options of one training run, with its name. Raises ConfigError.

    choices are the files that were chosen from Hydra's groups, overrides the arguments that chose them, conf is their
    folder.
    """
    config = check_config(composed, Options)
    config = replace(config, extension=check_extensions(config.extensions, config.extension))
    _check_row(config, composed, choices["ablation"], overrides, conf)
    if config.name is None:
        config = replace(config, name=default_name(choices, config.init_from))
    config.outputs_folder  # noqa: B018  (checked before anything starts)
    return config


def default_name(choices: Mapping[str, str], init_from: str | None = None) -> str:
    """Returns a run's name from the chosen groups: data and model, and the row of Table 3 where it is not base.

    A run that starts from another run's weights also has its model: its name is made of the data and that run's name.
    """
    if init_from is not None:
        path = PurePath(init_from)
        run = path.parent.parent.name if path.parent.name == "checkpoints" else path.name.removesuffix(".ckpt")
        return f"{choices['data']}-from-" + "".join(c if c in NAME_CHARACTERS else "-" for c in run)
    row = choices.get("ablation", "base").rpartition("/")[2]  # quarter/a_h1: a_h1
    return "-".join([choices["data"], choices["model"]] + ([row] if row != "base" else []))


def _check_row(config: Options, composed: DictConfig, row: str, overrides: Sequence[str], conf: Path) -> None:
    """Raises ConfigError for a row of Table 3 that changes nothing, or whose change other options take back."""
    path = conf / "ablation" / f"{row}.yaml"  # not there: the user's own row, from --config-dir
    tree = OmegaConf.to_container(OmegaConf.load(path)) if path.is_file() else {}
    for key, value in flatten(tree).items():
        now = OmegaConf.select(composed, key)
        if now != value:
            raise ConfigError(
                f"ablation={row} sets {key}={value}, which the experiment or the command line sets to {now}"
            )
    if not tree:
        return
    changes = " and ".join(f"{key}={value}" for key, value in flatten(tree).items())
    if "model" in tree and config.model.d_model is None:
        raise ConfigError(f"ablation={row} sets {changes} of a known model, and model=auto is none; choose model=base")
    others = [override for override in overrides if override.lstrip("+").partition("=")[0] != "ablation"]
    try:
        without = check_config(_without_hydra(_compose("train", others, Options)), Options)
    except ConfigError:  # it needs files that are not in conf, from --config-dir
        return
    if _sizes(without) == _sizes(config):
        raise ConfigError(f"ablation={row} changes nothing: {changes} holds without it; choose another row or model=")


def _sizes(options: Options) -> tuple[ModelOptions, OptimOptions]:
    """What a row of Table 3 can change, with the sizes of heads that follow from others, unless model=auto."""
    model = options.model
    is_open = any(key.startswith("model.") for key in open_options(options))
    return model if is_open else ModelConfig(**vars(model)), options.optim


def choices_of_single_run() -> Mapping[str, str]:
    """Returns Hydra's group choices. Raises ConfigError if this process runs several jobs, or should submit them."""
    choices = HydraConfig.get().runtime.choices
    launcher = choices["hydra/launcher"]
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        raise ConfigError(f"hydra/launcher={launcher}: each job of a sweep needs a process of its own; leave it out")
    if launcher == "slurm":
        raise ConfigError("hydra/launcher=slurm: submits the rows of a sweep: add -m")
    return choices


def chosen_options(overrides: Sequence[str], conf: Path) -> set[str]:
    """Returns the options that the command line sets, by name or, for the model's, through files of groups in conf."""
    chosen = set()
    for key, _, value in (override.lstrip("+").partition("=") for override in overrides):
        chosen |= MODEL_OPTIONS if key == "model" else {key}
        if key in FILE_GROUPS:
            chosen |= _model_options(conf / key / f"{value}.yaml", conf)
    return chosen


def _model_options(path: Path, conf: Path) -> set[str]:
    """Returns the model's options that a file or one of the files in its defaults list sets."""
    if not path.is_file():
        return set()
    tree = OmegaConf.to_container(OmegaConf.load(path))
    found = MODEL_OPTIONS & set(flatten(tree))
    for entry in tree.get("defaults", []):
        if "override /model" in entry:
            found |= MODEL_OPTIONS
        elif isinstance(entry, str):  # a file beside this one, or /GROUP/NAME
            folder = conf if entry.startswith("/") else path.parent
            found |= _model_options(folder / f"{entry.lstrip('/')}.yaml", conf)
    return found


def compose_training(options: Sequence[str]) -> Options:
    """Returns the checked options of `train OPTIONS`, for Python. Raises ConfigError."""
    with _initialized(options, Options):
        composed = _compose("train", options, Options)
        return resolve_config(_without_hydra(composed), composed.hydra.runtime.choices, options, conf_folder())


def compose_evaluation(options: Sequence[str]) -> EvaluateConfig:
    """Returns the checked options of `evaluate OPTIONS`, for Python. Raises ConfigError."""
    with _initialized(options, EvaluateConfig):
        return check_config(_without_hydra(_compose("evaluate", options, EvaluateConfig)), EvaluateConfig)


@contextmanager
def _initialized(options: Sequence[str], schema: type) -> Iterator[None]:
    """Lets Hydra compose outside its applications."""
    refuse_unsupported(options, schema)
    register(schema)
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        yield


def _compose(name: str, options: Sequence[str], schema: type) -> DictConfig:
    try:
        return compose(name, overrides=list(options), return_hydra_config=True)
    except COMPOSITION_ERRORS as error:
        raise ConfigError(one_line(error, schema)) from error
    except ValueError as error:
        if cause := file_group_error(error, options, schema):
            raise cause from error
        raise


def _without_hydra(composed: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(composed, [key for key in composed if key != "hydra"])


@contextmanager
def loading() -> Iterator[None]:
    """Lets Ctrl-C end the import of large libraries, some of which swallow KeyboardInterrupt."""

    def end(number: int, frame: object) -> NoReturn:
        os.write(2, b"error: interrupted\n")
        os._exit(130)  # nothing has been opened yet

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # a script's background job ignores it
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
