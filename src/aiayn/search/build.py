"""A model from its configuration, with the parts that extensions bring."""

from dataclasses import fields, replace

from aiayn.config.model import ModelConfig
from aiayn.errors import ConfigError
from aiayn.model.layers import Parts
from aiayn.model.overrides import HalfOverriddenError
from aiayn.model.transformer import Transformer
from aiayn.runs.extensions import parts_of


def build_model(config: ModelConfig, vocab_size: int) -> Transformer:
    """Returns the model with fresh weights.

    Raises RefusedError if it has parts of a file that was not named, ConfigError for parts that a search would ignore.
    """
    parts = Parts()
    for brought in parts_of(config.parts):
        others = {field.name: getattr(brought, field.name) for field in fields(Parts)}
        parts = replace(parts, **{name: part for name, part in others.items() if part is not getattr(Parts(), name)})
    try:
        return Transformer(config, vocab_size, parts)
    except HalfOverriddenError as error:
        raise ConfigError(f"extensions: {error}") from error
