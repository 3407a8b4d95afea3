"""How good the model is by now: validation between training steps."""

import logging
import math
from contextlib import suppress
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config import Config
from aiayn.data.batch import Batch
from aiayn.evaluation.scoring import score
from aiayn.inference.translator import Translator
from aiayn.run_folder import drop_records_after, jsonl_line, read_jsonl
from aiayn.training.callbacks.display import Display
from aiayn.training.callbacks.steps import StepCallback, TrainingClock, due, report
from aiayn.training.distributed.stop_request import AbandonedError, StopRequest
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


class Validate(StepCallback):
    """Loss and perplexity of the validation set, BLEU of its first sentences, and some of them to read."""

    SHOWN = 5

    def __init__(
        self,
        config: Config,
        translator: Translator,
        sources: list[str],
        references: list[str],
        folder: Path,
        start_step: int,
        time: TrainingClock,
        display: Display,
        stop: StopRequest,
    ):
        super().__init__()
        self.config = config
        self.time = time
        self.display = display
        self.stop = stop
        self.translator = translator
        self.sources, self.references = sources, references
        self.samples = folder / "samples.jsonl"
        self.metrics = folder / "metrics.jsonl"
        self.start_step = start_step

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        super().on_train_start(trainer, module)
        if trainer.is_global_zero and self.samples.exists():
            drop_records_after(self.samples, self.done)

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        if not due(step, settings.val_every, settings.max_steps):
            return
        with self.time.stopped(), suppress(AbandonedError):
            self._validate(trainer, module, step)

    def on_fit_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        """Makes up for a validation that a stop of the run cut short; with `init_from`, validates what is given."""
        step, settings = self.start_step, self.config.trainer
        if not (step or self.config.init_from) or not due(step, settings.val_every, settings.max_steps):
            return
        if any(record["step"] == step and "val/loss" in record for record in read_jsonl(self.metrics)):
            return
        try:
            self._validate(trainer, module, step)
        except AbandonedError:
            self.stop.check(f"stopped in the validation of step {step}" + (", which is saved" if step else ""))

    def _validate(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        metrics = self._losses(trainer, module)
        hypotheses: list[str] = []
        if self.sources:
            hypotheses = self._translate(trainer)
            scores = score(hypotheses, self.references, self.config.data.tgt_lang, kinds=["sacrebleu"])
            metrics["val/bleu"] = scores.metrics["sacrebleu"]
        report(trainer, metrics, step)
        if trainer.is_global_zero:
            self.display.show_validation(step, metrics)
            if hypotheses:
                self._show(step, hypotheses)

    @torch.no_grad()
    def _losses(self, trainer: pl.Trainer, module: TranslationModule) -> dict[str, float]:
        module.eval()
        totals = torch.zeros(3, dtype=torch.float64)
        try:
            with self.stop.abandonable():
                for batch in trainer.datamodule.validation_batches():
                    self.stop.poll()
                    with trainer.precision_plugin.forward_context():
                        sums = module.validation_step(batch.to(module.device))
                    totals += torch.tensor([*map(float, sums), batch.n_tokens], dtype=torch.float64)
        finally:
            module.train()
        loss, nll, n_tokens = trainer.strategy.reduce(totals.to(module.device), reduce_op="sum").tolist()
        return {"val/loss": loss / n_tokens, "val/ppl": math.exp(min(nll / n_tokens, 700))}

    def _translate(self, trainer: pl.Trainer) -> list[str]:
        """Every device translates its share of the sentences; all get all translations."""
        rank, world_size = trainer.global_rank, trainer.world_size
        mine: list[str] = []
        with self.stop.abandonable():
            mine = self.translator.translate(self.sources[rank::world_size], self._after_batch)
        shares = [mine]
        if world_size > 1:
            shares = [None] * world_size
            torch.distributed.all_gather_object(shares, mine)
        hypotheses = [""] * len(self.sources)
        for other, share in enumerate(shares):
            hypotheses[other::world_size] = share
        return hypotheses

    def _after_batch(self, done: int, lines: int) -> None:
        self.stop.poll()
        if rank_zero_only.rank == 0:
            self.display.show_translating(done, lines)

    def _show(self, step: int, hypotheses: list[str]) -> None:
        with open(self.samples, "a", encoding="utf-8") as file:
            for src, ref, hyp in list(zip(self.sources, self.references, hypotheses, strict=True))[: self.SHOWN]:
                file.write(jsonl_line({"step": step, "source": src, "reference": ref, "hypothesis": hyp}))
        log.info(
            "  source      %s\n  reference   %s\n  hypothesis  %s", self.sources[0], self.references[0], hypotheses[0]
        )
