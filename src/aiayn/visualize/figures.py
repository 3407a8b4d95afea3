"""The paper's pictures of attention, Figures 3 to 5, drawn for a trained model, as PNG and as SVG.

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
    best = sharpness.topk(min(2, len(sharpness)), dim=0)  # (2, S)
    if token is None:
        token = int(best.values.sum(0).argmax())
    return token, int(best.indices[0, token]), int(best.indices[-1, token])


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
        without_punctuation = written.rstrip(".,;:!?\"')")
        if word in (written, without_punctuation):
            return position
    known = " ".join(words.values())
    raise DataError(f"--word {word}: not a word of the sentence; its words are: {known}")


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
    sharp, first, second = sharp_heads(weights, is_word, word)

    def whole_head(head: int) -> AttentionPanel:
        return AttentionPanel(f"{layer_title}: head {head + 1}", {head: weights[head]})

    def one_word(title: str, heads: Iterable[int], token: int) -> AttentionPanel:
        return AttentionPanel(title, {head: _row(weights, head, token) for head in heads})

    all_heads = range(len(weights))
    far_title = f"{layer_title}: where {_quoted(tokens[far])} looks, all heads"
    pair = sorted({first, second})
    numbers = " and ".join(str(head + 1) for head in pair)
    heads_of_pair = f"head {numbers}" if len(pair) == 1 else f"heads {numbers}"
    pair_title = f"only {_quoted(tokens[sharp])}, {heads_of_pair}"
    most_different = dict.fromkeys(unlike_heads(weights))
    figures = {
        "figure_3": [one_word(far_title, all_heads, far)],
        "figure_4": [whole_head(first), one_word(pair_title, pair, sharp)],
        "figure_5": [whole_head(head) for head in most_different],
    }
    paths = []
    for name, panels in figures.items():
        paths += _draw_figure(folder / name, tokens, panels)
    return paths


def _quoted(label: str) -> str:
    return f"“{label.removeprefix('·')}”"


def _row(weights: Tensor, head: int, token: int) -> Tensor:
    """Returns one head's weights with all but one token's row removed: (S, S)."""
    isolated = torch.zeros_like(weights[head])
    isolated[token] = weights[head, token]
    return isolated


def _draw_figure(path: Path, tokens: list[str], panels: Sequence[AttentionPanel]) -> list[Path]:
    """Draws panels below each other. Returns the files."""
    # In inches. A token takes less room in a long sentence, so that the picture stays one that
    # viewers open.
    width = min(max(0.3 * len(tokens) + 0.6, 6), 20)
    font_size = 10 if len(tokens) <= 60 else 6
    word_length = 0.2 + max(map(len, tokens)) * font_size * 0.0095
    most_heads = max(len(panel.heads) for panel in panels)
    legend = 0.3 * math.ceil(most_heads / LEGEND_COLUMNS)
    title, lines = 0.35, 1.8
    height = title + lines + 2 * word_length + legend
    figure = new_figure(width, height * len(panels))
    share = 1 / len(panels)
    for number, panel in enumerate(panels, start=1):
        # Placed by hand: measuring every word, as automatic layouts do, takes most of the time.
        bottom = 1 - number * share
        axis = figure.add_axes((0.02, bottom, 0.96, share * (height - title) / height))
        axis.set_title(panel.title, fontsize=10, parse_math=False)
        axis.set_ylim(-(word_length + legend) / lines, 1 + word_length / lines)
        axis.set_xlim(-0.7, len(tokens) - 0.3)
        axis.set_axis_off()
        _write_words(axis, tokens, panel, font_size)
        _draw_lines(axis, panel)
        _add_legend(axis, panel)
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    save_figure(figure, *paths)
    return paths


def _write_words(axis: Any, tokens: list[str], panel: AttentionPanel, font_size: int) -> None:
    """Writes the sentence twice, upright; words without lines are grey."""
    weights = panel.total
    style = {"ha": "center", "rotation": 90, "fontsize": font_size, "parse_math": False}
    for position, token in enumerate(tokens):
        looks = weights[position].sum() > 0
        is_looked_at = weights[:, position].max() > 0.1
        above = "black" if looks else "0.6"
        below = "black" if is_looked_at else "0.6"
        axis.text(position, 1.04, token, va="bottom", color=above, **style)
        axis.text(position, -0.04, token, va="top", color=below, **style)


def _draw_lines(axis: Any, panel: AttentionPanel) -> None:
    """Draws lines from the words above to the words below that they look at.

    The colour of a line stands for its head, its opacity and width for the weight. Where only one
    word has lines, blocks in the heads' colours stand behind it and behind the words that it looks
    at.
    """
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    has_lines = panel.total.sum(1) > 0
    is_one_word = int(has_lines.sum()) == 1
    reader = int(has_lines.int().argmax())
    block_height = (axis.get_ylim()[1] - 1.02) / len(panel.heads)
    top, bottom = 1.02, -0.02
    for head, weights in panel.heads.items():
        colour = _colour(head)
        is_drawn = weights >= FAINTEST
        strengths = weights[is_drawn].tolist()
        lines = is_drawn.nonzero().tolist()
        segments = [[(query, 1), (key, 0)] for query, key in lines]
        colours = [(*colour, 0.05 + 0.95 * strength) for strength in strengths]
        widths = [0.5 + 2.5 * strength for strength in strengths]
        axis.add_collection(LineCollection(segments, colors=colours, linewidths=widths))
        if is_one_word:
            bottom -= block_height
            corners = [(reader - 0.45, top)]
            corners += [(key - 0.45, bottom) for _, key in lines]
            blocks = [Rectangle(corner, 0.9, block_height) for corner in corners]
            colours = [(*colour, 0.75 * strength) for strength in (0.8, *strengths)]
            axis.add_collection(PatchCollection(blocks, facecolors=colours, linewidths=0, zorder=0))
            top += block_height


def _add_legend(axis: Any, panel: AttentionPanel) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=_colour(head), label=f"head {head + 1}") for head in panel.heads]
    axis.legend(
        handles=handles,
        loc="lower center",
        ncols=LEGEND_COLUMNS,
        fontsize=8,
        frameon=False,
        borderpad=0,
        handlelength=1,
        columnspacing=1,
    )


def _colour(head: int) -> tuple[float, float, float]:
    """Returns a head's colour: the same in every figure, different for up to 20 heads."""
    from matplotlib import colormaps

    is_light = (head // 10) % 2  # tab20 has ten colours, each followed by a lighter one
    red, green, blue, _ = colormaps["tab20"]((2 * head) % 20 + is_light)
    return red, green, blue
