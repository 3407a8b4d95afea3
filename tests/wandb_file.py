"""Reads what the W&B client wrote offline: a log of records in LevelDB's format, each a message of
wandb's own.
"""

import json
import struct
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

# What a run logs.
TRAINING = {"train/loss", "train/lr", "train/grad_norm", "train/epoch"}
SPEED = {"perf/tokens_per_sec", "perf/padding", "perf/memory_gb"}
VALIDATION = {"val/loss", "val/ppl", "val/accuracy", "val/bleu", "val/length_ratio"}

HEADER, BLOCK, WHOLE, LAST = 7, 32768, 1, 4


def read(path: Path) -> list[Record]:
    content = path.read_bytes()
    assert content.startswith(b":W&B")
    records, part, place = [], b"", HEADER
    while place + HEADER <= len(content):
        if BLOCK - place % BLOCK < HEADER:  # too little room for another header
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + HEADER])
        part += content[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (WHOLE, LAST):
            records.append(Record.FromString(part))
            part = b""
    return records


def history(records: list[Record]) -> list[dict[str, Any]]:
    """What `run.log` was given, in order."""
    rows = []
    for record in records:
        if record.HasField("history"):
            items = record.history.item
            rows.append(
                {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json)
                    for item in items
                }
            )
    return rows


def config(records: list[Record]) -> dict[str, Any]:
    """The run's configuration, as last set."""
    found = {}
    for record in records:
        for update in (record.run.config.update, record.config.update):
            found |= {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in update
            }
    return found


def summary(records: list[Record]) -> dict[str, Any]:
    """The run's summary, as last set by name."""
    updates = (
        update
        for record in records
        if record.HasField("summary")
        for update in record.summary.update
    )
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in updates}


def axes(records: list[Record]) -> dict[str, str]:
    """The x-axis of each metric or pattern that has one of its own."""
    by_number = [record.metric for record in records if record.HasField("metric")]
    return {
        metric.name or metric.glob_name: metric.step_metric
        or by_number[metric.step_metric_index - 1].name
        for metric in by_number
        if metric.step_metric or metric.step_metric_index
    }
