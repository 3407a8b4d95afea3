"""All options of `train.py`.

The options of a group, such as those of `conf/model/`, have a file of that name here, with their types, defaults and
rules; rules across groups stand in `Config`. Users read and change values in `conf/`; a test proves that the defaults
here are those of `conf/` without arguments. An option missing in a stored configuration, because it was added later,
has its default, so the default of a new option must mean what the program did before.

A field with `by_text` may be null until `config/settle.py` has fitted it to the text: its type is what it has from then
on, and all rooms behind `train` see only such configurations. Elsewhere None means "none", as the comment says.

Nothing here imports torch: configuration errors are reported before anything slow happens.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from aiayn.config.data import DataConfig
from aiayn.config.logger import LoggerConfig
from aiayn.config.model import ModelConfig
from aiayn.config.optim import OptimConfig
from aiayn.config.rules import check_rules, one_of, option, outputs_folder, require, valid_name
from aiayn.config.search import SearchConfig
from aiayn.config.tasks import TASKS
from aiayn.config.trainer import TrainerConfig
from aiayn.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Config:
    """All options of `train.py`. What each one here does stands beside its value in `conf/train.yaml`."""

    name: str | None = option(None, valid_name, may_change=True)
    outputs: str | None = option(may_change=True)
    sweep: str | None = option(None, valid_name, may_change=True)
    init_from: str | None = None
    init_fingerprint: str | None = None  # stored with the run, also where it was taken as found
    seed: int = 0
    optimized_metric: str = option("val/loss", may_change=True)
    debug: bool = option(False, may_change=True)
    extensions: list[str] = option(factory=list, may_change=True)  # where they are; what they are is in the next
    extensions_sha256: list[str] = field(default_factory=list)  # FILE:SHA-256 of each, stored with the run
    given: list[str] = field(default_factory=list)  # what `aiayn.train` got in Python. Set by the program
    extension: dict[str, Any] = field(default_factory=dict)
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    search: SearchConfig = option(factory=SearchConfig, may_change=True)
    logger: LoggerConfig = option(factory=LoggerConfig, may_change=True)

    def __post_init__(self) -> None:
        check_rules("", self)
        require(0 <= self.seed < 2**32, f"seed={self.seed}: must be at least 0 and below 2^32")
        require(self.init_from != "", "init_from is empty: name a run's folder or a checkpoint file, or null")
        if self.init_from is not None:  # without the slash of a completed `outputs/NAME/`
            object.__setattr__(self, "init_from", str(PurePath(self.init_from)))
        require(
            self.init_fingerprint is None or self.init_from is not None,
            f"init_fingerprint={self.init_fingerprint}: set init_from as well, or neither",
        )
        require(
            self.data.src_vocab_size is None or self.model.tie_embeddings != "all",
            f"data.src_vocab_size={self.data.src_vocab_size}: two vocabularies have no matrix in common; set "
            "model.tie_embeddings=decoder (or none)",
        )
        learns = self.data.tokenizer == "unigram" and self.init_from is None
        require(
            not learns or self.trainer.num_nodes == 1 or not self.data.prepare_per_node,
            "data.tokenizer=unigram: no two machines learn the same; set data.prepare_per_node=false, or give them one "
            "tokenizer.json",
        )
        require(self.data.train is not None, "data.train is missing: data.train=PREFIX reads PREFIX.SRC and PREFIX.TGT")
        require(self.data.val is not None, "data.val is missing: data.val=PREFIX reads PREFIX.SRC and PREFIX.TGT")
        score = TASKS[self.data.task].val_metric
        one_of("optimized_metric", self.optimized_metric, ("val/loss", "val/ppl", score))
        chosen = {"optimized_metric": self.optimized_metric, "trainer.best_metric": self.trainer.best_metric}
        for key, metric in chosen.items():
            require(
                metric in ("val/loss", "val/ppl") or self.trainer.val_bleu_sentences != 0,
                f"{key}={metric}: there is none with trainer.val_bleu_sentences=0; raise that, or set {key}=val/loss",
            )
        require(
            self.trainer.best_metric in ("val/loss", score) or bool(self.extensions),  # which may bring others
            f"trainer.best_metric={self.trainer.best_metric}: data.task={self.data.task} has val/loss and {score}",
        )
        count, world = self.data.micro_batches, self.trainer.world_size
        require(
            count is None or count % world == 0,
            f"data.micro_batches={count}: {world} devices cannot share it evenly; set a multiple of {world}, or null",
        )
        trainer = self.trainer
        if trainer.patience is not None:
            require(
                trainer.limit_val_batches > 0,
                f"trainer.patience={trainer.patience}: trainer.limit_val_batches=0 leaves no validation to wait for; "
                "raise that, or set trainer.patience=null",
            )
            is_validated = (trainer.val_every or 0) <= (trainer.max_steps or math.inf)
            require(
                is_validated,
                f"trainer.patience={trainer.patience}: trainer.val_every={trainer.val_every} of trainer.max_steps="
                f"{trainer.max_steps} validates at the end only; lower trainer.val_every",
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
        return outputs_folder(self.outputs)
