"""Parallel text: pairs of files with one sentence a line, or files of pairs."""

from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from aiayn.data.cleaning import Flaw
from aiayn.data.pair_files import Flaws, pair_file_kind, read_pair_file
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.text_files import MARK_LINES, FileScans, decode, lines
from aiayn.errors import DataError


class FileText(RawText):
    """One or several names, each of a file of pairs, or the prefix of a file of each language."""

    can_jump = True

    def __init__(self, key: str, names: list[str], langs: tuple[str, str], scans: FileScans | None = None):
        """langs: the languages of source and target."""
        super().__init__(key, names)
        self.langs, self.scans = langs, scans or FileScans()

    @cached_property
    def files(self) -> list[tuple[Path, ...]]:
        """For each name: one file of pairs, or a source and a target file, if the name is their prefix.

        These are `PREFIX.LANG`, or else `PREFIX.LANG.gz`. Raises DataError for missing files, unequal line counts, and
        if there is no line at all.
        """
        files = [self._files(name) for name in self.names]
        if not any(self._lines(path) for paths in files for path in paths):
            raise DataError(f"{self.key}: there is no text in {', '.join(map(_named, files))}")
        return files

    def _files(self, name: str) -> tuple[Path, ...]:
        if remedy := other_format(name):
            raise DataError(f"{self.key}={name}: {remedy}")
        if pair_file_kind(name):
            return (Path(name).expanduser(),)
        src, tgt = (_find(name, lang, other, self.key) for lang, other in (self.langs, self.langs[::-1]))
        n_src, n_tgt = self._lines(src), self._lines(tgt)
        if n_src != n_tgt:
            raise DataError(
                f"{self.key}={name}: {src} has {n_src} lines and {tgt} has {n_tgt}: line N of one must translate line "
                "N of the other (only LF ends a line)"
            )
        return src, tgt

    def _lines(self, path: Path) -> int:
        return self.scans.scan(path)["lines"]

    def pairs(self, first: int = 0) -> Iterator[RawPair]:
        return self._pairs(self.files, first)

    def _pairs(self, files: list[tuple[Path, ...]], first: int) -> Iterator[RawPair]:
        for paths in files:
            if len(paths) == 2:
                count = self._lines(paths[0])
                pairs = zip(*(self._lines_from(path, min(first, count)) for path in paths), strict=True)
                first = max(0, first - count)
            else:
                pairs = ((src, tgt) for _, src, tgt in self._numbered(paths))
                while first and next(pairs, None):
                    first -= 1
            yield from pairs

    def _lines_from(self, path: Path, first: int) -> Iterator[bytes]:
        """The lines of a file without the `first` ones, most of which are skipped by seeking."""
        jumps, rest = divmod(first, MARK_LINES)
        start = self.scans.scan(path)["marks"][jumps - 1] if jumps else 0
        return islice(lines(path, start=start), rest, None)

    def _numbered(self, paths: tuple[Path, ...]) -> Iterator[tuple[int, bytes, bytes]]:
        """The pairs of one of the files, with the line that each begins in."""
        if len(paths) == 1:
            yield from read_pair_file(paths[0], *self.langs)
        else:
            src, tgt = paths
            yield from ((number, *pair) for number, pair in enumerate(zip(lines(src), lines(tgt), strict=True), 1))

    def identity(self) -> Any:
        kinds = ([pair_file_kind(paths[0].name)] if len(paths) == 1 else [] for paths in self.files)
        hashes = ([self.scans.scan(path)["sha256"] for path in paths] for paths in self.files)
        return [kind + sha256 for kind, sha256 in zip(kinds, hashes, strict=True)]

    def repeats_a_file(self) -> bool:
        identities = self.identity()
        return any(identities.count(each) > 1 for each in identities)

    def placed(self) -> Iterator[tuple[str, RawPair]]:
        for paths in self.files:
            for line, src, tgt in self._numbered(paths):
                yield f"{_named(paths)}: line {line}", (src, tgt)

    def places(self, numbers: Collection[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        before = 0
        for paths in self.files:
            wanted = {number - before for number in numbers if number > before}
            if not wanted:
                break
            if len(paths) == 2:
                count = self._lines(paths[0])
                lines_of = {number: number for number in wanted if number <= count}
            else:
                lines_of, count = {}, 0
                for count, (line, _, _) in enumerate(self._numbered(paths), 1):
                    if count in wanted:
                        lines_of[count] = line
            found |= {before + number: f"{_named(paths)}: line {line}" for number, line in lines_of.items()}
            before += count
        return super().places(numbers) | found

    def count(self) -> int:
        if all(len(paths) == 2 for paths in self.files):
            return sum(self._lines(paths[0]) for paths in self.files)
        return super().count()

    def read(self) -> tuple[list[str], list[str]]:
        sources, targets = [], []
        for paths in self.files:
            flaws = Flaws()
            for number, src, tgt in self._numbered(paths):
                if isinstance(src, Flaw):
                    flaws.add(number, src)
                    continue
                sources.append(decode(src, paths[0], number))
                targets.append(decode(tgt, paths[-1], number))
            if flaws.count:
                raise DataError(f"{paths[0]}: {flaws.count} rows are no pairs{flaws.remark()}; correct or remove them")
        return sources, targets


def _named(paths: tuple[Path, ...]) -> str:
    return " and ".join(map(str, paths))


# Formats that are not read, by suffix, and what to do instead.
OTHER_FORMATS = {
    "csv": "CSV is not read: save it as tab-separated text (.tsv), without quotation marks around the fields",
    "xlsx": "a spreadsheet is not read: save it as tab-separated text (.tsv)",
    "xls": "a spreadsheet is not read: save it as tab-separated text (.tsv)",
    "ods": "a spreadsheet is not read: save it as tab-separated text (.tsv)",
    "xlf": "XLIFF is not read: export a translation memory (.tmx) from your translation program",
    "xliff": "XLIFF is not read: export a translation memory (.tmx) from your translation program",
    "sdlxliff": "XLIFF is not read: export a translation memory (.tmx) from your translation program",
    "po": "PO is not read: convert it to a translation memory, for example with po2tmx of the Translate Toolkit",
    "docx": "office documents are not read: save the text, one sentence per line",
    "odt": "office documents are not read: save the text, one sentence per line",
    "pdf": "PDF is not read: save the text, one sentence per line",
    "zip": "archives are not read: extract it",
    "parquet": "Parquet is not read as a file: data.source=hub data.hub_path=FOLDER reads a folder of it",
}


def other_format(name: str) -> str | None:
    """Returns the message for a file whose suffix is a known format that is not read; None for all others."""
    path = Path(name)
    return OTHER_FORMATS.get(Path(path.stem if path.suffix == ".gz" else name).suffix.removeprefix(".").lower())


def _find(prefix: str, lang: str, other: str, key: str) -> Path:
    plain = Path(f"{prefix}.{lang}").expanduser()
    gzipped = Path(f"{plain}.gz")
    for path in (plain, gzipped):
        if path.exists():
            return path
    if Path(prefix).expanduser().is_dir():
        raise DataError(f"{key}={prefix}: this is a folder; {key} is the name of files in it without .{lang}")
    names = {path.name.casefold(): path for path in plain.parent.glob("*")} if plain.parent.is_dir() else {}
    for path in (plain, gzipped):
        if similar := names.get(path.name.casefold()):
            raise DataError(f"{key}={prefix}: there is no {path}, but {similar}; rename it, or write the option so")
    for ending in (f".{lang}", f".{lang}.gz", f".{other}", f".{other}.gz"):
        if prefix.endswith(ending):
            raise DataError(
                f"{key}={prefix}: leave out {ending}: {key}={prefix.removesuffix(ending)} names both languages"
            )
    raise DataError(f"{key}={prefix}: there is neither {plain} nor {gzipped}; {key} is the file name without .{lang}")
