"""Raw pairs of sentences: from text files, a data set of the Hugging Face hub, or the built-in phrasebook."""

from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from aiayn.config.data import DataOptions
from aiayn.config.rules import listed
from aiayn.data.hub import hub_pairs, local_folder
from aiayn.data.pair_files import pair_file_kind
from aiayn.data.parallel_files import aligned_files, file_pairs, numbered, read_parallel
from aiayn.data.text_files import FileScans, decode
from aiayn.errors import DataError


def raw_pairs(config: DataOptions, split: str, scans: FileScans, first: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of a split ("train", "val" or "test"), source first, unchanged; without the `first` ones.

    Raises DataError for missing, misaligned, empty or unreadable text; for files before the first pair.
    """
    if config.source == "files":
        return file_pairs(_files(config, split, scans), config.src_lang, config.tgt_lang, scans, first)
    pairs = hub_pairs(config, _choice(config, split)) if config.source == "hub" else _phrasebook_pairs(config, split)
    return islice(pairs, first, None)


def read_split(config: DataOptions, split: str) -> tuple[list[str], list[str]]:
    """Reads sources and references for evaluation, untouched: nothing is cleaned, dropped or normalised.

    Raises DataError as `raw_pairs` does, and for a line that is not UTF-8.
    """
    key = f"data.{split}"
    if config.source == "files":
        return read_parallel(_choice(config, split), config.src_lang, config.tgt_lang, key)
    sources, references = [], []
    for number, (src, tgt) in enumerate(raw_pairs(config, split, FileScans()), 1):
        sources.append(decode(src, f"{key}={getattr(config, split)}", number))
        references.append(decode(tgt, f"{key}={getattr(config, split)}", number))
    return sources, references


def placed_pairs(config: DataOptions, split: str, scans: FileScans) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Streams the pairs as `raw_pairs` does, each with its place: file and line, or its number."""
    if config.source != "files":
        yield from ((f"pair {number}", pair) for number, pair in enumerate(raw_pairs(config, split, scans), 1))
        return
    for paths in _files(config, split, scans):
        files = " and ".join(map(str, paths))
        for line, src, tgt in numbered(paths, config.src_lang, config.tgt_lang):
            yield f"{files}: line {line}", (src, tgt)


def locate(config: DataOptions, split: str, numbers: Collection[int], scans: FileScans) -> dict[int, str]:
    """Returns where pairs are, by their number in the split, counted from 1: the file and the line in it.

    For text that is not in files it is the number itself.
    """
    found: dict[int, str] = {}
    before = 0
    for paths in _files(config, split, scans) if config.source == "files" else []:
        wanted = [number - before for number in sorted(numbers) if number > before]
        if not wanted:
            break
        if len(paths) == 2:
            count = scans.scan(paths[0])["lines"]
            places = {number: number for number in wanted if number <= count}
        else:
            rows = enumerate(numbered(paths, config.src_lang, config.tgt_lang), 1)
            places, count = {}, 0
            for count, (line, _, _) in rows:
                if count in wanted:
                    places[count] = line
        found |= {before + number: f"{' and '.join(map(str, paths))}: line {line}" for number, line in places.items()}
        before += count
    return {number: found.get(number, f"pair {number}") for number in numbers}


def count_pairs(config: DataOptions, split: str, scans: FileScans) -> int:
    """Returns the number of raw pairs of a split."""
    if config.source == "files":
        files = _files(config, split, scans)
        if all(len(paths) == 2 for paths in files):
            return sum(scans.scan(src)["lines"] for src, _ in files)
    return sum(1 for _ in raw_pairs(config, split, scans))


def text_key(config: DataOptions, split: str, scans: FileScans) -> Any:
    """Returns plain values for a fingerprint that identify the text of a split, by its content if it is on disk.

    A data set on the hub is identified by name and revision, so that opening a prepared corpus needs no network.
    """
    if config.source == "files":
        files = _files(config, split, scans)
        kinds = ([pair_file_kind(paths[0].name)] if len(paths) == 1 else [] for paths in files)
        return [kind + [scans.scan(path)["sha256"] for path in paths] for kind, paths in zip(kinds, files, strict=True)]
    if config.source == "phrasebook":
        from aiayn import phrasebook

        return ["phrasebook", phrasebook.VERSION]
    folder = local_folder(config)
    if folder is None:
        return [_choice(config, split), config.hub_path, config.hub_name, config.hub_revision]
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    visible = [[name, scans.scan(path)["sha256"]] for name, path in paths.items() if not name.startswith(".")]
    return [_choice(config, split), visible]


def _choice(config: DataOptions, split: str) -> list[str]:
    """The option data.SPLIT as a list: prefixes of files, files of pairs, or names of hub splits."""
    value = getattr(config, split)
    if value is None:
        raise DataError(
            f"data.{split} is not set: name text to read, data.{split}=PREFIX (files) or data.{split}=SPLIT (hub)"
        )
    return listed(value)


def _files(config: DataOptions, split: str, scans: FileScans) -> list[tuple[Path, ...]]:
    return aligned_files(_choice(config, split), config.src_lang, config.tgt_lang, f"data.{split}", scans)


def _phrasebook_pairs(config: DataOptions, split: str) -> Iterator[tuple[bytes, bytes]]:
    from aiayn import phrasebook

    _choice(config, split)
    if {config.src_lang, config.tgt_lang} != {"en", "de"}:
        raise DataError(
            f"data.src_lang={config.src_lang}, data.tgt_lang={config.tgt_lang}: the phrasebook has en and de only; "
            "set data.src_lang=en data.tgt_lang=de, or bring text with data=files"
        )
    for en, de in phrasebook.pairs(split):
        src, tgt = (en, de) if config.src_lang == "en" else (de, en)
        yield src.encode(), tgt.encode()
