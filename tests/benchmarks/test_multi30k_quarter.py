"""The findings on thirty epochs of Multi30k are what the results say."""

from figures import assert_same_figures
from multi30k_quarter import RESULTS, facts, page_blocks
from table3_quarter import PAGE, replaced

from aiayn.reports.tables import json_text


def test_page_and_table_are_what_one_command_makes_of_the_results():
    found, page = facts(), PAGE.read_text(encoding="utf-8")
    assert replaced(page, page_blocks(found)) == page
    assert_same_figures((RESULTS / "table.json").read_text(encoding="utf-8"), json_text(found))
