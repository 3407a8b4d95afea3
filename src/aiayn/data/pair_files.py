"""Parallel text in files: one sentence a line in a file of each language, or both languages in one
file.

One file is a table (.tsv, .csv, .jsonl), a translation memory (.tmx), a catalogue of messages (.po)
or XLIFF. All of them may be compressed (.gz, .bz2, .xz).
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from aiayn.config.rules import tagged
from aiayn.data.cleaning import normalise
from aiayn.data.raw_text import RawPair, RawText, remark
from aiayn.data.tables import read_json_lines, read_table
from aiayn.data.text_files import MAX_EXPANSION, OPENERS, lines, scan, suffix
from aiayn.doors import is_behind, load_from
from aiayn.errors import ConfigError, DataError, counted

TABLES = {"tsv": read_table, "csv": read_table, "jsonl": read_json_lines}  # by suffix


def is_pair_file(name: str) -> bool:
    """Returns whether a name has the suffix of a file of pairs: a table, or one that an app
    reads.
    """
    return suffix(name) in TABLES or is_behind("aiayn.readers", suffix(name))


class FileText(RawText):
    """One or several names, each of a file of pairs, or the prefix of a file of each language."""

    def __init__(
        self,
        key: str,
        names: list[str],
        langs: tuple[str, str],
        max_expansion: int = MAX_EXPANSION,
    ):
        super().__init__(key, names, langs)
        self._scan = partial(scan, max_expansion=max_expansion)
        self.tags, self.paths = zip(*map(tagged, names), strict=True)

    @cached_property
    def files(self) -> list[tuple[Path, ...]]:
        """Returns for each name one file of pairs, or a source and a target file, if the name is
        their prefix.

        These are `PREFIX.LANG`, or the same compressed. Raises DataError for missing files, unequal
        line counts, and if there is no line at all.
        """
        files = [self._files(name) for name in self.paths]
        # Every file, because what holds too much must not be read later
        if not sum(self._scan(path)[0] for path in chain.from_iterable(files)):
            raise DataError(f"{self.key}: no text in {', '.join(map(_named, files))}")
        return files

    def _files(self, name: str) -> tuple[Path, ...]:
        if remedy := OTHER_FORMATS.get(suffix(name)):
            raise DataError(f"{self.key}={name}: {remedy}")
        if is_pair_file(name):
            return (Path(name).expanduser(),)
        src, tgt = (_language_file(name, lang, self.langs, self.key) for lang in self.langs)
        n_src, n_tgt = self._scan(src)[0], self._scan(tgt)[0]
        if n_src != n_tgt:
            for path in (src, tgt):
                next(lines(path), None)  # a file in UTF-16 is said to be that
            raise DataError(
                f"{self.key}={name}: {src} has {counted(n_src, 'line')} and {tgt} has {n_tgt:,}: "
                "line N of one must translate line N of the other (only LF ends a line)"
            )
        return src, tgt

    def pairs(self) -> Iterator[RawPair]:
        # `self.files` is asked for here and now: errors of names come before the first pair.
        return chain.from_iterable(
            self._with_tag(number, paths) for number, paths in enumerate(self.files)
        )

    def _with_tag(self, number: int, paths: tuple[Path, ...]) -> Iterator[RawPair]:
        """Yields the pairs of a name with its number and its tag, which blank sources do not
        get.
        """
        tag = f"{self.tags[number]} ".encode() if self.tags[number] else b""
        if not (number or tag):
            return self._pairs(paths)
        return (
            pair._replace(
                src=(tag if normalise(pair.src.decode(errors="replace")) else b"") + pair.src,
                corpus=number,
            )
            for pair in self._pairs(paths)
        )

    def _pairs(self, paths: tuple[Path, ...]) -> Iterator[RawPair]:
        if len(paths) == 1:
            yield from _read_pair_file(paths[0], *self.langs)
        else:
            file = _named(paths)
            for number, (src, tgt) in enumerate(zip(*map(lines, paths), strict=True), 1):
                yield RawPair(file, number, src, tgt)

    def identity(self) -> Any:
        kinds = ([suffix(paths[0].name)] if len(paths) == 1 else [] for paths in self.files)
        hashes = ([self._scan(path)[1] for path in paths] for paths in self.files)
        return [
            [tag] * bool(tag) + suffixes + digests
            for tag, suffixes, digests in zip(self.tags, kinds, hashes, strict=True)
        ]

    def count(self) -> int:
        return sum(
            self._scan(paths[0])[0] if len(paths) == 2 else sum(1 for _ in self._pairs(paths))
            for paths in self.files
        )


def _read_pair_file(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Streams the rows of a file of pairs; a row that is not a pair has a flaw.

    Raises DataError with file and line if the format is wrong, if over 5 % of the rows are no
    pairs, and if there is no pair at all.
    """
    rows, bad, first = 0, 0, []
    for pair in _reader(suffix(path.name))(path, src_lang, tgt_lang):
        rows += 1
        if pair.flaw:
            bad += 1
            first = first or [pair]
        yield pair
    if rows == bad:
        raise DataError(f"{path}: no pairs of {src_lang} and {tgt_lang}{remark(first)}")
    if bad >= 20 and bad > 0.05 * rows:
        raise DataError(
            f"{path}: {bad} of {rows} rows are not pairs, the first{remark(first)}; correct or "
            "remove them"
        )


