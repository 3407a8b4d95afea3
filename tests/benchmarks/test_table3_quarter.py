"""The findings on Table 3 at a quarter of its widths are what the results say."""

import pytest
import table3_quarter
from figures import assert_same_figures
from scipy import stats
from table3_quarter import PAGE, RESULTS, facts, page_blocks, replaced, tables_of

from aiayn.reports.differences import Difference
from aiayn.reports.tables import json_text


def test_page_and_table_are_what_one_command_makes_of_the_results():
    found = facts(tables_of(RESULTS))

    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, page_blocks(found)) == page
    assert_same_figures((RESULTS / "table.json").read_text(encoding="utf-8"), json_text(found))
    assert {record["row"] for record in found["changes"]} == set(table3_quarter.NAMES)


@pytest.mark.parametrize(
    ("change", "key", "verdict"),
    [
        (Difference(0.5, 0.2, 0.8, 0.001, 38, 0.03), "ppl", "worse"),
        (Difference(0.5, 0.2, 0.8, 0.001, 38, 0.03), "bleu", "better"),
        (Difference(-0.5, -0.8, -0.2, 0.001, 38, 0.03), "bleu", "worse"),
        (Difference(0.5, 0.2, 0.8, 0.01, 38, 0.3), "ppl", "undecided"),
    ],
)
def test_only_a_difference_that_survives_correction_is_an_answer(change, key, verdict):
    assert table3_quarter.verdict(change, key) == verdict


def test_what_a_difference_must_exceed_is_that_of_the_row_of_most_seeds_and_rows_of_one_seed_do_not_count():
    alone, wide, narrow = Difference(0.5), Difference(0.5, -0.5, 1.5, 0.2, 4), Difference(0.5, -0.1, 1.1, 0.1, 9)
    rows = [{"ppl": one, "bleu": one} for one in (alone, wide, narrow)]
    # By hand: four comparisons, and a standard error of the interval's half by Student's t.
    least = 0.6 / stats.t.isf(0.025, 9) * stats.t.isf(0.025 / 4, 9)
    assert f" {least:.2f} in perplexity or {least:.2f} in BLEU" in table3_quarter.reach(rows)
