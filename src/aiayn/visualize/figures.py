"""Pictures of attention: the paper's Figures 3 to 5 for a trained model, as PNG and as SVG, and
heat maps of all layers.

All functions that draw raise ResourceError where a file cannot be written.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn.errors import DataError
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.visualize.maps import AttentionMaps, token_labels

FAINTEST = 0.02  # lines of less weight would not be seen
LEGEND_COLUMNS = 8  # heads side by side


@dataclass(frozen=True)
class AttentionPanel:
    """One picture of a figure: a title and, by head, the weights (S, S) that are drawn."""

    title: str
    heads: Mapping[int, Tensor]

    @property
    def total(self) -> Tensor:
        """Returns the sum over heads (S, S)."""
        return torch.stack(list(self.heads.values())).sum(0)


def figure_layer(n_layers: int) -> int:
    """Returns the layer that corresponds to the one of the paper's figures, 5 of 6, counted from
    0.
    """
    return max(round(n_layers * 5 / 6), 1) - 1


def far_looking_token(weights: Tensor, is_word: Tensor) -> int:
    """Returns the word with the largest weight, mean over heads, on one word beyond its neighbours.

    weights (H, S, S), is_word (S,).
    """
    n = weights.size(-1)
    far = (torch.arange(n)[:, None] - torch.arange(n)).abs() > 1
    return int(_sharpness(weights, is_word, far).mean(0).argmax())


def sharp_heads(weights: Tensor, is_word: Tensor, token: int | None = None) -> tuple[int, int, int]:
    """Returns a token and the two heads in which it has the largest weights on one other word:
    token, head, head.

    weights (H, S, S), is_word (S,). A given token is kept. In a model with one head both heads are
    that one.
    """
    sharpness = _sharpness(weights, is_word, ~torch.eye(weights.size(-1), dtype=torch.bool))
    if token is None:
        token = int(sharpness.topk(min(2, len(weights)), dim=0).values.sum(0).argmax())
    heads = sharpness[:, token].argsort(descending=True)[:2]
    return token, int(heads[0]), int(heads[-1])


def _sharpness(weights: Tensor, is_word: Tensor, allowed: Tensor) -> Tensor:
    """Returns (H, S): for every head and word its largest weight on a word that `allowed` (S, S)
    names.
    """
    # Heads without a better use look at punctuation and end marks, which therefore count on neither
    # side.
    return (weights * (allowed & is_word & is_word[:, None])).max(-1).values


def unlike_heads(weights: Tensor) -> tuple[int, int]:
    """Returns the two heads of weights (H, S, S) with the largest total variation distance, mean
    over words.
    """
    differences = (weights[:, None] - weights[None]).abs().sum(-1).mean(-1) / 2
    first, second = divmod(int(differences.argmax()), len(weights))
    return first, second


def find_word(tokens: Sequence[str], word: str) -> int:
    """Returns the position of a word's first subword. Raises DataError for a word that is not in
    the sentence.
    """
    words: dict[int, str] = {}  # by the position of their first subwords
    start = 0
    for position, token in enumerate(tokens[:-1]):
        if token.startswith("▁"):
            start = position
        words[start] = words.get(start, "") + token.lstrip("▁")
    for position, written in words.items():
        if word in (written, written.rstrip(".,;:!?\"')")):
            return position
    raise DataError(
        f"--word {word}: not a word of the sentence; its words are: {' '.join(words.values())}"
    )


def draw_paper_figures(maps: AttentionMaps, folder: Path, word: int | None = None) -> list[Path]:
    """Draws Figures 3, 4 and 5 for the encoder layer that corresponds to the paper's. Returns the
    files.

    Figure 3: one word, all heads. Figure 4: one head, then one word in two heads. Figure 5: the two
    heads that differ most. The word of Figures 3 and 4 is chosen by its weights unless given, by
    the position of its first subword.
    """
    n_layers = len(maps.encoder_self)
    layer = figure_layer(n_layers)
    weights = maps.encoder_self[layer]
    tokens = token_labels(maps.src)
    layer_title = f"encoder self-attention, layer {layer + 1} of {n_layers}"
    is_word = torch.tensor([any(map(str.isalpha, token)) for token in maps.src])
    is_word[-1] = False  # the end mark
    far = far_looking_token(weights, is_word) if word is None else word
    sharp, *sharpest = sharp_heads(weights, is_word, word)

    def whole_head(head: int) -> AttentionPanel:
        return AttentionPanel(f"{layer_title}: head {head + 1}", {head: weights[head]})

    def one_word(title: str, heads: Iterable[int], token: int) -> AttentionPanel:
        only = (torch.arange(len(tokens)) == token)[:, None]
        return AttentionPanel(title, {head: weights[head] * only for head in heads})

    far_word, sharp_word = (f"“{tokens[token].removeprefix('·')}”" for token in (far, sharp))
    far_title = f"{layer_title}: where {far_word} looks, all heads"
    pair = sorted(set(sharpest))
    numbers = " and ".join(str(head + 1) for head in pair)
    pair_title = f"only {sharp_word}, {'head' if len(pair) == 1 else 'heads'} {numbers}"
    figures = {"figure_3": [one_word(far_title, range(len(weights)), far)]}
    figures["figure_4"] = [whole_head(sharpest[0]), one_word(pair_title, pair, sharp)]
    figures["figure_5"] = [whole_head(head) for head in dict.fromkeys(unlike_heads(weights))]
    paths = []
    for name, panels in figures.items():
        figure_paths = [folder / f"{name}.png", folder / f"{name}.svg"]
        save_figure(_drawn(tokens, panels), *figure_paths)
        paths += figure_paths
    return paths


def _drawn(tokens: list[str], panels: Sequence[AttentionPanel]) -> Any:
    """Returns a figure of panels below each other."""
    # In inches. A token takes less room in a long sentence, so that the picture stays one that
    # viewers open.
    width = min(max(0.3 * len(tokens) + 0.6, 6), 20)
    font_size = 10 if len(tokens) <= 60 else 6
    word_length = 0.2 + max(map(len, tokens)) * font_size * 0.0095
    legend = 0.3 * math.ceil(max(len(panel.heads) for panel in panels) / LEGEND_COLUMNS)
    title, lines = 0.35, 1.8
    height = title + lines + 2 * word_length + legend
    figure = new_figure(width, height * len(panels))
    share = 1 / len(panels)
    for number, panel in enumerate(panels, start=1):
        # Placed by hand: measuring every word, as automatic layouts do, takes most of the time.
        axis = figure.add_axes((0.02, 1 - number * share, 0.96, share * (1 - title / height)))
        axis.set_title(panel.title, fontsize=10, parse_math=False)
        axis.set_ylim(-(word_length + legend) / lines, 1 + word_length / lines)
        axis.set_xlim(-0.7, len(tokens) - 0.3)
        axis.set_axis_off()
        _write_words(axis, tokens, panel, font_size)
        _draw_lines(axis, panel)
        axis.legend(
            loc="lower center",
            ncols=LEGEND_COLUMNS,
            fontsize=8,
            frameon=False,
            borderpad=0,
            handlelength=1,
            columnspacing=1,
        )
    return figure


def _write_words(axis: Any, tokens: list[str], panel: AttentionPanel, font_size: int) -> None:
    """Writes the sentence twice, upright; words without lines are grey."""
    weights = panel.total
    style = {"ha": "center", "rotation": 90, "fontsize": font_size, "parse_math": False}
    for position, token in enumerate(tokens):
        above = "black" if weights[position].sum() > 0 else "0.6"
        below = "black" if weights[:, position].max() > 0.1 else "0.6"
        axis.text(position, 1.04, token, va="bottom", color=above, **style)
        axis.text(position, -0.04, token, va="top", color=below, **style)


def _draw_lines(axis: Any, panel: AttentionPanel) -> None:
    """Draws lines from the words above to the words below that they look at.

    The colour of a line stands for its head, its opacity and width for the weight. Where only one
    word has lines, blocks in the heads' colours stand behind it and behind the words that it looks
    at.
    """
    from matplotlib import color_sequences
    from matplotlib.collections import LineCollection

    tab20 = color_sequences["tab20"]  # ten colours, each followed by a lighter one
    readers = panel.total.sum(1).nonzero().flatten().tolist()
    block_height = (axis.get_ylim()[1] - 1.02) / len(panel.heads)
    for number, (head, weights) in enumerate(panel.heads.items()):
        # The same in every figure
        colour = [*tab20[::2], *tab20[1::2]][head % 20]
        axis.bar(0, 0, color=colour, label=f"head {head + 1}")
        is_drawn = weights >= FAINTEST
        strengths = weights[is_drawn].tolist()
        lines = is_drawn.nonzero().tolist()
        segments = [[(query, 1), (key, 0)] for query, key in lines]
        colours = [(*colour, 0.05 + 0.95 * strength) for strength in strengths]
        widths = [0.5 + 2.5 * strength for strength in strengths]
        axis.add_collection(LineCollection(segments, colors=colours, linewidths=widths))
        if len(readers) == 1:
            style = {"height": block_height, "width": 0.9, "zorder": 0}
            above, below = 1.02 + number * block_height, -0.02 - (number + 1) * block_height
            axis.bar(readers, bottom=above, color=(*colour, 0.6), **style)
            colours = [(*colour, 0.75 * strength) for strength in strengths]
            axis.bar([key for _, key in lines], bottom=below, color=colours, **style)


def draw_cross_attention(maps: AttentionMaps, path: Path) -> None:
    """Draws a heat map of where every layer of the decoder looks in the source, as the mean of its
    heads.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    src = token_labels(maps.src, longest=16)
    tgt = token_labels(maps.tgt_out, longest=16)
    # In inches, placed by hand: training draws this at every validation, and a computed layout
    # would draw everything twice.
    width = _extent(src)
    height = _extent(tgt)
    left = _room_for(tgt)
    bottom = _room_for(src)
    top, gap, bar = 0.35, 0.15, 0.75
    total_width = left + len(maps.cross) * (width + gap) + bar
    total_height = bottom + height + top
    figure = new_figure(total_width, total_height)
    room = {
        "left": left / total_width,
        "right": 1 - (gap + bar) / total_width,
        "bottom": bottom / total_height,
        "top": 1 - top / total_height,
        "wspace": gap / width,
    }
    # The square root tells small weights apart, as of a head that attends to many tokens.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    # Dollar signs are text here, no formulas.
    style = {"fontsize": 7 if max(len(src), len(tgt)) <= 60 else 5, "parse_math": False}
    axes = figure.subplots(1, len(maps.cross), squeeze=False, gridspec_kw=room).flat
    for layer, (axis, weights) in enumerate(zip(axes, maps.cross.mean(1), strict=True), start=1):
        axis.imshow(weights.numpy(), "Blues", scale, aspect="auto", interpolation="nearest")
        axis.set_title(f"layer {layer}", fontsize=9)
        axis.set_xlabel("source", fontsize=8)
        axis.set_xticks(range(len(src)), src, rotation=90, **style)
        axis.set_yticks([])
    axes[0].set_yticks(range(len(tgt)), tgt, **style)
    axes[0].set_ylabel("translation", fontsize=8)
    beside = (1 - bar / total_width, room["bottom"], 0.1 / total_width, height / total_height)
    bar_axis = figure.add_axes(beside)
    colours = figure.colorbar(ScalarMappable(scale, "Blues"), cax=bar_axis)
    colours.set_ticks([0, 0.05, 0.2, 0.5, 1], labels=["0", "0.05", "0.2", "0.5", "1"], fontsize=7)
    colours.set_label("attention weight", fontsize=8)
    save_figure(figure, path)


def _extent(labels: list[str]) -> float:
    """Returns the length of a map's side, a row or column for each label."""
    return min(max(0.2 * len(labels), 1.6), 6)


def _room_for(labels: list[str]) -> float:
    """Returns the room that labels, and the name of their axis, need beside a map."""
    return 0.4 + 0.065 * max(map(len, labels))
