"""What a run is made of: its corpus and its machine in files, its attention as a picture."""

import json
import logging
from pathlib import Path

import pytorch_lightning as pl

from aiayn.attention.heatmaps import draw_cross_attention
from aiayn.attention.maps import attention_maps
from aiayn.config import Config
from aiayn.data.batch import Batch
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_statistics import describe_corpus
from aiayn.data.corpus_store import PreparedCorpus
from aiayn.errors import UserError
from aiayn.files import atomic_write_text
from aiayn.hardware import describe_machine
from aiayn.inference.translator import Translator
from aiayn.report.plots import draw_corpus
from aiayn.training.callbacks.steps import StepCallback, TrainingClock, due
from aiayn.training.loggers import send_facts, send_picture, send_samples
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


class RunArtifacts(StepCallback):
    """Writes corpus.json and corpus.png at the first start and machine.json at every one; draws attention.png.

    The attention is that of one validation sentence: at the end, and with W&B at every validation, where the pictures
    of one name can be leafed through. Stands behind Validate, whose samples it passes on.
    """

    def __init__(
        self,
        config: Config,
        prepared: PreparedCorpus,
        plan: BatchPlan,
        translator: Translator,
        sources: list[str],
        folder: Path,
        time: TrainingClock,
    ):
        super().__init__()
        self.config = config
        self.prepared, self.plan = prepared, plan
        self.translator = translator
        self.sentence = min((line for line in sources[:5] if line.strip()), key=len, default=None)
        self.folder = folder
        self.time = time

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        super().on_train_start(trainer, module)
        if not trainer.is_global_zero:
            return
        with self.time.stopped():
            machine = describe_machine(module.device, trainer.precision, trainer.world_size)
            atomic_write_text(self.folder / "machine.json", json.dumps(machine, indent=2) + "\n")
            path = self.folder / "corpus.json"
            if not path.exists():
                corpus = describe_corpus(self.prepared, self.plan)
                draw_corpus(corpus, path.with_suffix(".png"))
                atomic_write_text(path, json.dumps(corpus) + "\n")
            corpus = json.loads(path.read_text(encoding="utf-8"))
            send_facts(trainer.loggers, {"corpus": corpus["splits"], "padding": corpus["padding"], "machine": machine})
            if self.done == 0:
                send_picture(trainer.loggers, "corpus", path.with_suffix(".png"), self.done)

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        if not trainer.is_global_zero or not due(step, settings.val_every, settings.max_steps):
            return
        with self.time.stopped():
            send_samples(trainer.loggers, self.folder / "samples.jsonl", step)
            watched = self.config.logger.kind == "wandb"
            if self.sentence and (watched or step == settings.max_steps):
                self._draw_attention(trainer, step)

    def _draw_attention(self, trainer: pl.Trainer, step: int) -> None:
        path = self.folder / "attention.png"
        try:
            draw_cross_attention(attention_maps(self.translator, self.sentence), path)
        except (OSError, UserError) as error:  # the step's checkpoint, which comes next, is worth more
            log.warning("%s was not drawn: %s", path, error)
            return
        send_picture(trainer.loggers, "attention", path, step)
