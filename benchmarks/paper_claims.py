"""What the paper says about its own parts, measured and drawn: docs/results/paper-checked.md.

    python benchmarks/paper_claims.py [--pairs 20000] [--keys 64] [--out FOLDER]

Footnote 4: the variance of q.k by d_k, and the slope of the softmax with and without the factor.
tools/pictures.py draws the others: section 3.5, PE(pos + k) as a linear function of PE(pos), and
Figures 1 and 2 from what a model calls while it computes one batch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measure import parse_options, report
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.embedding import sinusoids
from aiayn.model.layers import AddNorm, FeedForward
from aiayn.model.transformer import Transformer
from aiayn.reports.drawing import new_figure

COLOURS = {
    "attention": "#fbe0c3",
    "add & norm": "#f1f3c1",
    "feed forward": "#c2e8f7",
    "embedding": "#fce0e1",
}


@dataclass(frozen=True)
class Call:
    """A part that the model called: its name in the paper, where it lives, the shape it gave out,
    and what it read.
    """

    label: str
    path: str
    shape: tuple[int, ...]
    inputs: tuple[str, ...] = ()  # paths of the parts whose outputs it was given


def calls(model: Transformer, src: Tensor, tgt_in: Tensor) -> list[Call]:
    """Returns the parts of Figure 1 in the order in which the model calls them for a batch.

    What a part reads is found by identity: tensors that are the very outputs of parts called
    before.
    """
    seen: list[Call] = []
    # By id; the tensors are kept, so that no id is used twice
    outputs: dict[int, tuple[str, Tensor]] = {}
    # By path of an AddNorm: the sub-layers that gave it their outputs
    added: dict[str, list[str]] = {}

    def sources(inputs: tuple[Any, ...]) -> list[str]:
        names = [
            outputs[id(tensor)][0]
            for tensor in inputs
            if isinstance(tensor, Tensor) and id(tensor) in outputs
        ]
        return list(dict.fromkeys(names))

    def watch(path: str, label: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def record(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            if not label:  # within an AddNorm: the dropout on what its sub-layer gave out
                added[path.rpartition(".")[0]] = sources(inputs)
                return
            name = f"{'decoder' if outputs else 'encoder'} positions" if path == "dropout" else path
            names = (*sources(inputs), *added.pop(path, ()))
            seen.append(Call(label, name, tuple(output.shape), names))
            outputs[id(output)] = (name, output)

        return record

    handles = []
    for path, part in model.named_modules():
        label = _label(path, part)
        if label or (path.startswith(("encoder.", "decoder.")) and isinstance(part, nn.Dropout)):
            handles.append(part.register_forward_hook(watch(path, label)))
    with torch.no_grad():
        model(src, tgt_in, torch.ones(len(src), 1, 1, src.size(1), dtype=torch.bool))
    for handle in handles:
        handle.remove()
    return seen


def _label(path: str, part: nn.Module) -> str:
    if isinstance(part, MultiHeadAttention):
        masked = path.startswith("decoder") and path.endswith("self_attention")
        return "masked multi-head attention" if masked else "multi-head attention"
    if path == "dropout":
        return "embedding + positions"
    return {AddNorm: "add & norm", FeedForward: "feed forward"}.get(type(part), "")


def draw_figure_1(all_calls: list[Call], n_layers: int, path: Path) -> None:
    """Draws the first layer of each stack as it was called, from the bottom up, and what was given
    to what.
    """
    figure = new_figure(9, 6.3)
    axis = figure.subplots()
    places: dict[str, tuple[float, float]] = {}
    for column, stack in enumerate(("encoder", "decoder")):
        of_layer = [
            call for call in all_calls if call.path.startswith((f"{stack} ", f"{stack}.0."))
        ]
        for row, call in enumerate(of_layer):
            places[call.path] = (6 * column, row)
            name = f"embedding, {'tgt' if column else 'src'}_positions" if row == 0 else call.path
            _box(
                axis, 6 * column, row, f"{call.label}\n{name}  {_shape(call)}", _colour(call.label)
            )
        top = len(of_layer)
        _frame(axis, 6 * column, top - 1, f"{n_layers} x", left=column == 0)
        if column:
            _box(axis, 6, top, "linear (the embedding's matrix), softmax", "#dddff0")
            _arrow(axis, [(8, top - 0.25), (8, top)])
    last = f"encoder.{n_layers - 1}."
    for call in all_calls:
        for source in call.inputs if call.path in places else ():
            _connect(axis, places, "memory" if source.startswith(last) else source, call.path)
    _finish(axis, figure, (-1.7, 11.7), 8, path)


def _connect(axis: Any, places: dict[str, tuple[float, float]], source: str, target: str) -> None:
    """Draws an arrow: straight up, around a sub-layer on the outer side, or from the encoder's top
    to the decoder.
    """
    x, row = places[target]
    if source == "memory":
        top = max(position[1] for position in places.values() if position[0] == 0)
        _arrow(
            axis, [(2, top + 0.75), (2, top + 1.1), (5, top + 1.1), (5, row + 0.4), (6, row + 0.4)]
        )
        return
    below = places[source][1]
    if row - below == 1:
        _arrow(axis, [(x + 2, below + 0.75), (x + 2, row)])
    else:
        side, outer = (x, x - 0.45) if x == 0 else (x + 4, x + 4.45)
        _arrow(
            axis,
            [(x + 2, below + 0.87), (outer, below + 0.87), (outer, row + 0.4), (side, row + 0.4)],
        )


def draw_figure_2(model: Transformer, path: Path) -> None:
    """Draws the attention of an encoder layer: its projections, its heads and the shapes between
    them.
    """
    attention = next(part for part in model.modules() if isinstance(part, MultiHeadAttention))
    x = torch.randn(2, 7, model.config.d_model)
    q, (k, v) = attention.queries(x), attention.keys_values(x)
    heads = attention.heads(q, k, v, None)
    figure = new_figure(9, 5)
    axis = figure.subplots()
    for column, (name, projected) in enumerate((("w_q", q), ("w_k", k), ("w_v", v))):
        middle = column * 3.2 + 1.4
        axis.text(middle, -0.45, f"{name[-1].upper()}  {_size(x)}", ha="center", fontsize=9)
        _arrow(axis, [(middle, -0.25), (middle, 0)])
        _box(
            axis,
            column * 3.2,
            0,
            f"linear {name}\n{_size(getattr(attention, name).weight)}",
            "#ffffff",
            width=2.8,
        )
        _arrow(axis, [(middle, 0.75), (middle, 1)])
        _box(
            axis,
            column * 3.2,
            1,
            f"{attention.n_heads} heads\n{_size(projected)}",
            "#e8e1f3",
            width=2.8,
        )
        _arrow(axis, [(middle, 1.75), (middle, 2)])
    _box(
        axis,
        0,
        2,
        f"scaled dot-product attention, all heads at once\n{_size(heads)}",
        "#e8e1f3",
        width=9.2,
    )
    _box(axis, 0, 3, f"concat\n{_size(heads.transpose(1, 2).flatten(2))}", "#f1f3c1", width=9.2)
    _box(axis, 0, 4, f"linear w_o\n{_size(attention.w_o.weight)}", "#ffffff", width=9.2)
    for row in (2, 3, 4):
        _arrow(axis, [(4.6, row + 0.75), (4.6, row + 1)])
    axis.text(4.6, 5.05, _size(attention(x, x, None)), ha="center", fontsize=9)
    _finish(axis, figure, (-0.3, 9.5), 5.3, path)


def draw_positions(path: Path) -> None:
    """Draws the matrix that turns PE(pos) into PE(pos + 8), and that products of encodings depend
    on distances only.
    """
    d_model, length, shift = 32, 64, 8
    table = sinusoids(length + shift, d_model).double()
    angles = (
        shift * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    ).tolist()
    blocks = [
        torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles
    ]
    matrix = torch.block_diag(*blocks).double()
    assert torch.allclose(table[:length] @ matrix.T, table[shift:], atol=1e-6)
    figure = new_figure(9, 4, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.imshow(matrix.numpy(), cmap="RdBu", vmin=-1, vmax=1)
    left.set_title(f"PE(pos + {shift}) = M PE(pos) for every pos: M", fontsize=9)
    for start, line in ((0, "-"), (20, "--"), (40, ":")):
        right.plot((table[start : start + 24] @ table[start]).numpy(), line, label=f"pos = {start}")
    right.set_title("PE(pos) . PE(pos + k) against k", fontsize=9)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def scaling(n_pairs: int, n_keys: int) -> Iterator[dict[str, Any]]:
    """Yields footnote 4 for several d_k: variance of q.k, median slope of the softmax with the
    factor and without.
    """
    for d_k in (4, 16, 64, 256, 512):
        torch.manual_seed(d_k)
        q, k = torch.randn(2, n_pairs, d_k)
        scores = (torch.randn(500, 1, d_k) @ torch.randn(500, n_keys, d_k).mT)[:, 0]
        yield {
            "d_k": d_k,
            "variance of q.k": float((q * k).sum(1).var()),
            "slope with the factor": _slope(scores / math.sqrt(d_k)),
            "slope without": _slope(scores),
        }


def _slope(scores: Tensor) -> float:
    """The median norm of the softmax's Jacobian."""
    p = scores.softmax(-1)
    return float(
        (torch.diag_embed(p) - p[:, :, None] * p[:, None, :]).flatten(1).norm(dim=1).median()
    )


