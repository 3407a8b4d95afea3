"""Lightning's data module: prepares the text, opens it, and loads batches of the paper's shape.

    data = TranslationDataModule(aiayn.compose("data=multi30k_en_de").data)
    data.prepare_data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))

It works without a Trainer, as here, and with any Lightning Trainer.
"""

import signal

import pytorch_lightning as pl
from torch.utils.data import DataLoader, Dataset, Sampler

from aiayn.config.data import DataConfig, DataOptions
from aiayn.config.stored import as_option
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.cleaning import normalise
from aiayn.data.corpus_store import PreparedCorpus, PreparedSplit
from aiayn.data.micro_batches import MicroBatches, SourceBatches
from aiayn.data.prepare import prepare, wait_for
from aiayn.data.samplers import EvaluationSampler, TrainingSampler
from aiayn.data.sources import text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError
from aiayn.signals import TERMINATION_SIGNALS

MAX_TOKENS_PER_DEVICE = 16_384  # where data.max_tokens_per_device is null


def _ignore_signals(worker: int) -> None:
    """Makes a loader worker ignore signals to the whole job: the training process needs it to finish the step."""
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class StepLoader(DataLoader):
    """A stateless loader: its sampler starts from the Trainer's step. Lightning saves and restores an empty state."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing to do."""


