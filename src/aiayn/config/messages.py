"""Ends a program with one line and an exit code for every error that a user can cause, Hydra's own included.

Some of Hydra's errors can only be told apart by their English text; tests/test_borrowed_internals.py notices when an
upgrade changes it.
"""

import argparse
import difflib
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from aiayn.config.program import conf_folder
from aiayn.config.schema import Options
from aiayn.config.stored import option_names
from aiayn.config.suggestions import foreign_setting, groups, no_such_option
from aiayn.errors import ConfigError, InterruptedRunError, UserError, exit_with_error, writable_output

# What composing and checking a configuration raises.
COMPOSITION_ERRORS = (UserError, HydraException, OmegaConfBaseException)


@contextmanager
def one_line_errors(schema: type) -> Iterator[None]:
    """Exits with one line on stderr and the error's exit code; debug=true adds the traceback.

    Entered twice: around Hydra, for its composition, and inside it, because Hydra adds text to errors passing through.
    """
    debug = any(argument.lower() == "debug=true" for argument in sys.argv)
    try:
        with writable_output():
            yield
    except (UserError, InterruptedRunError) as error:
        exit_with_error(str(error), error.exit_code, debug)
    except (HydraException, OmegaConfBaseException) as error:
        exit_with_error(one_line(error, schema), ConfigError.exit_code, debug)
    except KeyboardInterrupt as interrupt:
        number = (interrupt.args or (signal.SIGINT,))[0]  # Python's own has no arguments
        exit_with_error("interrupted", 128 + number, debug)


def one_line(error: BaseException, schema: type) -> str:
    """Returns an error of Hydra or OmegaConf as key, rule, and the nearest valid key or choice."""
    while isinstance(error, HydraException) and isinstance(error.__cause__, (HydraException, OmegaConfBaseException)):
        error = error.__cause__
    if isinstance(error, OverrideParseException):
        return _unreadable_override(error.override or "", schema)
    if isinstance(error, OmegaConfBaseException):
        return _refused_value(error, schema)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith("Available options"):
            return _unknown_file(lines[0].rstrip("."), lines[number + 1 :])
    if lines[0].startswith("Ambiguous value"):  # a,b
        return f"{lines[0]}: write [a,b] for a list, and add -m for a sweep over both"
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _unreadable_override(override: str, schema: type) -> str:
    key, sign, _ = override.partition("=")
    if sign:  # the value is not repeated: it may be a secret
        return f"{key}: its value cannot be read; quote it twice: '{key}=\"value\"'"
    meant = key if key in option_names(schema) + groups(schema) else "key"
    return f"{key}: not an option with a value; write {meant}=value, without spaces"


def _refused_value(error: OmegaConfBaseException, schema: type) -> str:
    key = error.full_key or ""
    reason = (error.msg or str(error)).strip().splitlines()[0]
    if key.startswith("hydra.runtime.choices."):  # model=[big,base]
        return f"{key.split('.')[-1]}: give the name of one file; --help lists all groups and files"
    if "not in" in reason:
        return no_such_option(key, schema)
    return f"{key}: {reason}" if key and key not in reason else reason


def _unknown_file(message: str, listed: Sequence[str]) -> str:
    """message: Could not find 'model/bgi'. listed: an option a line, then other hints."""
    options = [option for option in listed if "=" not in option and " " not in option]
    group, _, name = message.rstrip("'").rpartition("'")[2].partition("/")
    if "/" in name:  # quarter/a_h3: Hydra lists the files of ablation/
        folder = name.rpartition("/")[0]
        files = sorted((conf_folder() / group / folder).glob("*.yaml"))
        options = [f"{folder}/{file.stem}" for file in files] or options
    near = difflib.get_close_matches(name.lower(), options, n=1)
    return f"{message}: choose one of {', '.join(options)}" + (f"; did you mean {near[0]}?" if near else "")


def refuse_unsupported(arguments: Sequence[str], schema: type) -> None:
    """Raises ConfigError for arguments that Hydra would misread, or refuse without naming the key."""
    for argument in arguments:
        if argument.startswith("~"):
            raise ConfigError(f"{argument}: options cannot be removed; set it to another value with key=value")
        if argument.startswith("="):
            raise ConfigError(f"{argument}: a value without a key; write key=value, without spaces")
        if argument == "--experimental-rerun":
            raise ConfigError(f"{argument}: not offered; the same command again continues a run")
        if refusal := foreign_setting(argument, schema):
            raise ConfigError(refusal)
    if schema is not Options and {"-m", "--multirun", "hydra.mode=MULTIRUN"} & set(arguments):
        raise ConfigError("-m: evaluate scores one run at a time; train -m scores the runs that it trains")


def refuse_flags(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Replaces ArgumentParser.error, which would print all of Hydra's flags."""
    flag = next((argument for argument in sys.argv[1:] if argument.startswith("-") and "=" in argument), "")
    if flag and "config" not in flag:
        key = flag.partition("=")[0]
        raise ConfigError(f"{key}: options have no dashes, write {key.lstrip('-')}=VALUE")
    raise ConfigError(f"{message}; options are written key=value, and --help lists them")


def file_group_error(error: ValueError, arguments: Sequence[str], schema: type) -> ConfigError | None:
    """Returns the ConfigError for a ValueError that Hydra raises about its arguments; None for any other."""
    reason = str(error).splitlines()[0]
    if reason.startswith("Config group override"):  # model=3, data=null
        group = next((a for a in arguments if a.lstrip("+").partition("=")[0] in groups(schema)), "a group")
        return ConfigError(f"{group}: give the name of a file; --help lists all groups and files")
    return ConfigError(reason) if reason.startswith("Only one of --run") else None  # -m with --cfg
