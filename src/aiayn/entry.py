"""What both entry points share: from Hydra's composition to a checked configuration, from errors to one line each."""

import difflib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from aiayn.config import Config, default_name, flatten, from_plain, option_names
from aiayn.errors import ConfigError, UserError

# What composing and checking a configuration raises.
COMPOSITION_ERRORS = (UserError, HydraException, OmegaConfBaseException)


def register(schema: type) -> None:
    """Makes a schema class the first entry of the defaults list, so that Hydra checks names and types against it."""
    ConfigStore.instance().store(name="schema", node=schema)


def checked(composed: DictConfig, schema: type) -> Any:
    """The composed options as an instance of the schema; raises ConfigError for unknown, missing or impossible ones."""
    # `+key=value` gets past Hydra's own check of names.
    known = option_names(schema)
    for key in flatten(OmegaConf.to_container(composed, resolve=False)):
        if key not in known:
            raise ConfigError(f"{key}: no such option{_suggestion(key, known)}")
    missing = OmegaConf.missing_keys(composed)
    if missing:
        raise ConfigError(f"{min(missing)} is missing: set {min(missing)}=VALUE")
    return from_plain(schema, OmegaConf.to_container(composed, resolve=True))


def accepted(composed: DictConfig, choices: Mapping[str, str], conf: Path) -> Config:
    """The checked options of one training run, with a name; raises ConfigError.

    choices are the files that were chosen from Hydra's groups, conf is the folder they stand in.
    """
    config = checked(composed, Config)
    check_row(composed, choices["ablation"], conf)
    if config.name is None:
        config.name = default_name(choices)
    return config


def choices_of_single_run() -> Mapping[str, str]:
    """Hydra's choices for the job in this process; raises ConfigError if it is one of several."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        launcher = HydraConfig.get().runtime.choices["hydra/launcher"]
        raise ConfigError(f"hydra/launcher={launcher}: each job of a sweep needs a process of its own; leave it out")
    return HydraConfig.get().runtime.choices


def check_row(composed: DictConfig, row: str, conf: Path) -> None:
    """Raises ConfigError if something that was composed later takes back what the row of Table 3 changes.

    conf is the folder of the configuration files.
    """
    for key, value in flatten(OmegaConf.to_container(OmegaConf.load(conf / "ablation" / f"{row}.yaml"))).items():
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
    with one_line_errors(schema):
        if schema is not Config and {"-m", "--multirun", "hydra.mode=MULTIRUN"} & set(sys.argv):
            raise ConfigError("-m: scores are made one run at a time; train.py -m scores the runs that it trains")
        # Hydra's parser takes overrides before or after a flag, not on both sides.
        sys.argv[1:] = sorted(sys.argv[1:], key=lambda argument: argument not in ("-m", "--multirun"))
        try:
            main()
        except ValueError as error:
            # Hydra's, for model=3 or data=null, and for -m with --cfg
            if str(error).startswith(("Config group override", "Only one of --run")):
                raise ConfigError(str(error).splitlines()[0]) from error
            raise


@contextmanager
def one_line_errors(schema: type) -> Iterator[None]:
    """Every error that a user can cause ends the program with one line and its exit code; debug=true adds a traceback.

    Stands around Hydra, for its composition, and inside it, since Hydra comments on exceptions that pass through it.
    """
    try:
        yield
    except UserError as error:
        _fail(str(error), error.exit_code)
    except (HydraException, OmegaConfBaseException) as error:
        _fail(one_line(error, schema), ConfigError.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


@contextmanager
def loading() -> Iterator[None]:
    """Stands around the import of large libraries, some of which swallow the KeyboardInterrupt that Ctrl-C raises."""

    def end(number: int, frame: object) -> NoReturn:
        os.write(2, b"error: interrupted\n")
        os._exit(130)  # nothing has been opened yet

    before = signal.signal(signal.SIGINT, end)
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
        return f"{error.override}: not key=value as Hydra reads it; quote the value twice: 'key=\"value\"'"
    if isinstance(error, OmegaConfBaseException):
        key = error.full_key or ""
        reason = error.msg.splitlines()[0] if error.msg else text[0]
        if "not in" in reason:
            return f"{key}: no such option{_suggestion(key, option_names(schema))}"
        return f"{key}: {reason}" if key and key not in reason else reason
    head = text[0]
    # "Could not find 'model/bgi'", "Available options in 'model':", then one option a line.
    for number, line in enumerate(text):
        if line.startswith("Available options"):
            options = [option.strip() for option in text[number + 1 :] if "=" not in option and " " not in option]
            return f"{head.rstrip('.')}: choose one of {', '.join(options)}"
    return " ".join(text[:2]) if head.endswith(":") else head


def _suggestion(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if not near:  # right name, wrong section
        near = [name for name in known if name.split(".")[-1] == key.split(".")[-1]][:1]
    return f"; did you mean {near[0]}?" if near else "; --help lists them all"


def _fail(message: str, exit_code: int) -> NoReturn:
    if any(argument.lower() == "debug=true" for argument in sys.argv):
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
