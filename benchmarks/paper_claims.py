"""What the paper says about its own parts, measured and drawn: docs/paper-checked.md.

    python benchmarks/paper_claims.py [--pairs 20000] [--keys 64] [--out FOLDER]

Footnote 4: the variance of q.k by d_k, and the slope of the softmax with and without the factor. Section 3.5: PE(pos +
k) as a linear function of PE(pos), drawn. Figures 1 and 2: drawn from what a model calls while it computes one batch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measure import parse_options, report
from torch import Tensor, nn

from aiayn.config.schema import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.embedding import SharedEmbedding, sinusoids
from aiayn.model.layers import AddNorm, FeedForward
from aiayn.model.transformer import Transformer
from aiayn.reports.drawing import new_figure

COLOURS = {"attention": "#fbe0c3", "add & norm": "#f1f3c1", "feed forward": "#c2e8f7", "embedding": "#fce0e1"}


@dataclass(frozen=True)
class Call:
    """A part that the model called: what it is called in the paper, where it lives, and the shape it gave out."""

    label: str
    path: str
    shape: tuple[int, ...]


def calls(model: Transformer, src: Tensor, tgt_in: Tensor) -> list[Call]:
    """Returns the parts of Figure 1 in the order in which the model calls them for a batch."""
    seen: list[Call] = []

    def watch(path: str, label: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, inputs, output: seen.append(Call(label, path, tuple(output.shape)))

    handles = []
    for path, part in model.named_modules():
        if label := _label(path, part):
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
    names = {AddNorm: "add & norm", FeedForward: "feed forward", SharedEmbedding: "embedding"}
    return names.get(type(part), "")


def draw_figure_1(found: list[Call], n_layers: int, path: Path) -> None:
    """Draws one layer of each stack, as it was called, from the bottom up; encoder left, decoder right."""
    figure = new_figure(9, 6)
    axis = figure.subplots()
    for column, stack in enumerate(("encoder", "decoder")):
        one = [call for call in found if call.path.startswith(f"{stack}.0.")]
        embedded = [call for call in found if call.label == "embedding"][column]
        boxes = [Call("embedding + positions", embedded.path, embedded.shape), *one]
        for row, call in enumerate(boxes):
            _box(axis, column * 5, row, f"{call.label}\n{call.path}  {_shape(call)}", _colour(call.label))
        axis.text(column * 5 + 4.1, 1 + len(one) / 2, f"{n_layers} x", va="center", fontsize=13)
    _box(axis, 5, 1 + sum(call.path.startswith("decoder.0.") for call in found), "linear, softmax", "#dddff0")
    _finish(axis, figure, (-0.3, 10), 8, path)


def draw_figure_2(model: Transformer, path: Path) -> None:
    """Draws the attention of an encoder layer: its projections, its heads and the shapes between them."""
    attention = next(part for part in model.modules() if isinstance(part, MultiHeadAttention))
    x = torch.randn(2, 7, model.config.d_model)
    q, k, v = attention.project(x, x)
    heads = attention.heads(q, k, v, None)
    figure = new_figure(9, 4)
    axis = figure.subplots()
    for column, (name, projected) in enumerate((("w_q", q), ("w_k", k), ("w_v", v))):
        _box(axis, column * 3.2, 0, f"linear {name}\n{_size(getattr(attention, name).weight)}", "#ffffff", width=2.8)
        _box(axis, column * 3.2, 1, f"{attention.n_heads} heads\n{_size(projected)}", "#e8e1f3", width=2.8)
    _box(axis, 0, 2, f"scaled dot-product attention, all heads at once\n{_size(heads)}", "#e8e1f3", width=9.2)
    _box(axis, 0, 3, f"concat\n{_size(heads.transpose(1, 2).flatten(2))}", "#f1f3c1", width=9.2)
    _box(axis, 0, 4, f"linear w_o\n{_size(attention.w_o.weight)}", "#ffffff", width=9.2)
    _finish(axis, figure, (-0.3, 9.5), 5, path)


def draw_positions(path: Path) -> None:
    """Draws the matrix that turns PE(pos) into PE(pos + 8), and that products of encodings depend on distances only."""
    d_model, length, shift = 32, 64, 8
    table = sinusoids(length + shift, d_model).double()
    angles = (shift * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)).tolist()
    blocks = [torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles]
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
    """Yields footnote 4 for several d_k: variance of q.k, median slope of the softmax with the factor and without."""
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
    return float((torch.diag_embed(p) - p[:, :, None] * p[:, None, :]).flatten(1).norm(dim=1).median())


def _shape(call: Call) -> str:
    return "x".join(map(str, call.shape))


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _colour(label: str) -> str:
    return next((colour for name, colour in COLOURS.items() if name in label), "#ffffff")


def _box(axis: Any, x: float, row: int, text: str, colour: str, width: float = 4.0) -> None:
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((x, row), width, 0.75, facecolor=colour, edgecolor="black"))
    axis.text(x + width / 2, row + 0.375, text, ha="center", va="center", fontsize=8)


def _finish(axis: Any, figure: Any, width: tuple[float, float], height: float, path: Path) -> None:
    axis.set_xlim(*width)
    axis.set_ylim(-0.2, height)
    axis.set_axis_off()
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, pairs=20_000, keys=64)
    report("paper_claims", list(scaling(options.pairs, options.keys)), options.out)
    model = Transformer(ModelConfig(), 1000).eval()
    found = calls(model, torch.randint(4, 1000, (2, 7)), torch.randint(4, 1000, (2, 9)))
    draw_figure_1(found, model.config.n_layers, options.out / "figure_1.png")
    draw_figure_2(model, options.out / "figure_2.png")
    draw_positions(options.out / "positions_linear.png")


if __name__ == "__main__":
    main()
