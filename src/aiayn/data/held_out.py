"""A development and a test set cut off from parallel text, without leakage into what is left for training."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.filters import normalised
from aiayn.data.parallel_files import FileText
from aiayn.errors import DataError, RefusedError, writing
from aiayn.files import atomic_write_text

Pair = tuple[str, str]


@dataclass
class Parts:
    """What a text was divided into; `leaking` pairs have a side in common with a held-out one, and are in no part."""

    train: list[Pair] = field(default_factory=list)
    val: list[Pair] = field(default_factory=list)
    test: list[Pair] = field(default_factory=list)
    leaking: int = 0
    dropped: int = 0  # pairs without usable text


def hold_out(names: list[str], langs: tuple[str, str], sizes: tuple[int, int], seed: int, out: Path) -> Parts:
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
    parts = _divided(list(clean(FileText("FILES", names, langs).pairs(), report)), sizes, seed)
    parts.dropped = sum(report.dropped.values())
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        for name, paths in files.items():
            for side, path in enumerate(paths):
                atomic_write_text(path, "".join(f"{pair[side]}\n" for pair in getattr(parts, name)))
    return parts


def _divided(pairs: list[Pair], sizes: tuple[int, int], seed: int) -> Parts:
    keys = [(normalised(src), normalised(tgt)) for src, tgt in pairs]
    order = list(range(len(pairs)))
    random.Random(seed).shuffle(order)
    parts, wanted = Parts(), list(sizes)
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
