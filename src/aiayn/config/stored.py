"""Options as plain data: dotted names, dictionaries, what a run stored, and what may change when it continues."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, get_args, get_origin

from aiayn.config.rules import require
from aiayn.config.schema import Config
from aiayn.config.settle import settled

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

# Options that may change between two starts of a run: no training step depends on them. All others define the
# training, and a run continues only with the values it began with.
MAY_CHANGE = (
    "name",
    "outputs",
    "sweep",
    "optimized_metric",
    "extensions",  # where they are; what they are is in extensions_sha256
    "debug",
    "logger.*",
    "search.*",
    "data.folder",
    "data.test",
    "data.num_workers",
    "data.write_dropped",
    "data.prepare_per_node",
    "data.prepare_processes",
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
    "trainer.optimizer_state_minutes",
    "trainer.log_every",
    "trainer.max_skipped_steps",
    "trainer.timeout",
    "trainer.max_epochs",
    "trainer.max_time",
    "trainer.limit_val_batches",
    "trainer.num_sanity_val_steps",
    "trainer.fast_dev_run",
    "trainer.profiler",
    "trainer.detect_anomaly",
    "trainer.enable_progress_bar",
)

# What options of `trainer` were called in earlier versions, whose runs and checkpoints still have these names, and
# those that are gone: they changed the speed on a GPU only.
RENAMED = {"limit_train_batches": "limit_train_steps", "overfit_batches": "overfit_steps"}
REMOVED = {"fused_loss", "gradient_compression", "packed_attention"}

# What a run takes over from the one that `init_from` names, unless the user sets it.
FROM_SOURCE = ("model.*", "data.vocab_size", "data.lowercase", "data.tokenizer_pairs", "init_fingerprint")


def may_change(key: str) -> bool:
    return _matches(key, MAY_CHANGE)


def is_from_source(key: str) -> bool:
    return _matches(key, FROM_SOURCE)


def _matches(key: str, names: tuple[str, ...]) -> bool:
    return key in names or f"{key.split('.')[0]}.*" in names


def is_section(kind: object) -> "TypeGuard[type[DataclassInstance]]":
    return isinstance(kind, type) and is_dataclass(kind)


@cache
def option_names(schema: "type[DataclassInstance]", prefix: str = "") -> list[str]:
    """Returns every dotted option of a schema class, in order."""
    names: list[str] = []
    for option in fields(schema):
        name = prefix + option.name
        names += option_names(option.type, f"{name}.") if is_section(option.type) else [name]
    return names


def option_type(schema: "type[DataclassInstance]", key: str) -> Any:
    """Returns the type of a dotted option of a schema class."""
    name, _, rest = key.partition(".")
    kind = next(option.type for option in fields(schema) if option.name == name)
    return option_type(kind, rest) if rest and is_section(kind) else kind


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turns {"model": {"d_k": 64}} into {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        is_filled = isinstance(value, Mapping) and bool(value)
        flat |= flatten(value, f"{prefix}{key}.") if is_filled else {f"{prefix}{key}": value}
    return flat


def is_option(key: str, schema: "type[DataclassInstance]") -> bool:
    """Whether this is the dotted name of an option, options of extensions (`extension.NAME.OPTION`) included."""
    names = option_names(schema)
    return key in names or ("extension" in names and key.startswith("extension."))


def to_plain(options: Any) -> dict[str, Any]:
    """Returns options as nested dictionaries of plain values, fit for JSON, YAML and checkpoints."""
    return asdict(options)


def from_plain(schema: type[T], tree: Mapping[str, Any], prefix: str = "") -> T:
    """Rebuilds options from what `to_plain` returned, now or in an earlier version.

    Options added since have their defaults; prefix is what messages begin their names with.
    Values are only data: nothing in `tree` can name code.
    Raises ConfigError for unknown, mistyped or impossible options, and for a missing section.
    """
    require(isinstance(tree, Mapping), f"stored {schema.__name__} is not a table of options")
    tree = _as_today(tree)
    unknown = sorted(key for key in flatten(tree) if not is_option(key, schema))
    require(not unknown, f"stored {schema.__name__} has unknown options: {', '.join(unknown)}")
    return _from_tree(schema, tree, prefix)


def _from_tree(schema: type[T], tree: Mapping[str, Any], prefix: str) -> T:
    values = {}
    for option in fields(schema):
        key = prefix + option.name
        if option.name not in tree:
            has_default = option.default is not MISSING or option.default_factory is not MISSING
            require(has_default and not is_section(option.type), f"stored options lack {key}")
        elif is_section(option.type):
            require(isinstance(tree[option.name], Mapping), f"{key} is not a table of options")
            values[option.name] = _from_tree(option.type, tree[option.name], f"{key}.")
        else:
            values[option.name] = _checked(key, tree[option.name], option)
    return schema(**values)


def _checked(key: str, value: Any, option: Field[Any]) -> Any:
    """Returns the value of an option. Raises ConfigError if it is not of the option's type, such as `int | None`."""
    kind = option.type
    either = get_args(kind) if get_origin(kind) not in (list, dict) else ()
    kinds = tuple(get_origin(one) or one for one in either or (kind,))
    kinds += (int,) if float in kinds else ()
    name = kind.__name__ if isinstance(kind, type) else kind
    kinds += (type(None),) if option.metadata.get("by_text") else ()
    require(kind is Any or type(value) in kinds, f"{key}={value!s:.80}: must be of type {name}")
    texts = value if isinstance(value, list) else [value]
    require(
        not any("\0" in text for text in texts if isinstance(text, str)),
        f"{key}={value!r:.80}: contains a NUL character",
    )
    return value


def _as_today(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that an earlier version stored as this one would have."""
    trainer = tree.get("trainer")
    if not isinstance(trainer, Mapping):
        return {**tree}
    return {**tree, "trainer": {RENAMED.get(key, key): value for key, value in trainer.items() if key not in REMOVED}}


def stored_options(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run's stored options by dotted name, with those added since; sizes of heads that follow are None."""
    options = flatten(to_plain(Config())) | flatten(_as_today(tree))
    d_model, n_heads = options["model.d_model"], options["model.n_heads"]
    for key in ("model.d_k", "model.d_v"):
        if isinstance(d_model, int) and isinstance(n_heads, int) and options[key] == d_model // max(1, n_heads):
            options[key] = None
    return options


def stored_config(tree: Mapping[str, Any]) -> Config:
    """Rebuilds a run's configuration from what it stored. Raises ConfigError as `from_plain` and `settled` do."""
    return settled(from_plain(Config, tree))


def changed_options(stored: Mapping[str, Any], options: Config) -> dict[str, str]:
    """Returns what defines the training and differs from stored options: {"model.d_k": "null -> 64"}."""
    before, now = stored_options(stored), stored_options(to_plain(options))
    changed = [key for key in before | now if not may_change(key) and before.get(key) != now.get(key)]
    changed = [key for key in changed if key != "extension"]  # {}: its options follow one by one
    return {key: f"{as_option(before.get(key))} -> {as_option(now.get(key))}" for key in changed}


def as_option(value: Any) -> Any:
    """Returns a value as it is written on the command line."""
    return "null" if value is None else value
