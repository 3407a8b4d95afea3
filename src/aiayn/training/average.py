"""The average of the last checkpoints (section 6.1), and whether it or the best checkpoint is the run's result."""

import logging
from collections.abc import Mapping
from copy import copy
from dataclasses import replace

import torch

from aiayn.config.tasks import VAL_METRICS
from aiayn.config.trainer import TrainerConfig
from aiayn.data.datamodule import TranslationDataModule
from aiayn.evaluation.score_table import short_outputs
from aiayn.evaluation.tasks import task_of
from aiayn.hardware import choose_device
from aiayn.kernels.accelerate import accelerate
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import is_number, series, write_json
from aiayn.search.translator import Translator
from aiayn.training.callbacks.display import DECIMALS
from aiayn.training.context import RunContext
from aiayn.training.module import means

log = logging.getLogger(__name__)

# Lightning's names of precisions: for weights and products, and for products only.
WHOLE = {"bf16-true": torch.bfloat16, "64-true": torch.float64}
MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def compare_with_best(run: RunContext, averaged: Checkpoint, data: TranslationDataModule, precision: str) -> None:
    """Validates the average and writes whether the best checkpoint is better, for `RunFolder.default_checkpoint`."""
    folder, best_step = run.folder, run.validations.best_step
    if best_step is None or not folder.best.exists():
        folder.validated.unlink(missing_ok=True)
        return
    measured = validate(averaged, run, data, precision)
    records = [record for record in folder.read_metrics() if record["step"] == best_step]
    best = {name: found[-1][1] for name in measured if (found := series(records, name))}
    worse = is_worse(measured, best, run.config.trainer)
    run.check_folder()
    finite = {name: value if is_number(value) else None for name, value in measured.items()}
    write_json(folder.validated, {"averaged": finite, "best": {"step": best_step} | best, "worse": worse})
    log.info("         %s", _shown(measured))
    log.info("best     %s, at step %d by %s: checkpoint=best", _shown(best), best_step, run.validations.metric)
    if warning := short_outputs(measured.get("val/length_ratio")):
        log.warning("warning  %s", warning)
    if worse:
        log.warning(
            "warning  the average is worse than best.ckpt, which is used from now on where no checkpoint is named; "
            "checkpoint=averaged chooses the average"
        )


def validate(averaged: Checkpoint, run: RunContext, data: TranslationDataModule, precision: str) -> dict[str, float]:
    """Returns what a validation during training measures; `precision` is Lightning's name of it."""
    config = run.config
    device = choose_device(config.trainer.accelerator)
    module = run.research.module(config, averaged.vocab_size)
    checkpoints.restore(module.model, averaged)
    accelerate(module.model, device)
    module.to(device, dtype=WHOLE.get(precision)).eval()
    mixed = MIXED.get(precision)
    alone = copy(data)
    alone.trainer = None  # else these would be the batches of one rank of several
    sums = torch.zeros(4, dtype=torch.float64)
    with torch.no_grad(), torch.autocast(device.type, mixed, enabled=mixed is not None):
        for batch in alone.val_dataloader():
            sums += module.evaluation_sums(batch.to(device)).cpu()
    metrics = means("val", sums)
    sources, references = (side[: config.trainer.val_bleu_sentences] for side in run.validation_text)
    if not sources:
        return metrics
    search = replace(config.search, beam_size=1)
    hypotheses = Translator(module.model, run.prepared.tokenizer, search, device).translate(sources)
    return metrics | task_of(config.data.task).val_scores(hypotheses, sources, references, config.data.tgt_lang)


def is_worse(averaged: Mapping[str, float], best: Mapping[str, float], settings: TrainerConfig) -> bool:
    """Whether the average is worse than the best validation by `trainer.best_metric`, and better by no other metric.

    Both count, because on small texts the loss rises while translations still get better, and because the BLEU of a
    few hundred sentences is noisy.
    """
    measured = [name for name in ("val/loss", *VAL_METRICS) if name in averaged and name in best]
    gains = {name: (averaged[name] - best[name]) * (-1 if name == "val/loss" else 1) for name in measured}
    # The loss of the same weights differs by rounding. In this form NaN is worse than everything.
    rounding = 1e-4 * abs(best[settings.best_metric]) if settings.best_metric in best else 0
    return not gains.get(settings.best_metric, 0) >= -rounding and not any(gain > 0 for gain in gains.values())


def _shown(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.{DECIMALS[name]}f}" for name, value in metrics.items())
