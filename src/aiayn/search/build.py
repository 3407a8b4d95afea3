"""The model of a run, as the run's module builds it, and its tokenizer: for training, average,
translation, export and pictures.
"""

from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from aiayn.config.extensions import (
    builders_of,
    builds_model,
    file_names,
    own_code_explained,
    warn_of_changed_files,
)
from aiayn.config.resolve import RunConfig
from aiayn.config.rules import require
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError, RefusedError
from aiayn.model.flops import n_parameters
from aiayn.model.layers import Parts
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint, restore

# What `nn.Linear`, and the model after it, draw weights with
DRAWS = (
    Tensor.uniform_,
    Tensor.normal_,
    nn.init.uniform_,
    nn.init.normal_,
    nn.init.kaiming_uniform_,
)


def load_model(checkpoint: Checkpoint) -> Transformer:
    """Returns the model of a checkpoint, on the CPU. Raises what `build_model` and `restore`
    raise, and RefusedError before it builds a model that is much larger than the weights.
    """
    config = checkpoint.config
    if config.model.parts is None:  # an extension may bring parts of any size
        size = sum(weight.numel() for weight in checkpoint.weights.values())
        stored = n_parameters(config.model, checkpoint.vocab_size, config.data.src_vocab_size)
        if stored > 2 * size:  # `restore` names smaller differences
            raise RefusedError(
                f"the checkpoint of step {checkpoint.step} has {size:,} parameters, but its "
                f"configuration describes a model with {stored:,}; choose another file"
            )
    warn_of_changed_files(config.extensions_sha256, config.model.parts)
    with _WithoutDraws(is_read=config.model.parts is not None):
        model = build_model(checkpoint.config, checkpoint.vocab_size)
    restore(model, checkpoint)
    return model


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Returns the tokenizer of a checkpoint. Raises RefusedError, which names the file, if it is
    not one of this program.
    """
    try:
        return Tokenizer.from_json(checkpoint.tokenizer)
    except DataError as error:
        file = checkpoint.path or f"the checkpoint of step {checkpoint.step}"
        raise RefusedError(f"{file}: its tokenizer is {error}; choose another file") from error


class _WithoutDraws(TorchFunctionMode):
    """Leaves weights that would be drawn at random as their memory was, which takes no time: a
    checkpoint has all of them. `is_read`: at zero, because code of an extension may read them.
    """

    def __init__(self, is_read: bool):
        super().__init__()
        self.is_read = is_read

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in DRAWS:
            weight = kwargs["tensor"] if "tensor" in kwargs else args[0]
            if isinstance(weight, nn.Parameter):
                if self.is_read:
                    weight.detach().zero_()
                return weight
        return func(*args, **kwargs)


def build_model(config: RunConfig, vocab_size: int) -> Transformer:
    """Returns the model with fresh weights. Raises RefusedError if code of a file that was not
    named builds it, ConfigError if that code fails.
    """
    modules: list[Any] = [
        getattr(code, "Module", object) for code in builders_of(config.model.parts)
    ]
    build = next(
        (module.build_model for module in modules if builds_model(module)), build_from_parts
    )
    with own_code_explained(file_names(config.model.parts)):
        return build(config, vocab_size)


def build_from_parts(config: RunConfig, vocab_size: int) -> Transformer:
    """Returns the paper's model, with the PARTS of the extensions that `config.model.parts` names.

    Raises ConfigError if two of them bring the same part.
    """
    papers, brought = vars(Parts()), {}
    for code in builders_of(config.model.parts):
        parts = getattr(code, "PARTS", Parts())
        is_typed = isinstance(parts, Parts)
        require(is_typed, f"extensions: PARTS={parts!r:.40}: write PARTS = Parts(...)")
        for name, part in vars(parts).items():
            if part is not papers[name]:
                twice = f"extensions: two of them define the part {name}; combine them in one file"
                require(name not in brought, twice)
                brought[name] = part
    return Transformer(config.model, vocab_size, Parts(**brought), config.data.src_vocab_size)
