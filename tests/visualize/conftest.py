"""Attention to draw."""

import pytest
import torch

from aiayn.search.translations import Translation
from aiayn.visualize.maps import AttentionMaps


@pytest.fixture
def maps() -> AttentionMaps:
    """Random weights of 2 layers with 3 heads for 6 source and 5 target tokens, one of them a
    script's end.
    """
    n_src, n_tgt = 6, 5
    drawn = [
        torch.randn(2, 3, *sizes) * 2 for sizes in ((n_src, n_src), (n_tgt, n_tgt), (n_tgt, n_src))
    ]
    drawn[1] += torch.full((n_tgt, n_tgt), -torch.inf).triu(1)
    return AttentionMaps(
        ["▁the", "▁old", "▁ho", "use", "</script>", "</s>"],
        ["<s>", "▁das", "▁alte", "▁<b>", "Haus"],
        ["▁das", "▁alte", "▁<b>", "Haus", "</s>"],
        *(scores.softmax(-1) for scores in drawn),
        "the old house</script><!-- /* data */",
        Translation("das alte <b>Haus", -0.75, -3.25, [7, 8, 9, 10]),
    )
