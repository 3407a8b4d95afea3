"""Composes arguments and the files of conf/ into checked options with Hydra, for commands, sweeps
and Python.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_origin

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict, read_write
from omegaconf.resolvers import oc

from aiayn.config.extensions import check_extensions
from aiayn.config.messages import hydra_errors_explained, refuse_overrides
from aiayn.config.program import conf_folder
from aiayn.config.resolve import check_open_model, open_options
from aiayn.config.rules import (
    NAME_CHARACTERS,
    default_values,
    is_section,
    one_of,
    options_of,
    require,
    require_value,
)
from aiayn.config.schema import Config
from aiayn.config.stored import comparable, from_dict
from aiayn.config.training import WANDB_MODES
from aiayn.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from aiayn.config.evaluate import EvaluateConfig

T = TypeVar("T", bound="DataclassInstance")

# Variables of the environment whose values may be stored. Any other may hold a secret.
STORABLE = re.compile(
    "HOME|USER|LOGNAME|HOSTNAME|PWD|TMPDIR|SCRATCH|WORK|DATA|SEED"
    "|(SLURM_JOB_|SLURM_ARRAY_|SLURM_N|AIAYN_OUTPUTS|AIAYN_FOLDER).*"
    "|.*_(DIR|HOME|ROOT|SCRATCH|WORK)"
)

# A value, or one of a list of them, that Hydra would read as a number or a truth value
LIKE_NUMBER = re.compile(
    r"(?:^|(?<=[\[,]))(true|false|[-+]?(?:inf|nan|\.?\d[\d._]*(?:e[-+]?[\d_]+)?))(?=[\],]|$)",
    re.IGNORECASE,
)
BELOW_HOME = re.compile(r"""(?:^|(?<=[\[,]))(~/[^\[\],'"(){}\s]*)(?=[\],]|$)""")


def for_hydra(override: str, schema: type) -> str:
    """Returns an override for Hydra: without +, and so quoted that a text keeps the characters as
    typed.

    Hydra would read name=2_16 as 216, data.train=1e6 as 1000000.0, and name=true as True. It cannot
    read ~/text, so ~ becomes the home folder. + adds options, and all options exist already.
    """
    key, sign, value = override.lstrip("+").partition("=")
    option = options_of(schema).get(key)
    if option is None or option.type not in (str, str | None, list[str], Any):
        return override if key.startswith("hydra") else f"{key}{sign}{value}"

    value = LIKE_NUMBER.sub(r'"\1"', value)
    return key + sign + BELOW_HOME.sub(lambda path: f'"{os.path.expanduser(path[1])}"', value)


def register(schema: type) -> None:
    """Makes a schema class the first entry of the defaults list, so that Hydra checks names and
    types against it.
    """
    node = OmegaConf.structured(_without_values(schema))
    if schema is Config:
        OmegaConf.set_struct(node.extension, False)  # any name may follow extension.
    ConfigStore.instance().store(name="schema", node=node)


@cache
def _without_values(schema: Any) -> type:
    """Returns a class of the same options for Hydra, without values."""
    options: list[tuple[str, Any, Any]] = []
    for option in fields(schema):
        option_type: Any = option.type
        if is_section(option_type):
            option_type = _without_values(option_type)
            empty: Any = field(default_factory=option_type)
        elif get_origin(option_type) is dict:
            empty = field(default_factory=dict)
        else:
            empty = MISSING
        options.append((option.name, option_type, empty))
    return make_dataclass(schema.__name__, options, kw_only=True)


def check_config(composed: DictConfig, schema: type[T]) -> T:
    """Returns the composed options as an instance of the schema. Raises ConfigError as
    `_resolved_values` does, and for impossible ones.
    """
    return from_dict(schema, _resolved_values(composed, schema))


def _resolved_values(composed: DictConfig, schema: "type[DataclassInstance]") -> dict[str, Any]:
    """Returns composed options as plain values, interpolations resolved.

    Raises ConfigError for missing ones, and for those with a variable of the environment other than
    those that hold folders and the like: options are stored, where no secret may be.
    """
    OmegaConf.register_new_resolver("oc.env", _storable_variable, replace=True)
    try:
        for key in sorted(OmegaConf.missing_keys(composed)):
            about = options_of(schema)[key].metadata["help"]
            raise ConfigError(f"{key} is missing: set {key}=VALUE, {about}")
        return cast(dict[str, Any], OmegaConf.to_container(composed, resolve=True))
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _storable_variable(name: str, *default: str | None) -> str | None:
    """Takes the place of OmegaConf's `${oc.env:NAME}`. Raises ConfigError for a variable that may
    hold a secret.
    """
    is_storable = STORABLE.fullmatch(name) is not None
    require(
        is_storable,
        f"${{oc.env:{name}}} is not supported, because options are stored in config.yaml and in "
        "every checkpoint, and the variable may be a secret; if it is not, let the shell insert "
        f"it: KEY=${name}",
    )
    return oc.env(name, *default)


def resolve_options(
    composed: DictConfig, choices: Mapping[str, str], overrides: Sequence[str]
) -> Config:
    """Returns the checked options of one training run, with its name. Raises ConfigError.

    choices are the files of each group that were chosen, overrides the arguments that chose them.
    """
    values = _resolved_values(composed, Config)
    if values["data"]["source"] == "hub" and _names_files(values["data"], overrides):
        values["data"]["source"] = "files"
        for split in ("val", "test"):  # which are still those of the hub's data set
            if values["data"][split] == default_values("train")[f"data.{split}"]:
                values["data"][split] = None
    if values["data"]["source"] == "phrasebook":
        for split in ("train", "val", "test"):
            require_value(
                values["data"][split] in (split, None),
                f"data.{split}",
                values["data"][split],
                "the built-in corpus, data=phrasebook, has its own text; to train on files, add "
                "data.source=files",
            )
    if values["name"] is None:
        values["name"] = default_name(choices, values["init_from"])
    if values["extensions"] or values["extension"]:
        values["extension"] = check_extensions(values["extensions"], values["extension"])
    options = from_dict(Config, values)
    if "wandb" in options.logger.kinds and (mode := os.environ.get("WANDB_MODE")):
        one_of("WANDB_MODE", mode, WANDB_MODES)
    if options.optim.peak_lr is not None:
        require(
            not {"optim.lr_scale", "optim.peak_lr"} <= typed_keys(overrides),
            "optim.lr_scale and optim.peak_lr: both set the learning rate; leave one out",
        )
    if options.init_from is None and open_options(options):  # else the model is that run's
        check_open_model(options)
    options.outputs_folder  # noqa: B018  (checked before anything starts)
    return options


def _names_files(options: Mapping[str, Any], overrides: Sequence[str]) -> bool:
    """Returns whether data.train names files, and not a split of a data set of the hub, which has
    no slash in its name.
    """
    train, language = options["train"], options["src_lang"]
    if isinstance(train, list) or "/" in f"{train}":
        return True
    is_typed = typed_keys(overrides) & {"data.train", "data.source"} == {"data.train"}
    endings = ("", f".{language}", f".{language}.gz")
    return is_typed and any(Path(f"{train}{ending}").is_file() for ending in endings)


def typed_keys(overrides: Iterable[str]) -> set[str]:
    """Returns the keys of command-line arguments: {"model.n_heads"} for ["+model.n_heads=4"]."""
    return set(map(key_of, overrides))


def key_of(override: str) -> str:
    return override.lstrip("+").partition("=")[0]


def chosen_options(overrides: Iterable[str], options: Config) -> set[str]:
    """Returns the options that these arguments set, by name or, for the model's, through the files
    they choose.
    """
    typed = typed_keys(overrides)
    if "model" in typed:
        return typed | {name for name in options_of(Config) if name.startswith("model.")}
    if typed & {"ablation", "experiment"}:
        defaults, current = default_values("train"), comparable(options)
        changed = {key for key, value in current.items() if value not in (None, defaults[key])}
        return typed | {key for key in changed if key.startswith("model.")}
    return typed


def default_name(choices: Mapping[str, str], init_from: str | None = None) -> str:
    """Returns a run's name from the chosen groups: data and model, and the row of Table 3 where it
    is not base.

    A run that starts from another run's weights also has its model: its name is made of the data
    and that run's name.
    """
    if init_from is not None:
        path = PurePath(init_from)
        is_in_run = path.parent.name == "checkpoints"
        run = path.parent.parent.name if is_in_run else path.name.removesuffix(".ckpt")
        source = "".join(c if c in NAME_CHARACTERS else "-" for c in run)
        return f"{choices['data']}-from-{source}"
    name = f"{choices['data']}-{choices['model']}"
    row = choices.get("ablation", "base").rpartition("/")[2]  # quarter/a_h1: a_h1
    return name if row == "base" else f"{name}-{row}"


@dataclass(frozen=True)
class Sources:
    """The file that a composition begins with: conf/NAME.yaml, unless `--config-path` or
    `--config-dir` name another folder.
    """

    name: str
    path: str | None = None  # instead of conf/
    folder: str | None = None  # searched as well


@contextmanager
def composition(
    sources: Sources, overrides: Sequence[str], schema: type
) -> Iterator[tuple[DictConfig, DictConfig]]:
    """Composes options outside Hydra's applications. Yields them, unchecked, and Hydra's own
    settings.

    Raises ConfigError.
    """
    register(schema)
    searched = (
        [f"hydra.searchpath=[file://{os.path.abspath(sources.folder)}]"] if sources.folder else []
    )
    folder = os.path.abspath(sources.path or conf_folder())
    with initialize_config_dir(folder, version_base="1.3"), hydra_errors_explained(schema):
        refuse_overrides(overrides, schema)
        overrides = [for_hydra(override, schema) for override in overrides]
        composed = compose(
            sources.name, overrides=[*overrides, *searched], return_hydra_config=True
        )
        HydraConfig.instance().set_config(composed)  # for ${hydra:runtime.choices.model}
        yield without_hydra(composed), composed.hydra


def without_hydra(composed: DictConfig) -> DictConfig:
    """Returns the options without the section `hydra`, with all types; `masked_copy` would lose
    some of the types.
    """
    options = composed.copy()
    with read_write(options), open_dict(options):
        del options["hydra"]
    return options


def compose_training(overrides: Sequence[str], sources: Sources = Sources("train")) -> Config:
    """Returns the checked options of `train OVERRIDES`. Raises ConfigError."""
    with composition(sources, overrides, Config) as (composed, hydra):
        return resolve_options(composed, hydra.runtime.choices, overrides)


def compose_evaluation(
    overrides: Sequence[str], sources: Sources = Sources("evaluate")
) -> "EvaluateConfig":
    """Returns the checked options of `evaluate OVERRIDES`. Raises ConfigError."""
    from aiayn.config.evaluate import EvaluateConfig

    with composition(sources, overrides, EvaluateConfig) as (composed, _):
        return check_config(composed, EvaluateConfig).with_run_folders()
