"""Everything before the first step: sizes and data, then what callbacks know of the run.

`RunSpec` holds values, `RunServices` what acts. Nothing here writes a file of the run.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from aiayn.config.extensions import constraint_of, is_lower_better, own_options
from aiayn.config.model import NARROW, ModelConfig
from aiayn.config.resolve import RunConfig, SizedConfig, resolve
from aiayn.config.rules import listed
from aiayn.config.schema import Config
from aiayn.config.training import TrainerOptions
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.cleaning import normalise
from aiayn.data.corpus import PreparedCorpus
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.raw_text import RawText
from aiayn.data.sources import text_of
from aiayn.errors import ConfigError, DataError, counted
from aiayn.hardware import (
    Hardware,
    gpu_memory,
    machine_memory,
    missing_for_compiling,
    tokens_per_device,
)
from aiayn.model.flops import n_parameters
from aiayn.runs.checkpoint_folder import ResumeState
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.continuation import ValidationHistory, end_reason
from aiayn.runs.run_folder import RunFolder
from aiayn.search.build import load_tokenizer
from aiayn.search.translator import Translator
from aiayn.training.callbacks.display import Display
from aiayn.training.distributed.ranks import StopRequest, global_rank
from aiayn.training.module import TranslationModule
from aiayn.training.research import Research

if TYPE_CHECKING:
    from aiayn.training.checkpoint_io import BackgroundWriter

log = logging.getLogger(__name__)

WIDE = 512  # d_model from which compiled layers gain more than compiling takes


class StepForm(NamedTuple):
    """Why a step does without each of the faster forms; None if it uses that form."""

    why_padded: str | None  # not packed
    why_not_compiled: str | None
    why_not_graphed: str | None  # called kernel by kernel

    @property
    def is_packed(self) -> bool:
        return self.why_padded is None

    def __str__(self) -> str:
        fast = ("packed sentences", "compiled layers", "two CUDA graphs")
        plain = ("padded", "not compiled", "no CUDA graphs")
        forms = zip(fast, plain, self, strict=True)
        return ", ".join(f"{slower} ({why})" if why else faster for faster, slower, why in forms)


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One start of a run, as values that never change."""

    config: RunConfig
    research: Research  # the module, and what is added to it
    hardware: Hardware
    form: StepForm
    corpus: PreparedCorpus
    plan: BatchPlan  # which pairs make up each training step
    validation_text: tuple[list[str], list[str]]  # sources, references; empty without val/bleu
    checkpoint: ResumeState | None  # to resume from
    start_step: int  # the optimizer steps that earlier starts have done
    end_reason: str | None  # why the training ended at start_step; None where it goes on
    is_finished: bool  # earlier starts have also averaged it

    @property
    def epoch_steps(self) -> int:
        """Returns the optimizer steps of an epoch."""
        return self.config.trainer.steps_of_epoch(self.plan.steps_per_epoch)

    def translator(self, module: TranslationModule) -> Translator:
        """Translates with the model in training, greedily."""
        search = replace(self.config.search, beam_size=1)
        tokenizer = self.corpus.tokenizer
        constraint = constraint_of(self.research.extensions, tokenizer)
        return Translator(module.model, tokenizer, search, module.device, constraint=constraint)


class TrainingClock:
    """Seconds spent on training steps: validations and saves are left out."""

    _paused = 0.0

    def now(self) -> float:
        return time.monotonic() - self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._paused += time.monotonic() - start


@dataclass(frozen=True, eq=False)
class RunServices:
    """What callbacks share and act through."""

    folder: RunFolder
    check_folder: Callable[[], None]  # raises RefusedError if another folder is at its path
    writer: "BackgroundWriter"  # writes checkpoints
    stop: StopRequest  # of any rank
    validations: ValidationHistory  # up to now
    clock: TrainingClock
    display: Display


