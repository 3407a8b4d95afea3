"""Every option's name, type, default and rule.

Users read and change values in `conf/`; a test proves that the defaults here are those of `conf/` without arguments.
An option missing in a stored configuration, because it was added later, has its default, so the default of a new
option must mean what the program did before.

`ModelOptions`, `DataOptions`, `OptimOptions` and `TrainerOptions` are what users write: null leaves a value to the
program. `ModelConfig`, `DataConfig`, `OptimConfig` and `TrainerConfig` are the same with these values settled
(`config/settle.py`); all rooms behind `train` use only them. Elsewhere None means "none", as the comment says.

Rules within one section stand in its `__post_init__`, rules across sections in `Options`.
Nothing here imports torch: configuration errors are reported before anything slow happens.
"""

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    Paths = str | list[str] | None
else:
    Paths = Any  # OmegaConf has no unions with lists; `__post_init__` checks the type

from aiayn.config.tasks import TASKS, VAL_METRICS
from aiayn.errors import ConfigError

T = TypeVar("T")

# Special tokens have fixed ids, everywhere: in tokenizers, prepared corpora, checkpoints and exports.
PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3

# The number formats that a translation can be computed in; auto: the fastest one here, which is measured.
PRECISIONS = ("float32", "bfloat16", "int8", "auto")

# The largest count that all libraries take. Options that exhaust a machine long before it have smaller limits.
MAX_COUNT = 2**31 - 1
MAX_BEAM_SIZE = 1000

# Lightning's names; auto: bf16-mixed where the hardware computes in bfloat16, else 32-true.
TRAINING_PRECISIONS = ("auto", "32-true", "bf16-mixed", "bf16-true", "16-mixed", "64-true")

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def _known(default: T | None) -> T:
    """Returns the default of an option that may be null, for the class in which it may not."""
    assert default is not None
    return default


def require(holds: bool, message: str) -> None:
    """Raises ConfigError(message) unless the rule holds."""
    if not holds:
        raise ConfigError(message)


def one_of(key: str, value: Any, choices: tuple[str, ...]) -> None:
    require(value in choices, f"{key}={value}: choose one of {', '.join(choices)}")


def at_least(key: str, value: float | None, least: float, most: float = MAX_COUNT) -> None:
    require(value is None or least <= value < math.inf, f"{key}={value}: must be at least {least:g}, and finite")
    require(value is None or value <= most, f"{key}={value}: must be at most {most}")


def fraction(key: str, value: float | None) -> None:
    require(value is None or 0 <= value < 1, f"{key}={value}: must be at least 0 and below 1")


