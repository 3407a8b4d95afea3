"""A prepared corpus in numbers: pairs read and dropped, lengths of sentences, share of padding."""

from typing import Any

import numpy as np

from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedCorpus

BINS = 40  # of the share of padding, from 0 to 1


def describe_corpus(prepared: PreparedCorpus, plan: BatchPlan) -> dict[str, Any]:
    """Returns plain values, fit for JSON.

    `lengths` counts the training sentences of 0, 1, 2, ... subwords, by side; `padding` is the share of padding among
    all positions of an epoch, and `padding_of_parts` counts micro-batches by their share, in `BINS` equal bins.
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
        "padding_of_parts": np.histogram(plan.padding_by_micro_batch, bins=BINS, range=(0, 1))[0].tolist(),
    }