def step_form(config: SizedConfig, hardware: Hardware, research: Research) -> StepForm:
    """Chooses the form of a step. Raises ConfigError where one is asked for and impossible."""
    trainer, model = config.trainer, config.model
    on_cpu = hardware.accelerator != "gpu"
    missing = None if on_cpu else missing_for_compiling()
    has_code = research.module is not TranslationModule or research.callbacks or research.extensions
    is_auto = trainer.packed == "auto"
    why_padded = _why_not(
        "packed",
        trainer.packed,
        (missing, f"there is no {missing}"),
        (
            hardware.precision == "64-true" and not on_cpu,
            "packing does not support trainer.precision=64-true",
        ),
        (model.attention_dropout, "packing does not support model.attention_dropout"),
        (model.parts, "the model has parts of an extension"),
        (
            is_auto and research.ids,
            "extension code may need padded batches; if not, set trainer.packed=true",
        ),
        (
            is_auto and on_cpu and not hardware.precision.startswith("bf16"),
            "on a CPU packing gains little outside bfloat16",
        ),
        (
            is_auto and on_cpu and model.d_model <= NARROW,
            f"on a CPU trainer.packed=auto packs from model.d_model={NARROW + 1}",
        ),
    )
    many_shapes = (
        why_padded or on_cpu,
        f"{'padded' if why_padded else 'on a CPU, packed'} batches have many shapes",
    )
    why_not_compiled = _why_not(
        "compile",
        trainer.compile,
        many_shapes,
        (
            trainer.compile == "auto" and model.d_model < WIDE,
            "compiling a narrow model takes longer than it gains",
        ),
    )
    why_not_graphed = _why_not(
        "graphs",
        trainer.graphs,
        many_shapes,
        (has_code, "extension code may not work in a CUDA graph"),
        (
            hardware.precision == "16-mixed",
            "the gradient scaler of trainer.precision=16-mixed is read at every step",
        ),
        (
            trainer.strategy == "ddp_find_unused_parameters_true",
            f"trainer.strategy={trainer.strategy}",
        ),
    )
    return StepForm(why_padded, why_not_compiled, why_not_graphed)


def _why_not(name: str, value: bool | str, *obstacles: tuple[object, str]) -> str | None:
    """Returns why a form of the step is not used: it is impossible, or turned off. Raises
    ConfigError if it is asked for and impossible.
    """
    reason = next((reason for is_met, reason in obstacles if is_met), None)
    if value is True and reason:
        raise ConfigError(f"trainer.{name}=true: {reason}; set trainer.{name}=auto")
    return reason if value else f"trainer.{name}=false"


def make_data(
    config: SizedConfig,
    source: Checkpoint | None,
    research: Research,
    hardware: Hardware,
    *,
    packed: bool,
) -> TranslationDataModule:
    """Returns the data module, with the corpus on disk; with `init_from` the vocabulary is that of
    the source.

    `data.prepare_per_node` decides which ranks prepare it.
    """
    datamodule = research.datamodule(
        replace(config.data, max_tokens_per_device=tokens_per_device(config, packed)),
        seed=config.seed,
        devices=config.trainer.world_size,
        tokenizer=load_tokenizer(source) if source else None,
    )
    datamodule.options = own_options(research.datamodule, config.extension)
    datamodule.packed = packed
    datamodule.one_shape = hardware.accelerator == "gpu"
    datamodule.limit_val_batches = config.trainer.limit_val_batches
    if datamodule.prepare_data_per_node or global_rank() == 0:
        datamodule.prepare_data()
    else:
        datamodule.wait_for_data(config.trainer.timeout)
    return datamodule


def begin(
    sized: SizedConfig,
    research: Research,
    hardware: Hardware,
    form: StepForm,
    datamodule: TranslationDataModule,
    checkpoint: ResumeState | None,
    folder: RunFolder,
) -> tuple[RunSpec, ValidationHistory]:
    """Reads the validation text, plans the steps, and resolves the options.

    Returns what is trained, and the validations up to the checkpoint to resume from, if any.
    """
    text = text_of(sized.data, "val")
    if sized.model.positions == "learned":
        check_positions(sized, datamodule.corpus, text)
    stored, devices = checkpoint and checkpoint.checkpoint, sized.trainer.world_size
    if stored and stored.micro_batches % devices == 0:  # a run keeps them, and so its dropout
        datamodule.config = replace(datamodule.config, micro_batches=stored.micro_batches)
    datamodule.setup("fit")
    plan = datamodule.plan
    if stored and stored.micro_batches != plan.micro_batches:
        log.warning(
            "warning  %d devices cannot share %s per step evenly: %d from now on, which changes "
            "dropout",
            devices,
            counted(stored.micro_batches, "micro-batch"),
            plan.micro_batches,
        )
    config = resolve(sized, len(datamodule.corpus.train), plan.steps_per_epoch)
    trainer = config.trainer
    start_step = stored.step if stored else 0
    records = [record for record in folder.read_metrics() if record["step"] <= start_step]
    if stored and any("val/loss" in record for record in records):
        warn_of_other_validations(stored.config.trainer, trainer)
    is_lower = is_lower_better(research.metrics, trainer.best_metric)
    validations = ValidationHistory(trainer, records, is_lower)
    ended_by = end_reason(folder, trainer, start_step, validations) if stored else None
    spec = RunSpec(
        config=config,
        research=research,
        hardware=hardware,
        form=form,
        corpus=datamodule.corpus,
        plan=plan,
        # Read now: it may be invalid even if the prepared corpus is fine, and we must fail before
        # writing.
        validation_text=text.read() if trainer.val_bleu_sentences else ([], []),
        checkpoint=checkpoint,
        start_step=start_step,
        end_reason=ended_by,
        is_finished=ended_by is not None and folder.averaged.exists(),
    )
    return spec, validations


