"""Splits a development and a test set off parallel text."""

import random
from itertools import chain
from pathlib import Path

from aiayn.data.cleaning import CleaningReport, clean, folded
from aiayn.data.sources import FileText
from aiayn.errors import DataError, RefusedError, writing
from aiayn.files import atomic_write


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
    text, report, count = FileText("FILES", names, langs), CleaningReport(), sum(sizes)
    pairs, keys = [], []  # as they are written, and what they are compared by
    for pair in clean(text.pairs(), report):
        pairs.append((pair.raw.src.decode(), pair.raw.tgt.decode()))
        keys.append((f"source {folded(pair.src)}", f"target {folded(pair.tgt)}"))
    report.check_encoding(text)
    order, held_out, held_out_keys = list(range(len(pairs))), [], set[str]()
    random.Random(seed).shuffle(order)
    for number in order:
        if len(held_out) < count and held_out_keys.isdisjoint(keys[number]):
            held_out_keys.update(keys[number])
            held_out.append(pairs[number])
    train = [pairs[n] for n, sides in enumerate(keys) if held_out_keys.isdisjoint(sides)]
    if len(held_out) < count or len(train) < count:
        raise DataError(
            f"{len(pairs)} usable pairs are too few to hold {count} out and keep as many; "
            "lower --val and --test"
        )
    parts = {"train": train, "val": held_out[: sizes[0]], "test": held_out[sizes[0] :]}
    with writing(out, "choose another --out"):
        try:
            for name, paths in files.items():
                for side, path in enumerate(paths):
                    atomic_write(path, "".join(f"{pair[side]}\n" for pair in parts[name]))
        except BaseException:
            # All or none of them: none was there before
            for path in chain.from_iterable(files.values()):
                path.unlink(missing_ok=True)
            raise
    return train, len(pairs) - len(train) - len(held_out), report
