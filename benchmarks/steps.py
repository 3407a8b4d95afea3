"""What the steps of a training hold: lengths, ratios of lengths and padding, by the number of parts
of a step.

    python benchmarks/steps.py experiment=captions   # text and tokens of these options of train.py
    python benchmarks/steps.py [--pairs 4500000] [--tokens 25000]   # made-up lengths like WMT14's
    both: [--parts 1 4 8]

A row for each number of parts. It has the 5th, 50th and 95th percentiles over the steps of an
epoch of the mean target length, of target by source tokens, of the standard deviation of target
lengths within a step and of target tokens; and the mean padding of a micro-batch.
"""

import sys
from itertools import takewhile

import numpy as np
from measure import parse_options, report

import aiayn
from aiayn.config.resolve import run_config
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.preparation import prepare_corpus
from aiayn.runs.run_folder import Record

SAMPLED_STEPS = 1000


def made_up_lengths(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log-normal lengths of both sides, with end marks."""
    rng = np.random.default_rng(0)
    src = rng.lognormal(3.15, 0.6, pairs)
    sides = (src, src * rng.lognormal(0.05, 0.18, pairs))
    src, tgt = (np.clip(np.rint(side) + 1, 2, 256).astype(np.int32) for side in sides)
    return src, tgt


def distribution(src: np.ndarray, tgt: np.ndarray, tokens: int, parts: int) -> Record:
    """Return the row of steps of so many tokens and parts over pairs of these lengths."""
    plan = BatchPlan(src, tgt, tokens_per_step=tokens, parts=parts, seed=0)
    steps = range(0, plan.steps_per_epoch, max(1, plan.steps_per_epoch // SAMPLED_STEPS))
    by_step: dict[str, list[float]] = {
        "tgt_length": [],
        "ratio": [],
        "deviation": [],
        "tgt_tokens": [],
    }
    for step in steps:
        pairs = np.concatenate(plan.step(step))
        by_step["tgt_length"].append(tgt[pairs].mean())
        by_step["ratio"].append(tgt[pairs].sum() / src[pairs].sum())
        by_step["deviation"].append(tgt[pairs].std())
        by_step["tgt_tokens"].append(tgt[pairs].sum())
    percentiles = {
        name: np.percentile(values, (5, 50, 95)).tolist() for name, values in by_step.items()
    }
    sizes = {"parts": parts, "tokens": tokens, "steps": plan.steps_per_epoch}
    return sizes | percentiles | {"padding_percent": 100 * plan.padding.mean()}


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    overrides = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    options = parse_options(
        __doc__, arguments[len(overrides) :], pairs=4_500_000, tokens=25_000, parts=[1, 4, 8]
    )
    if overrides:
        data = run_config(aiayn.compose(*overrides)).data
        train = prepare_corpus(data).train
        src, tgt, tokens = train.src.lengths, train.tgt.lengths, data.tokens_per_step
    else:
        src, tgt = made_up_lengths(options.pairs)
        tokens = options.tokens
    rows = [distribution(src, tgt, tokens, parts) for parts in options.parts]
    report("steps_real" if overrides else "steps_made_up", rows, options.out)


if __name__ == "__main__":
    main()
