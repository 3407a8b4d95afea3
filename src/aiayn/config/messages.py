"""What is wrong with a command line or a file of options, in one line, also where Hydra finds it.

Hydra's errors are told apart by their types; what has none of its own there is refused before Hydra sees it.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Sweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from aiayn.config.program import conf_folder
from aiayn.config.rules import is_section, options_of
from aiayn.config.schema import Config
from aiayn.config.stored import RENAMED
from aiayn.errors import ConfigError

# What composing and checking a configuration raises.
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException)

# Groups of files in conf/ that are no section of the options.
FILE_GROUPS = ("ablation", "experiment")

# Settings of Hydra that have no effect here, or would make it write files.
WITHOUT_EFFECT = (
    *("hydra.run.", "hydra.sweep.", "hydra.job.", "hydra.output_subdir", "hydra.mode"),
    *("hydra/job_logging", "hydra/hydra_logging", "hydra/output"),
)
# And those that have one on sweeps only.
OF_SWEEPS = ("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper", "hydra.verbose", "hydra.callbacks")
LAUNCHERS = ("processes", "slurm")

LIKE = 0.6  # difflib's own limit: less alike, and a name was not meant


def one_line(error: BaseException, schema: type) -> str:
    """Returns an error of composing as key, rule, and the nearest valid key or choice."""
    file = None  # of the configuration, if the error is in one
    while isinstance(error, HydraException) and not isinstance(error, (OverrideParseException, MissingConfigException)):
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, COMPOSITION_ERRORS):
            break
        file = re.match("In '([^']+)'", str(error)) or file
        error = inner
    if isinstance(error, OverrideParseException):
        return _unreadable_override(error.override or "", schema)
    if isinstance(error, MissingConfigException):
        return _unknown_file(error.missing_cfg_file or "", error.options or ())
    if isinstance(error, OmegaConfBaseException):
        told = _refused_value(error, schema)
        if file is None:
            return told
        if error.full_key == file[1].partition("/")[0] in FILE_GROUPS:
            told = "its first line must be # @package _global_, without which its options are of no section"
        return f"{file[1]}: {told}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _unreadable_override(override: str, schema: type) -> str:
    key, sign, _ = override.partition("=")
    if sign:  # the value is not repeated: it may be a secret
        return f"{key}: its value cannot be read; quote it twice: '{key}=\"value\"'"
    if schema is not Config:
        return f"{key}: not an option with a value; name a run with run={key or 'outputs/NAME'}"
    meant = key if key in {*options_of(schema), *groups(schema)} else "key"
    return f"{key}: not an option with a value; write {meant}=value, without spaces"


def _refused_value(error: OmegaConfBaseException, schema: type) -> str:
    key = error.full_key or ""
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)):
        return no_such_option(key, schema)
    reason = (error.msg or str(error)).strip().splitlines()[0]
    return f"{key}: {reason}" if key and key not in reason else reason


def _unknown_file(path: str, options: Sequence[str]) -> str:
    """path: model/bgi. options: the files in that group's folder."""
    group, _, name = path.partition("/")
    if "/" in name:  # quarter/a_h3: Hydra lists the files of ablation/
        folder = name.rpartition("/")[0]
        files = sorted((conf_folder() / group / folder).glob("*.yaml"))
        options = [f"{folder}/{file.stem}" for file in files] or options
    near = difflib.get_close_matches(name.lower(), options, n=1)
    listed = f": choose one of {', '.join(options)}" if options else " in the folder of the configuration"
    return f"there is no '{path}'{listed}" + (f"; did you mean {near[0]}?" if near else "")


def refuse_unsupported(overrides: Sequence[str], schema: type, multirun: bool = False) -> None:
    """Raises ConfigError for overrides that Hydra would misread, ignore, or refuse without naming the key.

    Raises OverrideParseException for those that are no key=value.
    """
    first_names = {"hydra", *(name.partition(".")[0] for name in options_of(schema))}
    for override in overrides:
        key, sign, value = override.lstrip("+").partition("=")
        if override.startswith("~"):
            raise ConfigError(f"{override}: options cannot be removed; set it to another value with key=value")
        if override.startswith("="):
            raise ConfigError(f"{override}: a value without a key; write key=value, without spaces")
        if sign and schema is not Config and re.split("[./]", key)[0] not in first_names:
            raise ConfigError(no_such_option(key, schema))
        if key in ("hydra/launcher", "hydra/sweeper") and schema is not Config:
            raise ConfigError(f"{key}={value}: is for sweeps of train; leave it out")
        if key == "hydra/launcher" and value not in LAUNCHERS:
            raise ConfigError(f"{key}={value}: choose one of {', '.join(LAUNCHERS)} (docs/sweeps.md)")
        if key.startswith(OF_SWEEPS) and not multirun:
            raise ConfigError(f"{override}: is for the rows of a sweep: add -m, or leave it out")
        if key.startswith(WITHOUT_EFFECT) and (key, value.lower()) != ("hydra.job.chdir", "false"):
            raise ConfigError(
                f"{key}: has no effect, Hydra writes no files here; a run is the folder OUTPUTS/NAME, a sweep "
                "OUTPUTS/sweeps/SWEEP: set outputs=, name= or sweep="
            )
        [parsed] = OverridesParser.create().parse_overrides([override])
        if parsed.is_sweep_override() and not multirun:
            as_list = "" if key in groups(schema) else "write [A,B] for a list, or "
            raise ConfigError(f"{override}: several values; {as_list}add -m for a sweep over them")
        chosen: Any = parsed.value()
        chosen = chosen.list if isinstance(chosen, ChoiceSweep) else [chosen]
        if key in groups(schema) and not all(isinstance(name, (str, dict, Glob, Sweep)) for name in chosen):
            raise ConfigError(f"{override}: give the name of one file; --help lists all groups and files")


def groups(schema: type) -> list[str]:
    """Returns the groups that `group=name` chooses files for."""
    sections = [option.name for option in fields(schema) if is_section(option.type)]
    return [*sections, *FILE_GROUPS] if schema is Config else []


def no_such_option(key: str, schema: type) -> str:
    """Returns the line that refuses an unknown option, with the option or group that was probably meant."""
    near = _nearest(key, schema)
    of_train = schema is not Config and key in (*options_of(Config), *groups(Config))
    remedy = f"did you mean {near}?" if near else "leave it out" if of_train else "--help lists them all"
    return f"{key}: {'an option of train' if of_train else 'no such option'}; {remedy}"


def _nearest(key: str, schema: type) -> str | None:
    """Returns the option or group whose name, without its section, is most like that of the key, if any is."""
    section, _, name = key.lower().replace("/", ".").rpartition(".")
    if section in options_of(schema):  # an option taken for a section
        return section
    name = RENAMED.get(name, name)

    def likeness(option: str) -> float:
        home, _, last = option.rpartition(".")
        alike = 0.9 if last.startswith(f"{name}_") else difflib.SequenceMatcher(None, name, last).ratio()
        return alike + (0.1 if home == section and alike >= LIKE else 0)  # of two alike, the one where it was typed

    best = max([*groups(schema), *options_of(schema)], key=likeness)
    return best if likeness(best) >= LIKE else None
