"""The paper's pictures of attention, Figures 3 to 5, drawn for a trained model, as PNG and as SVG.

All functions that draw raise ResourceError where a file cannot be written.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn.errors import DataError
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.visualize.maps import AttentionMaps, token_labels

FAINTEST = 0.02  # lines of less weight would not be seen
LEGEND_COLUMNS = 8  # heads side by side


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
    starts = [i for i, token in enumerate(tokens[:-1]) if i == 0 or token.startswith("▁")]
    words = [
        "".join(tokens[start:end]).lstrip("▁")
        for start, end in zip(starts, [*starts[1:], len(tokens) - 1], strict=True)
    ]
    for start, written in zip(starts, words, strict=True):
        if word in (written, written.rstrip(".,;:!?\"')")):
            return start
    raise DataError(f"--word {word}: not a word of the sentence; its words are: {' '.join(words)}")


def draw_paper_figures(maps: AttentionMaps, folder: Path, word: int | None = None) -> list[Path]:
    """Draws Figures 3, 4 and 5 for the encoder layer that corresponds to the paper's. Returns the
    files.

    Figure 3: one word, all heads. Figure 4: one head, then one word in two heads. Figure 5: the two
    heads that differ most. The word of Figures 3 and 4 is chosen by its weights unless given, by
    the position of its first subword.
    """
    layer = figure_layer(len(maps.encoder_self))
    weights = maps.encoder_self[layer]
    tokens = token_labels(maps.src)
    names = [f"“{label.removeprefix('·')}”" for label in tokens]
    layer_title = f"encoder self-attention, layer {layer + 1} of {len(maps.encoder_self)}"
    is_word = torch.tensor([any(map(str.isalpha, token)) for token in maps.src[:-1]] + [False])
    far = far_looking_token(weights, is_word) if word is None else word
    sharp, first, second = sharp_heads(weights, is_word, word)

    all_heads = {head: _row(weights, head, far) for head in range(len(weights))}
    figure_3 = [(f"{layer_title}: where {names[far]} looks, all heads", all_heads)]
    pair = sorted({first, second})
    pair_title = f"head{'s' * (len(pair) > 1)} {' and '.join(str(head + 1) for head in pair)}"
    figure_4 = [
        (f"{layer_title}: head {first + 1}", {first: weights[first]}),
        (f"only {names[sharp]}, {pair_title}", {head: _row(weights, head, sharp) for head in pair}),
    ]
    figure_5 = [
        (f"{layer_title}: head {head + 1}", {head: weights[head]})
        for head in dict.fromkeys(unlike_heads(weights))
    ]
    return [
        *_draw_figure(folder / "figure_3", tokens, figure_3),
        *_draw_figure(folder / "figure_4", tokens, figure_4),
        *_draw_figure(folder / "figure_5", tokens, figure_5),
    ]


def _row(weights: Tensor, head: int, token: int) -> Tensor:
    """One head's weights with all but one token's row removed: (S, S)."""
    isolated = torch.zeros_like(weights[head])
    isolated[token] = weights[head, token]
    return isolated


def _draw_figure(
    path: Path, tokens: list[str], panels: Sequence[tuple[str, Mapping[int, Tensor]]]
) -> list[Path]:
    """Panels below each other, each a title and, by head, the weights (S, S) that are drawn."""
    from matplotlib.patches import Patch

    # In inches. A token takes less room in a long sentence, so that the picture stays one that
    # viewers open.
    width = min(max(0.3 * len(tokens) + 0.6, 6), 20)
    size = 10 if len(tokens) <= 60 else 6
    words = 0.2 + max(map(len, tokens)) * size * 0.0095
    legend = 0.3 * math.ceil(max(len(heads) for _, heads in panels) / LEGEND_COLUMNS)
    title, lines = 0.35, 1.8
    height = title + lines + 2 * words + legend
    figure = new_figure(width, height * len(panels))
    for number, (text, heads) in enumerate(panels):
        # Placed by hand: measuring every word, as automatic layouts do, takes most of the time.
        bottom = 1 - (number + 1) / len(panels)
        axis = figure.add_axes((0.02, bottom, 0.96, (height - title) / height / len(panels)))
        axis.set_title(text, fontsize=10, parse_math=False)
        axis.set_ylim(-(words + legend) / lines, 1 + words / lines)
        _draw_lines(axis, tokens, heads, size)
        handles = [Patch(color=_colour(head), label=f"head {head + 1}") for head in heads]
        space = {"borderpad": 0, "handlelength": 1, "columnspacing": 1}
        style = {"fontsize": 8, "frameon": False, "ncols": LEGEND_COLUMNS, **space}
        axis.legend(handles=handles, loc="lower center", **style)
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    save_figure(figure, *paths)
    return paths


def _draw_lines(axis: Any, tokens: list[str], heads: Mapping[int, Tensor], size: int) -> None:
    """Draws the sentence twice, upright, and lines from the words above to the words below that
    they look at.

    The colour of a line stands for its head, its opacity and width for the weight. Where only one
    word has lines, blocks in the heads' colours stand behind it and behind the words that it looks
    at.
    """
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    everything = torch.stack(list(heads.values())).sum(0)
    readers = everything.sum(1) > 0
    alone = int(readers.sum()) == 1
    style = {"ha": "center", "rotation": 90, "fontsize": size, "parse_math": False}
    for i, token in enumerate(tokens):
        above = "black" if readers[i] else "0.6"
        below = "black" if everything[:, i].max() > 0.1 else "0.6"
        axis.text(i, 1.04, token, va="bottom", color=above, **style)
        axis.text(i, -0.04, token, va="top", color=below, **style)
    block = (axis.get_ylim()[1] - 1.02) / len(heads)
    for number, (head, weights) in enumerate(heads.items()):
        colour = _colour(head)
        looks = (weights >= FAINTEST).nonzero().tolist()
        strengths = weights[weights >= FAINTEST].tolist()
        segments = [[(i, 1), (j, 0)] for i, j in looks]
        colours = [(*colour, 0.05 + 0.95 * strength) for strength in strengths]
        widths = [0.5 + 2.5 * strength for strength in strengths]
        axis.add_collection(LineCollection(segments, colors=colours, linewidths=widths))
        if alone:
            reader = int(readers.int().argmax())
            top, bottom = 1.02 + number * block, -0.02 - (number + 1) * block
            corners = [(reader - 0.45, top), *((j - 0.45, bottom) for _, j in looks)]
            blocks = [Rectangle(corner, 0.9, block) for corner in corners]
            colours = [(*colour, 0.75 * strength) for strength in (0.8, *strengths)]
            axis.add_collection(PatchCollection(blocks, facecolors=colours, linewidths=0, zorder=0))
    axis.set_xlim(-0.7, len(tokens) - 0.3)
    axis.set_axis_off()


def _colour(head: int) -> tuple[float, float, float]:
    """A head's colour: the same in every figure, different for up to 20 heads."""
    from matplotlib import colormaps

    red, green, blue, _ = colormaps["tab20"]((2 * head) % 20 + (head // 10) % 2)
    return red, green, blue
