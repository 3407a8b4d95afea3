"""What the steps of a training hold: lengths, ratios of lengths and padding, by the number of parts
of a step.

    python benchmarks/steps.py data/en-de-0123456789abcdef [--tokens 2048] [--parts 1 4 8]
    python benchmarks/steps.py [--pairs 4500000] [--tokens 25000] [--parts 1 4 8]   # made-up lengths like WMT14's

A row a number of parts; of an epoch's steps 5, 50 and 95 %: the mean target length, target by
source tokens, the standard deviation of target lengths within a step, target tokens; and the mean
padding of a micro-batch.
"""

import sys
from pathlib import Path

import numpy as np
from measure import parse_options, report

from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedSplit

SAMPLED = 1000  # steps


def made_up(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-normal lengths of both sides, with end marks."""
    rng = np.random.default_rng(0)
    src = rng.lognormal(3.15, 0.6, pairs)
    sides = (src, src * rng.lognormal(0.05, 0.18, pairs))
    src, tgt = (np.clip(np.rint(side) + 1, 2, 256).astype(np.int32) for side in sides)
    return src, tgt


def distribution(src: np.ndarray, tgt: np.ndarray, tokens: int, parts: int) -> dict:
    plan = BatchPlan(src, tgt, tokens_per_step=tokens, parts=parts, seed=0)
    found: dict[str, list[float]] = {
        "tgt_length": [],
        "ratio": [],
        "deviation": [],
        "tgt_tokens": [],
    }
    for step in range(0, plan.steps_per_epoch, max(1, plan.steps_per_epoch // SAMPLED)):
        pairs = np.concatenate(plan.step(step))
        found["tgt_length"].append(tgt[pairs].mean())
        found["ratio"].append(tgt[pairs].sum() / src[pairs].sum())
        found["deviation"].append(tgt[pairs].std())
        found["tgt_tokens"].append(tgt[pairs].sum())
    row = {
        name: " ".join(f"{value:.3g}" for value in np.percentile(values, (5, 50, 95)))
        for name, values in found.items()
    }
    return (
        {"parts": parts, "tokens": tokens, "steps": plan.steps_per_epoch}
        | row
        | {"padding_percent": 100 * plan.padding.mean()}
    )


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    folder = Path(arguments.pop(0)) if arguments and not arguments[0].startswith("-") else None
    options = parse_options(
        __doc__, arguments, pairs=4_500_000, tokens=2048 if folder else 25_000, parts=[1, 4, 8]
    )
    if folder:
        split = PreparedSplit.open(folder, "train")
        src, tgt = split.src.lengths, split.tgt.lengths
    else:
        src, tgt = made_up(options.pairs)
    report(
        "steps",
        [distribution(src, tgt, options.tokens, parts) for parts in options.parts],
        options.out,
    )


if __name__ == "__main__":
    main()
