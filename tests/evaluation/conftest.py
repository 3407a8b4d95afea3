"""A browser for the tests of pages, and attention to draw."""

import os
from collections.abc import Iterator

import pytest
import torch
from chromium import Chromium, find_chromium

from aiayn.evaluation.attention_maps import AttentionMaps
from aiayn.inference.translator import Translation


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[Chromium]:
    """One for all tests. Skips where there is none: `.ci/run` installs it."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    try:
        chromium = Chromium(program, tmp_path_factory.mktemp("profile"))
    except (RuntimeError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{program} does not start here: {error}")
    yield chromium
    chromium.close()


@pytest.fixture
def maps() -> AttentionMaps:
    """Random weights of 2 layers with 3 heads for 6 source and 5 target tokens, one of them a script's end."""
    n_src, n_tgt = 6, 5
    drawn = [torch.randn(2, 3, *sizes) * 2 for sizes in ((n_src, n_src), (n_tgt, n_tgt), (n_tgt, n_src))]
    drawn[1] += torch.full((n_tgt, n_tgt), -torch.inf).triu(1)
    return AttentionMaps(
        ["▁the", "▁old", "▁ho", "use", "</script>", "</s>"],
        ["<s>", "▁das", "▁alte", "▁<b>", "Haus"],
        ["▁das", "▁alte", "▁<b>", "Haus", "</s>"],
        *(scores.softmax(-1) for scores in drawn),
        "the old house</script><!-- /* data */",
        Translation("das alte <b>Haus", -0.75, -3.25, [7, 8, 9, 10]),
    )
