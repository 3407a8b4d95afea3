"""Options as plain data: dotted names, dictionaries, and what earlier versions of this program stored."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import PurePath
from typing import Any, get_args

from aiayn.config.schema import NAME_CHARACTERS, Config, require

# Options that may change between two starts of a run: no training step depends on them. All others define the
# training, and a run continues only with the values it began with.
HARMLESS = (
    "name",
    "outputs",
    "sweep",
    "debug",
    "logger.*",
    "search.*",
    "data.folder",
    "data.test",
    "data.num_workers",
    "data.max_tokens_per_device",  # only sets the number of micro-batches, which is stored with the run
    "trainer.max_steps",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.val_every",
    "trainer.val_bleu_sentences",
    "trainer.patience",
    "trainer.best_metric",
    "trainer.checkpoint_every",
    "trainer.average_last",
    "trainer.log_every",
    "trainer.max_skipped_steps",
    "trainer.timeout",
)

# Options that may be null: settled when a run first starts (`training/automatic.py`), and then stored with it.
AUTOMATIC = (
    *(f"model.{name}" for name in ("n_layers", "d_model", "d_ff", "n_heads", "dropout")),
    "data.vocab_size",
    "data.tokens_per_step",
    "optim.warmup_steps",
    "optim.lr_scale",
    "trainer.max_steps",
    "trainer.val_every",
    "trainer.checkpoint_every",
)

# What a run takes over from the one that `init_from` names, unless the user sets it.
FROM_SOURCE = ("model.*", "data.vocab_size", "data.lowercase", "data.tokenizer_pairs", "init_fingerprint")

# Stored runs keep the names that options had when they were written: old name -> name now.
RENAMED = {
    "data.workers": "data.num_workers",
    "search.max_tokens": "search.batch_tokens",
}

# Options added after the first release, with the value that means what the program did before.
NEW_OPTIONS = {
    "outputs": None,
    "sweep": None,
    "init_from": None,
    "init_fingerprint": None,
    "model.attention_window": None,
    "model.attention_dropout": 0.0,
    "data.task": "translation",
    "data.lowercase": False,
    "trainer.compile": False,
    "trainer.patience": None,
    "trainer.best_metric": "val/loss",
    "trainer.max_skipped_steps": 0,
    "trainer.timeout": 1800,
    "logger.upload": False,
}


def is_harmless(key: str) -> bool:
    return _matches(key, HARMLESS)


def is_from_source(key: str) -> bool:
    return _matches(key, FROM_SOURCE)


def _matches(key: str, names: tuple[str, ...]) -> bool:
    return key in names or f"{key.split('.')[0]}.*" in names


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def option_names(schema: type, prefix: str = "") -> list[str]:
    """Returns every dotted option of a schema class, in order."""
    names: list[str] = []
    for option in fields(schema):
        name = prefix + option.name
        names += option_names(option.type, f"{name}.") if is_section(option.type) else [name]
    return names


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turns {"model": {"d_k": 64}} into {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def to_plain(config: Any) -> dict[str, Any]:
    """Returns a configuration as nested dictionaries of plain values, fit for JSON, YAML and checkpoints."""
    return asdict(config)


def from_plain(schema: type, tree: Mapping[str, Any]) -> Any:
    """Rebuilds a configuration from what `to_plain` returned, now or in an earlier version.

    Values are only data: nothing in `tree` can name code.
    Raises ConfigError for unknown, missing or impossible options.
    """
    require(isinstance(tree, Mapping), f"stored {schema.__name__} is not a table of options")
    values, known = stored_options(schema, tree), option_names(schema)
    unknown, missing = sorted(set(values) - set(known)), sorted(set(known) - set(values))
    require(not unknown, f"stored {schema.__name__} has unknown options: {', '.join(unknown)}")
    require(not missing, f"stored {schema.__name__} lacks options: {', '.join(missing)}")
    return _build(schema, values, "")


def _build(schema: type, values: Mapping[str, Any], prefix: str) -> Any:
    sections = {option.name: option.type for option in fields(schema) if is_section(option.type)}
    return schema(
        **{
            option.name: _build(sections[option.name], values, f"{prefix}{option.name}.")
            if option.name in sections
            else _checked(prefix + option.name, values[prefix + option.name], option.type)
            for option in fields(schema)
        }
    )


def _checked(key: str, value: Any, kind: Any) -> Any:
    """Returns the value of an option. Raises ConfigError if it is not of the option's type, such as `int | None`."""
    kinds = get_args(kind) or (kind,)
    kinds += (int,) if float in kinds else ()
    name = kind.__name__ if isinstance(kind, type) else kind
    require(kind is Any or type(value) in kinds, f"{key}={value!s:.80}: must be of type {name}")
    texts = value if isinstance(value, list) else [value]
    require(
        not any("\0" in text for text in texts if isinstance(text, str)),
        f"{key}={value!r:.80}: contains a NUL character",
    )
    return value


def stored_options(schema: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a stored configuration as dotted options, under their present names and with those added since."""
    added = {key: value for key, value in NEW_OPTIONS.items() if key in option_names(schema)}
    return added | {RENAMED.get(key, key): value for key, value in flatten(tree).items()}


def automatic_options(config: Config) -> set[str]:
    """Returns the options that are null and still to be settled."""
    now = flatten(to_plain(config))
    return {key for key in AUTOMATIC if now[key] is None}


def stored_config(tree: Mapping[str, Any]) -> Config:
    """Rebuilds a run's configuration from what it stored. Raises ConfigError as `from_plain`, and for open options."""
    config = from_plain(Config, tree)
    unsettled = automatic_options(config)
    require(not unsettled, f"stored Config lacks options: {', '.join(sorted(unsettled))}")
    return config


def settle(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns the configuration with its automatic options that are null set to these values."""
    settled = {key: values.get(key) for key in automatic_options(config)}
    return from_plain(Config, flatten(to_plain(config)) | settled) if settled else config


def changed_options(stored: Mapping[str, Any], config: Config) -> dict[str, str]:
    """Returns what defines the training and differs from a stored configuration: {"model.d_k": "null -> 64"}."""
    before, now = stored_options(Config, stored), flatten(to_plain(config))
    changed = [key for key in now if not is_harmless(key) and before.get(key) != now[key]]
    return {key: f"{as_option(before.get(key))} -> {as_option(now[key])}" for key in changed}


def as_option(value: Any) -> Any:
    """Returns a value as it is written on the command line."""
    return "null" if value is None else value


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