def valid_name(key: str, name: str | None) -> None:
    """Refuses names of runs that would leave their root or need quoting on a command line."""
    parts = [] if name is None else name.split("/")
    good = all(part and part[0].isalnum() and set(part) <= NAME_CHARACTERS for part in parts)
    require(good, f"{key}={name}: use letters, digits, '.', '_' and '-', beginning with a letter or digit")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Section 3 of the paper, in the order of the columns of its Table 3. null: by the number of training pairs."""

    n_layers: int | None = 6  # N
    d_model: int | None = 512
    d_ff: int | None = 2048
    n_heads: int | None = 8  # h
    d_k: int | None = None  # null: d_model / n_heads
    d_v: int | None = None  # null: d_model / n_heads
    dropout: float | None = 0.1  # P_drop
    attention_dropout: float = 0.0  # on the attention weights; section 6.3 has it, translation has none
    positions: str = "sinusoidal"  # sinusoidal | learned (row E)
    max_positions: int = 512  # rows of the learned tables; sinusoids have no limit
    attention_window: int | None = None  # r of section 4: self-attention reaches r // 2 positions each way; null: all
    parts: str | None = None  # FILE:SHA-256 of the extensions that bring others; null: the paper's. Set by the program

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "max_positions", "attention_window"):
            at_least(f"model.{name}", getattr(self, name), 1)
        fraction("model.dropout", self.dropout)
        fraction("model.attention_dropout", self.attention_dropout)
        one_of("model.positions", self.positions, ("sinusoidal", "learned"))
        require(
            self.positions == "learned" or self.d_model is None or self.d_model % 2 == 0,
            f"model.d_model={self.d_model}: sinusoids come in pairs; choose an even d_model or model.positions=learned",
        )
        d_model, n_heads = self.d_model, self.n_heads
        require(
            d_model is None or n_heads is None or d_model % n_heads == 0 or None not in (self.d_k, self.d_v),
            f"model.d_model={d_model} is not divisible by model.n_heads={n_heads}: "
            "choose another number of heads, or set both model.d_k and model.d_v",
        )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelOptions):
    """`ModelOptions` with every size known. d_k and d_v that are not given are d_model / n_heads."""

    n_layers: int = _known(ModelOptions.n_layers)
    d_model: int = _known(ModelOptions.d_model)
    d_ff: int = _known(ModelOptions.d_ff)
    n_heads: int = _known(ModelOptions.n_heads)
    d_k: int = 0  # 0 or None: d_model / n_heads
    d_v: int = 0
    dropout: float = _known(ModelOptions.dropout)

    def __post_init__(self) -> None:
        for name in ("d_k", "d_v"):
            if not getattr(self, name) and self.n_heads:
                object.__setattr__(self, name, self.d_model // self.n_heads)  # the class is frozen
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Section 5.1: which text, how it is cleaned and cut into subwords, and how many tokens make a step."""

    source: str = "hub"  # hub | files | phrasebook
    task: str = "translation"  # translation | parsing: source and target are words and linear trees of `aiayn trees`
    hub_path: str | None = "wmt/wmt14"  # hub: the data set, a name on the hub or a local folder of the same layout
    hub_name: str | None = "de-en"  # hub: its configuration
    hub_revision: str | None = (
        "b199e406369ec1b7634206d3ded5ba45de2fe696"  # hub: commit, so that the text cannot change under a run
    )
    train: Paths = "train"  # files: a prefix, a file of pairs, or a list of them; hub: a split's name
    val: Paths = "validation"
    test: Paths = "test"
    src_lang: str = "en"
    tgt_lang: str = "de"
    folder: str = "data"  # where prepared corpora are kept
    vocab_size: int | None = 37_000  # joint byte-level BPE, special tokens included; null: by the number of pairs
    lowercase: bool = False  # the tokenizer lower-cases both sides: translations have no capitals
    tags: str = "kept"  # parsing: kept | xx: XX for every part-of-speech tag, as in "Grammar as a Foreign Language"
    drop_duplicates: str | None = None  # training pairs that come again: exact | normalised: but for case, punctuation
    drop_equal: bool = False  # training pairs whose sides are the same but for case and punctuation
    drop_number_mismatch: bool = False  # training pairs whose numbers differ
    drop_placeholder_mismatch: bool = False  # training pairs whose tags, {name}, %s, web addresses differ
    write_dropped: bool = False  # every dropped pair with file, line and reason to dropped.jsonl of the prepared corpus
    max_length: int = 255  # longest sentence kept for training, in subwords without the end token
    max_length_ratio: float = 4.0  # longest side / shortest side, in subwords; a difference of 5 is always allowed
    tokenizer_pairs: int | None = None  # learn the BPE on at most this many pairs, evenly spread; null: on all
    tokens_per_step: int | None = 25_000  # upper limit of source, and of target, tokens in one step; null: as above
    max_tokens_per_device: int | None = None  # limit of padded tokens per side in one micro-batch; null: by its memory
    micro_batches: int | None = None  # per step; null: the fewest that max_tokens_per_device allows
    num_workers: int = 1  # loader processes; 0: the training process makes its own batches
    prepare_processes: int | None = None  # that encode text of more than 262,144 pairs; null: one for each core

    def __post_init__(self) -> None:
        one_of("data.task", self.task, tuple(TASKS))
        one_of("data.tags", self.tags, ("kept", "xx"))
        if self.drop_duplicates is not None:
            one_of("data.drop_duplicates", self.drop_duplicates, ("exact", "normalised"))
        require(
            self.tags == "kept" or self.task == "parsing", f"data.tags={self.tags}: only data.task=parsing has tags"
        )
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
        require(
            not self.lowercase or self.task == "translation",
            f"data.lowercase=true: data.task={self.task} is about labels in capitals; leave it false",
        )
        for side in ("src_lang", "tgt_lang"):
            require(bool(getattr(self, side)), f"data.{side} is empty: set it, for example data.{side}=en")
        require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang}: name two languages",
        )
        # At least more than the 256 bytes and 4 special tokens.
        at_least("data.vocab_size", self.vocab_size, 261, most=10_000_000)
        for name in ("max_length", "tokens_per_step", "max_tokens_per_device", "tokenizer_pairs"):
            at_least(f"data.{name}", getattr(self, name), 1)
        at_least("data.micro_batches", self.micro_batches, 1, most=1_000_000)
        at_least("data.max_length_ratio", self.max_length_ratio, 1)
        at_least("data.num_workers", self.num_workers, 0, most=1000)
        at_least("data.prepare_processes", self.prepare_processes, 1, most=1000)
        for name in ("tokens_per_step", "max_tokens_per_device"):
            value = getattr(self, name)
            require(
                value is None or value > self.max_length,
                f"data.{name}={value}: the longest sentence (data.max_length={self.max_length} and its "
                f"end token) does not fit; raise data.{name} or lower data.max_length",
            )


