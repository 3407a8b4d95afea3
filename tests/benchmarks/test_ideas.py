"""Every example of an extension is on the page on ideas, and has been trained and scored."""

import json

from ideas import RESULTS, ROOT, ideas, name_of


def test_every_example_is_on_the_page_and_every_idea_has_a_score():
    page = (ROOT / "docs/ideas.md").read_text(encoding="utf-8")
    results = json.loads((RESULTS / "ideas.json").read_text(encoding="utf-8"))

    assert [how for how in ideas() if how.endswith(".py") and f"`{how}`" not in page] == []
    assert {row["idea"] for row in results["rows"]} == {name_of(how) for how in ideas()}
