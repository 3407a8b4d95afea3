"""Translation on several devices of this machine, by Lightning's predict loop: what one device writes, in its order."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader

from aiayn.config.schema import at_least
from aiayn.data.samplers import EvaluationSampler
from aiayn.errors import ConfigError
from aiayn.inference.translator import Progress, Translation, Translator
from aiayn.training.distributed.local_ranks import local_ranks
from aiayn.training.trainer import configure_libraries

TIMEOUT = timedelta(minutes=30)  # that ranks wait for each other

Found = list[tuple[int, list[Translation]]]  # number of a line, its translations


@contextmanager
def on_devices(translator: Translator, devices: int) -> Iterator[Translator]:
    """Yields a translator that shares the batches of its lines with `devices` - 1 further processes.

    These run the same command up to here and through the same calls; they write nothing, and end with the context.
    Raises ConfigError for devices that are not there.
    """
    at_least("devices", devices, 1, most=1000)
    if devices == 1:
        yield translator
        return
    configure_libraries()
    gpus, on_gpu = torch.cuda.device_count(), translator.device.type == "cuda"
    if on_gpu and gpus < devices:
        raise ConfigError(f"devices={devices}: this machine has {gpus} GPUs; lower it, or set accelerator=cpu")
    trainer = pl.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=devices,
        strategy=DDPStrategy(timeout=TIMEOUT),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer._signal_connector.register_signal_handlers = lambda: None
    with local_ranks(trainer):
        if trainer.local_rank:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (to the end of the process)
        yield SharedTranslator(translator, trainer)
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        if trainer.local_rank:
            raise SystemExit(0)


class SharedTranslator(Translator):
    """A translator whose searches are shared by the ranks; all of them call it alike and get all translations."""

    def __init__(self, translator: Translator, trainer: pl.Trainer):
        vars(self).update(vars(translator))
        self.device = trainer.strategy.root_device
        self.model = translator.model.to(self.device)
        self.trainer = trainer

    def n_best(
        self, lines: list[str], n: int, on_batch: Progress | None = None, first_line: int = 1
    ) -> list[list[Translation]]:
        """As `Translator.n_best`, whose batches are dealt out to the ranks."""
        batches = self.planned_batches(lines, first_line)
        sampler = EvaluationSampler(len(batches), self.trainer)
        # Every rank gets equally many batches; those beyond the last have no lines.
        padded = [*batches, *([[]] * (len(sampler) * sampler.world_size - len(batches)))]
        loader = DataLoader(padded, sampler=sampler, batch_size=None)
        share = _Prediction(super().n_best, lines, n, on_batch)
        self.trainer.predict(share, loader, return_predictions=False)
        shares: list[Found] = [[] for _ in range(sampler.world_size)]
        torch.distributed.all_gather_object(shares, share.found)
        results = [[Translation()] for _ in lines]
        for line, translations in (pair for share in shares for pair in share):
            results[line] = translations
        return results


class _Prediction(pl.LightningModule):
    """Lightning's view of a translator: a batch is the numbers of its lines."""

    def __init__(self, search: Any, lines: list[str], n: int, on_batch: Progress | None):
        super().__init__()
        self.search, self.lines, self.n, self.shown = search, lines, n, on_batch
        self.found: Found = []
        self.done = 0

    def predict_step(self, batch: list[int], batch_idx: int) -> None:
        translations = self.search([self.lines[line] for line in batch], self.n) if batch else []
        self.found += zip(batch, translations, strict=True)
        self.done += len(batch) * self.trainer.world_size
        if self.shown:  # by rank 0, of all: the others are about as far
            self.shown(min(self.done, len(self.lines)), len(self.lines))
