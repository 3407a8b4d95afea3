"""Attention weights as heat maps: a PNG file of all layers."""

from pathlib import Path

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
    margin, bottom = (0.2 + 0.065 * max(map(len, labels)) for labels in (tgt, src))
    gap = 0.15
    total_width, total_height = margin + n_layers * (width + gap), bottom + height + 0.35
    figure = new_figure(total_width, total_height)
    # Dollar signs are text here, no formulas.
    style = {"fontsize": 7 if max(n_src, n_tgt) <= 60 else 5, "parse_math": False}
    for layer, weights in enumerate(maps.cross.mean(1)):
        left = margin + layer * (width + gap)
        axis = figure.add_axes(
            (left / total_width, bottom / total_height, width / total_width, height / total_height)
        )
        # The square root tells small weights apart, as of a head that attends to many tokens.
        scale = PowerNorm(0.5, vmin=0, vmax=1)
        axis.imshow(
            weights.numpy(), cmap="Blues", norm=scale, aspect="auto", interpolation="nearest"
        )
        axis.set_title(f"layer {layer + 1}", fontsize=9)
        axis.set_xticks(range(n_src), src, rotation=90, **style)
        axis.set_yticks(*((range(n_tgt), tgt) if layer == 0 else ([], [])), **style)
    save_figure(figure, path)
