"""Every option's name, type and rule.

Values live in `conf/`, once; the fields here have no defaults, so that a value missing from the YAML is an error and
not a surprise. Rules that need one section stand in that section's `__post_init__`, rules across sections in `Config`.
Nothing here imports torch: a configuration error is reported before anything slow happens.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import PurePath
from typing import Any

from aiayn.errors import ConfigError

# Special tokens have fixed ids, everywhere: in tokenizers, prepared corpora, checkpoints and exports.
PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


def require(holds: bool, message: str) -> None:
    """Raises ConfigError(message) unless the rule holds."""
    if not holds:
        raise ConfigError(message)


def one_of(key: str, value: Any, choices: tuple[str, ...]) -> None:
    require(value in choices, f"{key}={value}: choose one of {', '.join(choices)}")


def at_least(key: str, value: float | None, least: float) -> None:
    require(value is None or least <= value < math.inf, f"{key}={value}: must be at least {least:g}, and finite")


def fraction(key: str, value: float) -> None:
    require(0 <= value < 1, f"{key}={value}: must be at least 0 and below 1")


@dataclass(kw_only=True)
class ModelConfig:
    """Section 3 of the paper, in the order of the columns of its Table 3."""

    n_layers: int  # N
    d_model: int
    d_ff: int
    n_heads: int  # h
    d_k: int | None  # null: d_model / n_heads
    d_v: int | None  # null: d_model / n_heads
    dropout: float  # P_drop
    positions: str  # sinusoidal | learned (row E)
    max_positions: int  # rows of the learned tables; sinusoids have no limit
    attention_window: int | None  # r of section 4: self-attention reaches r // 2 positions to each side; null: all

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "max_positions", "attention_window"):
            at_least(f"model.{name}", getattr(self, name), 1)
        fraction("model.dropout", self.dropout)
        one_of("model.positions", self.positions, ("sinusoidal", "learned"))
        require(
            self.positions == "learned" or self.d_model % 2 == 0,
            f"model.d_model={self.d_model}: sinusoids come in pairs; choose an even d_model or model.positions=learned",
        )
        require(
            self.d_model % self.n_heads == 0 or None not in (self.d_k, self.d_v),
            f"model.d_model={self.d_model} is not divisible by model.n_heads={self.n_heads}: "
            "choose another number of heads, or set both model.d_k and model.d_v",
        )

    @property
    def key_size(self) -> int:
        """d_k, resolved."""
        return self.d_k if self.d_k is not None else self.d_model // self.n_heads

    @property
    def value_size(self) -> int:
        """d_v, resolved."""
        return self.d_v if self.d_v is not None else self.d_model // self.n_heads


@dataclass(kw_only=True)
class DataConfig:
    """Section 5.1: which text, how it is cleaned and cut into subwords, and how many tokens make a step."""

    source: str  # hub | files | phrasebook
    hub_path: str | None  # hub: the data set, a name on the hub or a local folder of the same layout
    hub_name: str | None  # hub: its configuration
    hub_revision: str | None  # hub: commit, so that the text cannot change under a run
    train: Any  # files: one prefix or a list of prefixes; hub: a split's name
    val: Any
    test: Any
    src_lang: str
    tgt_lang: str
    folder: str  # prepared corpora are kept here
    vocab_size: int  # joint byte-level BPE, special tokens included
    max_length: int  # longest sentence kept for training, in subwords without end mark
    max_length_ratio: float  # longest side / shortest side, in subwords; 5 subwords are forgiven
    tokenizer_pairs: int | None  # learn the BPE on at most so many pairs, evenly spread; null: on all
    tokens_per_step: int  # at most so many source and so many target tokens make one optimizer step
    max_tokens_per_device: int  # padded tokens, per side, that one device takes at once
    micro_batches: int | None  # parts of a step; null: the fewest that max_tokens_per_device allows
    workers: int  # loader processes; 0: the training process cuts its own batches

    def __post_init__(self) -> None:
        one_of("data.source", self.source, ("hub", "files", "phrasebook"))
        require(
            self.source != "hub" or bool(self.hub_path),
            "data.hub_path is empty: name a data set, or use data=files with data.train=PREFIX",
        )
        for split in ("train", "val", "test"):
            value = getattr(self, split)
            prefixes = value if isinstance(value, (list, tuple)) else [value]
            require(
                value is None or (len(prefixes) > 0 and all(isinstance(p, str) and p for p in prefixes)),
                f"data.{split}={value}: must be a prefix of text files, a list of prefixes, or the name of a split",
            )
        for side in ("src_lang", "tgt_lang"):
            require(bool(getattr(self, side)), f"data.{side} is empty: set it, for example data.{side}=en")
        require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang}: name two languages",
        )
        # 256 byte symbols and the four special tokens are always there.
        at_least("data.vocab_size", self.vocab_size, 261)
        for name in ("max_length", "tokens_per_step", "max_tokens_per_device", "micro_batches", "tokenizer_pairs"):
            at_least(f"data.{name}", getattr(self, name), 1)
        at_least("data.max_length_ratio", self.max_length_ratio, 1)
        at_least("data.workers", self.workers, 0)
        for name in ("tokens_per_step", "max_tokens_per_device"):
            require(
                getattr(self, name) > self.max_length,
                f"data.{name}={getattr(self, name)}: the longest sentence (data.max_length={self.max_length} and its "
                f"end mark) does not fit; raise data.{name} or lower data.max_length",
            )


@dataclass(kw_only=True)
class OptimConfig:
    """Sections 5.3 and 5.4."""

    warmup_steps: int
    lr_scale: float  # multiplies equation (3)
    beta1: float
    beta2: float
    eps: float
    label_smoothing: float

    def __post_init__(self) -> None:
        at_least("optim.warmup_steps", self.warmup_steps, 1)
        for name in ("lr_scale", "eps"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"optim.{name}={value}: must be above 0 and finite")
        for name in ("beta1", "beta2", "label_smoothing"):
            fraction(f"optim.{name}", getattr(self, name))


@dataclass(kw_only=True)
class TrainerConfig:
    """How long to train, on what, and how often to look and to save. Every interval is in optimizer steps."""

    max_steps: int
    accelerator: str  # auto | cpu | gpu
    devices: int
    num_nodes: int
    strategy: str  # auto | ddp
    precision: str  # auto: bf16-mixed where the hardware computes in bf16, else 32-true
    compile: bool  # torch.compile encoder and decoder: once some minutes, then fewer and larger kernels
    val_every: int
    val_bleu_sentences: int  # validation sentences translated for val/bleu; 0: none
    checkpoint_every: int
    average_last: int  # so many checkpoints are kept, and averaged at the end (section 6.1)
    log_every: int
    max_skipped_steps: int  # so many steps may be skipped because their gradient is not finite; one more ends the run
    timeout: int  # seconds that devices wait for each other before they give one up

    def __post_init__(self) -> None:
        one_of("trainer.accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        one_of("trainer.strategy", self.strategy, ("auto", "ddp"))
        one_of("trainer.precision", self.precision, ("auto", "32-true", "bf16-mixed"))
        for name in ("max_steps", "devices", "num_nodes", "val_every", "checkpoint_every", "average_last", "log_every"):
            at_least(f"trainer.{name}", getattr(self, name), 1)
        for name in ("val_bleu_sentences", "max_skipped_steps"):
            at_least(f"trainer.{name}", getattr(self, name), 0)
        at_least("trainer.timeout", self.timeout, 1)

    @property
    def world_size(self) -> int:
        return self.devices * self.num_nodes


@dataclass(kw_only=True)
class SearchConfig:
    """Section 6.1: beam search."""

    beam_size: int  # 1 is greedy search
    length_penalty: float  # alpha
    penalty: str  # gnmt: ((5 + |Y|) / 6)^alpha | power: |Y|^alpha
    max_extra_tokens: int  # an output has at most |X| + so many tokens
    max_tokens: int  # padded source tokens times beams in one batch

    def __post_init__(self) -> None:
        _check_search(self)


def _check_search(options: Any) -> None:
    """The rules of SearchConfig and SearchOverrides: null is a value of the latter only, and always fine."""
    for name in ("beam_size", "max_extra_tokens", "max_tokens"):
        at_least(f"search.{name}", getattr(options, name), 1)
    at_least("search.length_penalty", options.length_penalty, 0)
    if options.penalty is not None:
        one_of("search.penalty", options.penalty, ("gnmt", "power"))


@dataclass(kw_only=True)
class LoggerConfig:
    """Where the curves go besides the run's own metrics.jsonl."""

    kind: str  # wandb | tensorboard | csv | none
    project: str
    entity: str | None
    group: str | None
    mode: str  # auto: online where a key is found, else offline
    upload: bool  # wandb: also store the final checkpoint and its tokenizer there

    def __post_init__(self) -> None:
        one_of("logger.kind", self.kind, ("wandb", "tensorboard", "csv", "none"))
        one_of("logger.mode", self.mode, ("auto", "online", "offline"))