def warn_of_other_validations(stored: TrainerOptions, trainer: TrainerOptions) -> None:
    for key in ("limit_val_batches", "val_bleu_sentences"):
        # As text: 1 is one batch, and 1.0 are all.
        was, is_now = str(getattr(stored, key)), str(getattr(trainer, key))
        if was != is_now:
            log.warning(
                "warning  trainer.%s: %s -> %s: validations now use other sentences, but "
                "best.ckpt and trainer.patience still compare them with earlier ones",
                *(key, was, is_now),
            )


def check_size(
    model: ModelConfig, vocab_size: int, accelerator: str = "cpu", src_vocab_size: int | None = None
) -> None:
    """Raises ConfigError for a model whose weights exceed this machine's memory: building it would
    fail, or hang.

    On a GPU, weights, gradients and Adam's two moments must fit its memory.
    """
    n = n_parameters(model, vocab_size, src_vocab_size)
    needed, memory, available = 4 * n, machine_memory(), ", and this machine has"
    if accelerator == "gpu" and needed <= memory:
        needed, memory = 16 * n, gpu_memory()
        available = " with gradients and Adam's moments, and this GPU has"
    if needed <= memory:
        return
    names = ["n_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v"]
    names += ["max_positions"] * (model.positions == "learned")
    sizes = {f"model.{name}": getattr(model, name) for name in names}
    sizes |= {"data.src_vocab_size": src_vocab_size, "data.vocab_size": vocab_size}
    set_sizes = [f"{key}={value}" for key, value in sizes.items() if value is not None]
    raise ConfigError(
        f"model: its {n / 1e9:,.1f} billion parameters take {needed / 1e9:,.0f} GB{available} "
        f"{memory / 1e9:,.0f}; lower one or more of {', '.join(set_sizes)}"
    )


def check_positions(config: Config, prepared: PreparedCorpus, validation: RawText) -> None:
    """Raises DataError, naming the line, for a validation sentence longer than the model's learned
    positions.

    Training text is no longer than `data.max_length`, for which `Config` requires enough of them.
    """
    most, extra = config.model.max_positions, config.search.max_extra_tokens
    longest = max(side.lengths.max() for side in (prepared.val.src, prepared.val.tgt))
    if longest + extra <= most:
        return
    sides = (
        (config.data.src_lang, prepared.tokenizer.source),
        (config.data.tgt_lang, prepared.tokenizer),
    )
    pairs = list(zip(*validation.read(), strict=True))
    translated = validated_lines(config, len(pairs))
    for index, pair in enumerate(pairs):
        # The end mark takes a position; a translation may have max_extra_tokens more than its
        # source.
        limits = most - 1 - extra * (index in translated), most - 1
        for (lang, tokenizer), line, limit in zip(sides, pair, limits, strict=True):
            if (length := len(tokenizer.encode([normalise(line)])[0])) > limit:
                raise DataError(
                    f"data.val={config.data.val}: line {index + 1} ({lang}) has {length} subwords, "
                    f"model.max_positions={most} learned positions allow {limit} "
                    f"(search.max_extra_tokens={extra}); raise model.max_positions, or split or "
                    "remove the line on both sides"
                )


def validated_lines(config: Config, total: int) -> Sequence[int]:
    """Returns which lines of the validation text are translated: the first, or of several files
    some of each.
    """
    count = min(config.trainer.val_bleu_sentences, total)
    if len(listed(config.data.val)) == 1:
        return range(count)
    return [n * total // count for n in range(count)]
