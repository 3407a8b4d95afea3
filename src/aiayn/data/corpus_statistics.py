"""A prepared corpus in numbers: pairs read and dropped, lengths of sentences, share of padding."""

from typing import Any

import numpy as np

from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedCorpus, PreparedSplit
from aiayn.token_ids import EOS_ID

CHUNK = 1 << 24  # subwords counted at once
BINS = 40  # bins of the histogram of padding, from 0 to 1


def describe_corpus(prepared: PreparedCorpus, plan: BatchPlan) -> dict[str, Any]:
    """Returns plain values, fit for JSON.

    `lengths` counts the training sentences of 0, 1, 2, ... subwords, by side; `padding` is the mean share of padding
    in a micro-batch, and `padding_of_parts` counts micro-batches by their share, in `BINS` equal bins.
    """
    train, padding = prepared.train, plan.padding
    return {
        "splits": prepared.report,
        "pairs": len(train),
        "vocab_size": prepared.tokenizer.vocab_size,
        "steps_per_epoch": plan.steps_per_epoch,
        "micro_batches": plan.micro_batches,
        "lengths": {
            "src": np.bincount(train.src.lengths - 1).tolist(),
            "tgt": np.bincount(train.tgt.lengths - 1).tolist(),
        },
        "padding": float(padding.mean()),
        "padding_of_parts": np.histogram(padding, bins=BINS, range=(0, 1))[0].tolist(),
    }


def unigram_loss(split: PreparedSplit, vocab_size: int, label_smoothing: float) -> float:
    """Returns the smoothed loss of a unigram model, in nats per target token.

    No model that ignores the source and the previous tokens has a lower one.
    """
    counts = np.zeros(vocab_size)
    ids = split.tgt.flat
    for start in range(0, len(ids), CHUNK):
        counts += np.bincount(ids[start : start + CHUNK], minlength=vocab_size)
    counts[EOS_ID] += len(split)
    targets = (1 - label_smoothing) * counts / counts.sum() + label_smoothing / vocab_size
    return float(-(targets[targets > 0] * np.log(targets[targets > 0])).sum())