@dataclass(kw_only=True)
class Config:
    """What `train.py` is told."""

    name: str | None  # the run's folder under outputs/; null: derived from data, model and row
    sweep: str | None  # with -m: the jobs' folder under outputs/sweeps/; null: derived from data and model
    init_from: str | None  # fine-tuning: the run's folder, or a checkpoint file, to start from; null: from scratch
    init_fingerprint: str | None  # SHA-256 of the weights there; null: as found, and then remembered
    seed: int
    debug: bool  # show tracebacks
    model: ModelConfig
    data: DataConfig
    optim: OptimConfig
    trainer: TrainerConfig
    search: SearchConfig
    logger: LoggerConfig

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, f"seed={self.seed}: must be at least 0 and below 2^32")
        valid_name("name", self.name)
        valid_name("sweep", self.sweep)
        if self.init_from is not None:
            require(bool(self.init_from), "init_from is empty: name a run's folder or a checkpoint file, or null")
            self.init_from = str(PurePath(self.init_from))  # a completed `outputs/NAME/` is outputs/NAME
        require(
            self.init_fingerprint is None or self.init_from is not None,
            f"init_fingerprint={self.init_fingerprint}: says which weights init_from names, and that is null; set both",
        )
        require(self.data.train is not None, "data.train is missing: data.train=PREFIX reads PREFIX.SRC and PREFIX.TGT")
        require(self.data.val is not None, "data.val is missing: data.val=PREFIX reads PREFIX.SRC and PREFIX.TGT")
        parts, world = self.data.micro_batches, self.trainer.world_size
        require(
            parts is None or parts % world == 0,
            f"data.micro_batches={parts}: {world} devices cannot share it evenly; set a multiple of {world}, or null",
        )
        if self.model.positions == "learned":
            longest = self.data.max_length + self.search.max_extra_tokens + 1
            require(
                self.model.max_positions >= longest,
                f"model.max_positions={self.model.max_positions}: outputs reach {longest} positions (data.max_length + "
                f"search.max_extra_tokens + 1); set model.max_positions={longest} or more, or lower data.max_length",
            )


