"""Attention weights as heat maps: a PNG file of all layers."""

from pathlib import Path
from typing import Any

from aiayn.reports.drawing import new_figure, save_figure
from aiayn.visualize.maps import AttentionMaps, token_labels


def draw_cross_attention(maps: AttentionMaps, path: Path) -> None:
    """Draws where every layer of the decoder looks in the source, as the mean of its heads.

    Raises ResourceError where the file cannot be written.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    n_layers = len(maps.cross)
    src = token_labels(maps.src, longest=16)
    tgt = token_labels(maps.tgt_out, longest=16)
    # In inches, placed by hand: training draws this at every validation, and a computed layout
    # would draw everything twice.
    width, height = _extent(src), _extent(tgt)
    margin, bottom = _room_for(tgt), _room_for(src)
    gap, bar = 0.15, 0.75
    total_width = margin + n_layers * (width + gap) + bar
    total_height = bottom + height + 0.35
    figure = new_figure(total_width, total_height)

    def axes_at(left: float, axes_width: float) -> Any:
        corner = (left / total_width, bottom / total_height)
        return figure.add_axes((*corner, axes_width / total_width, height / total_height))

    # Dollar signs are text here, no formulas.
    style = {"fontsize": 7 if max(len(src), len(tgt)) <= 60 else 5, "parse_math": False}
    # The square root tells small weights apart, as of a head that attends to many tokens.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    look = {"cmap": "Blues", "norm": scale, "aspect": "auto", "interpolation": "nearest"}
    left = margin
    for layer, weights in enumerate(maps.cross.mean(1)):
        axis = axes_at(left, width)
        axis.imshow(weights.numpy(), **look)
        axis.set_title(f"layer {layer + 1}", fontsize=9)
        axis.set_xlabel("source", fontsize=8)
        axis.set_xticks(range(len(src)), src, rotation=90, **style)
        axis.set_yticks([])
        if layer == 0:
            axis.set_yticks(range(len(tgt)), tgt, **style)
            axis.set_ylabel("translation", fontsize=8)
        left += width + gap
    colours = figure.colorbar(ScalarMappable(scale, "Blues"), cax=axes_at(left, 0.1))
    colours.set_ticks([0, 0.05, 0.2, 0.5, 1], labels=["0", "0.05", "0.2", "0.5", "1"], fontsize=7)
    colours.set_label("attention weight", fontsize=8)
    save_figure(figure, path)


def _extent(labels: list[str]) -> float:
    """Returns the length of a map's side, a row or column for each label."""
    return min(max(0.2 * len(labels), 1.6), 6)


def _room_for(labels: list[str]) -> float:
    """Returns the room that labels, and the name of their axis, need beside a map."""
    return 0.4 + 0.065 * max(map(len, labels))
