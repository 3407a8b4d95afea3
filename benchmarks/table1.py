"""Table 1 of the paper, measured: time per layer against sequence length.

Layers of equal width d: self-attention over all n positions, restricted to a neighbourhood of r, recurrent (LSTM) and
convolutional (kernel k). Whole layers, with the projections of attention (n d²), which the paper's table leaves out:
so full attention grows as n² only once n is well above d.

    python benchmarks/table1.py [--device cuda] [--lengths 64 128 ...] [--out FOLDER]
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import torch
from measure import draw, interleaved, report, spread
from torch import Tensor, nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.masks import encoder_mask


class Attention(nn.Module):
    """Multi-head self-attention, within a window if one is given."""

    def __init__(self, d: int, window: int | None):
        super().__init__()
        self.window = window
        self.attention = MultiHeadAttention(d, d // 64, 64, 64)

    def forward(self, x: Tensor) -> Tensor:
        real = torch.ones(len(x), 1, 1, x.size(1), dtype=torch.bool, device=x.device)
        return self.attention(x, x, encoder_mask(real, self.window))


class Recurrent(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Convolution(nn.Module):
    def __init__(self, d: int, kernel: int):
        super().__init__()
        self.convolution = nn.Conv1d(d, d, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


def run(layer: nn.Module, x: Tensor, backward: bool) -> Callable[[], None]:
    """One pass over x (B, n, d)."""

    def once() -> None:
        with torch.set_grad_enabled(backward):
            output = layer(x)
            if backward:
                torch.autograd.grad(output.sum(), [x, *layer.parameters()])

    return once


def exponent(lengths: list[int], seconds: list[float]) -> float:
    """p of the best fit seconds ~ n^p, over the longer half of the lengths."""
    longer = [(math.log(n), math.log(s)) for n, s in zip(lengths, seconds, strict=True)][len(lengths) // 2 :]
    mean_x, mean_y = (sum(values) / len(longer) for values in zip(*longer, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in longer) / sum((x - mean_x) ** 2 for x, _ in longer)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--width", type=int, default=512, help="d, a multiple of 64")
    parser.add_argument("--window", type=int, default=64, help="r")
    parser.add_argument("--kernel", type=int, default=3, help="k, odd")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    d, r, k = options.width, options.window, options.kernel
    layers = {
        "self-attention": Attention(d, None),
        f"restricted, r={r}": Attention(d, r),
        "recurrent (LSTM)": Recurrent(d),
        f"convolution, k={k}": Convolution(d, k),
    }
    stated = dict(zip(layers, ("n² d", "r n d", "n d²", "k n d²"), strict=True))
    rows, panels = [], {}
    for backward in (False, True):
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for n in options.lengths:
            x = torch.randn(options.batch, n, d, device=options.device, requires_grad=True)
            runs = {name: run(layer.to(options.device), x, backward) for name, layer in layers.items()}
            for name, measured in interleaved(runs, options.rounds, warmup=1).items():
                seconds[name].append(spread(measured)["median"])
        direction = "forward and backward" if backward else "forward"
        for name, medians in seconds.items():
            times = {f"n={n}, ms": 1000 * s for n, s in zip(options.lengths, medians, strict=True)}
            growth = round(exponent(options.lengths, medians), 2)
            rows.append({"layer": name, "direction": direction, "stated": stated[name], **times, "~ n^": growth})
        panels[direction] = {name: (options.lengths, medians) for name, medians in seconds.items()} | {
            f"~ n{'²' if power == 2 else ''}": reference(options.lengths, max(v[-1] for v in seconds.values()), power)
            for power in (1, 2)
        }
    report("table1", rows, options.out)
    draw(options.out / "table1.png", panels, "sequence length n", "seconds per layer")


def reference(lengths: list[int], at_the_end: float, power: int) -> tuple[list[int], list[float]]:
    """The curve c n^power that ends at `at_the_end`."""
    return lengths, [at_the_end * (n / lengths[-1]) ** power for n in lengths]


if __name__ == "__main__":
    main()
