"""What both entry points share: from Hydra's composition to a checked configuration, from errors to one line each."""

import argparse
import difflib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from aiayn.config import Config
from aiayn.errors import ConfigError, InterruptedRunError, UserError
from aiayn.options import RENAMED, default_name, flatten, from_plain, is_section, option_names

# What composing and checking a configuration raises.
COMPOSITION_ERRORS = (UserError, HydraException, OmegaConfBaseException)

# Groups of files that are no section of the options.
FILE_GROUPS = ("ablation", "experiment")
MODEL_OPTIONS = {name for name in option_names(Config) if name.startswith("model.")}
# What options are called elsewhere.
ELSEWHERE = {
    "accumulate_grad_batches": "data.micro_batches",
    "adam_beta1": "optim.beta1",
    "adam_beta2": "optim.beta2",
    "batch_size": "data.tokens_per_step",
    "epochs": "trainer.max_steps",
    "gpus": "trainer.devices",
    "hidden_size": "model.d_model",
    "learning_rate": "optim.lr_scale",
    "lr": "optim.lr_scale",
    "max_epochs": "trainer.max_steps",
    "patience": "trainer.max_steps",
}


def register(schema: type) -> None:
    """Makes a schema class the first entry of the defaults list, so that Hydra checks names and types against it."""
    ConfigStore.instance().store(name="schema", node=schema)


def check_config(composed: DictConfig, schema: type) -> Any:
    """The composed options as an instance of the schema; raises ConfigError for unknown, missing or impossible ones."""
    # `+key=value` gets past Hydra's own check of names.
    known = option_names(schema)
    for key in flatten(OmegaConf.to_container(composed, resolve=False)):
        if key not in known:
            raise ConfigError(_no_such_option(key, schema))
    missing = OmegaConf.missing_keys(composed)
    if missing:
        raise ConfigError(f"{min(missing)} is missing: set {min(missing)}=VALUE")
    return from_plain(schema, OmegaConf.to_container(composed, resolve=True))


def resolve_config(composed: DictConfig, choices: Mapping[str, str], conf: Path) -> Config:
    """The checked options of one training run, with a name; raises ConfigError.

    choices are the files that were chosen from Hydra's groups, conf is the folder they stand in.
    """
    config = check_config(composed, Config)
    check_row(composed, choices["ablation"], conf)
    if config.name is None:
        config.name = default_name(choices, config.init_from)
    return config


def choices_of_single_run() -> Mapping[str, str]:
    """Hydra's choices for the job in this process; raises ConfigError if it is one of several."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        launcher = HydraConfig.get().runtime.choices["hydra/launcher"]
        raise ConfigError(f"hydra/launcher={launcher}: each job of a sweep needs a process of its own; leave it out")
    return HydraConfig.get().runtime.choices


def chosen_options(overrides: Sequence[str], conf: Path) -> set[str]:
    """The options that the command line sets: by name and, of the model, through the files it chooses for groups.

    conf is the folder of the configuration files.
    """
    chosen = set()
    for key, _, value in (override.lstrip("+").partition("=") for override in overrides):
        chosen |= MODEL_OPTIONS if key == "model" else {key}
        if key in FILE_GROUPS:
            chosen |= _model_options(conf / key / f"{value}.yaml", conf)
    return chosen


def _model_options(path: Path, conf: Path) -> set[str]:
    """The model's options that a file sets, or one of the files in its defaults list."""
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


def check_row(composed: DictConfig, row: str, conf: Path) -> None:
    """Raises ConfigError if something that was composed later takes back what the row of Table 3 changes.

    conf is the folder of the configuration files; a row that is not there is one from --config-dir.
    """
    path = conf / "ablation" / f"{row}.yaml"
    tree = OmegaConf.to_container(OmegaConf.load(path)) if path.is_file() else {}
    for key, value in flatten(tree).items():
        now = OmegaConf.select(composed, key)
        if now != value:
            raise ConfigError(
                f"ablation={row} sets {key}={value}, which the experiment or the command line sets to {now}"
            )


def run(main: Callable[[], None], schema: type) -> None:
    """Runs a Hydra application; what its composition finds wrong ends it with one line and exit code 2."""
    register(schema)
    # For --help Hydra copies its whole store ninety times; what it takes out of the store it copies anyway.
    ConfigStore.__deepcopy__ = lambda store, memo: store
    # Hydra would print its own errors over several lines and exit with 1.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    argparse.ArgumentParser.error = _refuse_flags
    with one_line_errors(schema):
        _check_arguments(sys.argv[1:])
        if schema is not Config and {"-m", "--multirun", "hydra.mode=MULTIRUN"} & set(sys.argv):
            raise ConfigError("-m: scores are made one run at a time; train.py -m scores the runs that it trains")
        # Hydra's parser takes overrides before or after a flag, not on both sides.
        sys.argv[1:] = sorted(sys.argv[1:], key=lambda argument: argument not in ("-m", "--multirun"))
        try:
            main()
        except ValueError as error:
            reason = str(error).splitlines()[0]
            if reason.startswith("Config group override"):  # model=3, data=null
                group = next((a for a in sys.argv[1:] if a.lstrip("+").partition("=")[0] in groups(schema)), "a group")
                raise ConfigError(f"{group}: give the name of a file; --help lists all groups and files") from error
            if reason.startswith("Only one of --run"):  # -m with --cfg
                raise ConfigError(reason) from error
            raise


