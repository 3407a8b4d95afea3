"""All options of `train.py`.

The options of a group, such as those of `conf/model/`, have a file of that name here, with their
types, rules and help; `training.py` has three groups. Rules across groups stand in `Config`. Values
stand in `conf/`. An option that is added later declares the value of runs that were stored without
it (`absent`).

A field with `inferred_from_data` may be null until `config/resolve.py` has fitted it to the text.
The rooms behind `train` see resolved classes, such as `ModelConfig`, whose sizes are numbers.
Elsewhere None means "none", as the help says.

Nothing here imports torch: configuration errors are reported before anything slow happens.
"""

import math
from pathlib import Path, PurePath
from typing import Any

from aiayn.config.data import DataOptions
from aiayn.config.model import ModelOptions
from aiayn.config.rules import (
    Options,
    mutable_option,
    one_of,
    option,
    option_group,
    outputs_folder,
    require,
    section,
    valid_name,
)
from aiayn.config.search import SearchConfig
from aiayn.config.tasks import TASKS
from aiayn.config.training import LoggerConfig, OptimOptions, TrainerOptions
from aiayn.errors import ConfigError


@option_group("train")
class Config(Options):
    """All options of `train.py`."""

    name: str | None = mutable_option(
        "name of the run folder under outputs; null: derived from data, model and ablation",
        valid_name,
    )
    outputs: str | None = mutable_option(
        "root folder of all runs; null: $AIAYN_OUTPUTS if set, else outputs"
    )
    sweep: str | None = mutable_option(
        "with -m: folder of the jobs under outputs/sweeps; null: derived from data and model",
        valid_name,
    )
    init_from: str | None = option(
        "fine-tuning: the folder of a finished run, or a checkpoint file, to start from"
    )
    init_fingerprint: str | None = option(
        "expected SHA-256 of the weights of init_from; null: not checked"
    )
    seed: int = option(
        "random seed for weights, dropout and the order of steps", least=0, most=2**32 - 1
    )
    optimized_metric: str = mutable_option(
        "with -m: metric that hydra/sweeper=optuna optimizes: val/loss | val/ppl | val/bleu"
    )
    debug: bool = mutable_option("true: show tracebacks")
    extensions: list[str] = mutable_option(  # where they are; what they are is in the next
        "Python files of your own, extensions=[my/rotary.py]"
    )
    given: list[str] = option(
        "set by the program: classes and arguments passed to `aiayn.train` in Python", absent=[]
    )
    extensions_sha256: list[str] = option("expected SHA-256 of the extensions; empty: not checked")
    extension: dict[str, Any] = option("options of the extensions: extension.cosine.peak=0.001")
    model: ModelOptions = section(ModelOptions)
    data: DataOptions = section(DataOptions)
    optim: OptimOptions = section(OptimOptions)
    trainer: TrainerOptions = section(TrainerOptions)
    search: SearchConfig = section(SearchConfig, mutable_on_resume=True)
    logger: LoggerConfig = section(LoggerConfig, mutable_on_resume=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.init_from != "",
            "init_from is empty: name a run's folder or a checkpoint file, or null",
        )
        if self.init_from is not None:  # without the slash of a completed `outputs/NAME/`
            object.__setattr__(self, "init_from", str(PurePath(self.init_from)))
        require(
            self.init_from is not None or self.init_fingerprint is None,
            f"init_fingerprint={self.init_fingerprint}: set init_from as well, or leave it out",
        )
        self._check_text()
        self._check_validation()
        count = self.data.micro_batches
        world = self.trainer.world_size
        require(
            count is None or count % world == 0,
            f"data.micro_batches={count}: {world} devices cannot share it evenly; set a multiple "
            f"of {world}, or null",
        )

    def _check_text(self) -> None:
        data, model = self.data, self.model
        for split in ("train", "val"):
            prefix = getattr(data, split)
            require(
                prefix is not None,
                f"data.{split} is missing: data.{split}=PREFIX reads PREFIX.SRC and PREFIX.TGT",
            )
        require(
            data.src_vocab_size is None or model.tie_embeddings != "all",
            f"data.src_vocab_size={data.src_vocab_size}: two vocabularies cannot share a "
            "matrix; set model.tie_embeddings=decoder (or none)",
        )
        learns = data.tokenizer == "unigram" and self.init_from is None
        is_prepared_once = self.trainer.num_nodes == 1 or not data.prepare_per_node
        require(
            is_prepared_once or not learns,
            "data.tokenizer=unigram: machines may learn different vocabularies; set "
            "data.prepare_per_node=false, or data.tokenizer=FOLDER/tokenizer.json",
        )
        longest = data.max_length + self.search.max_extra_tokens + 1
        has_table = model.positions == "learned"
        require(
            model.max_positions >= longest or not has_table,
            f"model.max_positions={model.max_positions}: outputs reach {longest} positions "
            "(data.max_length + search.max_extra_tokens + 1); set "
            f"model.max_positions={longest} or more, or lower data.max_length",
        )

    def _check_validation(self) -> None:
        trainer, task = self.trainer, self.data.task
        score = TASKS[task].val_metric
        one_of("optimized_metric", self.optimized_metric, ("val/loss", "val/ppl", score))
        metrics = {
            "optimized_metric": self.optimized_metric,
            "trainer.best_metric": trainer.best_metric,
        }
        for key, metric in metrics.items():
            require(
                metric in ("val/loss", "val/ppl") or trainer.val_bleu_sentences != 0,
                f"{key}={metric} is not measured with trainer.val_bleu_sentences=0; raise that, "
                f"or set {key}=val/loss",
            )
        require(
            trainer.best_metric in ("val/loss", score)
            or bool(self.extensions),  # which add metrics
            f"trainer.best_metric={trainer.best_metric}: with data.task={task} choose val/loss or "
            f"{score}",
        )
        if trainer.patience is None:
            return
        key = f"trainer.patience={trainer.patience}"
        require(
            trainer.limit_val_batches > 0,
            f"{key}: trainer.limit_val_batches=0 turns validation off; raise it, or set "
            "trainer.patience=null",
        )
        require(
            (trainer.val_every or 0) <= (trainer.max_steps or math.inf),
            f"{key}: trainer.val_every={trainer.val_every} is more than trainer.max_steps="
            f"{trainer.max_steps}, so only the end is validated; lower trainer.val_every",
        )

    @property
    def run_name(self) -> str:
        """Returns the run's folder under outputs. Raises ConfigError if there is none."""
        if self.name is None:
            raise ConfigError("name is missing: set name=NAME, the run's folder under outputs")
        return self.name

    @property
    def outputs_folder(self) -> Path:
        """Returns the root of all runs. Raises ConfigError if its name would need quoting on a
        command line.
        """
        return outputs_folder(self.outputs)
