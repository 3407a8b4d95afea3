"""Attention weights as heat maps: a PNG file of all layers."""

from pathlib import Path
from typing import Any

from aiayn.reports.drawing import new_figure, save_figure
from aiayn.visualize.maps import AttentionMaps, token_labels


def draw_cross_attention(maps: AttentionMaps, path: Path) -> None:
    """Where every layer of the decoder looks in the source, as the mean of its heads.

    Raises ResourceError where the file cannot be written.
    """
    from matplotlib.colors import PowerNorm

    n_layers, _, n_tgt, n_src = maps.cross.shape
    src, tgt = (token_labels(tokens, longest=16) for tokens in (maps.src, maps.tgt_out))
    width, height = (min(max(0.2 * n, 1.6), 6) for n in (n_src, n_tgt))
    # Placed by hand: training draws this at every validation, and a computed layout would draw
    # everything twice.
    margin, bottom = (0.4 + 0.065 * max(map(len, labels)) for labels in (tgt, src))
    gap, bar = 0.15, 0.75
    total_width = margin + n_layers * (width + gap) + bar
    total_height = bottom + height + 0.35
    figure = new_figure(total_width, total_height)
    # Dollar signs are text here, no formulas.
    style = {"fontsize": 7 if max(n_src, n_tgt) <= 60 else 5, "parse_math": False}
    # The square root tells small weights apart, as of a head that attends to many tokens.
    scale = PowerNorm(0.5, vmin=0, vmax=1)

    def axes_at(left: float, axes_width: float) -> Any:
        return figure.add_axes(
            (
                left / total_width,
                bottom / total_height,
                axes_width / total_width,
                height / total_height,
            )
        )

    for layer, weights in enumerate(maps.cross.mean(1)):
        axis = axes_at(margin + layer * (width + gap), width)
        image = axis.imshow(
            weights.numpy(), cmap="Blues", norm=scale, aspect="auto", interpolation="nearest"
        )
        axis.set_title(f"layer {layer + 1}", fontsize=9)
        axis.set_xlabel("source", fontsize=8)
        axis.set_xticks(range(n_src), src, rotation=90, **style)
        axis.set_yticks(*((range(n_tgt), tgt) if layer == 0 else ([], [])), **style)
        if layer == 0:
            axis.set_ylabel("translation", fontsize=8)
    colours = figure.colorbar(image, cax=axes_at(margin + n_layers * (width + gap), 0.1))
    colours.set_ticks([0, 0.05, 0.2, 0.5, 1], labels=["0", "0.05", "0.2", "0.5", "1"], fontsize=7)
    colours.set_label("attention weight", fontsize=8)
    save_figure(figure, path)
