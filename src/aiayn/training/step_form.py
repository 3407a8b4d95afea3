"""Chooses the form of a training step: packed or padded, compiled or not, as CUDA graphs or kernel
by kernel.
"""

from typing import NamedTuple

from aiayn.config.model import ModelConfig
from aiayn.config.resolve import SizedConfig
from aiayn.errors import ConfigError
from aiayn.hardware import Hardware, missing_for_compiling
from aiayn.training.module import TranslationModule
from aiayn.training.research import Research

WIDE = 512  # d_model from which compiled layers gain more than compiling takes


class StepForm(NamedTuple):
    """Why a step does without each of the faster forms; None if it uses that form."""

    why_padded: str | None  # not packed
    why_not_compiled: str | None
    why_not_graphed: str | None

    def __str__(self) -> str:
        packed = f"padded ({self.why_padded})" if self.why_padded else "packed sentences"
        compiled = (
            f"not compiled ({self.why_not_compiled})"
            if self.why_not_compiled
            else "compiled layers"
        )
        graphed = (
            f"no CUDA graphs ({self.why_not_graphed})"
            if self.why_not_graphed
            else "two CUDA graphs"
        )
        return f"{packed}, {compiled}, {graphed}"


def step_form(config: SizedConfig, hardware: Hardware, research: Research) -> StepForm:
    """Chooses the form of a step. Raises ConfigError where one is asked for and impossible."""
    why_padded = _chosen(
        "packed", config.trainer.packed, _why_padded(config.model, hardware, research)
    )
    if not why_padded and config.trainer.packed == "auto" and research.ids:
        why_padded = "extension code may need padded batches; if not, set trainer.packed=true"
    why_not_compiled = why_padded and "padded batches have many shapes"
    why_not_compiled = _chosen("compile", config.trainer.compile, why_not_compiled)
    if config.trainer.compile == "auto" and config.model.d_model < WIDE:
        why_not_compiled = why_not_compiled or "compiling a narrow model takes longer than it gains"
    why_not_graphed = why_padded and "padded batches have many shapes"
    why_not_graphed = why_not_graphed or _why_not_graphed(config, hardware, research)
    return StepForm(
        why_padded, why_not_compiled, _chosen("graphs", config.trainer.graphs, why_not_graphed)
    )


def _chosen(name: str, value: bool | str, why_not: str | None) -> str | None:
    """Returns why a form is not taken: impossible, or not wanted. Raises ConfigError if it is
    both.
    """
    if value is True and why_not:
        raise ConfigError(f"trainer.{name}=true: {why_not}; set trainer.{name}=auto")
    return why_not if value else f"trainer.{name}=false"


def _why_padded(model: ModelConfig, hardware: Hardware, research: Research) -> str | None:
    if hardware.accelerator != "gpu":
        return "packing needs a GPU"
    if missing := missing_for_compiling():
        return f"there is no {missing}"
    if hardware.precision == "64-true":
        return "packing does not support trainer.precision=64-true"
    if model.attention_dropout:
        return "packing does not support model.attention_dropout"
    return "the model has parts of an extension" if model.parts else None


def _why_not_graphed(config: SizedConfig, hardware: Hardware, research: Research) -> str | None:
    if research.module is not TranslationModule or research.callbacks or research.extensions:
        return "extension code may not work in a CUDA graph"
    if hardware.precision == "16-mixed":
        return "the gradient scaler of trainer.precision=16-mixed is asked at every step"
    if config.trainer.strategy == "ddp_find_unused_parameters_true":
        return f"trainer.strategy={config.trainer.strategy}"
    return None
