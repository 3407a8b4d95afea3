"""Table 1 of the paper, measured: time per layer against sequence length.

    python benchmarks/table1.py [--lengths 64 128 ...] [--width 512] [--window 64] [--kernel 3] [--batch 1] [--rounds 5]
                                [--threads 1] [--device cuda] [--out FOLDER]

Layers of equal width d (a multiple of 64): self-attention over all n positions, restricted to a
window of r, recurrent (LSTM) and convolutional (kernel k, odd). Whole layers are measured, with the
projections of attention (n d²), which the paper's table leaves out: so full attention grows as n²
only once n is well above d.
"""

from collections.abc import Callable

import numpy as np
import torch
from measure import draw, interleaved, parse_options, report, spread
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.model.attention import Attention, MultiHeadAttention, attention
from aiayn.model.masks import Mask


def restricted(reach: int) -> Attention:
    """Returns self-attention within `reach` positions to each side, in time that grows as T times
    the reach: each block of `reach` queries is compared with its own and the two adjacent blocks.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p_drop: float) -> Tensor:
        n = q.size(2)
        unused = -n % reach  # the last block is filled up
        queries = F.pad(q, (0, 0, 0, unused)).unflatten(2, (-1, reach))  # (B, H, blocks, reach, d)
        keys, values = (
            F.pad(x, (0, 0, reach, reach + unused)).unfold(2, 3 * reach, reach).mT for x in (k, v)
        )
        query = torch.arange(n + unused, device=q.device).view(-1, reach, 1)
        key = query[:, :1] + torch.arange(-reach, 2 * reach, device=q.device)
        near = ((key - query).abs() <= reach) & (key >= 0) & (key < n)
        return attention(queries, keys, values, near, p_drop).flatten(2, 3)[:, :, :n]

    return attend


def forward(layer: nn.Module, x: Tensor) -> Tensor:
    """Runs a layer over x (B, n, d). Returns (B, n, d)."""
    if isinstance(layer, nn.LSTM):
        return layer(x)[0]
    if isinstance(layer, nn.Conv1d):
        return layer(x.mT).mT
    return layer(x, x, None)


def run(layer: nn.Module, x: Tensor, backward: bool) -> Callable[[], None]:
    """Returns a function that runs the layer once over x (B, n, d)."""

    def once() -> None:
        with torch.set_grad_enabled(backward):
            output = forward(layer, x)
            if backward:
                torch.autograd.grad(output.sum(), [x, *layer.parameters()])

    return once


def exponent(lengths: list[int], seconds: list[float]) -> float:
    """Returns p of the best fit seconds ~ n^p over the longer half of the lengths."""
    longer = slice(len(lengths) // 2, None)
    return float(np.polyfit(np.log(lengths[longer]), np.log(seconds[longer]), 1)[0])


def main(arguments: list[str] | None = None) -> None:
    lengths = [64, 128, 256, 512, 1024, 2048, 4096]
    sizes = {"width": 512, "window": 64, "kernel": 3, "batch": 1}
    options = parse_options(
        __doc__, arguments, lengths=lengths, **sizes, rounds=5, threads=1, device="cpu"
    )
    d, r, k, lengths = options.width, options.window, options.kernel, options.lengths
    full, near = (MultiHeadAttention(d, d // 64, 64, 64) for _ in range(2))
    near.attention = restricted(r)
    layers: dict[str, tuple[str, nn.Module]] = {  # with the complexity that the paper states
        "self-attention": ("n² d", full),
        f"restricted, r={r}": ("r n d", near),
        "recurrent (LSTM)": ("n d²", nn.LSTM(d, d, batch_first=True)),
        f"convolution, k={k}": ("k n d²", nn.Conv1d(d, d, k, padding=k // 2)),
    }
    rows, panels = [], {}
    for direction in ("forward", "forward and backward"):
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for n in lengths:
            x = torch.randn(options.batch, n, d, device=options.device, requires_grad=True)
            runs = {
                name: run(layer.to(options.device), x, direction != "forward")
                for name, (_, layer) in layers.items()
            }
            for name, taken in interleaved(runs, options.rounds).items():
                seconds[name].append(spread(taken)["median"])
        for name, medians in seconds.items():
            times = {f"n={n}, ms": 1000 * s for n, s in zip(lengths, medians, strict=True)}
            growth = round(exponent(lengths, medians), 2)
            rows.append(
                {
                    "layer": name,
                    "direction": direction,
                    "stated": layers[name][0],
                    **times,
                    "~ n^": growth,
                }
            )
        panels[direction] = {name: (lengths, medians) for name, medians in seconds.items()}
        slowest = max(medians[-1] for medians in seconds.values())
        for power, name in ((1, "~ n"), (2, "~ n²")):
            panels[direction][name] = (
                lengths,
                [slowest * (n / lengths[-1]) ** power for n in lengths],
            )
    report("table1", rows, options.out)
    draw(options.out / "table1.png", panels, "sequence length n", "seconds per layer")


if __name__ == "__main__":
    main()