def _reader(ending: str) -> Callable[[Path, str, str], Iterator[RawPair]]:
    """Returns what reads files of this suffix. Raises ConfigError if a library is missing."""
    try:
        return TABLES.get(ending) or load_from("aiayn.readers", ending)
    except ImportError as error:
        raise ConfigError(
            f".{ending} files: {error.name} is not installed: pip install 'aiayn[text]'"
        ) from error


def _named(paths: tuple[Path, ...]) -> str:
    return " and ".join(map(str, paths))


# Formats that are not read, by suffix, and what to do instead.
TABLE = "spreadsheets are not supported: save this one as comma-separated text (.csv)"
OFFICE = (
    "office documents are not supported: save the text, one sentence per line (aiayn translate "
    "also reads .html)"
)
OTHER_FORMATS = {
    **dict.fromkeys(("xlsx", "xls", "ods"), TABLE),
    **dict.fromkeys(("docx", "doc", "odt", "rtf", "pptx", "odp", "epub", "pdf"), OFFICE),
    "sdlxliff": "this format is not supported: export XLIFF (.xliff) or a translation memory "
    "(.tmx)",
    "zip": "archives are not supported: extract this one",
    "parquet": (
        "Parquet files are not supported: data.source=hub data.hub_path=FOLDER reads a folder of "
        "them"
    ),
}


def _language_file(prefix: str, lang: str, langs: tuple[str, str], key: str) -> Path:
    """Returns the file of a language. Raises DataError that says what stands there instead."""
    plain = Path(f"{prefix}.{lang}").expanduser()
    candidates = [plain, *(Path(f"{plain}{ending}") for ending in OPENERS)]
    for path in candidates:
        if path.exists():
            return path
    if Path(prefix).expanduser().is_dir():
        raise DataError(f"{key}={prefix}: is a folder; name the files in it, without .{lang}")
    names = (
        {path.name.casefold(): path for path in plain.parent.glob("*")}
        if plain.parent.is_dir()
        else {}
    )
    for path in candidates:
        if similar := names.get(path.name.casefold()):
            raise DataError(
                f"{key}={prefix}: no file {path}, but {similar} exists; rename it, or change the "
                "option"
            )
    for code in langs:
        if extension := re.search(rf"\.{re.escape(code)}(\.gz|\.bz2|\.xz)?$", prefix):
            rest = prefix[: extension.start()]
            raise DataError(
                f"{key}={prefix}: leave out {extension[0]}; {key}={rest} names the files of both "
                "languages"
            )
    raise DataError(
        f"{key}={prefix}: no file {plain} or {plain}.gz; {key} is the file name without .{lang}"
    )
