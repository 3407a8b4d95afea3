"""Numbers that are not finite: found by the device in every step, looked at by the host now and then."""

import logging
from pathlib import Path

import pytorch_lightning as pl
import torch

from aiayn.config import Config
from aiayn.data.batch import Batch
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedCorpus
from aiayn.errors import DivergedError
from aiayn.files import atomic_write_text
from aiayn.training.callbacks.steps import StepCallback, due, report
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


class NonFiniteGuard(StepCallback):
    """Ends the run when more steps were skipped than `trainer.max_skipped_steps`; the first of those that act on steps.

    The module's device has left out every such step by itself; here the host reads how many there were, every
    `log_every` steps and before every save, so that nothing that came after too many is ever saved.
    """

    def __init__(self, config: Config, plan: BatchPlan, prepared: PreparedCorpus, folder: Path):
        super().__init__()
        self.config = config
        self.plan, self.prepared = plan, prepared
        self.folder = folder
        self.seen = 0

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        super().on_train_start(trainer, module)
        self.seen = int(module.skipped)

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        if due(step, settings.log_every, settings.max_steps):
            self.look(trainer, module, step)

    def look(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        """Raises DivergedError for one skipped step too many, or weights that are not finite after step `step`."""
        norms = torch.stack(torch._foreach_norm(list(module.parameters()), torch.inf))
        skipped, fatal, good = torch.stack([module.skipped, module.fatal_step, norms.isfinite().all().long()]).tolist()
        if fatal:
            raise DivergedError(
                f"the loss or its gradient is no finite number at step {fatal}{self._earlier(skipped)}; nothing of it "
                f"was saved, its sentences stand in {self._write_pairs(trainer, fatal)}: lower optim.lr_scale or raise "
                "optim.warmup_steps and choose another name=, or let the same command skip such steps with "
                f"trainer.max_skipped_steps={skipped}"
            )
        if not good:
            raise DivergedError(
                f"a weight is no finite number at step {step}; nothing of it was saved: lower optim.lr_scale or raise "
                "optim.warmup_steps and choose another name="
            )
        if skipped > self.seen:
            self.seen = skipped
            report(trainer, {"train/skipped_steps": skipped}, step)
            log.warning("step %d: %d steps skipped so far, their loss or gradient was no finite number", step, skipped)

    def _earlier(self, skipped: int) -> str:
        allowed = self.config.trainer.max_skipped_steps
        return f" ({skipped} such steps, trainer.max_skipped_steps={allowed})" if allowed else ""

    def _write_pairs(self, trainer: pl.Trainer, step: int) -> Path:
        """The step's pairs as the model reads them: number in the prepared corpus, source, target."""
        path = self.folder / f"not_finite_at_step_{step}.tsv"
        if trainer.is_global_zero:
            split, tokenizer, count = self.prepared.train, self.prepared.tokenizer, self.plan.micro_batches
            lines = []
            for number in range((step - 1) * count, step * count):
                for pair in self.plan.micro_batch(number).pairs.tolist():
                    sides = ((split.src, split.src_offsets), (split.tgt, split.tgt_offsets))
                    texts = tokenizer.decode([ids[at[pair] : at[pair + 1]].tolist() for ids, at in sides])
                    lines.append("\t".join([str(pair), *texts]) + "\n")
            atomic_write_text(path, "".join(lines))
        return path
