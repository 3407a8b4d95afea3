"""The paper's figures: what they choose to show, and that they show it."""

import warnings
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.image import imread

from aiayn.errors import DataError
from aiayn.search.translations import Translation
from aiayn.visualize.figures import (
    draw_paper_figures,
    far_looking_token,
    figure_layer,
    find_word,
    sharp_heads,
    unlike_heads,
)
from aiayn.visualize.maps import AttentionMaps

NAMES = [f"figure_{number}.{kind}" for number in (3, 4, 5) for kind in ("png", "svg")]


@pytest.mark.parametrize(("n_layers", "layer"), [(6, 5), (4, 3), (3, 2), (2, 2), (1, 1), (8, 7)])
def test_the_layer_is_the_papers_fifth_of_six(n_layers, layer):
    assert figure_layer(n_layers) == layer - 1


def looking(n: int, *looks: tuple[int, int, int, float]) -> torch.Tensor:
    """Three heads that look evenly but for (head, query, key, weight)."""
    weights = torch.full((3, n, n), 1 / n)
    for head, query, key, weight in looks:
        weights[head, query] = (1 - weight) / (n - 1)
        weights[head, query, key] = weight
    return weights


WORDS = torch.tensor([True, True, True, True, True, False, False])  # six tokens and the end mark


def test_the_word_of_figure_3_looks_far_and_not_at_neighbours_itself_or_marks():
    weights = looking(
        7, (0, 0, 1, 0.99), (0, 1, 1, 0.99), (0, 2, 6, 0.99), (1, 2, 5, 0.99), (0, 3, 0, 0.6)
    )
    assert far_looking_token(weights, WORDS) == 3


def test_figure_4_shows_the_two_heads_that_look_most_sharply_from_one_word():
    weights = looking(
        7, (0, 0, 6, 0.99), (1, 1, 1, 0.99), (2, 4, 3, 0.9), (0, 4, 2, 0.7), (1, 2, 3, 0.95)
    )
    assert sharp_heads(weights, WORDS) == (4, 2, 0)
    assert sharp_heads(weights, WORDS, token=2)[:2] == (2, 1)
    assert sharp_heads(weights[:1], WORDS) == (4, 0, 0)


def test_figure_5_shows_the_two_heads_that_differ_most():
    weights = torch.eye(4).repeat(3, 1, 1)
    weights[1] = weights[1].roll(1, 0)
    weights[0] = 0.7 * torch.eye(4) + 0.3 / 4
    assert unlike_heads(weights) == (1, 2)


def test_a_word_is_found_by_its_name_with_all_its_pieces():
    tokens = ["▁The", "▁ho", "use", ",", "▁old", ".", "</s>"]
    assert [find_word(tokens, word) for word in ("The", "house", "house,", "old")] == [0, 1, 1, 4]
    with pytest.raises(
        DataError, match=r"--word ho: not a word of the sentence; its words are: The house, old\."
    ):
        find_word(tokens, "ho")


def texts(path) -> list[str]:
    return [
        element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_the_figures_are_drawn_as_png_and_svg_with_the_words_as_text(maps, tmp_path):
    paths = draw_paper_figures(maps, tmp_path / "new", find_word(maps.src, "old"))

    assert [path.name for path in paths] == NAMES
    assert all(300 < size < 3000 for path in paths[::2] for size in imread(path).shape[:2])
    three, four, five = (texts(path) for path in paths[1::2])
    assert three[0:2] == ["the", "the"]  # above and below
    assert [text for text in three if text.startswith("head ")] == ["head 1", "head 2", "head 3"]
    assert sum("where “old” looks, all heads" in text for text in three) == 1
    assert sum("only “old”" in text for text in four) == 1
    assert sum("layer 2 of 2: head" in text for text in five) == 2


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow), 70])
def test_sentences_of_any_length_and_script_are_drawn_without_a_word_of_warning(tmp_path, n):
    tokens = [*(["$x$", "▁猫", "\t\n", "▁word"] * 20)[: n - 1], "</s>"]
    even = torch.full((1, 1, n, n), 1 / n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_paper_figures(
            AttentionMaps(
                tokens, tokens, tokens, even, even, even, "", Translation("", 0.0, 0.0, [])
            ),
            tmp_path,
        )
    assert imread(tmp_path / "figure_3.png").shape[1] < 2500