def groups(schema: type) -> list[str]:
    """What `group=name` chooses files for."""
    sections = [option.name for option in fields(schema) if is_section(option.type)]
    return [*sections, *FILE_GROUPS] if schema is Config else []


def _check_arguments(arguments: list[str]) -> None:
    """Raises ConfigError for what Hydra would take for something else, or report without its key."""
    for argument in arguments:
        if argument.startswith("~"):
            raise ConfigError(f"{argument}: no option can be left out; set it to another value with key=value")
        if argument.startswith("="):
            raise ConfigError(f"{argument}: a value without a key; write key=value, without spaces")


def _refuse_flags(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Stands in for argparse's own report, which fills a screen with Hydra's flags."""
    flag = next((argument for argument in sys.argv[1:] if argument.startswith("-") and "=" in argument), None)
    if flag and "config" not in flag:
        raise ConfigError(
            f"{flag.partition('=')[0]}: options have no dashes, write {flag.lstrip('-').partition('=')[0]}=VALUE"
        )
    raise ConfigError(f"{message}; options are written key=value, and --help lists them")


@contextmanager
def one_line_errors(schema: type) -> Iterator[None]:
    """Every error that a user can cause ends the program with one line and its exit code; debug=true adds a traceback.

    Stands around Hydra, for its composition, and inside it, since Hydra comments on exceptions that pass through it.
    """
    try:
        yield
    except (UserError, InterruptedRunError) as error:
        _fail(str(error), error.exit_code)
    except (HydraException, OmegaConfBaseException) as error:
        _fail(one_line(error, schema), ConfigError.exit_code)
    except KeyboardInterrupt as interrupt:
        _fail("interrupted", 128 + (interrupt.args or (signal.SIGINT,))[0])  # Python's own says no number


@contextmanager
def loading() -> Iterator[None]:
    """Stands around the import of large libraries, some of which swallow the KeyboardInterrupt that Ctrl-C raises."""

    def end(number: int, frame: object) -> NoReturn:
        os.write(2, b"error: interrupted\n")
        os._exit(130)  # nothing has been opened yet

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as it is in the background of a script
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def one_line(error: BaseException, schema: type) -> str:
    """What Hydra or OmegaConf found wrong: key, rule, and the nearest valid key or choice."""
    while isinstance(error, HydraException) and isinstance(error.__cause__, (HydraException, OmegaConfBaseException)):
        error = error.__cause__
    text = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, OverrideParseException):
        # A value that cannot be read may be anything, and is not repeated.
        key, sign, _ = (error.override or "").partition("=")
        if not sign:
            near = _near(key, schema) if key in option_names(schema) + groups(schema) else None
            return f"{key}: not an option with a value; write {near or 'key'}=value, without spaces"
        return f"{key}: its value cannot be read; quote it twice: '{key}=\"value\"'"
    if isinstance(error, OmegaConfBaseException):
        key = error.full_key or ""
        reason = error.msg.splitlines()[0] if error.msg else text[0]
        if key.startswith("hydra.runtime.choices."):  # model=[big,base]
            return f"{key.split('.')[-1]}: give the name of one file; --help lists all groups and files"
        if "not in" in reason:
            return _no_such_option(key, schema)
        return f"{key}: {reason}" if key and key not in reason else reason
    head = text[0]
    # "Could not find 'model/bgi'", "Available options in 'model':", then one option a line.
    for number, line in enumerate(text):
        if line.startswith("Available options"):
            options = [option.strip() for option in text[number + 1 :] if "=" not in option and " " not in option]
            wrong = head.rstrip(".'").split("/")[-1]
            near = difflib.get_close_matches(wrong.lower(), options, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{head.rstrip('.')}: choose one of {', '.join(options)}{hint}"
    if head.startswith("Ambiguous value"):  # a,b
        return f"{head}: write [a,b] for a list, and add -m for a sweep over both"
    return " ".join(text[:2]) if head.endswith(":") else head


def _no_such_option(key: str, schema: type) -> str:
    if RENAMED.get(key) in option_names(schema):
        return f"{key} is now {RENAMED[key]}"
    near = _near(key, schema)
    return f"{key}: no such option; " + (f"did you mean {near}?" if near else "--help lists them all")


def _near(key: str, schema: type) -> str | None:
    """The option, or the group of files, that was probably meant: compared by its own name before its section's."""
    known = option_names(schema)
    section, _, name = key.lower().replace("/", ".").rpartition(".")
    if ELSEWHERE.get(name) in known:
        return ELSEWHERE[name]
    if section in known:  # an option taken for a section
        return section
    own = {}  # by the name without its section; the section that was given comes first
    for option in sorted(known, key=lambda option: option.rpartition(".")[0] != section):
        own.setdefault(option.rpartition(".")[2], option)
    if not section and (group := difflib.get_close_matches(name, groups(schema), n=1, cutoff=0.75)):
        return group[0]
    near = difflib.get_close_matches(name, own, n=1) or difflib.get_close_matches(name, known, n=1)
    return own.get(near[0], near[0]) if near else None


def _fail(message: str, exit_code: int) -> NoReturn:
    if any(argument.lower() == "debug=true" for argument in sys.argv):
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
