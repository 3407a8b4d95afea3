"""Table 1 of the paper, measured: time per layer against sequence length.

    python benchmarks/table1.py [--lengths 64 128 ...] [--width 512] [--window 64] [--kernel 3] [--batch 1] [--rounds 5]
                                [--threads 1] [--device cuda] [--out FOLDER]

Layers of equal width d (a multiple of 64): self-attention over all n positions, restricted to a window of r, recurrent
(LSTM) and convolutional (kernel k, odd). Whole layers are measured, with the projections of attention (n d²), which
the paper's table leaves out: so full attention grows as n² only once n is well above d.
"""

import math
from collections.abc import Callable

import torch
from measure import draw, interleaved, parse_options, report, spread
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
    """Returns a function that runs the layer once over x (B, n, d)."""

    def once() -> None:
        with torch.set_grad_enabled(backward):
            output = layer(x)
            if backward:
                torch.autograd.grad(output.sum(), [x, *layer.parameters()])

    return once


def exponent(lengths: list[int], seconds: list[float]) -> float:
    """Returns p of the best fit seconds ~ n^p over the longer half of the lengths."""
    longer = [(math.log(n), math.log(s)) for n, s in zip(lengths, seconds, strict=True)][len(lengths) // 2 :]
    mean_x, mean_y = (sum(values) / len(longer) for values in zip(*longer, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in longer) / sum((x - mean_x) ** 2 for x, _ in longer)


def main(arguments: list[str] | None = None) -> None:
    lengths = [64, 128, 256, 512, 1024, 2048, 4096]
    sizes = {"width": 512, "window": 64, "kernel": 3, "batch": 1}
    options = parse_options(__doc__, arguments, lengths=lengths, **sizes, rounds=5, threads=1, device="cpu")
    d, r, k, lengths = options.width, options.window, options.kernel, options.lengths
    layers = {  # with the complexity that the paper states
        "self-attention": ("n² d", Attention(d, None)),
        f"restricted, r={r}": ("r n d", Attention(d, r)),
        "recurrent (LSTM)": ("n d²", Recurrent(d)),
        f"convolution, k={k}": ("k n d²", Convolution(d, k)),
    }
    rows, panels = [], {}
    for direction in ("forward", "forward and backward"):
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for n in lengths:
            x = torch.randn(options.batch, n, d, device=options.device, requires_grad=True)
            runs = {
                name: run(layer.to(options.device), x, direction != "forward") for name, (_, layer) in layers.items()
            }
            for name, taken in interleaved(runs, options.rounds).items():
                seconds[name].append(spread(taken)["median"])
        for name, medians in seconds.items():
            times = {f"n={n}, ms": 1000 * s for n, s in zip(lengths, medians, strict=True)}
            growth = round(exponent(lengths, medians), 2)
            rows.append({"layer": name, "direction": direction, "stated": layers[name][0], **times, "~ n^": growth})
        panels[direction] = {name: (lengths, medians) for name, medians in seconds.items()}
        slowest = max(medians[-1] for medians in seconds.values())
        for power, name in ((1, "~ n"), (2, "~ n²")):
            panels[direction][name] = (lengths, [slowest * (n / lengths[-1]) ** power for n in lengths])
    report("table1", rows, options.out)
    draw(options.out / "table1.png", panels, "sequence length n", "seconds per layer")


if __name__ == "__main__":
    main()
