"""The findings on thirty epochs of Multi30k are what the results say."""

import json

from multi30k_quarter import EPOCHS, NAMES, RESULTS, curve, facts, page_blocks, runs_of
from table3_quarter import PAGE, replaced

from aiayn.reports.tables import json_text


def test_page_and_table_are_what_one_command_makes_of_the_results():
    found, page = facts(), PAGE.read_text(encoding="utf-8")
    assert replaced(page, page_blocks(found)) == page
    assert json.loads((RESULTS / "table.json").read_text(encoding="utf-8")) == json.loads(json_text(found))


def test_every_published_run_belongs_to_one_row_and_was_trained_to_its_end():
    runs = sorted(path for path in RESULTS.iterdir() if path.is_dir())
    assert sorted(run for row in NAMES for run in runs_of(row)) == runs
    for run in runs:
        epochs, perplexities = curve(run)
        assert epochs[-1] == EPOCHS
        assert all(1 < perplexity < 100 for perplexity in perplexities)
