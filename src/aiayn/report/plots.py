"""Pictures of what was measured."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiayn.attention.maps import AttentionMaps
from aiayn.errors import ResourceError
from aiayn.report.drawing import new_figure, readable, save_figure
from aiayn.run_folder import series


def draw_learning_curve(records: Sequence[Mapping[str, float]], path: Path) -> None:
    """Loss with the learning rate, validation perplexity and validation BLEU, by step, from a run's metrics.

    Writes a PNG. Panels without measurements are left out.
    """
    panels = [
        (title, [key for key in keys if any(key in record for record in records)])
        for title, keys in (
            ("loss per token (nats)", ["train/loss", "val/loss"]),
            ("validation perplexity", ["val/ppl"]),
            ("validation BLEU (greedy)", ["val/bleu"]),
        )
    ]
    panels = [(title, keys) for title, keys in panels if keys]
    if not panels:
        return
    # Fixed margins: a computed layout takes longer than all the rest.
    figure = new_figure(5 * len(panels), 3.6)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    inch = 1 / figure.get_figwidth()
    figure.subplots_adjust(left=0.6 * inch, right=1 - 0.2 * inch, bottom=0.14, top=0.9, wspace=0.35)
    for axis, (title, keys) in zip(axes, panels, strict=True):
        for key in keys:
            marker = "" if key == "train/loss" else "o"
            axis.plot(*zip(*series(records, key), strict=True), marker=marker, markersize=3, label=key)
        axis.set_title(title)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if keys[0] == "train/loss":
            rate = axis.twinx()
            rate.plot(*zip(*series(records, "train/lr"), strict=True), color="0.6", linewidth=1, linestyle=":")
            rate.set_ylabel("learning rate (dotted)", color="0.5")
            axis.legend(loc="upper center")
        if keys == ["val/ppl"]:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter("{x:g}")
    save_figure(figure, path)


def draw_corpus(corpus: Mapping[str, Any], path: Path) -> None:
    """How long the training sentences are, and how much of a micro-batch is padding, from a run's corpus.json.

    Writes a PNG.
    """
    figure = new_figure(10, 3.2)
    lengths, padding = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.16, top=0.88, wspace=0.25)
    for side, label in (("src", "source"), ("tgt", "target")):
        counts = corpus["lengths"][side]
        lengths.stairs(counts, [n - 0.5 for n in range(len(counts) + 1)], fill=True, alpha=0.5, label=label)
    lengths.set_title(f"{corpus['pairs']:,} training pairs")
    lengths.set_xlabel("subwords of a sentence")
    lengths.set_ylabel("sentences")
    lengths.legend()
    counts = corpus["padding_of_parts"]
    used = max(number for number, count in enumerate(counts, 1) if count)
    padding.stairs(counts[:used], [100 * n / len(counts) for n in range(used + 1)], fill=True, color="0.5")
    padding.set_title(f"{100 * corpus['padding']:.1f} % padding in an epoch")
    padding.set_xlabel("padding of a micro-batch (%)")
    padding.set_ylabel("micro-batches")
    save_figure(figure, path)


def draw_cross_attention(maps: AttentionMaps, path: Path) -> None:
    """Where every layer of the decoder looks in the source, as the mean of its heads. Writes a PNG, quickly."""
    from matplotlib.colors import PowerNorm

    n_layers, _, n_tgt, n_src = maps.cross.shape
    width, height = (min(max(0.2 * n, 1.6), 6) for n in (n_src, n_tgt))
    # Room for labels by their letters: a computed layout would draw everything twice.
    margin, bottom = (0.2 + 0.065 * max(map(len, _labels(side))) for side in (maps.tgt_out, maps.src))
    gap = 0.15
    total_width, total_height = margin + n_layers * (width + gap), bottom + height + 0.35
    figure = new_figure(total_width, total_height)
    for layer in range(n_layers):
        left = margin + layer * (width + gap)
        axis = figure.add_axes(
            (left / total_width, bottom / total_height, width / total_width, height / total_height),
        )
        scale = PowerNorm(0.5, vmin=0, vmax=1)
        axis.imshow(maps.cross[layer].mean(0).numpy(), cmap="Blues", norm=scale, aspect="auto", interpolation="nearest")
        axis.set_title(f"layer {layer + 1}", fontsize=9)
        axis.set_xticks(range(n_src), _labels(maps.src), fontsize=7, rotation=90, parse_math=False)
        rows = maps.tgt_out if layer == 0 else []
        axis.set_yticks(range(len(rows)), _labels(rows), fontsize=7, parse_math=False)
    save_figure(figure, path)


def draw_attention_maps(maps: AttentionMaps, path: Path, layer: int = -1) -> None:
    """One layer's attention: from target to source as the mean of the heads and head by head, then both kinds of
    self-attention as means.

    Writes a PNG. Every row of a map sums to 1; all maps have one colour scale. Raises ResourceError where it cannot.
    """
    n_layers, n_heads, n_tgt, n_src = maps.cross.shape
    # A token takes 0.2 inches; of a long sentence less, so that the picture stays one that viewers open.
    width, height = (min(max(0.2 * n + 1.2, 3.6), 16) for n in (n_src, n_tgt))
    figure = new_figure(2.2 * width, 2 * height + 0.8, layout="constrained")
    figure.suptitle(f"attention of layer {range(n_layers)[layer] + 1} of {n_layers}")
    upper, lower = figure.subfigures(2, 1)
    left, right = upper.subfigures(1, 2)
    _draw_map(left.subplots(), maps.cross[layer].mean(0), maps.tgt_out, maps.src, "target to source, mean of heads")
    columns = math.ceil(math.sqrt(n_heads))
    grid = right.subplots(math.ceil(n_heads / columns), columns, squeeze=False).flatten()
    for number, axis in enumerate(grid):
        if number < n_heads:
            _draw_map(axis, maps.cross[layer, number], [], [], f"head {number + 1}")
        else:
            axis.set_axis_off()
    axes = encoder, decoder = lower.subplots(1, 2)
    _draw_map(encoder, maps.encoder_self[layer].mean(0), maps.src, maps.src, "encoder self-attention, mean of heads")
    image = _draw_map(
        decoder, maps.decoder_self[layer].mean(0), maps.tgt_out, maps.tgt_in, "decoder self-attention, mean of heads"
    )
    lower.colorbar(image, ax=list(axes), label="weight", fraction=0.03, ticks=[0, 0.01, 0.05, 0.1, 0.25, 0.5, 1])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_figure(figure, path)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error


def _draw_map(axis: Any, weights: Any, rows: Sequence[str], columns: Sequence[str], title: str) -> Any:
    """weights (rows, columns); without tokens the axes stay bare."""
    from matplotlib.colors import PowerNorm

    # Weights spread over many tokens are small: their square roots tell them apart.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    image = axis.imshow(weights.numpy(), cmap="Blues", norm=scale, aspect="auto", interpolation="nearest")
    axis.set_title(title, fontsize=9)
    size = 8 if max(len(rows), len(columns)) <= 60 else 5
    # Dollar signs are text here, no formulas.
    axis.set_xticks(range(len(columns)), _labels(columns), fontsize=size, rotation=90, parse_math=False)
    axis.set_yticks(range(len(rows)), _labels(rows), fontsize=size, parse_math=False)
    return image


def _labels(tokens: Sequence[str]) -> list[str]:
    return [readable(token, longest=16) for token in tokens]