@dataclass(kw_only=True)
class SearchOverrides:
    """Search options of `evaluate.py` and `aiayn translate`: null means as the run was configured."""

    beam_size: int | None
    length_penalty: float | None
    penalty: str | None
    max_extra_tokens: int | None
    max_tokens: int | None

    def __post_init__(self) -> None:
        _check_search(self)

    def apply(self, search: SearchConfig) -> SearchConfig:
        return SearchConfig(**asdict(search) | {k: v for k, v in asdict(self).items() if v is not None})


@dataclass(kw_only=True)
class EvaluateConfig:
    """What `evaluate.py` is told."""

    run: str
    split: str  # val | test
    checkpoint: str | None  # averaged | last | a file; null: averaged where there is one, else last
    test: str | None  # PREFIX of text files to translate and score instead of the split
    references: Any  # a file or a list of files: further references, beside that of the split or of `test`
    baseline: str | None  # another run's folder to compare with
    accelerator: str  # auto | cpu | gpu
    debug: bool
    search: SearchOverrides

    def __post_init__(self) -> None:
        require(bool(self.run), "run is empty: name a run's folder, such as run=outputs/NAME")
        one_of("split", self.split, ("val", "test"))
        if isinstance(self.references, str):
            self.references = [self.references]
        require(
            self.references is None
            or (isinstance(self.references, list) and all(isinstance(file, str) for file in self.references)),
            f"references={self.references}: must be a file or a list of files, references=[ref2.de,ref3.de]",
        )
        one_of("accelerator", self.accelerator, ("auto", "cpu", "gpu"))


# Changing one of these between two starts of a run leaves every training step as it was. All others define the
# training, and a run continues only with the values that it began with.
HARMLESS = (
    "name",
    "sweep",
    "debug",
    "logger.*",
    "search.*",
    "data.folder",
    "data.test",
    "data.workers",
    "data.max_tokens_per_device",  # acts through the number of micro-batches, which the run remembers
    "trainer.max_steps",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.val_every",
    "trainer.val_bleu_sentences",
    "trainer.checkpoint_every",
    "trainer.average_last",
    "trainer.log_every",
    "trainer.max_skipped_steps",
    "trainer.timeout",
)

