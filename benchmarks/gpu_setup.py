"""What the stages of gpu.py share: rows, timing, the model and its batches."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from measure import synchronize
from translate import sources

import aiayn
from aiayn.config.model import ModelConfig
from aiayn.config.settle import settled
from aiayn.data.batch import Batch, pad_sources, shift_right
from aiayn.hardware import gpu_seconds

Row = dict[str, Any]


def seconds(work: Callable[[], Any], options: Any) -> float:
    """Returns the median seconds of `work`, by the device's own clock on a GPU."""
    if options.device != "cpu":
        return gpu_seconds(work, options.rounds, 0.0 if options.toy else 0.3)
    return statistics.median(once(work) for _ in range(options.rounds))


def first_and_warm(work: Callable[[], Any], options: Any) -> Row:
    """Returns the milliseconds of `work` when it is done first, and the median of later times."""
    return {"first ms": once(work) * 1e3, "warm ms": seconds(work, options) * 1e3}


def once(work: Callable[[], Any]) -> float:
    """Returns the seconds of `work`, that of the host included."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def model_config(name: str, options: Any) -> ModelConfig:
    config = settled(aiayn.compose("data=phrasebook", f"model={name}")).model
    return replace(config, n_layers=2, d_model=16, d_ff=32, n_heads=2) if options.toy else config


def batches(options: Any, count: int) -> list[Batch]:
    """Returns batches of --tokens padded tokens a side, each in another shape."""
    made = []
    pool = [ids for batch in sources(None, max(64, 40 * count), 1) for ids in batch]
    pool.sort(key=len)
    for number in range(count):
        length = len(pool[len(pool) * (2 * number + 1) // (2 * count)]) + 1
        rows = max(1, options.tokens // (length + 1 + number % 3))
        src = torch.randint(4, options.vocab, (rows, length - 1)).tolist()
        tgt = torch.randint(4, options.vocab, (rows, length + number % 3)).tolist()
        tgt_out = pad_sources(tgt)
        lengths = np.full(rows, length), np.full(rows, length + 1 + number % 3)
        made.append(Batch(number, pad_sources(src), shift_right(tgt_out), tgt_out, lengths, int(lengths[1].sum())))
    return made
