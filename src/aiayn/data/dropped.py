"""All pairs that were dropped, written on demand beside the prepared corpus."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.as_learned import as_learned
from aiayn.data.cleaning import CleaningReport, Flaw, clean
from aiayn.data.corpus_store import PreparedCorpus
from aiayn.data.filters import Filters, length_rules
from aiayn.data.raw_text import RawText
from aiayn.files import atomic_write_text

CHUNK = 10_000  # pairs
FILE = "dropped.jsonl"


@dataclass
class _Drops(CleaningReport):
    """A report that keeps every pair's reason."""

    reasons: dict[int, str] = field(default_factory=dict)

    def drop(self, reason: str, number: int) -> None:
        super().drop(reason, number)
        self.reasons[number] = reason


def write_dropped(config: DataConfig, texts: dict[str, RawText], prepared: PreparedCorpus) -> None:
    """Writes `dropped.jsonl`, if missing: an object a pair: split, place (file and line), reason, source, target."""
    path = prepared.folder / FILE
    if not path.exists():
        filters = Filters(config, texts["train"])
        lines = (
            line for split in ("train", "val") for line in _dropped(config, split, texts[split], prepared, filters)
        )
        atomic_write_text(path, "".join(lines))


def _dropped(
    config: DataConfig, split: str, text: RawText, prepared: PreparedCorpus, filters: Filters
) -> Iterator[str]:
    report = _Drops()
    rows = text.placed()
    while chunk := list(islice(rows, CHUNK)):
        first = report.read + 1
        cleaned = as_learned(config, clean([pair for _, pair in chunk], report))
        if split == "train":
            cleaned = filters(cleaned, report)
        kept = [(pair, report.read) for pair in cleaned]
        if split == "train" and kept:
            src_lengths, tgt_lengths = (
                np.array([len(ids) for ids in prepared.tokenizer.encode([pair[side] for pair, _ in kept])])
                for side in (0, 1)
            )
            length_rules(config, src_lengths, tgt_lengths, [number for _, number in kept], report)
        for number in range(first, report.read + 1):
            if reason := report.reasons.get(number):
                place, (src, tgt) = chunk[number - first]
                src = b"" if isinstance(src, Flaw) else src
                found = {"split": split, "place": place, "reason": reason}
                found |= {"source": src.decode(errors="replace"), "target": tgt.decode(errors="replace")}
                yield json.dumps(found, ensure_ascii=False) + "\n"
        report.reasons.clear()
