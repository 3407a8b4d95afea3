"""Text that is held out: a development and a test set cut off, and train/test leakage."""

import logging
import random
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import CleaningReport, clean, folded
from aiayn.data.corpus import PreparedCorpus
from aiayn.data.encode import Sentences, encode
from aiayn.data.raw_text import RawText
from aiayn.data.sources import FileText
from aiayn.errors import DataError, RefusedError, writing
from aiayn.files import atomic_write_text

log = logging.getLogger(__name__)

LOOKED_AT = 1 << 20  # pairs at once


def hold_out(
    names: list[str], langs: tuple[str, str], sizes: tuple[int, int], seed: int, out: Path
) -> tuple[list[tuple[str, str]], int, CleaningReport]:
    """Writes OUT/train, OUT/val and OUT/test from prefixes or files of pairs: unchanged text, one
    file per language.

    `sizes` are those of val and test, drawn evenly from all pairs, none twice. Other pairs that
    share a source or a target with a held-out one, ignoring case and punctuation, are left out.
    Returns the pairs of train, how many share a side, and why others are unusable. Raises DataError
    for text in another encoding and for too little, RefusedError if a file already exists,
    ResourceError if it cannot be written.
    """
    files = {name: [out / f"{name}.{lang}" for lang in langs] for name in ("train", "val", "test")}
    for path in chain.from_iterable(files.values()):
        if path.exists():
            raise RefusedError(f"{path}: already exists; choose another folder with --out")
    text, report = FileText("FILES", names, langs), CleaningReport()
    pairs, keys = [], []  # as they are written, and what they are compared by
    for pair in clean(text.pairs(), report):
        pairs.append((pair.raw.src.decode(), pair.raw.tgt.decode()))
        keys.append((folded(pair.src), folded(pair.tgt)))
    report.check_encoding(text)
    order, held_out, sources, targets = list(range(len(pairs))), [], set[str](), set[str]()
    random.Random(seed).shuffle(order)
    for number in order:
        if len(held_out) == sum(sizes):
            break
        src, tgt = keys[number]
        if src not in sources and tgt not in targets:
            sources.add(src)
            targets.add(tgt)
            held_out.append(pairs[number])
    train = [
        pair
        for pair, (src, tgt) in zip(pairs, keys, strict=True)
        if src not in sources and tgt not in targets
    ]
    if len(held_out) < sum(sizes) or len(train) < sum(sizes):
        raise DataError(
            f"{len(pairs)} usable pairs are too few to hold {sum(sizes)} out; lower --val and "
            "--test"
        )
    parts = {"train": train, "val": held_out[: sizes[0]], "test": held_out[sizes[0] :]}
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        try:
            for name, paths in files.items():
                for side, path in enumerate(paths):
                    atomic_write_text(path, "".join(f"{pair[side]}\n" for pair in parts[name]))
        except BaseException:
            # All or none of them: none was there before
            for path in chain.from_iterable(files.values()):
                path.unlink(missing_ok=True)
            raise
    return train, len(pairs) - len(train) - len(held_out), report


def warn_of_leakage(
    prepared: PreparedCorpus, texts: Mapping[str, RawText], config: DataConfig
) -> None:
    """Logs a line if development or test pairs are also training pairs, and one if a training file
    is listed twice.

    texts: by split. Pairs are compared as the model reads them. Test text that cannot be read yet
    counts as empty.
    """
    if not log.isEnabledFor(logging.WARNING):
        return  # another rank says it
    held_out = {"val": [(prepared.val.src, prepared.val.tgt)]}
    with suppress(DataError):
        raw = texts["test"].pairs() if "test" in texts else ()
        pairs = clean(raw, CleaningReport(), tags=config.tags)
        held_out["test"] = [
            (src, tgt) for _, src, tgt in encode(pairs, prepared.tokenizer, processes=1)
        ]
    wanted = np.concatenate([_signatures(*part) for parts in held_out.values() for part in parts])
    learned = set()
    for begin in range(0, len(prepared.train), LOOKED_AT):
        bounds = slice(begin, begin + LOOKED_AT + 1)
        src, tgt = (
            Sentences(side.flat, side.starts[bounds])
            for side in (prepared.train.src, prepared.train.tgt)
        )
        similar = np.flatnonzero(np.isin(_signatures(src, tgt), wanted))
        learned |= {_ids(src, tgt, number) for number in similar.tolist()}
    overlaps = []
    for split, parts in held_out.items():
        pairs = {_ids(src, tgt, number) for src, tgt in parts for number in range(len(src))}
        if leaked := pairs & learned:
            overlaps.append(f"{len(leaked):,} of {len(pairs):,} of {texts[split].option}")
    if summary := ", ".join(overlaps):
        log.warning(
            "warning: train/test leakage: %s are also training pairs; scores on them say little",
            summary,
        )
    train = texts["train"]
    files = list(map(str, train.identity())) if isinstance(train, FileText) else []
    if len(set(files)) < len(files):
        log.warning("warning: %s: the same text is listed twice", train.option)


def _ids(src: Sentences, tgt: Sentences, number: int) -> tuple[bytes, bytes]:
    return src[number].tobytes(), tgt[number].tobytes()


def _signatures(src: Sentences, tgt: Sentences) -> np.ndarray:
    """Returns a number that few pairs share, the sums of their ids, (pairs,) uint64."""
    src_sums, tgt_sums = (
        np.add.reduceat(side.flat[: side.starts[-1]], side.starts[:-1], dtype=np.uint64)
        for side in (src, tgt)
    )
    return src_sums * np.uint64(1_000_003) + tgt_sums
