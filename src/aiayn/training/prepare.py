"""Before training: infers and checks the options, prepares the data, plans the steps. Writes no
file of the run.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from aiayn.config.model import ModelConfig
from aiayn.config.resolve import CorpusSize, infer_sizes, resolve
from aiayn.config.schema import Config
from aiayn.config.trainer import TrainerConfig
from aiayn.data.corpus import PreparedCorpus
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.raw_text import RawText
from aiayn.data.sources import text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError
from aiayn.hardware import gpu_memory, machine_memory, tokens_per_device
from aiayn.model.flops import n_parameters
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.continuation import check_unchanged
from aiayn.runs.extensions import metric_falls
from aiayn.runs.run_folder import RunFolder
from aiayn.runs.validations import ValidationHistory
from aiayn.training.background_writer import BackgroundWriter
from aiayn.training.callbacks.display import Display
from aiayn.training.context import RunContext, TrainingClock, validated_lines
from aiayn.training.distributed.control_group import StopRequest
from aiayn.training.distributed.rank import global_rank
from aiayn.training.research import Research
from aiayn.training.resume import ResumeState, fill_as_stored

log = logging.getLogger(__name__)


def sized_options(
    options: Config, folder: RunFolder, chosen: Collection[str] | None, accelerator: str
) -> tuple[Config, Checkpoint | None]:
    """Returns the options, sizes inferred from the text or the first start, and the checkpoint that
    `init_from` names.

    Raises RefusedError for options that contradict the run's first start, ConfigError for a model
    that is too large.
    """
    source = None
    if options.init_from is not None:
        from aiayn.training.init_from import resolve_init_from

        options, source = resolve_init_from(options, options.init_from, folder, chosen)
    options = fill_as_stored(folder, options)
    sized = infer_sizes(options, lambda: text_of(options.data, "train").count())
    check_unchanged(folder, sized)
    check_size(sized.model, sized.data.vocab_size, accelerator, sized.data.src_vocab_size)
    return sized, source


def prepare(
    config: Config, source: Checkpoint | None, research: Research, *, packed: bool
) -> TranslationDataModule:
    """Returns the data module, with the corpus on disk; with `init_from` the vocabulary is that of
    the source.

    Which ranks prepare it, `data.prepare_per_node` says.
    """
    data = research.datamodule(
        replace(config.data, max_tokens_per_device=tokens_per_device(config)),
        seed=config.seed,
        devices=config.trainer.world_size,
        tokenizer=Tokenizer.from_json(source.tokenizer) if source else None,
    )
    data.packed = packed
    data.limit_val_batches = config.trainer.limit_val_batches
    if data.prepare_data_per_node or global_rank() == 0:
        data.prepare_data()
    else:
        data.wait_for_data(config.trainer.timeout)
    return data


def begin(
    sized: Config,
    research: Research,
    folder: RunFolder,
    data: TranslationDataModule,
    found: ResumeState | None,
    stop: StopRequest,
    check_folder: Callable[[], None],
) -> RunContext:
    """Reads the validation text and plans the steps. Returns the context of this start.

    That resumes from the checkpoint `found`, if any.
    """
    validation = text_of(sized.data, "val")
    check_positions(sized, data.corpus, validation)
    before, devices = found and found.checkpoint.micro_batches, sized.trainer.world_size
    if before and before % devices == 0:  # a run keeps its micro-batches, and so its dropout
        data.config = replace(data.config, micro_batches=before)
    data.setup("fit")
    if before not in (None, data.plan.micro_batches):
        log.warning(
            "warning  %d devices cannot share %d micro-batches a step: %d from now on, with "
            "other dropout",
            *(devices, before, data.plan.micro_batches),
        )
    steps = data.plan.steps_per_epoch
    config = resolve(sized, CorpusSize(len(data.corpus.train), steps))
    start_step = found.checkpoint.step if found else 0
    falls = metric_falls(research.metrics, config.trainer.best_metric)
    recorded = [record for record in folder.read_metrics() if record["step"] <= start_step]
    if found and any("val/loss" in record for record in recorded):
        warn_of_other_validations(found.checkpoint.config.trainer, config.trainer)
    return RunContext(
        config=config,
        research=research,
        folder=folder,
        prepared=data.corpus,
        plan=data.plan,
        # Read now: it may be invalid even if the prepared corpus is fine, and we must fail before
        # writing.
        validation_text=validation.read() if config.trainer.val_bleu_sentences else ([], []),
        start_step=start_step,
        validations=ValidationHistory(config.trainer, recorded, falls),
        stop=stop,
        writer=BackgroundWriter(check_folder),
        clock=TrainingClock(),
        display=Display(config.trainer.max_steps, config.trainer.enable_progress_bar),
        check_folder=check_folder,
    )


def warn_of_other_validations(before: TrainerConfig, now: TrainerConfig) -> None:
    for key in ("limit_val_batches", "val_bleu_sentences"):
        was, is_now = (
            str(getattr(before, key)),
            str(getattr(now, key)),
        )  # 1 is one batch, and 1.0 are all
        if was != is_now:
            log.warning(
                "warning  trainer.%s: %s -> %s: validations before and after are of other "
                "sentences; best.ckpt and trainer.patience compare them all the same",
                *(key, was, is_now),
            )


def check_size(
    model: ModelConfig, vocab_size: int, accelerator: str = "cpu", src_vocab_size: int | None = None
) -> None:
    """Raises ConfigError for a model whose weights exceed this machine's memory: building it would
    fail, or hang.

    On a GPU, weights, gradients and Adam's two moments must fit its memory.
    """
    n, memory, what = (
        n_parameters(model, vocab_size, src_vocab_size),
        machine_memory(),
        ", and this machine has",
    )
    copies = 1
    if accelerator == "gpu" and 4 * n <= memory:
        copies, memory, what = (
            4,
            gpu_memory(),
            " with gradients and Adam's moments, and this GPU has",
        )
    if 4 * copies * n > memory:
        names = ["n_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v"]
        if model.positions == "learned":
            names.append("max_positions")
        sizes = [
            f"model.{name}={getattr(model, name)}"
            for name in names
            if getattr(model, name) is not None
        ]
        sizes += [f"data.src_vocab_size={src_vocab_size}"] if src_vocab_size else []
        raise ConfigError(
            f"model: its {n / 1e9:,.1f} billion parameters take {4 * copies * n / 1e9:,.0f} "
            f"GB{what} {memory / 1e9:,.0f}; lower the largest of {', '.join(sizes)}, "
            f"data.vocab_size={vocab_size}"
        )


def check_positions(config: Config, prepared: PreparedCorpus, validation: RawText) -> None:
    """Raises DataError, naming the line, for a validation sentence longer than the model's learned
    positions.

    Training text is no longer than `data.max_length`, for which `Config` requires enough of them.
    """
    if config.model.positions != "learned":
        return
    most, extra = config.model.max_positions, config.search.max_extra_tokens
    longest = int(max(side.lengths.max() for side in (prepared.val.src, prepared.val.tgt))) - 1
    if longest + 1 + extra <= most:
        return
    sides = config.data.src_lang, config.data.tgt_lang
    pairs = list(zip(*validation.read(), strict=True))
    chosen = {*validated_lines(config, len(pairs))}
    for number, pair in enumerate(pairs, 1):
        # The end mark takes a position; a translation may have max_extra_tokens more than its
        # source.
        translated = number - 1 in chosen
        limits = most - 1 - extra * translated, most - 1
        tokenizers = prepared.tokenizer.source, prepared.tokenizer
        for side, tokenizer, line, limit in zip(sides, tokenizers, pair, limits, strict=True):
            if (length := len(tokenizer.encode([tokenizer.normalise(line)])[0])) > limit:
                raise DataError(
                    f"data.val={config.data.val}: line {number} ({side}) has {length} subwords, "
                    f"model.max_positions={most} learned positions allow {limit} "
                    f"(search.max_extra_tokens={extra}); raise model.max_positions, or split or "
                    "remove the line on both sides"
                )
