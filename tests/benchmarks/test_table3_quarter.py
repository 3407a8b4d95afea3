"""The findings on Table 3 at a quarter of its widths are what the results say."""

import pytest
import table3_quarter

from aiayn.reports.differences import Difference


@pytest.mark.parametrize(
    ("change", "key", "verdict"),
    [
        (Difference(0.5, 0.2, 0.8, 0.001, 0.03), "ppl", "worse"),
        (Difference(0.5, 0.2, 0.8, 0.001, 0.03), "bleu", "better"),
        (Difference(-0.5, -0.8, -0.2, 0.001, 0.03), "bleu", "worse"),
        (Difference(0.5, 0.2, 0.8, 0.01, 0.3), "ppl", "undecided"),
    ],
)
def test_only_a_difference_that_survives_correction_is_an_answer(change, key, verdict):
    assert table3_quarter.verdict(change, key) == verdict
