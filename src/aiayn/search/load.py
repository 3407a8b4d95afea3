"""A translator in torch from checkpoints: model, tokenizer and device of a run, or of several as an ensemble."""

from collections.abc import Sequence

import torch

from aiayn.config.rules import one_of
from aiayn.config.search import PRECISIONS, SearchOverrides
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError
from aiayn.hardware import choose_device, keep_few_kernels
from aiayn.kernels.accelerate import accelerate
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.build import load_model
from aiayn.search.ensemble import Ensemble, refuse_different
from aiayn.search.translator import Translator


def load_translator(
    checkpoint: Checkpoint,
    search: SearchOverrides | None = None,
    accelerator: str = "auto",
    precision: str = "float32",
    others: Sequence[Checkpoint] = (),
) -> Translator:
    """Returns the translator of a checkpoint, or of several as an ensemble. Raises what `from_run` raises."""
    one_of("precision", precision, PRECISIONS)
    if precision == "int8":
        raise ConfigError("precision=int8: only CTranslate2 computes in it; choose float32 or bfloat16")
    device = choose_device(accelerator)
    if device.type == "cpu":
        keep_few_kernels()
    options = search.apply(checkpoint.config.search) if search else checkpoint.config.search
    tokenizer = Tokenizer.from_json(checkpoint.tokenizer)
    for other in others:
        refuse_different(checkpoint, other)
    models = []
    for one in (checkpoint, *others):
        model = load_model(one).eval().to(getattr(torch, precision))
        models.append(accelerate(model, device, translates=True))
    data = checkpoint.config.data
    languages = (data.src_lang, data.tgt_lang)
    return Translator(Ensemble(models) if others else models[0], tokenizer, options, device, data.task, languages)