@dataclass(frozen=True, kw_only=True)
class DataConfig(DataOptions):
    """`DataOptions` with the sizes of vocabulary and steps known."""

    vocab_size: int = _known(DataOptions.vocab_size)
    tokens_per_step: int = _known(DataOptions.tokens_per_step)


@dataclass(frozen=True, kw_only=True)
class OptimOptions:
    """Sections 5.3 and 5.4."""

    warmup_steps: int | None = 4000  # null: a tenth of the steps
    lr_scale: float | None = 1.0  # multiplies equation (3); null: by d_model and warm-up
    peak_lr: float | None = None  # the highest learning rate, at the end of the warm-up, instead of lr_scale
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        at_least("optim.warmup_steps", self.warmup_steps, 1)
        for name in ("lr_scale", "peak_lr", "eps"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"optim.{name}={value}: must be above 0 and finite")
        for name in ("beta1", "beta2", "label_smoothing"):
            fraction(f"optim.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class OptimConfig(OptimOptions):
    """`OptimOptions` with the learning rate known."""

    warmup_steps: int = _known(OptimOptions.warmup_steps)
    lr_scale: float = _known(OptimOptions.lr_scale)


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """How long to train, on which devices, and how often to validate, log and save, counted in optimizer steps."""

    max_steps: int | None = 100_000  # null: by epochs of the text; and the two intervals by the steps
    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"  # auto | ddp
    precision: str = "auto"  # one of TRAINING_PRECISIONS
    compile: bool = False  # torch.compile model and loss: takes minutes at the start, then faster steps
    val_every: int | None = 1500
    val_bleu_sentences: int = 500  # validation sentences translated for val/bleu or val/f1; 0: none
    patience: int | None = None  # validations without a better `best_metric` before the run ends; null: no early end
    best_metric: str = "val/loss"  # val/loss | val/bleu | val/f1 (parsing): decides about best.ckpt and patience
    checkpoint_every: int | None = 1500
    average_last: int = 5  # how many checkpoints are kept, and averaged at the end (section 6.1)
    log_every: int = 50
    max_skipped_steps: int = 0  # steps that may be skipped for a NaN or infinite gradient; one more ends the run
    timeout: int = 1800  # seconds that ranks wait for each other before they give up
    # As in Lightning's Trainer; batches of training are optimizer steps here, so that they do not depend on devices.
    max_epochs: int | None = None  # ends the training before max_steps
    max_time: str | None = None  # DD:HH:MM:SS of training, over all starts; the run ends as after its last step
    gradient_clip_val: float | None = None  # null: gradients are not clipped, as in the paper
    gradient_clip_algorithm: str = "norm"  # norm | value
    limit_train_batches: int | float = 1.0  # steps of each epoch, or a share of them; 1.0: all
    limit_val_batches: int | float = 1.0  # batches of a validation, or a share of them; 0: no validation
    overfit_batches: int | float = 0.0  # trains on the first so many steps alone; 0: on all
    num_sanity_val_steps: int = 0  # batches of a validation before the first step; -1: all
    fast_dev_run: bool | int = False  # true: one step, N: so many; in a folder that is thrown away
    profiler: str | None = None  # simple | advanced | pytorch: written to the run's folder at the end
    detect_anomaly: bool = False  # finds the operation whose gradient is NaN; slow
    deterministic: bool = False  # refuses operations whose result differs from time to time (GPUs)
    enable_progress_bar: bool = True  # the live display, on a terminal

    def __post_init__(self) -> None:
        one_of("trainer.accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        one_of("trainer.strategy", self.strategy, ("auto", "ddp"))
        one_of("trainer.precision", self.precision, TRAINING_PRECISIONS)
        one_of("trainer.gradient_clip_algorithm", self.gradient_clip_algorithm, ("norm", "value"))
        if self.profiler is not None:
            one_of("trainer.profiler", self.profiler, ("simple", "advanced", "pytorch"))
        for name in ("limit_train_batches", "limit_val_batches", "overfit_batches"):
            value = getattr(self, name)
            require(type(value) in (int, float), f"trainer.{name}={value}: must be a number, or a share below 1.0")
            at_least(f"trainer.{name}", value, 0, most=MAX_COUNT if isinstance(value, int) else 1)
        require(self.limit_train_batches > 0, "trainer.limit_train_batches=0: nothing would be trained; set 1 or more")
        at_least("trainer.gradient_clip_val", self.gradient_clip_val, 1e-9)
        at_least("trainer.num_sanity_val_steps", self.num_sanity_val_steps, -1)
        require(isinstance(self.fast_dev_run, int), f"trainer.fast_dev_run={self.fast_dev_run}: true, false or steps")
        at_least("trainer.fast_dev_run", int(self.fast_dev_run), 0)
        parts = [] if self.max_time is None else self.max_time.split(":")
        require(
            self.max_time is None or (len(parts) == 4 and all(part.isdecimal() for part in parts)),
            f"trainer.max_time={self.max_time}: write days, hours, minutes and seconds as DD:HH:MM:SS",
        )
        for name in ("devices", "num_nodes"):
            at_least(f"trainer.{name}", getattr(self, name), 1, most=1000)
        for name in (
            "max_steps",
            "max_epochs",
            "val_every",
            "patience",
            "checkpoint_every",
            "average_last",
            "log_every",
            "timeout",
        ):
            at_least(f"trainer.{name}", getattr(self, name), 1)
        one_of("trainer.best_metric", self.best_metric, ("val/loss", *VAL_METRICS))
        require(
            self.best_metric == "val/loss" or self.val_bleu_sentences != 0,
            f"trainer.best_metric={self.best_metric}: there is none with trainer.val_bleu_sentences=0; raise that, or "
            "set trainer.best_metric=val/loss",
        )
        for name in ("val_bleu_sentences", "max_skipped_steps"):
            at_least(f"trainer.{name}", getattr(self, name), 0)

    @property
    def world_size(self) -> int:
        return self.devices * self.num_nodes


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(TrainerOptions):
    """`TrainerOptions` with all numbers of steps known."""

    max_steps: int = _known(TrainerOptions.max_steps)
    val_every: int = _known(TrainerOptions.val_every)
    checkpoint_every: int = _known(TrainerOptions.checkpoint_every)


@dataclass(frozen=True, kw_only=True)
class SearchOverrides:
    """Section 6.1: beam search. In `evaluate.py` and `aiayn translate` None means as the run was configured."""

    beam_size: int | None = None  # 1 is greedy search
    length_penalty: float | None = None  # alpha
    penalty: str | None = None  # gnmt: ((5 + |Y|) / 6)^alpha | power: |Y|^alpha
    max_extra_tokens: int | None = None  # an output has at most |X| + this many tokens
    batch_tokens: int | None = None  # padded source tokens times beams in a batch; None: 8,192 on a CPU, 65,536 on GPUs
    patience: float | None = None  # a search ends after patience * beam_size outputs; None: when exact

    def __post_init__(self) -> None:
        # Useful values are far below: with these, one sentence takes seconds and not hours, and no score overflows.
        at_least("search.beam_size", self.beam_size, 1, most=MAX_BEAM_SIZE)
        at_least("search.max_extra_tokens", self.max_extra_tokens, 1, most=10_000)
        at_least("search.length_penalty", self.length_penalty, 0, most=5)
        at_least("search.batch_tokens", self.batch_tokens, 1)
        at_least("search.patience", self.patience, 0.1, most=1000)
        if self.penalty is not None:
            one_of("search.penalty", self.penalty, ("gnmt", "power"))

    def apply(self, search: "SearchConfig") -> "SearchConfig":
        return SearchConfig(**asdict(search) | {k: v for k, v in asdict(self).items() if v is not None})


@dataclass(frozen=True, kw_only=True)
class SearchConfig(SearchOverrides):
    """The search options of a run."""

    beam_size: int = 4
    length_penalty: float = 0.6
    penalty: str = "gnmt"
    max_extra_tokens: int = 50


@dataclass(kw_only=True)
class SamplingConfig:
    """How `aiayn translate --sample` draws translations."""

    seed: int
    temperature: float = 1.0  # divides the logits: below 1 fewer, above 1 more surprises
    top_k: int | None = None  # draw among the k most probable tokens only
    top_p: float | None = None  # draw among the fewest tokens whose probabilities sum to p

    def __post_init__(self) -> None:
        require(0 < self.temperature < math.inf, f"--temperature {self.temperature}: must be above 0 and finite")
        require(self.top_k is None or self.top_k >= 1, f"--top-k {self.top_k}: must be at least 1")
        require(self.top_p is None or 0 < self.top_p <= 1, f"--top-p {self.top_p}: must be above 0 and at most 1")
        require(self.top_k is None or self.top_p is None, "--top-k and --top-p: choose one of them")


@dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """Where metrics go besides the run's own metrics.jsonl."""

    kind: Any = "wandb"  # wandb | tensorboard | csv | none, or a list of the first three
    project: str = "aiayn"
    entity: str | None = None
    group: str | None = None
    mode: str = "auto"  # auto: online where a key is found, else offline
    samples: bool = False  # wandb: also send text: validation sentences, their translations, pictures of attention
    upload: bool = False  # wandb: also store the final checkpoint and its tokenizer there

    def __post_init__(self) -> None:
        for kind in self.kind if isinstance(self.kind, list) else [self.kind]:
            one_of("logger.kind", kind, ("wandb", "tensorboard", "csv", "none"))
        one_of("logger.mode", self.mode, ("auto", "online", "offline"))

    @property
    def kinds(self) -> list[str]:
        """The loggers besides metrics.jsonl."""
        kinds = self.kind if isinstance(self.kind, list) else [self.kind]
        return [kind for kind in kinds if kind != "none"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of `train.py`, as users write them."""

    name: str | None = None  # the run's folder under outputs; null: derived from data, model and row
    outputs: str | None = None  # the root of all runs; null: the environment's AIAYN_OUTPUTS, or else outputs
    sweep: str | None = None  # with -m: the jobs' folder under outputs/sweeps/; null: derived from data and model
    init_from: str | None = None  # fine-tuning: the run's folder, or a checkpoint file, to start from
    init_fingerprint: str | None = None  # SHA-256 of the weights there; null: taken as found, then stored
    seed: int = 0
    debug: bool = False  # show tracebacks
    extensions: list[str] = field(default_factory=list)  # Python files of one's own (`config/extensions.py`)
    extensions_sha256: list[str] = field(default_factory=list)  # FILE:SHA-256 of each; none: as found, then stored
    extension: dict[str, Any] = field(default_factory=dict)  # their options, by the file's name without .py
    model: ModelOptions = field(default_factory=ModelOptions)
    data: DataOptions = field(default_factory=DataOptions)
    optim: OptimOptions = field(default_factory=OptimOptions)
    trainer: TrainerOptions = field(default_factory=TrainerOptions)
    search: SearchConfig = field(default_factory=SearchConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, f"seed={self.seed}: must be at least 0 and below 2^32")
        valid_name("name", self.name)
        valid_name("sweep", self.sweep)
        require(self.init_from != "", "init_from is empty: name a run's folder or a checkpoint file, or null")
        if self.init_from is not None:  # without the slash of a completed `outputs/NAME/`
            object.__setattr__(self, "init_from", str(PurePath(self.init_from)))
        require(
            self.init_fingerprint is None or self.init_from is not None,
            f"init_fingerprint={self.init_fingerprint}: set init_from as well, or neither",
        )
        require(self.data.train is not None, "data.train is missing: data.train=PREFIX reads PREFIX.SRC and PREFIX.TGT")
        require(self.data.val is not None, "data.val is missing: data.val=PREFIX reads PREFIX.SRC and PREFIX.TGT")
        score = TASKS[self.data.task].val_metric
        require(
            self.trainer.best_metric in ("val/loss", score),
            f"trainer.best_metric={self.trainer.best_metric}: data.task={self.data.task} has val/loss and {score}",
        )
        count, world = self.data.micro_batches, self.trainer.world_size
        require(
            count is None or count % world == 0,
            f"data.micro_batches={count}: {world} devices cannot share it evenly; set a multiple of {world}, or null",
        )
        if self.model.positions == "learned":
            longest = self.data.max_length + self.search.max_extra_tokens + 1
            require(
                self.model.max_positions >= longest,
                f"model.max_positions={self.model.max_positions}: outputs reach {longest} positions (data.max_length + "
                f"search.max_extra_tokens + 1); set model.max_positions={longest} or more, or lower data.max_length",
            )

    @property
    def run_name(self) -> str:
        """The run's folder under outputs. Raises ConfigError if there is none."""
        if self.name is None:
            raise ConfigError("name is missing: set name=NAME, the run's folder under outputs")
        return self.name

    @property
    def outputs_folder(self) -> Path:
        """The root of all runs. Raises ConfigError if its name would need quoting on a command line."""
        folder = self.outputs or os.environ.get("AIAYN_OUTPUTS") or "outputs"
        require(
            all(letter.isalnum() or letter in "/._-+@~" for letter in folder),
            f"{'outputs' if self.outputs else 'AIAYN_OUTPUTS'}={folder}: use letters, digits, '/', '.', '_' and '-', "
            "so that printed commands need no quotes",
        )
        return Path(folder).expanduser()


@dataclass(frozen=True, kw_only=True)
class Sized(Options):
    """`Options` whose model and text have all their sizes: what preparing a corpus and building a model need."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)


@dataclass(frozen=True, kw_only=True)
class Config(Sized):
    """The settled options of a run, as it stores them."""

    name: str = "run"
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """All options of `evaluate.py`."""

    run: str
    split: str = "test"  # val | test
    checkpoint: str | None = None  # averaged | best | last | a file; null: averaged (best if that is better), else last
    test: str | None = None  # PREFIX of text files to translate and score instead of the split
    references: Paths = None  # a file or a list of files: further references, beside that of the split or of `test`
    ensemble: Paths = None  # a run's folder or a list of them: they translate together with `run`
    baseline: str | None = None  # another run's folder to compare with
    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1  # processes that share the translation
    extensions: list[str] = field(default_factory=list)  # Python files, for models with parts of theirs, and metrics
    debug: bool = False
    search: SearchOverrides = field(default_factory=SearchOverrides)

    def __post_init__(self) -> None:
        at_least("devices", self.devices, 1, most=1000)
        require(bool(self.run), "run is empty: name a run's folder, such as run=outputs/NAME")
        one_of("split", self.split, ("val", "test"))
        if self.test is not None:
            name = PurePath(self.test).name
            require(
                name.isprintable() and not name.startswith(".") and name != "",
                f"test={self.test!r}: the results go to a folder named after the last part of the path; name the files "
                "FOLDER/NAME, where NAME does not begin with a dot",
            )
        for name, kind, example in (
            ("ensemble", "a run's folder", "[outputs/B,outputs/C]"),
            ("references", "a file", "[ref2.de,ref3.de]"),
        ):
            value = getattr(self, name)
            paths = [value] if isinstance(value, str) else value
            holds = paths is None or (isinstance(paths, list) and all(isinstance(path, str) and path for path in paths))
            require(holds, f"{name}={value}: must be {kind} or a list of them, {name}={example}")
            object.__setattr__(self, name, paths)
        one_of("accelerator", self.accelerator, ("auto", "cpu", "gpu"))
