"""Scores by the number of pairs are what the results say."""

import json
import math

import pytest
from figures import assert_same_figures
from how_much_text import PAGE, RESULTS, facts, page_blocks
from scipy import stats
from table3_quarter import replaced

from aiayn.reports.tables import json_text


def test_page_and_table_are_what_one_command_makes_of_the_results():
    found, page = facts(), PAGE.read_text(encoding="utf-8")
    assert replaced(page, page_blocks(found)) == page
    assert_same_figures((RESULTS / "table.json").read_text(encoding="utf-8"), json_text(found))


def test_intervals_are_students_t_of_one_spread_between_seeds_shared_by_all_sizes():
    scores: dict[int, list[float]] = {}
    for path in RESULTS.glob("pairs_*/seed-*"):
        scored = json.loads((path / "evaluation/test/evaluation.json").read_text(encoding="utf-8"))
        scores.setdefault(int(path.parent.name.split("_")[1]), []).append(scored["metrics"]["sacrebleu"])
    freedom = sum(len(of) - 1 for of in scores.values())
    sd = math.sqrt(sum((score - sum(of) / len(of)) ** 2 for of in scores.values() for score in of) / freedom)
    found = facts()
    assert (found["degrees_of_freedom"], found["sd"]) == (freedom, pytest.approx(sd))
    for row in found["rows"]:
        of, score = scores[row["pairs"]], row["sacrebleu"]
        assert score.delta == pytest.approx(sum(of) / len(of))
        interval = stats.t.interval(0.95, freedom, score.delta, sd / math.sqrt(len(of)))
        assert (score.low, score.high) == pytest.approx(interval)
