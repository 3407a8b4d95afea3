"""NaN and infinite gradients: the device skips such steps, and the host checks their number at
intervals.
"""

import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from aiayn.config.training import OptimConfig
from aiayn.data.batch import Batch
from aiayn.data.loaders import numbers_from
from aiayn.errors import DivergedError
from aiayn.files import atomic_write_text
from aiayn.training.callbacks.steps import StepCallback, due, log_metrics, translation_module
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunServices, RunSpec

log = logging.getLogger(__name__)


def lower_rate(optim: OptimConfig) -> str:
    """Returns the advice to lower the learning rate, by the option that sets it."""
    key = "lr_scale" if optim.peak_lr is None else "peak_lr"
    return f"lower optim.{key} or raise optim.warmup_steps and choose another name="


class NonFiniteGuard(StepCallback):
    """Ends the run when more steps were skipped than `trainer.max_skipped_steps`; the first
    callback that sees steps.

    The module skips such steps without asking the host. Here the host reads their number, every
    `log_every` steps and before every save, so that nothing that came after too many of them is
    ever saved.
    """

    def __init__(self, run: RunSpec, services: RunServices):
        super().__init__(run)
        self.services = services

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seen = int(translation_module(pl_module).skipped)

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int
    ) -> None:
        settings = self.run.config.trainer
        if due(step, settings.log_every, settings.max_steps):
            self.check(trainer, module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.check(trainer, translation_module(pl_module))
        checkpoint["skipped_steps"] = self.seen

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        translation_module(pl_module).skipped.fill_(checkpoint["skipped_steps"])

    def check(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        """Raises DivergedError for one skipped step too many, or for weights that are NaN or
        infinite.
        """
        finite = torch.nn.utils.get_total_norm(module.parameters(), torch.inf).isfinite()
        skipped, fatal, finite = torch.stack(
            [module.skipped, module.fatal_step, finite.long()]
        ).tolist()
        step, allowed = trainer.global_step, self.run.config.trainer.max_skipped_steps
        remedy = lower_rate(self.run.config.optim)
        if fatal:
            earlier = (
                f" ({skipped} such steps, trainer.max_skipped_steps={allowed})" if allowed else ""
            )
            raise DivergedError(
                f"the loss or its gradient is NaN or infinite at step {fatal}{earlier}; this step "
                f"was not saved, and its sentences are in {self._write_pairs(trainer, fatal)}: "
                f"{remedy}, or let the same command skip such steps with "
                f"trainer.max_skipped_steps={skipped}"
            )
        if not finite:
            raise DivergedError(
                f"a weight is NaN or infinite at step {step}; this step was not saved: {remedy}"
            )
        if skipped > self.seen:
            self.seen = skipped
            log_metrics(trainer, {"train/skipped_steps": skipped}, step)
            log.warning(
                "step %d: steps skipped so far, because loss or gradient was NaN or infinite: %d",
                step,
                skipped,
            )

    def _write_pairs(self, trainer: pl.Trainer, step: int) -> Path:
        """Writes the step's pairs as the model reads them: number in the prepared corpus, source,
        target.
        """
        path = self.services.folder.non_finite_pairs(step)
        if trainer.is_global_zero:
            split, tokenizer, plan = (
                self.run.corpus.train,
                self.run.corpus.tokenizer,
                self.run.plan,
            )
            lines = []
            for number in numbers_from(plan, trainer, step - 1)[: plan.micro_batches]:
                for pair in plan.micro_batch(number).pairs.tolist():
                    src, tgt = (ids.tolist() for ids in split.pair(pair))
                    texts = tokenizer.source.decode([src]) + tokenizer.decode([tgt])
                    lines.append("\t".join([str(pair), *texts]) + "\n")
            atomic_write_text(path, "".join(lines))
        return path