class TranslationDataModule(pl.LightningDataModule):
    """Section 5.1: text, cleaned and cut into subwords, in batches of about `data.tokens_per_step` tokens.

    A step is the same on any number of devices and micro-batches. A Trainer's `accumulate_grad_batches` says in how
    many parts a device computes its share of a step; it does not make the step larger.
    """

    def __init__(self, config: DataOptions, *, seed: int = 0, devices: int = 1, tokenizer: Tokenizer | None = None):
        """`seed` orders the steps; `devices` share a step where there is no Trainer to ask.

        Without a tokenizer, one is learned from the training text. Raises ConfigError for options that are null and can
        be settled by `aiayn train` only.
        """
        super().__init__()
        if config.vocab_size is None or config.tokens_per_step is None:
            raise ConfigError(
                f"data.vocab_size={as_option(config.vocab_size)}, data.tokens_per_step="
                f"{as_option(config.tokens_per_step)}: null is chosen by the number of pairs, in `aiayn train` only; "
                "set both"
            )
        self.config = DataConfig(**vars(config))
        self.prepare_data_per_node = self.config.prepare_per_node  # Lightning's name: who calls `prepare_data`
        self.seed = seed
        self.devices = devices
        self._given_tokenizer = tokenizer
        self._corpus: PreparedCorpus | None = None
        self._plan: BatchPlan | None = None
        self._test: tuple[list[list[int]], list[list[int]]] | None = None  # ids of every source and target

    # What Lightning calls.

    def prepare_data(self) -> None:
        """Downloads, cleans, learns the BPE and encodes, unless that has been done: once for any number of processes.

        Raises DataError for text that cannot be used, and for a folder that cannot be read or written.
        """
        if self._corpus is None:
            self._corpus = prepare(self.config, self._given_tokenizer)

    def wait_for_data(self, silence: float) -> None:
        """In place of `prepare_data`, where another process prepares; `silence`: seconds without a sign of it.

        Raises DataError as `prepare.wait_for` does.
        """
        self._corpus = wait_for(self.config, self._given_tokenizer, silence)

    def setup(self, stage: str | None = None) -> None:
        """Opens what a stage needs: fit, validate, test or predict; None: what training needs.

        Raises ConfigError for a Trainer whose devices and accumulation do not fit the micro-batches of a step.
        """
        self.prepare_data()
        if stage in (None, "fit"):
            self._plan = self._training_plan()
        if stage in ("test", "predict") and self._test is None:
            self._test = self._encoded("test")

    def train_dataloader(self) -> DataLoader:
        """This rank's micro-batches of an epoch, from the Trainer's present step on."""
        trainer, plan = self.trainer, self.plan
        if (
            trainer
            and isinstance(limit := trainer.limit_train_batches, int)
            and limit % trainer.accumulate_grad_batches
        ):
            raise ConfigError(
                f"Trainer(limit_train_batches={limit}) ends within a step of accumulate_grad_batches="
                f"{trainer.accumulate_grad_batches}: set a multiple of that"
            )
        sampler = TrainingSampler(plan.steps_per_epoch, plan.micro_batches, trainer)
        return self._loader(MicroBatches(self.corpus.train, plan), sampler, self.config.num_workers)

    def val_dataloader(self) -> DataLoader:
        """This rank's share of the validation pairs, in the largest batches that a device takes."""
        return self._evaluation_loader(self.corpus.val)

    def test_dataloader(self) -> DataLoader:
        """This rank's share of the test pairs, which are neither cleaned nor dropped."""
        if self._test is None:
            self.setup("test")
        assert self._test is not None
        return self._evaluation_loader(PreparedSplit.of("test", *self._test))

    def predict_dataloader(self) -> DataLoader:
        """This rank's share of the sources of the test set, to translate."""
        if self._test is None:
            self.setup("predict")
        assert self._test is not None
        dataset = SourceBatches(self._test[0], self._max_tokens())
        return self._loader(dataset, EvaluationSampler(len(dataset), self.trainer))

    # For inspection.

    @property
    def corpus(self) -> PreparedCorpus:
        """The prepared corpus. Raises RuntimeError before `prepare_data` or `setup`."""
        if self._corpus is None:
            raise RuntimeError("call prepare_data() and setup() first")
        return self._corpus

    @property
    def tokenizer(self) -> Tokenizer:
        return self.corpus.tokenizer

    @property
    def plan(self) -> BatchPlan:
        """Which pairs make up each training step. Raises RuntimeError before `setup("fit")`."""
        if self._plan is None:
            raise RuntimeError('call setup("fit") first')
        return self._plan

    def _max_tokens(self) -> int:
        limit = self.config.max_tokens_per_device
        return max(MAX_TOKENS_PER_DEVICE, self.config.max_length + 1) if limit is None else limit

    def _training_plan(self) -> BatchPlan:
        """A plan whose steps have as many micro-batches as the Trainer takes; without a Trainer, as memory requires."""
        trainer, config, train = self.trainer, self.config, self.corpus.train
        taken = trainer.accumulate_grad_batches * trainer.world_size if trainer else None
        if self._plan is not None and taken in (None, self._plan.micro_batches):
            return self._plan
        plan = BatchPlan(
            train.lengths.with_end_marks(),
            tokens_per_step=config.tokens_per_step,
            seed=self.seed,
            micro_batches=config.micro_batches,
            devices=trainer.world_size if trainer else self.devices,
            max_tokens_per_device=self._max_tokens(),
        )
        if trainer is None or taken is None or taken == plan.micro_batches:
            return plan
        if config.micro_batches is not None or not plan.fits(taken, self._max_tokens()):
            self._refuse_accumulation(trainer, plan)
        return plan.cut_into(taken)

    def _refuse_accumulation(self, trainer: pl.Trainer, plan: BatchPlan) -> None:
        """Raises ConfigError: the Trainer's devices and accumulation do not match the micro-batches of a step."""
        count, world_size = plan.micro_batches, trainer.world_size
        if self.config.micro_batches is None:
            # The plan's own number may be larger, so that more devices can share it.
            count = next(few for few in range(world_size, count + 1, world_size) if plan.fits(few, self._max_tokens()))
            why = f"data.max_tokens_per_device={self._max_tokens()} needs at least {count} parts of a step"
        else:
            why = f"data.micro_batches={count}"
        raise ConfigError(
            f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}) on {world_size} devices takes "
            f"{trainer.accumulate_grad_batches * world_size} micro-batches a step, but {why} "
            f"(data.tokens_per_step={self.config.tokens_per_step}): set accumulate_grad_batches="
            f"{-(-count // world_size)}"
        )

    def _encoded(self, split: str) -> tuple[list[list[int]], list[list[int]]]:
        """The ids of every line of a split."""
        src, tgt = (
            self.tokenizer.encode([normalise(line)[0] for line in side]) for side in text_of(self.config, split).read()
        )
        return src, tgt

    def _evaluation_loader(self, split: PreparedSplit) -> DataLoader:
        lengths = split.lengths.with_end_marks()
        limit = max(self._max_tokens(), lengths.longest)  # a longer sentence is a batch of its own
        plan = BatchPlan(lengths, tokens_per_step=limit, seed=0, max_tokens_per_device=limit)
        batches = MicroBatches(split, plan, once=True)
        return self._loader(batches, EvaluationSampler(len(batches), self.trainer))

    def _loader(self, dataset: Dataset, sampler: Sampler, workers: int = 0) -> DataLoader:
        return StepLoader(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers else None,
            worker_init_fn=_ignore_signals,
        )
