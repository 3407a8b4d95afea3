"""Writes what describes a run: corpus.json, machine.json and the picture of its attention."""

import hashlib

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities.types import STEP_OUTPUT

from aiayn.data.batch import TrainingBatch
from aiayn.data.batch_plan import describe_corpus
from aiayn.errors import optional
from aiayn.files import lines_sha256
from aiayn.hardware import describe_machine
from aiayn.runs.run_folder import read_json, write_json
from aiayn.training.callbacks.steps import due, ends_step, translation_module
from aiayn.training.loggers import send_facts, send_picture, send_samples
from aiayn.training.start import RunServices, RunSpec


class RunArtifacts(Checkpoint):
    """Writes corpus.json at the first start and machine.json at every one; draws attention.png.

    The attention is that of one validation sentence: at the end, and with W&B and TensorBoard at
    every validation, where a slider leads through the pictures of one name.

    Lightning calls callbacks of this kind last, and this one after CheckpointSaver: a picture or a
    dashboard that fails costs one line, and no checkpoint.
    """

    def __init__(self, run: RunSpec, services: RunServices):
        self.run, self.services = run, services
        sentences = [line for line in run.validation_text[0][:5] if line.strip()]
        self.sentence = min(sentences, key=len, default=None)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        folder, prepared = self.services.folder, self.run.corpus
        with self.services.clock.paused():
            machine = describe_machine(pl_module.device, trainer.precision, trainer.world_size)
            write_json(folder.machine, machine)
            corpus = read_json(folder.corpus)
            if "fingerprint" not in corpus:
                subwords = prepared.val.src.flat.tobytes() + prepared.val.tgt.flat.tobytes()
                # Only runs of the same text are seeds of each other (`reports/groups.py`).
                corpus = describe_corpus(prepared, self.run.plan) | {
                    "fingerprint": prepared.fingerprint,
                    "tokenizer_sha256": prepared.tokenizer.fingerprint,
                    "val_sha256": hashlib.sha256(subwords).hexdigest(),
                    "val_text_sha256": lines_sha256(*self.run.validation_text),
                }
                write_json(folder.corpus, corpus)
            facts = {"corpus": corpus["splits"], "padding": corpus["padding"], "machine": machine}
            with optional("the description of data and machine for the dashboard"):
                send_facts(trainer.loggers, facts)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: STEP_OUTPUT,
        batch: TrainingBatch,
        batch_idx: int,
    ) -> None:
        if not (ends_step(trainer, batch_idx) and trainer.is_global_zero):
            return
        step, settings, logger = (
            trainer.global_step,
            self.run.config.trainer,
            self.run.config.logger,
        )
        ends = trainer.should_stop and not self.services.stop.signal
        if not (ends or due(step, settings.val_every, settings.max_steps)):
            return
        # A dashboard has a slider of pictures over the steps. They hold text.
        is_shown = "tensorboard" in logger.kinds or ("wandb" in logger.kinds and logger.samples)
        with self.services.clock.paused():
            with optional("the translations for the dashboard"):
                send_samples(trainer.loggers, self.services.folder.samples, step, logger.samples)
            if self.sentence and (ends or step == settings.max_steps or is_shown):
                path = self.services.folder.attention_picture
                with optional(path):
                    from aiayn.visualize.figures import draw_cross_attention
                    from aiayn.visualize.maps import attention_maps

                    translator = self.run.translator(translation_module(pl_module))
                    draw_cross_attention(attention_maps(translator, self.sentence), path)
                    send_picture(trainer.loggers, "attention", path, step, logger.samples)
