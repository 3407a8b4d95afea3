"""A task says how its text is checked, scored and shown: translation and parsing behind one
interface.
"""

import pytest

from aiayn.config.tasks import TASKS
from aiayn.errors import DataError
from aiayn.evaluation.scoring import score
from aiayn.evaluation.translation_task import task_of

WORDS = ["The cat sleeps .", "Yes"]
TREES = ["(S (NP DT NN )NP (VP VBZ )VP . )S", "(INTJ UH )INTJ"]
DAMAGED = ["(S (NP DT NN )NP (VP VBZ . )S", "(INTJ UH )INTJ"]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_metric_among_its_kinds_and_scores_its_own_references_with_100(name):
    task, references = task_of(name), {"translation": WORDS, "parsing": TREES}[name]

    scores = task.score(references, WORDS, [references], "en")

    assert TASKS[name].metric in task.kinds
    assert scores.metrics[TASKS[name].metric] == pytest.approx(100)
    assert scores.lines == len(references)
    assert set(task.kinds) <= scores.signatures.keys() & scores.metrics.keys()
    assert max(task.val_scores(references, WORDS, references, "en").values()) == pytest.approx(100)
    assert (task.usual_format is None) == (not task.formats)


def test_translation_takes_every_text_and_scores_it_as_scoring_does():
    translation, references = (
        task_of("translation"),
        [["The cat is sleeping .", "No"], ["A cat sleeps .", "Yes"]],
    )

    translation.check_text(WORDS, ["(S", ")"], "en")
    scores = translation.score(WORDS, ["x", "y"], references, "en")

    assert scores.metrics == score(WORDS, references, "en").metrics
    assert (scores.brackets, translation.source_line("(a)")) == (None, "(a)")


def test_parsing_refuses_references_that_are_no_trees_and_counts_outputs_that_are_none():
    parsing = task_of("parsing")

    with pytest.raises(DataError, match="line 2 of the reference"):
        parsing.check_text(WORDS, [TREES[0], "(INTJ"], "en")
    scores = parsing.score(DAMAGED, WORDS, [TREES], "trees")

    assert scores.brackets["malformed"] == 1
    assert (
        "malformed",
        "     1  outputs, which were repaired",
    ) in list(parsing.score_rows(scores.brackets))
    assert parsing.source_line("( x )") == "-LRB- x -RRB-"
    assert parsing.formats["brackets"](WORDS[1], TREES[1]) == "(TOP (INTJ (UH Yes)))"
