"""Section 6.3: parsing as a task of the same model, beside translation."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from aiayn.config.tasks import BRACKET_KINDS, METRIC_KINDS, Task, TaskScores
from aiayn.parsing.bracket_f1 import SIGNATURE, gold_trees, score_linear_forms
from aiayn.parsing.linear_form import repaired_tree
from aiayn.parsing.tree import Tree, escape_brackets, indented, penn_brackets


def _drawn_with(draw: Callable[[Tree], str]) -> Callable[[str, str], str]:
    """Returns a function of a sentence and a linear form that draws the tree, repaired where it is
    not well-formed.
    """
    return lambda words, text: draw(repaired_tree(words, text)[0])


class ParsingTask(Task):
    """Words to linear trees, scored with labelled brackets."""

    kinds = BRACKET_KINDS
    formats: ClassVar[Mapping[str, Callable[[str, str], str]]] = {
        "tree": _drawn_with(indented),
        "brackets": _drawn_with(penn_brackets),
    }
    usual_format = "tree"
    reads_prose = False

    def check_text(self, sources: list[str], references: list[str], tgt_lang: str) -> None:
        gold_trees(sources, references)

    def source_line(self, line: str) -> str:
        return escape_brackets(line)

    def score(
        self, hypotheses: list[str], sources: list[str], references: list[list[str]], tgt_lang: str
    ) -> TaskScores:
        brackets = score_linear_forms(sources, references[0], hypotheses)
        metrics = dict.fromkeys(METRIC_KINDS) | brackets.metrics
        signatures: dict[str, str | None] = dict.fromkeys(BRACKET_KINDS, SIGNATURE)
        return TaskScores(
            metrics, SIGNATURE, signatures, len(hypotheses), brackets=asdict(brackets)
        )

    def val_scores(
        self, hypotheses: list[str], sources: list[str], references: list[str], tgt_lang: str
    ) -> dict[str, float]:
        return {"val/f1": score_linear_forms(sources, references, hypotheses).metrics["f1"]}

    def score_rows(self, brackets: Mapping[str, Any] | None) -> list[tuple[str, str]]:
        assert brackets is not None
        malformed, baseline = brackets["malformed"], brackets["right_branching"]["f1"]
        return [
            ("malformed", f"{malformed:6d}  outputs, which were repaired"),
            ("right-branching", f"{baseline:6.2f}  F1 of right-branching trees"),
        ]


def readable_samples(task: str, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns samples of a run as people read them: of a parser indented trees with the words, else
    unchanged.
    """
    if task != "parsing":
        return samples
    draw, trees = _drawn_with(indented), ("reference", "hypothesis")
    return [
        sample | {key: draw(sample["source"], sample[key]) for key in trees} for sample in samples
    ]
