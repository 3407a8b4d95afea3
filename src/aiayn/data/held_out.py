"""Text that is held out: a development and a test set cut off, and train/test leakage."""

import logging
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import CleaningReport, CleanPair, clean, learned_target, normalised
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
    """Writes OUT/train, OUT/val and OUT/test, a file of each language, of prefixes or files of pairs.

    `sizes` are those of val and test, drawn evenly from all different pairs. Other pairs that share a source or a
    target with a held-out one, ignoring case and punctuation, are left out. Raises DataError for unusable or too little
    text, RefusedError if a file already exists, ResourceError if it cannot be written.
    """
    files = {name: [out / f"{name}.{lang}" for lang in langs] for name in ("train", "val", "test")}
    for path in (path for paths in files.values() for path in paths):
        if path.exists():
            raise RefusedError(f"{path}: already exists; choose another folder with --out")
    report = CleaningReport()
    pairs = [(pair.src, pair.tgt) for pair in clean(FileText("FILES", names, langs).pairs(), report)]
    parts = _divided(pairs, sizes, seed)
    parts.dropped = sum(report.dropped.values())
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        for name, paths in files.items():
            for side, path in enumerate(paths):
                atomic_write_text(path, "".join(f"{pair[side]}\n" for pair in getattr(parts, name)))
    return parts


def _divided(pairs: list[Pair], sizes: tuple[int, int], seed: int) -> HeldOut:
    keys = [(normalised(src), normalised(tgt)) for src, tgt in pairs]
    order = list(range(len(pairs)))
    random.Random(seed).shuffle(order)
    parts, wanted = HeldOut(), list(sizes)
    sources: set[str] = set()
    targets: set[str] = set()
    held_out: set[int] = set()
    for number in order:
        chosen = next((index for index, size in enumerate(wanted) if size), None)
        if chosen is None:
            break
        src, tgt = keys[number]
        if src in sources or tgt in targets:
            continue
        (parts.val, parts.test)[chosen].append(pairs[number])
        wanted[chosen] -= 1
        held_out.add(number)
        sources.add(src)
        targets.add(tgt)
    for number, (src, tgt) in enumerate(keys):
        if number in held_out:
            continue
        if src in sources or tgt in targets:
            parts.leaking += 1
        else:
            parts.train.append(pairs[number])
    if any(wanted) or len(parts.train) < sum(sizes):
        raise DataError(f"{len(pairs)} usable pairs are too few to hold {sum(sizes)} out; lower --val and --test")
    return parts


class Leakage:
    """Train/test leakage: looks for pairs of the development and test text among the training pairs.

    Test text that cannot be read yet counts as empty.
    """

    def __init__(self, config: DataConfig, texts: dict[str, RawText]):
        """texts: by split."""
        self.texts = texts
        self._where: dict[str, dict[str, set[str]]] = {}  # by source and target: the splits that a pair is held out in
        self._held_out = dict.fromkeys(texts, 0)
        self._found: dict[str, set[Pair]] = {split: set() for split in texts}
        for split, text in texts.items():
            if split == "train":
                continue
            try:
                pairs = {(pair.src, learned_target(config, pair.tgt)) for pair in clean(text.pairs(), CleaningReport())}
            except DataError:
                continue
            self._held_out[split] = len(pairs)
            for src, tgt in pairs:
                self._where.setdefault(src, {}).setdefault(tgt, set()).add(split)

    def watch(self, pairs: Iterable[CleanPair]) -> Iterator[CleanPair]:
        """Passes training pairs on, as the model learns them, and looks at each."""
        for pair in pairs:
            if pair.src in self._where:
                for split in self._where[pair.src].get(pair.tgt, ()):
                    self._found[split].add((pair.src, pair.tgt))
            yield pair

    def warn(self) -> None:
        """Logs a line if any pair was found, and one if a training file is listed twice."""
        counts = [
            f"{len(found):,} of {self._held_out[split]:,} of {self.texts[split].option}"
            for split, found in self._found.items()
            if found
        ]
        if counts:
            log.warning(
                "warning: train/test leakage: %s are also training pairs; scores on them say little", ", ".join(counts)
            )
        if self.texts["train"].repeats_a_file():
            log.warning("warning: %s: the same text is listed twice", self.texts["train"].option)
