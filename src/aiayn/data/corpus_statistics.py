"""A prepared corpus in numbers: what was read and dropped, how long its sentences are, how much of it is padding."""

from typing import Any

import numpy as np

from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedCorpus

PARTS = 500  # micro-batches looked at; more would not change the picture
BINS = 40  # of the share of padding, from 0 to 1


def describe_corpus(prepared: PreparedCorpus, plan: BatchPlan) -> dict[str, Any]:
    """Plain values, fit for JSON.

    `lengths` counts the training sentences of 0, 1, 2, ... subwords, by side; `padding` is the share of an epoch's
    positions that hold none, and `padding_of_parts` counts micro-batches by their share of it, in bins of equal width
    from 0 to 1.
    """
    train = prepared.train
    return {
        "splits": prepared.report,
        "pairs": len(train),
        "vocab_size": prepared.tokenizer.vocab_size,
        "steps_per_epoch": plan.steps_per_epoch,
        "micro_batches": plan.micro_batches,
        "lengths": {
            "src": np.bincount(train.src_lengths).tolist(),
            "tgt": np.bincount(train.tgt_lengths).tolist(),
        },
        "padding": float(plan.padding),
        "padding_of_parts": np.histogram(_padding(prepared, plan), bins=BINS, range=(0, 1))[0].tolist(),
    }


def _padding(prepared: PreparedCorpus, plan: BatchPlan) -> list[float]:
    """Shares of padding, both sides together, of micro-batches at even distances in the first epoch."""
    src, tgt = prepared.train.src_lengths, prepared.train.tgt_lengths
    total = plan.steps_per_epoch * plan.micro_batches
    shares = []
    for number in range(0, total, -(-total // PARTS)):
        pairs = plan.part(number).pairs
        if len(pairs):
            sides = (src[pairs] + 1, tgt[pairs] + 1)  # with end marks
            positions = sum(len(pairs) * side.max() for side in sides)
            shares.append(1 - sum(side.sum() for side in sides) / positions)
    return shares
