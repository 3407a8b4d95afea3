"""Section 6.3: how good parse trees are, counted as EVALB counts with its parameter file
COLLINS.prm.

Brackets are (label, first word, last word) of every constituent. Left out are TOP and, together
with their words, the punctuation tags; ADVP and PRT are one label. The tags of the gold tree say
what punctuation is: EVALB itself skips sentences in which the two trees disagree on that.
"""

from collections import Counter
from dataclasses import dataclass

from aiayn.config.tasks import BRACKET_KINDS
from aiayn.parsing.linear_form import read_linear_form, repaired_tree
from aiayn.parsing.tree import TOP, Leaf, Tree, leaves, right_branching, walk

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
SAME_LABEL = {"PRT": "ADVP"}
SIGNATURE = "EVALB with COLLINS.prm: labelled, without TOP and punctuation, ADVP = PRT, all lengths"


@dataclass(frozen=True)
class BracketScores:
    """Sums over all sentences, in per cent; `complete_match` is the share of sentences without a
    wrong bracket.
    """

    metrics: dict[str, float]  # kind -> per cent
    sentences: int  # scored: those with a word besides punctuation
    malformed: int  # predictions that were not a tree of their sentence, and were repaired
    right_branching: dict[str, float]  # the same scores of trees that only branch to the right


def score_linear_forms(
    sentences: list[str], references: list[str], predictions: list[str]
) -> BracketScores:
    """Scores what a model wrote for each sentence, after `repaired_tree`. Raises what `gold_trees`
    raises.
    """
    gold = gold_trees(sentences, references)
    repaired = [
        repaired_tree(words, text) for words, text in zip(sentences, predictions, strict=True)
    ]
    metrics, scored = bracket_scores(gold, [tree for tree, _ in repaired])
    baseline, _ = bracket_scores(gold, [right_branching(tree) for tree in gold])
    return BracketScores(metrics, scored, sum(malformed for _, malformed in repaired), baseline)


def gold_trees(sentences: list[str], references: list[str]) -> list[Tree]:
    """Returns the trees of the references. Raises DataError for one that is not the linear form of
    its sentence.
    """
    lines = enumerate(zip(sentences, references, strict=True), 1)
    return [
        read_linear_form(words, text, f"line {number} of the reference")
        for number, (words, text) in lines
    ]


def bracket_scores(gold: list[Tree], predicted: list[Tree]) -> tuple[dict[str, float], int]:
    """Returns precision, recall, f1 and complete match in per cent, and the number of sentences
    scored.

    The two trees of a sentence have the same words. Sentences of nothing but punctuation are not
    scored.
    """
    n_gold = n_predicted = n_matched = n_complete = n_sentences = 0
    for gold_tree, predicted_tree in zip(gold, predicted, strict=True):
        tags = [leaf.tag for leaf in leaves(gold_tree)]
        if PUNCTUATION.issuperset(tags):
            continue
        expected, of_parse = brackets(gold_tree, tags), brackets(predicted_tree, tags)
        matched = (expected & of_parse).total()
        n_gold += expected.total()
        n_predicted += of_parse.total()
        n_matched += matched
        n_complete += expected == of_parse
        n_sentences += 1
    if n_sentences and n_gold == n_predicted == 0:  # nothing to find, and nothing found
        precision = recall = f1 = 100.0
    else:
        precision, recall = _per_cent(n_matched, n_predicted), _per_cent(n_matched, n_gold)
        f1 = 2 * precision * recall / (precision + recall) if n_matched else 0.0
    complete = _per_cent(n_complete, n_sentences)
    return dict(zip(BRACKET_KINDS, (f1, precision, recall, complete), strict=True)), n_sentences


def brackets(tree: Tree, tags: list[str]) -> Counter[tuple[str, int, int]]:
    """Counts the (label, start, end) of all constituents, over the words whose tag is no
    punctuation.

    `tags` has one tag for each word and replaces those of the tree.
    """
    counts: Counter[tuple[str, int, int]] = Counter()
    starts: list[int] = []
    position = 0  # among the words that count
    remaining = iter(tags)
    for event, node in walk(tree):
        if isinstance(node, Leaf):
            position += next(remaining) not in PUNCTUATION
        elif event == "open":
            starts.append(position)
        else:
            start = starts.pop()
            if node != TOP and start < position:
                counts[SAME_LABEL.get(node, node), start, position] += 1
    return counts


def _per_cent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
