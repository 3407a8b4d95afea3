"""Translation on several devices of this machine, by Lightning's predict loop: the same output as of one device."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset

from aiayn.config.rules import at_least
from aiayn.data.samplers import EvaluationSampler
from aiayn.errors import ConfigError
from aiayn.search.batches import Progress, longest_first
from aiayn.search.translator import Translator
from aiayn.training.distributed.local_ranks import local_ranks
from aiayn.training.trainer import configure_libraries

TIMEOUT = timedelta(minutes=30)  # that ranks wait for each other

T = TypeVar("T")


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
    """A translator whose batches are shared by the ranks; all of them call it alike and get all translations."""

    def __init__(self, translator: Translator, trainer: pl.Trainer):
        vars(self).update(vars(translator))
        self.device = trainer.strategy.root_device
        self.model = translator.model.to(self.device)
        self.trainer = trainer

    def _in_batches(
        self,
        ids: list[list[int]],
        beams: int,
        decode: Callable[[list[int]], list[T]],
        blank: Callable[[], T],
        first_line: int,
        on_batch: Progress | None,
    ) -> list[T]:
        """As `Translator._in_batches`, whose batches are dealt out to the ranks."""
        order, batches, start = longest_first(ids), [], 0
        while start < len(order):
            batches.append(self._next_batch(ids, order, start, beams))
            start += len(batches[-1])

        def decode_batch(batch: list[int]) -> list[tuple[int, T]]:
            return [one for found in self._decoded(ids, batch, beams, decode, first_line) for one in found]

        sampler = EvaluationSampler(len(batches), self.trainer)
        # Every rank gets equally many batches; those beyond the last have no lines.
        padded = [*batches, *([[]] * (len(sampler) * sampler.world_size - len(batches)))]
        dataset = cast(Dataset[list[int]], padded)  # a list has all that a Dataset needs
        loader = DataLoader(dataset, sampler=sampler, batch_size=None)
        share = _Prediction(decode_batch, len(ids), on_batch)
        try:
            self.trainer.predict(share, loader, return_predictions=False)
        except SystemExit as end:
            if isinstance(end.__context__, KeyboardInterrupt):  # which Lightning ends the program with code 1 for
                raise end.__context__ from None
            raise
        shares: list[Any] = [None] * sampler.world_size
        torch.distributed.all_gather_object(shares, (share.found, self.batch_tokens))
        results = [blank() for _ in ids]
        for found, _ in shares:
            for line, result in found:
                results[line] = result
        # A rank whose memory ran out has lowered its own; batches are planned by each rank, and must be the same.
        self.batch_tokens = min(batch_tokens for _, batch_tokens in shares)
        return results


class _Prediction(pl.LightningModule):
    """Lightning's view of a translator: a batch is the numbers of its lines."""

    def __init__(self, decode: Callable[[list[int]], list[tuple[int, Any]]], n_lines: int, on_batch: Progress | None):
        super().__init__()
        self.decode, self.n_lines, self.shown = decode, n_lines, on_batch
        self.found: list[tuple[int, Any]] = []
        self.done = 0

    def predict_step(self, batch: list[int], batch_idx: int) -> None:
        self.found += self.decode(batch)
        self.done += len(batch) * self.trainer.world_size
        if self.shown:  # by rank 0, of all: the others are about as far
            self.shown(min(self.done, self.n_lines), self.n_lines)
