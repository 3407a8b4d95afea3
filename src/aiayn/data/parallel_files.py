"""Parallel text: pairs of files with one sentence a line, or files of pairs."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from aiayn.data.cleaning import Flaw
from aiayn.data.pair_files import Flaws, pair_file_kind, read_pair_file
from aiayn.data.text_files import MARK_LINES, FileScans, decode, lines
from aiayn.errors import DataError


def aligned_files(names: list[str], src_lang: str, tgt_lang: str, key: str, scans: FileScans) -> list[tuple[Path, ...]]:
    """Returns for every name the file of pairs that it is, or the source and target file that it is the prefix of.

    These are `PREFIX.LANG`, or else `PREFIX.LANG.gz`. Raises DataError, naming option `key`, for missing files, unequal
    line counts, and if there is no line at all.
    """
    files: list[tuple[Path, ...]] = []
    n_lines = 0
    for prefix in names:
        _refuse_other_formats(prefix, key)
        if pair_file_kind(prefix):
            files.append((Path(prefix).expanduser(),))
            n_lines += scans.scan(files[-1][0])["lines"]
            continue
        src, tgt = _find(prefix, src_lang, tgt_lang, key), _find(prefix, tgt_lang, src_lang, key)
        files.append((src, tgt))
        n_src, n_tgt = scans.scan(src)["lines"], scans.scan(tgt)["lines"]
        if n_src != n_tgt:
            raise DataError(
                f"{key}={prefix}: {src} has {n_src} lines and {tgt} has {n_tgt}: line N of one must translate line N "
                "of the other (only LF ends a line)"
            )
        n_lines += n_src
    if not n_lines:
        raise DataError(f"{key}: there is no text in {', '.join(' and '.join(map(str, paths)) for paths in files)}")
    return files


# Endings that are not read, and what to do instead.
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
    """Returns what to say of a file by an ending that is known and not read; None for all others."""
    path = Path(name)
    return OTHER_FORMATS.get(Path(path.stem if path.suffix == ".gz" else name).suffix.removeprefix(".").lower())


def _refuse_other_formats(prefix: str, key: str) -> None:
    if remedy := other_format(prefix):
        raise DataError(f"{key}={prefix}: {remedy}")


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


def file_pairs(
    files: list[tuple[Path, ...]], src_lang: str, tgt_lang: str, scans: FileScans, first: int = 0
) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of the files that `aligned_files` found, as bytes, source first; without the `first` ones."""
    for paths in files:
        if len(paths) == 2:
            count = scans.scan(paths[0])["lines"]
            pairs = zip(*(_lines_from(path, min(first, count), scans) for path in paths), strict=True)
            first = max(0, first - count)
        else:
            pairs = ((src, tgt) for _, src, tgt in numbered(paths, src_lang, tgt_lang))
            while first and next(pairs, None):
                first -= 1
        yield from pairs


def _lines_from(path: Path, first: int, scans: FileScans) -> Iterator[bytes]:
    """The lines of a file without the `first` ones, most of which are jumped over."""
    jumps, rest = divmod(first, MARK_LINES)
    start = scans.scan(path)["marks"][jumps - 1] if jumps else 0
    return islice(lines(path, start=start), rest, None)


def read_parallel(names: list[str], src_lang: str, tgt_lang: str, key: str) -> tuple[list[str], list[str]]:
    """Reads all sources and all targets of aligned files. Raises DataError as `aligned_files` and `decode` do."""
    sources, targets = [], []
    for paths in aligned_files(names, src_lang, tgt_lang, key, FileScans()):
        flaws = Flaws()
        for number, src, tgt in numbered(paths, src_lang, tgt_lang):
            if isinstance(src, Flaw):
                flaws.add(number, src)
                continue
            sources.append(decode(src, paths[0], number))
            targets.append(decode(tgt, paths[-1], number))
        if flaws.count:
            raise DataError(f"{paths[0]}: {flaws.count} rows are no pairs{flaws.remark()}; correct or remove them")
    return sources, targets


def numbered(paths: tuple[Path, ...], src_lang: str, tgt_lang: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Streams the pairs of one of the files that `aligned_files` found, with the line that each begins in."""
    if len(paths) == 1:
        yield from read_pair_file(paths[0], src_lang, tgt_lang)
    else:
        src, tgt = paths
        yield from ((number, *pair) for number, pair in enumerate(zip(lines(src), lines(tgt), strict=True), 1))
