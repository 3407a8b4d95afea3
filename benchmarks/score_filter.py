"""How well scores tell wrong pairs from right ones: the area under the ROC curve (AUC) on shuffled
text.

    python benchmarks/score_filter.py RUN PREFIX [--reverse RUN2]

Each pair of PREFIX is scored as it is, and with the target of another pair: of any, and of the one
whose target is nearest in length, which is harder. AUC is the probability that a right pair has a
higher score than a wrong one. Scores are those of `aiayn score`: log P, log P per subword, and with
--reverse the mean of both directions per subword; `length` is a baseline without a model, the ratio
of the sides' numbers of characters.
"""

import random
from collections.abc import Sequence

from measure import parse_options, report

import aiayn
from aiayn.cli.score import per_token
from aiayn.data.text_files import read_lines
from aiayn.search.translator import Translator


def auc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """Returns the probability that one of `right` is above one of `wrong`; equal ones count
    half.
    """
    above = sum((a > b) + (a == b) / 2 for a in right for b in wrong)
    return above / (len(right) * len(wrong))


def any_other(targets: list[str]) -> list[str]:
    """Returns the targets in an order in which none is in its own place."""
    order = list(range(len(targets)))
    random.Random(1).shuffle(order)
    moved = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [targets[moved[number]] for number in range(len(targets))]


def nearest_in_length(targets: list[str]) -> list[str]:
    """Returns for every target another one that is its neighbour in an order of lengths."""
    order = sorted(range(len(targets)), key=lambda number: len(targets[number]))
    neighbours = list(targets)
    for rank, number in enumerate(order):
        neighbours[number] = targets[order[rank + 1 if rank + 1 < len(order) else rank - 1]]
    return neighbours


def scores(
    sources: list[str], targets: list[str], there: Translator, back: Translator | None
) -> dict[str, list[float]]:
    """Returns every kind of score of the pairs."""
    pairs = there.score(sources, targets)
    by_kind = {
        "length": [
            min(len(a), len(b)) / max(len(a), len(b), 1)
            for a, b in zip(sources, targets, strict=True)
        ],
        "log_p": [pair.log_prob for pair in pairs],
        "per_token": [per_token(pair) for pair in pairs],
    }
    if back:
        others = back.score(targets, sources)
        by_kind["both"] = [
            (per_token(a) + per_token(b)) / 2 for a, b in zip(pairs, others, strict=True)
        ]
    return by_kind


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(
        __doc__, arguments, {"run": None, "prefix": None}, reverse=None, threads=1
    )
    there = aiayn.load(options.run, engine="torch")
    back = aiayn.load(options.reverse, engine="torch") if options.reverse else None
    sources, targets = (read_lines(f"{options.prefix}.{lang}") for lang in there.languages)
    right, rows = scores(sources, targets, there, back), []
    for name, shuffle in (("any other", any_other), ("nearest in length", nearest_in_length)):
        wrong = scores(sources, shuffle(targets), there, back)
        rows.append(
            {"wrong_target": name, "pairs": len(sources)}
            | {key: auc(right[key], wrong[key]) for key in right}
        )
    report("score_filter", rows, options.out)


if __name__ == "__main__":
    main()
