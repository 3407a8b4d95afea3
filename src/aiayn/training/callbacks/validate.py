"""How good the model is by now: validation between training steps."""

import json
import logging
import math
from pathlib import Path

import pytorch_lightning as pl
import torch

from aiayn.config import Config
from aiayn.data.batch import Batch
from aiayn.evaluation.scoring import score
from aiayn.inference.translator import Translator
from aiayn.training.callbacks.steps import StepCallback, TrainingClock, due, report
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
        time: TrainingClock,
    ):
        super().__init__()
        self.config = config
        self.time = time
        self.translator = translator
        self.sources, self.references = sources, references
        self.samples = folder / "samples.jsonl"

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        if not due(step, settings.val_every, settings.max_steps):
            return
        with self.time.stopped():
            self._validate(trainer, module, step)

    def _validate(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        settings = self.config.trainer
        metrics = self._losses(trainer, module)
        text = f"val/loss {metrics['val/loss']:.3f}  val/ppl {metrics['val/ppl']:.2f}"
        if self.sources:
            hypotheses = self._translate(trainer)
            scores = score(hypotheses, self.references, self.config.data.tgt_lang, kinds=["sacrebleu"])
            metrics["val/bleu"] = scores.metrics["sacrebleu"]
            text += f"  val/bleu {metrics['val/bleu']:.1f}"
            if trainer.is_global_zero:
                self._show(step, hypotheses)
        report(trainer, metrics, step)
        log.info("step %d/%d  %s", step, settings.max_steps, text)

    @torch.no_grad()
    def _losses(self, trainer: pl.Trainer, module: TranslationModule) -> dict[str, float]:
        module.eval()
        totals = torch.zeros(3, dtype=torch.float64)
        for batch in trainer.datamodule.validation_batches():
            with trainer.precision_plugin.forward_context():
                sums = module.validation_step(batch.to(module.device))
            totals += torch.tensor([*map(float, sums), batch.n_tokens], dtype=torch.float64)
        module.train()
        loss, nll, n_tokens = trainer.strategy.reduce(totals.to(module.device), reduce_op="sum").tolist()
        return {"val/loss": loss / n_tokens, "val/ppl": math.exp(min(nll / n_tokens, 700))}

    def _translate(self, trainer: pl.Trainer) -> list[str]:
        """Every device translates its share of the sentences; all get all translations."""
        rank, world_size = trainer.global_rank, trainer.world_size
        shares = [self.translator.translate(self.sources[rank::world_size])]
        if world_size > 1:
            shares = [None] * world_size
            mine = self.translator.translate(self.sources[rank::world_size])
            torch.distributed.all_gather_object(shares, mine)
        hypotheses = [""] * len(self.sources)
        for other, share in enumerate(shares):
            hypotheses[other::world_size] = share
        return hypotheses

    def _show(self, step: int, hypotheses: list[str]) -> None:
        with open(self.samples, "a", encoding="utf-8") as file:
            for src, ref, hyp in list(zip(self.sources, self.references, hypotheses, strict=True))[: self.SHOWN]:
                record = {"step": step, "source": src, "reference": ref, "hypothesis": hyp}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        log.info(
            "  source      %s\n  reference   %s\n  hypothesis  %s", self.sources[0], self.references[0], hypotheses[0]
        )
