"""A run's options as its pages show them."""

from contextlib import suppress

from aiayn.config.options import flatten, stored_config
from aiayn.errors import ConfigError
from aiayn.model.flops import n_parameters
from aiayn.runs.run_folder import Record

PARAMETERS = "parameters (M)"


def sized(tree: Record) -> Record:
    """Returns stored options by dotted name, with d_k and d_v as they follow from others, and PARAMETERS as text."""
    options = flatten(tree)
    with suppress(ConfigError, ValueError, TypeError, AttributeError):  # written by another version of this program
        config = stored_config(tree)
        model = config.model
        options |= {"model.d_k": model.key_size, "model.d_v": model.value_size}
        options[PARAMETERS] = f"{n_parameters(model, config.data.vocab_size) / 1e6:.2f}"
    return options
