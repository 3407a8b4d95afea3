"""Raw pairs of sentences: from text files, hub data sets or the phrasebook."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiayn.config import DataConfig
from aiayn.data.hub import hub_pairs, local_folder
from aiayn.data.text_files import aligned_files, decode, file_pairs, read_lines, scan
from aiayn.errors import DataError


def raw_pairs(config: DataConfig, split: str) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of a split ("train", "val" or "test"), source first, as they stand in the corpus.

    Raises DataError for missing, misaligned, empty or unreadable text; for files before the first pair.
    """
    if config.source == "files":
        return file_pairs(split_files(config, split))
    if config.source == "hub":
        return hub_pairs(config, _choice(config, split))
    return _phrasebook_pairs(config, split)


def read_split(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Sources and references for evaluation, untouched: nothing is cleaned, dropped or normalised.

    Raises DataError as `raw_pairs` does, and for a line that is not UTF-8.
    """
    if config.source == "files":
        files = split_files(config, split)
        return [x for src, _ in files for x in read_lines(src)], [x for _, tgt in files for x in read_lines(tgt)]
    pairs = list(raw_pairs(config, split))
    where = f"data.{split}={getattr(config, split)}"
    return [decode(src, where, i) for i, (src, _) in enumerate(pairs, 1)], [
        decode(tgt, where, i) for i, (_, tgt) in enumerate(pairs, 1)
    ]


def count_pairs(config: DataConfig, split: str) -> int:
    """How many raw pairs a split has; text files are not read again for it."""
    if config.source == "files":
        return sum(scan(src)["lines"] for src, _ in split_files(config, split))
    return sum(1 for _ in raw_pairs(config, split))


def identity(config: DataConfig, split: str) -> Any:
    """What decides the text of a split, as plain values for a fingerprint: content where it can be had.

    A data set on the hub is known by name and revision, so that a prepared corpus needs no network.
    """
    if config.source == "files":
        return [[scan(path)["sha256"] for path in files] for files in split_files(config, split)]
    if config.source == "hub" and (folder := local_folder(config)):
        paths = sorted(
            p for p in folder.rglob("*") if p.is_file() and not p.relative_to(folder).as_posix().startswith(".")
        )
        return [_choice(config, split), [[p.relative_to(folder).as_posix(), scan(p)["sha256"]] for p in paths]]
    if config.source == "hub":
        return [_choice(config, split), config.hub_path, config.hub_name, config.hub_revision]
    from aiayn.data import phrasebook

    return ["phrasebook", phrasebook.VERSION]


def _choice(config: DataConfig, split: str) -> list[str]:
    """The option data.SPLIT as a list: prefixes of files, or names of hub splits."""
    value = getattr(config, split)
    if value is None:
        raise DataError(
            f"data.{split} is not set: name text to read, data.{split}=PREFIX (files) or data.{split}=SPLIT (hub)"
        )
    return [value] if isinstance(value, str) else list(value)


def split_files(config: DataConfig, split: str) -> list[tuple[Path, Path]]:
    """The text files of a split, both sides of equally many lines. Raises DataError otherwise."""
    return aligned_files(_choice(config, split), config.src_lang, config.tgt_lang, f"data.{split}")


def _phrasebook_pairs(config: DataConfig, split: str) -> Iterator[tuple[bytes, bytes]]:
    from aiayn.data import phrasebook

    _choice(config, split)
    if {config.src_lang, config.tgt_lang} != {"en", "de"}:
        raise DataError(
            f"data.src_lang={config.src_lang}, data.tgt_lang={config.tgt_lang}: the phrasebook has en and de only; "
            "set data.src_lang=en data.tgt_lang=de, or bring text with data=files"
        )
    for en, de in phrasebook.pairs(split):
        pair = en.encode(), de.encode()
        yield pair if config.src_lang == "en" else pair[::-1]
