"""Attention weights as heat maps: a PNG file of all layers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from aiayn.reports.drawing import new_figure, readable, save_figure
from aiayn.visualize.maps import AttentionMaps

MARKS = {"<s>": "start", "</s>": "end", "▁": "space"}  # tokens that are not words


def draw_cross_attention(maps: AttentionMaps, path: Path) -> None:
    """Where every layer of the decoder looks in the source, as the mean of its heads.

    Raises ResourceError where the file cannot be written.
    """
    n_layers, _, n_tgt, n_src = maps.cross.shape
    width, height = (min(max(0.2 * n, 1.6), 6) for n in (n_src, n_tgt))
    # Placed by hand: training draws this at every validation, and a computed layout would draw everything twice.
    margin, bottom = (0.2 + 0.065 * max(map(len, _labels(side))) for side in (maps.tgt_out, maps.src))
    gap = 0.15
    total_width, total_height = margin + n_layers * (width + gap), bottom + height + 0.35
    figure = new_figure(total_width, total_height)
    for layer in range(n_layers):
        left = margin + layer * (width + gap)
        axis = figure.add_axes((left / total_width, bottom / total_height, width / total_width, height / total_height))
        rows = maps.tgt_out if layer == 0 else []
        _draw_map(axis, maps.cross[layer].mean(0), rows, maps.src, f"layer {layer + 1}")
    save_figure(figure, path)


def _draw_map(axis: Any, weights: Tensor, rows: Sequence[str], columns: Sequence[str], title: str) -> Any:
    """weights (rows, columns); without tokens the axes stay bare."""
    from matplotlib.colors import PowerNorm

    # The square root tells small weights apart, as of a head that attends to many tokens.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    image = axis.imshow(weights.numpy(), cmap="Blues", norm=scale, aspect="auto", interpolation="nearest")
    axis.set_title(title, fontsize=9)
    size = 7 if max(len(rows), len(columns)) <= 60 else 5
    # Dollar signs are text here, no formulas.
    axis.set_xticks(range(len(columns)), _labels(columns), fontsize=size, rotation=90, parse_math=False)
    axis.set_yticks(range(len(rows)), _labels(rows), fontsize=size, parse_math=False)
    return image


def _labels(tokens: Sequence[str]) -> list[str]:
    """Returns words as they are written, and a dot before a subword that continues a word, as in the explorer."""
    words = (MARKS.get(token) or (token[1:] if token.startswith("▁") else f"·{token}") for token in tokens)
    return [readable(word, longest=16) for word in words]
