"""Lightning's data module: prepares the text, opens it, and loads batches of the paper's shape.

    data = TranslationDataModule(aiayn.compose("data=multi30k_en_de").data)
    data.prepare_data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))

It works without a Trainer, as here, and with any Lightning Trainer.
"""

import math
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

from aiayn.config.data import DataConfig
from aiayn.config.stored import as_option
from aiayn.config.training import limited
from aiayn.data.batch import (
    Batch,
    SourceBatch,
    TrainingBatch,
    collate,
    pack,
    pad_sources,
    padded,
)
from aiayn.data.batch_plan import BatchPlan, MicroBatch, evaluation_batches, repetitions
from aiayn.data.cleaning import learned_target, normalise
from aiayn.data.corpus import PreparedCorpus, PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.data.preparation import prepare_corpus
from aiayn.data.sources import text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError
from aiayn.signals import TERMINATION_SIGNALS

MAX_TOKENS_PER_DEVICE = 16_384  # used if data.max_tokens_per_device is null


class TranslationDataModule(pl.LightningDataModule):
    """Section 5.1: text, cleaned and cut into subwords, in batches of about `data.tokens_per_step`
    tokens.

    A step is the same on any number of devices and micro-batches. A Trainer's
    `accumulate_grad_batches` says in how many parts a device computes its share of a step; it does
    not make the step larger.
    """

    # An instance of the `Options` of the extension that brings a subclass
    options: Any = None

    def __init__(
        self,
        config: DataConfig,
        *,
        seed: int = 0,
        devices: int = 1,
        tokenizer: Tokenizer | None = None,
    ):
        """`seed` orders the steps; without a Trainer, `devices` share a step.

        Without a tokenizer, one is learned from the training text. Raises ConfigError for options
        that are null and can be settled by `aiayn train` only.
        """
        super().__init__()
        if config.vocab_size is None or config.tokens_per_step is None:
            raise ConfigError(
                f"data.vocab_size={as_option(config.vocab_size)}, "
                f"data.tokens_per_step={as_option(config.tokens_per_step)}: only `aiayn train` "
                "infers null values from the number of pairs; set both"
            )
        self.config = DataConfig(**vars(config))
        # Lightning reads it: whether one process of each machine calls `prepare_data`, or one of
        # all.
        self.prepare_data_per_node = self.config.prepare_per_node
        self.seed = seed
        self.devices = devices
        # padded tokens of a side
        usual = max(MAX_TOKENS_PER_DEVICE, config.max_length + 1)
        self._max_tokens = config.max_tokens_per_device or usual
        # whether training sentences lie one after the other, unpadded, in a `PackedBatch`
        self.packed = False
        # whether all packed batches have one shape, as compiled layers and CUDA graphs need
        self.one_shape = True
        # batches of all ranks together, or a share of them
        self.limit_val_batches: int | float = 1.0
        self._given_tokenizer = tokenizer
        self._corpus: PreparedCorpus | None = None
        self._plan: BatchPlan | None = None

    # What Lightning calls.

    def prepare_data(self) -> None:
        """Downloads, cleans, learns the BPE and encodes, unless that has been done: once for any
        number of processes.

        Raises DataError for text that cannot be used, and for a folder that cannot be read or
        written.
        """
        if self._corpus is None:
            self._corpus = prepare_corpus(self.config, self._given_tokenizer)

    def wait_for_data(self, silence: float) -> None:
        """Waits until another process has prepared the data; `silence`: seconds without a sign of
        it.

        Raises DataError as `prepare_corpus` does.
        """
        self._corpus = prepare_corpus(self.config, self._given_tokenizer, silence=silence)

    def setup(self, stage: str | None = None) -> None:
        """Opens what a stage needs: fit, validate, test or predict; None: what training needs.

        Raises ConfigError for a Trainer whose devices and accumulation do not fit the micro-batches
        of a step.
        """
        self.prepare_data()
        if stage in (None, "fit"):
            self._plan = self._training_plan()
        if stage in ("test", "predict"):
            _ = self._test

    def train_dataloader(self) -> DataLoader:
        """Returns this rank's micro-batches of an epoch, from the Trainer's present step on."""
        trainer, plan = self.trainer, self.plan
        # The number of slots is computed here, once for all loader processes.
        n_slots = plan.n_slots if plan.packed and self.one_shape else None
        sizes = (n_slots, self.config.max_length + 1) if plan.packed else None
        make = partial(_training_batch, self.corpus.train, plan, sizes)
        if trainer:
            batches, parts = limited_batches(plan, trainer), trainer.accumulate_grad_batches
            if batches % parts:
                raise ConfigError(
                    f"Trainer(limit_train_batches={trainer.limit_train_batches}): {batches} "
                    f"batches end within a step; set a multiple of accumulate_grad_batches={parts} "
                    "(overfit_batches and fast_dev_run set this limit, too)"
                )
        numbers = (lambda: numbers_from(plan, trainer, trainer.global_step)) if trainer else None
        count = plan.steps_per_epoch * plan.micro_batches
        return self._loader(count, make, numbers, self.config.num_workers)

    def val_dataloader(self) -> DataLoader:
        """Returns this rank's share of the validation pairs, in the largest batches that a device
        takes.
        """
        return self._evaluation_loader(self.corpus.val, self.limit_val_batches)

    def test_dataloader(self) -> DataLoader:
        """Returns this rank's share of the test pairs, which are neither cleaned nor dropped."""
        return self._evaluation_loader(self._test)

    def predict_dataloader(self) -> DataLoader:
        """Returns this rank's share of the sources of the test set, to translate; blank ones are
        left out.
        """
        sources = self._test.src
        lines = np.flatnonzero(sources.lengths > 1)
        lengths = [sources.lengths[lines]]
        batches = [lines[batch] for batch in evaluation_batches(lengths, self._max_tokens)]
        return self._loader(len(batches), partial(_source_batch, sources, batches))

    # For inspection.

    @property
    def corpus(self) -> PreparedCorpus:
        """Returns the prepared corpus. Raises RuntimeError before `prepare_data` or `setup`."""
        if self._corpus is None:
            raise RuntimeError("call prepare_data() and setup() first")
        return self._corpus

    @property
    def tokenizer(self) -> Tokenizer:
        return self.corpus.tokenizer

    @property
    def plan(self) -> BatchPlan:
        """Returns which pairs make up each training step. Raises RuntimeError before
        `setup("fit")`.
        """
        if self._plan is None:
            raise RuntimeError('call setup("fit") first')
        return self._plan

    def _training_plan(self) -> BatchPlan:
        """Returns a plan whose steps have as many micro-batches as the Trainer takes; without a
        Trainer, as memory requires.

        Raises ConfigError for a Trainer whose devices and accumulation do not fit.
        """
        trainer, config, train = self.trainer, self.config, self.corpus.train
        devices = trainer.world_size if trainer else self.devices
        micro_batches = trainer.accumulate_grad_batches * devices if trainer else None
        plan = self._plan or BatchPlan(
            train.src.lengths,
            train.tgt.lengths,
            tokens_per_step=config.tokens_per_step,
            parts=config.parts_per_step,
            seed=self.seed,
            micro_batches=config.micro_batches,
            devices=devices,
            max_tokens_per_device=self._max_tokens,
            repetitions=repetitions(self.corpus, config.temperature, config.weights),
            packed=self.packed,
        )
        count, parts, limit = plan.micro_batches, plan.parts, self._max_tokens
        if micro_batches in (None, count):
            return plan
        uneven = not plan.packed and micro_batches % parts and parts % micro_batches
        if config.micro_batches or uneven or not plan.fits(micro_batches, limit):
            raise ConfigError(
                f"Trainer(accumulate_grad_batches={micro_batches // devices}) on {devices} "
                f"devices cuts a step into {micro_batches} micro-batches, "
                f"but data.tokens_per_step={config.tokens_per_step}, data.parts_per_step={parts} "
                f"and data.micro_batches or data.max_tokens_per_device={limit} need {count}; set "
                f"accumulate_grad_batches={-(-count // devices)}"
            )
        plan.cut_into(micro_batches)
        return plan

    @cached_property
    def _test(self) -> PreparedSplit:
        """Returns every line of the test text, neither cleaned nor dropped."""
        self.prepare_data()
        sources, references = text_of(self.config, "test").read()
        targets = [learned_target(line, self.config.tags) for line in references]
        ids = (
            Sentences.of(tokenizer.encode(list(map(normalise, lines))))
            for tokenizer, lines in ((self.tokenizer.source, sources), (self.tokenizer, targets))
        )
        return PreparedSplit(Path(), "test", *ids)

    def _evaluation_loader(self, split: PreparedSplit, limit: int | float = 1.0) -> DataLoader:
        batches = evaluation_batches([split.src.lengths, split.tgt.lengths], self._max_tokens)
        count = limited(limit, len(batches))
        # A limited share still has batches of all lengths.
        batches = [batches[number * len(batches) // count] for number in range(count)]
        return self._loader(len(batches), partial(_evaluation_batch, split, batches))

    def _loader(
        self,
        count: int,
        make: Callable[[Any], Any],
        numbers: Callable[[], range] | None = None,
        workers: int = 0,
    ) -> DataLoader:
        """Returns a loader of `make(number)` for this rank's share of `count` numbers, or of those
        that `numbers` returns.
        """
        indices: Any = range(sys.maxsize)  # each is its own number
        return StepLoader(
            indices,
            sampler=RankSampler(count, self.trainer, numbers),
            batch_size=None,
            collate_fn=make,
            num_workers=workers,
            pin_memory=self.trainer is not None
            and self.trainer.strategy.root_device.type == "cuda",
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers else None,
            worker_init_fn=_start_worker,
        )


class RankSampler(DistributedSampler, SequentialSampler):
    """Samples every W-th number of a range for this rank; all W ranks get equally many.

    Lightning would replace a sampler of any other class than these two bases: on several devices by
    its own DistributedSampler, with `overfit_batches` by a SequentialSampler. Neither knows what
    makes up a step. It would leave an iterable of our own alone, but subclasses of the data module
    set attributes of the DataLoader that `train_dataloader` returns. What is loaded follows from
    the step, which a resumed training has restored, too, not from the epoch that Lightning sets.
    """

    def __init__(
        self, count: int, trainer: pl.Trainer | None, numbers: Callable[[], range] | None = None
    ):
        """count: numbers of a whole epoch. `numbers` is called whenever an epoch begins and returns
        those that are left of it.
        """
        self.rank = trainer.global_rank if trainer else 0
        self.world_size = trainer.world_size if trainer else 1
        self.count = -(-count // self.world_size)
        self.numbers = numbers or (lambda: range(self.count * self.world_size))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers()[self.rank :: self.world_size])


def limited_batches(plan: BatchPlan, trainer: pl.Trainer) -> int:
    """Returns the number of a rank's batches in an epoch. `limit_train_batches` is a number, which
    may be too large, or a share.
    """
    limit, batches = trainer.limit_train_batches, plan.steps_per_epoch * plan.micro_batches
    return limit if isinstance(limit, int) else int(limit * (batches // trainer.world_size))


def numbers_from(plan: BatchPlan, trainer: pl.Trainer, step: int) -> range:
    """Returns the micro-batches from an optimizer step of the Trainer, counted from 0, to the end
    of its epoch.
    """
    steps, size = plan.steps_per_epoch, plan.micro_batches
    limit = math.ceil(limited_batches(plan, trainer) * trainer.world_size / size)
    epoch, step_of_epoch = divmod(step, max(1, min(steps, limit)))
    if getattr(trainer, "overfit_batches", 0):  # the Trainer sets it without declaring it
        epoch = 0
    return range((epoch * steps + step_of_epoch) * size, (epoch + 1) * steps * size)


class StepLoader(DataLoader):
    """A stateless loader: its sampler starts from the Trainer's step. Lightning saves and restores
    an empty state.
    """

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Does nothing: a loader has no state."""


def _training_batch(
    split: PreparedSplit, plan: BatchPlan, sizes: tuple[int | None, int] | None, number: int
) -> TrainingBatch:
    micro_batch = plan.micro_batch(number)
    return (
        pack(split, micro_batch, number, *sizes) if sizes else collate(split, micro_batch, number)
    )


def _evaluation_batch(split: PreparedSplit, batches: list[np.ndarray], number: int) -> Batch:
    """Returns a batch of evaluation. Numbers beyond the last batch, for ranks with fewer batches
    than others, give batches without pairs.
    """
    pairs = batches[number] if number < len(batches) else np.empty(0, np.int64)
    return collate(split, MicroBatch(pairs, max(1, int(split.tgt.lengths[pairs].sum()))), number)


def _source_batch(sources: Sentences, batches: list[np.ndarray], number: int) -> SourceBatch:
    """Returns a batch of sources, without lines for numbers beyond the last batch."""
    if number >= len(batches):
        return SourceBatch([], pad_sources([[]]))
    return SourceBatch(batches[number].tolist(), padded(sources, batches[number])[0])


def _start_worker(worker: int) -> None:
    """Prepares a loader's process: it ignores signals to the whole job, because the training
    process needs it to finish the step, and sends tensors by value.
    """
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # For each tensor, torch would open a connection, which costs the training's process more.
    ForkingPickler.register(Tensor, lambda tensor: (torch.from_numpy, (tensor.numpy(),)))
