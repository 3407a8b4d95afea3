"""Scores by the number of pairs are what the results say."""

import json
import math

import how_much_text
import pytest
from how_much_text import PAGE, RESULTS, facts, page_blocks, runs
from table3_quarter import replaced

from aiayn.reports.writers import as_json
from aiayn.runs.run_folder import RunFolder


def test_page_and_table_are_what_one_command_makes_of_the_results():
    found, page = facts(), PAGE.read_text(encoding="utf-8")
    assert replaced(page, page_blocks(found)) == page
    assert json.loads((RESULTS / "table.json").read_text(encoding="utf-8")) == json.loads(as_json(found))


def test_intervals_are_those_of_students_t_with_the_spread_of_all_sizes():
    scores = {pairs: [how_much_text.scores(run)["metrics"]["sacrebleu"] for run in of] for pairs, of in runs().items()}
    squares, freedom = 0.0, 0
    for of in scores.values():
        squares += sum((score - sum(of) / len(of)) ** 2 for score in of)
        freedom += len(of) - 1
    found = facts()
    assert (found["degrees_of_freedom"], found["sd"]) == (freedom, pytest.approx(math.sqrt(squares / freedom)))
    quantiles = {2: 4.302653, 3: 3.182446, 4: 2.776445, 5: 2.570582, 6: 2.446912}  # 97.5 %, from tables
    for row in found["rows"]:
        of, score = scores[row["pairs"]], row["sacrebleu"]
        reach = quantiles[freedom] * found["sd"] / math.sqrt(len(of))
        assert (score.low, score.delta, score.high) == pytest.approx(
            (sum(of) / len(of) - reach, sum(of) / len(of), sum(of) / len(of) + reach)
        )


def test_runs_of_a_size_differ_in_their_seed_only():
    for of in runs().values():
        configs = [RunFolder(run).read_config() for run in of]
        assert sorted(config["seed"] for config in configs) == list(range(len(of)))
        assert len({(config["trainer"]["max_steps"], config["data"]["train"]) for config in configs}) == 1


def test_the_curve_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(how_much_text, "PICTURE", tmp_path / "curve.png")
    how_much_text.draw(facts())
    assert (tmp_path / "curve.png").stat().st_size > 5_000
