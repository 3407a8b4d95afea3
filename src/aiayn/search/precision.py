"""The precision of a model that translates, and which one is the fastest on this machine."""

import timeit
from collections.abc import Callable

import torch
from torch import Tensor, nn

from aiayn.config.rules import one_of
from aiayn.config.search import PRECISIONS
from aiayn.hardware import has_bfloat16
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.int8 import Int8Linear
from aiayn.kernels.prepacked import ROWS, PrepackedLinear
from aiayn.model.transformer import Transformer

REPEATS = 5
COLUMNS = 4096  # measured of the output layer


def convert_precision(model: Transformer, precision: str, device: torch.device) -> Transformer:
    """Prepares the model in place for translation in float32, bfloat16, int8 or the fastest of them (auto).

    Raises ConfigError if that is not possible.
    """
    one_of("precision", precision, PRECISIONS)
    return accelerate(model, device, fastest_precision(model, device) if precision == "auto" else precision)


@torch.inference_mode()
def fastest_precision(model: Transformer, device: torch.device) -> str:
    """Returns float32, bfloat16 or int8: on a CPU the one that multiplies with the model's own matrices fastest.

    It is measured at every call, in a fraction of a second, and stored nowhere.
    """
    precisions = ["float32"] + ["bfloat16"] * has_bfloat16(device)
    if device.type != "cpu":
        return precisions[-1]
    linears = [module.weight for module in model.decoder[0].modules() if isinstance(module, nn.Linear)]
    matrices = [max(linears, key=Tensor.numel), model.embedding.weight[:COLUMNS]]
    seconds = {}
    for precision in [*precisions, "int8"]:
        products: list[Callable[[Tensor], Tensor]] = []
        for matrix in matrices:
            if precision == "int8":
                products.append(Int8Linear(matrix, None))
            elif torch.backends.mkldnn.is_available():
                products.append(PrepackedLinear(matrix.to(getattr(torch, precision))))
            else:
                products.append(matrix.to(getattr(torch, precision)).T.__rmatmul__)
        x = torch.ones(ROWS, matrices[0].size(1), dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32)
        seconds[precision] = sum(_seconds(product, x) for product in products)
    return min(seconds, key=seconds.__getitem__)


def _seconds(product: Callable[[Tensor], Tensor], x: Tensor) -> float:
    product(x)  # the first one also chooses a kernel
    return min(timeit.repeat(lambda: product(x), number=1, repeat=REPEATS))
