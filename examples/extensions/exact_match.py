"""A metric: the share of translations that are the reference, in per cent, in validation and in evaluate.py.

python train.py extensions=[examples/extensions/exact_match.py]
python evaluate.py run=outputs/NAME extensions=[examples/extensions/exact_match.py]
"""


def exact_match(hypotheses: list[str], references: list[str]) -> float:
    pairs = zip(hypotheses, references, strict=True)
    return 100 * sum(hypothesis == reference for hypothesis, reference in pairs) / max(1, len(references))


METRICS = {"exact_match": exact_match}
