"""Text that is held out: a development and a test set cut off, and train/test leakage."""

import logging
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiayn.data.cleaning import CleaningReport, CleanPair, clean, normalised
from aiayn.data.pair_files import FileText
from aiayn.data.raw_text import RawText
from aiayn.errors import DataError, RefusedError, writing
from aiayn.files import atomic_write_text

log = logging.getLogger(__name__)

Pair = tuple[str, str]


@dataclass
class HeldOut:
    """What a text was divided into; `leaking` pairs have a side in common with a held-out one, and are in no part."""

    train: list[Pair] = field(default_factory=list)
    val: list[Pair] = field(default_factory=list)
    test: list[Pair] = field(default_factory=list)
    leaking: int = 0
    dropped: int = 0  # pairs without usable text


def hold_out(names: list[str], langs: tuple[str, str], sizes: tuple[int, int], seed: int, out: Path) -> HeldOut:
    """Writes OUT/train, OUT/val and OUT/test, a file of each language, of prefixes or files of pairs, text as it came.

    `sizes` are those of val and test, drawn evenly from all different pairs. Other pairs that share a source or a
    target with a held-out one, ignoring case and punctuation, are left out. Raises DataError for unusable or too little
    text, RefusedError if a file already exists, ResourceError if it cannot be written.
    """
    files = {name: [out / f"{name}.{lang}" for lang in langs] for name in ("train", "val", "test")}
    for path in (path for paths in files.values() for path in paths):
        if path.exists():
            raise RefusedError(f"{path}: already exists; choose another folder with --out")
    report = CleaningReport()
    pairs, keys = [], []
    for pair in clean(FileText("FILES", names, langs).pairs(), report):
        pairs.append((pair.raw.src.decode(), pair.raw.tgt.decode()))
        keys.append((normalised(pair.src), normalised(pair.tgt)))
    parts = _divided(pairs, keys, sizes, seed)
    parts.dropped = sum(report.dropped.values())
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        for name, paths in files.items():
            for side, path in enumerate(paths):
                atomic_write_text(path, "".join(f"{pair[side]}\n" for pair in getattr(parts, name)))
    return parts


def _divided(pairs: list[Pair], keys: list[Pair], sizes: tuple[int, int], seed: int) -> HeldOut:
    """Divides pairs; `keys` are what they are compared by."""
    order = list(zip(pairs, keys, strict=True))
    random.Random(seed).shuffle(order)
    parts, sources, targets = HeldOut(), set[str](), set[str]()
    drawn = iter(order)
    for part, size in zip((parts.val, parts.test), sizes, strict=True):
        while len(part) < size and (one := next(drawn, None)):
            pair, (src, tgt) = one
            if src not in sources and tgt not in targets:
                part.append(pair)
                sources.add(src)
                targets.add(tgt)
    in_order = zip(pairs, keys, strict=True)
    parts.train = [pair for pair, (src, tgt) in in_order if src not in sources and tgt not in targets]
    held_out = len(parts.val) + len(parts.test)
    parts.leaking = len(pairs) - len(parts.train) - held_out
    if held_out < sum(sizes) or len(parts.train) < sum(sizes):
        raise DataError(f"{len(pairs)} usable pairs are too few to hold {sum(sizes)} out; lower --val and --test")
    return parts


class Leakage:
    """Train/test leakage: looks for pairs of the development and test text among the training pairs.

    Test text that cannot be read yet counts as empty.
    """

    def __init__(self, texts: dict[str, RawText], tags: str):
        """texts: by split; tags: `data.tags`."""
        self.texts = texts
        self._held_out: dict[Pair, list[str]] = {}  # pairs with the splits that they are held out in
        self._found: set[Pair] = set()
        for split in (split for split in texts if split != "train"):
            with suppress(DataError):
                pairs = {(pair.src, pair.tgt) for pair in clean(texts[split].pairs(), CleaningReport(), tags=tags)}
                for pair in pairs:
                    self._held_out.setdefault(pair, []).append(split)

    def look_at(self, pairs: Iterable[CleanPair]) -> None:
        """Looks at training pairs as the model learns them."""
        self._found |= self._held_out.keys() & {(pair.src, pair.tgt) for pair in pairs}

    def warn(self) -> None:
        """Logs a line if any pair was found, and one if a training file is listed twice."""
        total = Counter(split for splits in self._held_out.values() for split in splits)
        found = Counter(split for pair in self._found for split in self._held_out[pair])
        leaking = [split for split in self.texts if found[split]]
        if leaking:
            said = (f"{found[split]:,} of {total[split]:,} of {self.texts[split].option}" for split in leaking)
            log.warning(
                "warning: train/test leakage: %s are also training pairs; scores on them say little", ", ".join(said)
            )
        train = self.texts["train"]
        files = list(map(str, train.identity())) if isinstance(train, FileText) else []
        if len(set(files)) < len(files):
            log.warning("warning: %s: the same text is listed twice", train.option)
