"""Table 1 of the paper, measured: time per layer against sequence length.

    python benchmarks/table1.py [--lengths 64 128 ...] [--width 512] [--window 64] [--kernel 3] [--batch 1] [--rounds 9]
                                [--threads 1] [--device cuda] [--out FOLDER]

Layers of equal width d (a multiple of 64): self-attention over all n positions, restricted to a
window of r, recurrent (LSTM) and convolutional (kernel k, odd). Whole layers are measured, with the
projections of attention (n d²), which the paper's table leaves out: so full attention grows as n²
only once n is well above d.

All layers and lengths take turns. On a CPU the milliseconds are those of the processor, the fewest
of all rounds, which other programs disturb least. The exponent is the mean of the rounds' exponents
over the longer half of the lengths, with its 95 % interval.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from measure import draw, interleaved, parse_options, report
from table3_quarter import half_width
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.model.attention import Attention, MultiHeadAttention, attention
from aiayn.model.masks import Mask
from aiayn.reports.differences import Sample


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


def run(layer: nn.Module, x: Tensor, backward: bool) -> None:
    """Runs the layer once over x (B, n, d)."""
    with torch.set_grad_enabled(backward):
        output = forward(layer, x)
        if backward:
            torch.autograd.grad(output.sum(), [x, *layer.parameters()])


def exponent(lengths: list[int], seconds: list[float]) -> float:
    """Returns p of the best fit seconds ~ n^p over the longer half of the lengths."""
    longer = slice(len(lengths) // 2, None)
    return float(np.polyfit(np.log(lengths[longer]), np.log(seconds[longer]), 1)[0])


def seconds_of_layers(
    layers: dict[str, nn.Module],
    lengths: list[int],
    new_input: Callable[[int], Tensor],
    backward: bool,
    rounds: int,
) -> dict[str, list[list[float]]]:
    """Returns for each layer the seconds of every round, each a list over the lengths."""
    on_cpu = new_input(1).device.type == "cpu"
    runs = {
        (name, n): partial(run, layer, new_input(n), backward)
        for n in lengths
        for name, layer in layers.items()
    }
    clock = time.process_time if on_cpu else time.perf_counter
    seconds = interleaved(runs, rounds, clock=clock)
    by_length = {name: [seconds[name, n] for n in lengths] for name in layers}
    return {
        name: [list(turn) for turn in zip(*of_lengths, strict=True)]
        for name, of_lengths in by_length.items()
    }


def main(arguments: list[str] | None = None) -> None:
    lengths = [64, 128, 256, 512, 1024, 2048, 4096]
    sizes = {"width": 512, "window": 64, "kernel": 3, "batch": 1}
    options = parse_options(
        __doc__, arguments, lengths=lengths, **sizes, rounds=9, threads=1, device="cpu"
    )
    d, r, k, lengths = options.width, options.window, options.kernel, options.lengths
    full, near = (MultiHeadAttention(d, d // 64, 64, 64) for _ in range(2))
    near.attention = restricted(r)
    stated = {  # the complexity that the paper states
        "self-attention": "n² d",
        f"restricted, r={r}": "r n d",
        "recurrent (LSTM)": "n d²",
        f"convolution, k={k}": "k n d²",
    }
    modules = (full, near, nn.LSTM(d, d, batch_first=True), nn.Conv1d(d, d, k, padding=k // 2))
    layers = {name: module.to(options.device) for name, module in zip(stated, modules, strict=True)}

    def new_input(n: int) -> Tensor:
        return torch.randn(options.batch, n, d, device=options.device, requires_grad=True)

    rows, panels = [], {}
    for direction in ("forward", "forward and backward"):
        backward = direction != "forward"
        measured = seconds_of_layers(layers, lengths, new_input, backward, options.rounds)
        fewest = {
            name: [min(at_length) for at_length in zip(*turns, strict=True)]
            for name, turns in measured.items()
        }
        for name, turns in measured.items():
            times = zip(lengths, fewest[name], strict=True)
            growth = Sample(
                {turn: exponent(lengths, seconds) for turn, seconds in enumerate(turns)}
            )
            rows.append(
                {"layer": name, "direction": direction, "stated": stated[name]}
                | {f"n={n}, ms": 1000 * seconds for n, seconds in times}
                | {"exponent": growth.mean, "± exponent": half_width(growth)}
                | {"rounds": options.rounds}
            )
        panels[direction] = {name: (lengths, seconds) for name, seconds in fewest.items()}
        slowest = max(seconds[-1] for seconds in fewest.values())
        for power, name in ((1, "~ n"), (2, "~ n²")):
            panels[direction][name] = (
                lengths,
                [slowest * (n / lengths[-1]) ** power for n in lengths],
            )
    report("table1", rows, options.out)
    draw(options.out / "table1.png", panels, "sequence length n", "seconds per layer")


if __name__ == "__main__":
    main()