def _shape(call: Call) -> str:
    return "x".join(map(str, call.shape))


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _colour(label: str) -> str:
    return next((colour for name, colour in COLOURS.items() if name in label), "#ffffff")


def _box(axis: Any, x: float, row: int, text: str, colour: str, width: float = 4.0) -> None:
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((x, row), width, 0.75, facecolor=colour, edgecolor="black", zorder=2))
    axis.text(x + width / 2, row + 0.375, text, ha="center", va="center", fontsize=8)


def _frame(axis: Any, x: float, rows: int, text: str, left: bool) -> None:
    """Around the boxes of one layer, from row 1 on."""
    from matplotlib.patches import FancyBboxPatch

    style = {"boxstyle": "round,pad=0.1", "facecolor": "#f3f3f3", "edgecolor": "0.6", "zorder": 0}
    axis.add_patch(FancyBboxPatch((x - 0.6, 0.85), 5.2, rows, **style))
    text_x, align = (x - 0.8, "right") if left else (x + 4.8, "left")
    axis.text(text_x, 1 + rows / 2, text, ha=align, va="center", fontsize=13)


def _arrow(axis: Any, points: list[tuple[float, float]]) -> None:
    """A line through these points, with a head at the last."""
    axis.plot(
        *zip(*points[:-1], strict=True), color="black", linewidth=1, solid_capstyle="butt", zorder=1
    )
    axis.annotate(
        "",
        points[-1],
        points[-2],
        arrowprops={"arrowstyle": "->", "shrinkA": 0, "shrinkB": 0},
        zorder=3,
    )


def _finish(axis: Any, figure: Any, width: tuple[float, float], height: float, path: Path) -> None:
    axis.set_xlim(*width)
    axis.set_ylim(-0.6, height)
    axis.set_axis_off()
    figure.subplots_adjust(0, 0, 1, 1)
    figure.savefig(path, dpi=110)


def draw(folder: Path) -> None:
    """Draws Figures 1 and 2 from what a base model calls, and the line of section 3.5."""
    model = Transformer(ModelConfig(), 1000).eval()
    called = calls(model, torch.randint(4, 1000, (2, 7)), torch.randint(4, 1000, (2, 9)))
    draw_figure_1(called, model.config.n_layers, folder / "figure_1.png")
    draw_figure_2(model, folder / "figure_2.png")
    draw_positions(folder / "positions_linear.png")


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, pairs=20_000, keys=64)
    report("paper_claims", list(scaling(options.pairs, options.keys)), options.out)


if __name__ == "__main__":
    main()
