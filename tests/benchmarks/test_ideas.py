"""The table of ideas has a row for every example, with the scores of the results."""

from pathlib import Path

from ideas import PAGE, ROOT, rows, with_scores


def test_every_example_has_a_row_and_every_score_is_that_of_the_results():
    page = PAGE.read_text(encoding="utf-8")
    files = {path.name for path in Path(ROOT, "examples/extensions").glob("*.py")}
    assert {how for how in rows(page) if how.endswith(".py")} == files
    assert all(f"`{name}`" in page for name in files)
    assert with_scores(page) == page