# In which numbers translations are computed.
PRECISIONS = ("float32", "bfloat16", "int8")

# What a run takes from the one that `init_from` names, unless the user sets it.
FROM_SOURCE = ("model.*", "data.vocab_size", "data.tokenizer_pairs", "init_fingerprint")

# What options that came later mean for configurations stored before there were any.
ADDED = {
    ModelConfig: {"attention_window": None},
    TrainerConfig: {"compile": False, "max_skipped_steps": 0, "timeout": 1800},
    LoggerConfig: {"upload": False},
    Config: {"sweep": None, "init_from": None, "init_fingerprint": None},
}


def is_harmless(key: str) -> bool:
    return _among(key, HARMLESS)


def is_from_source(key: str) -> bool:
    return _among(key, FROM_SOURCE)


def _among(key: str, names: tuple[str, ...]) -> bool:
    return key in names or f"{key.split('.')[0]}.*" in names


def changed_options(stored: Mapping[str, Any], config: Config) -> dict[str, str]:
    """What defines the training and differs from a stored configuration: {"model.d_k": "null -> 64"}."""
    before, now = flatten(stored), flatten(to_plain(config))
    changed = [key for key in now if not is_harmless(key) and before.get(key) != now[key]]
    return {key: f"{as_option(before.get(key))} -> {as_option(now[key])}" for key in changed}


def as_option(value: Any) -> Any:
    """A value as the command line has it."""
    return "null" if value is None else value


def valid_name(key: str, name: str | None) -> None:
    """A run's name becomes a folder: refuse what would leave `outputs/` or need quoting on a command line."""
    good = name is None or (
        all(part and part[0].isalnum() and set(part) <= NAME_CHARACTERS for part in name.split("/"))
    )
    require(good, f"{key}={name}: use letters, digits, '.', '_' and '-', beginning with a letter or digit")


def default_name(choices: Mapping[str, str], init_from: str | None = None) -> str:
    """A run's name from the chosen groups: data and model, and the row of Table 3 where it is not base.

    A run that starts from another one's weights has its model: data, and that run's name.
    """
    if init_from is not None:
        path = PurePath(init_from)
        run = path.parent.parent.name if path.parent.name == "checkpoints" else path.name.removesuffix(".ckpt")
        return f"{choices['data']}-from-" + "".join(c if c in NAME_CHARACTERS else "-" for c in run)
    row = choices.get("ablation", "base").rpartition("/")[2]  # of quarter/a_h1 the last part
    return "-".join([choices["data"], choices["model"]] + ([row] if row != "base" else []))


NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def to_plain(config: Any) -> dict[str, Any]:
    """The configuration as nested dictionaries of plain values, fit for JSON, YAML and checkpoints."""
    return asdict(config)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model": {"d_k": 64}} becomes {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def option_names(schema: type, prefix: str = "") -> list[str]:
    """Every dotted option of a schema class, in order."""
    names: list[str] = []
    for option in fields(schema):
        if is_section(option.type):
            names += option_names(option.type, f"{prefix}{option.name}.")
        else:
            names.append(prefix + option.name)
    return names


def with_added(schema: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """A stored configuration with the options that it was written before."""
    nested = {option.name: option.type for option in fields(schema) if is_section(option.type)}
    values = {key: with_added(nested[key], value) if key in nested else value for key, value in tree.items()}
    return ADDED.get(schema, {}) | values


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def from_plain(schema: type, tree: Mapping[str, Any]) -> Any:
    """Rebuilds a configuration from plain values, by name, refusing unknown and missing keys.

    Reads what `to_plain` wrote. Values are data only: nothing in `tree` can name code.
    """
    known = {option.name: option.type for option in fields(schema)}
    tree = with_added(schema, tree)
    unknown, missing = sorted(set(tree) - set(known)), sorted(set(known) - set(tree))
    require(not unknown, f"stored {schema.__name__} has unknown options: {', '.join(unknown)}")
    require(not missing, f"stored {schema.__name__} lacks options: {', '.join(missing)}")
    values = {name: from_plain(kind, tree[name]) if is_section(kind) else tree[name] for name, kind in known.items()}
    return schema(**values)
