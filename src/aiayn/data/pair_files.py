"""Parallel text in files: one sentence a line in a file of each language, or both languages in one file.

One file holds tab-separated columns (.tsv), comma-separated ones (.csv), JSON lines (.jsonl), a translation memory
(.tmx), a catalogue of messages (.po) or XLIFF. All of them may be compressed (.gz, .bz2, .xz). A line feed inside a
text becomes a space, because a sentence is one line.
"""

import csv
import json
import logging
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from aiayn.config.rules import tagged
from aiayn.data.catalogue import read_messages
from aiayn.data.raw_text import RawPair, RawText, remark, texts
from aiayn.data.text_files import OPENERS, FileScans, decode_document, lines, read_lines, read_whole
from aiayn.data.translation_memory import best_match, read_units
from aiayn.data.xliff import read_xliff
from aiayn.errors import DataError

log = logging.getLogger(__name__)

RECORD_BYTES = 1 << 20  # limit of a line: room for two sentences and their metadata


class FileText(RawText):
    """One or several names, each of a file of pairs, or the prefix of a file of each language."""

    def __init__(self, key: str, names: list[str], langs: tuple[str, str], scans: FileScans | None = None):
        """langs: the languages of source and target."""
        super().__init__(key, names)
        self.langs, self.scans = langs, scans or FileScans()
        self.tags, self.paths = zip(*map(tagged, names), strict=True)

    @cached_property
    def files(self) -> list[tuple[Path, ...]]:
        """For each name: one file of pairs, or a source and a target file, if the name is their prefix.

        These are `PREFIX.LANG`, or the same compressed. Raises DataError for missing files, unequal line counts, and if
        there is no line at all.
        """
        files = [self._files(name) for name in self.paths]
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
            for path in (src, tgt):
                next(lines(path), None)  # a file in UTF-16 is said to be that
            raise DataError(
                f"{self.key}={name}: {src} has {n_src} lines and {tgt} has {n_tgt}: line N of one must translate line "
                "N of the other (only LF ends a line)"
            )
        return src, tgt

    def _lines(self, path: Path) -> int:
        return self.scans.scan(path)["lines"]

    def pairs(self) -> Iterator[RawPair]:
        files = self.files  # errors of names before the first pair
        return (pair for number, paths in enumerate(files) for pair in self._of_corpus(paths, number))

    def _of_corpus(self, paths: tuple[Path, ...], number: int) -> Iterator[RawPair]:
        """The pairs of a name with its number and its tag, which blank sources have not."""
        pairs, tag = self._pairs(paths), self.tags[number].encode()
        if not (number or tag):
            return pairs
        return (
            pair._replace(src=tag + b" " + pair.src if tag and pair.src.strip() else pair.src, corpus=number)
            for pair in pairs
        )

    def _pairs(self, paths: tuple[Path, ...]) -> Iterator[RawPair]:
        if len(paths) == 1:
            yield from read_pair_file(paths[0], *self.langs)
        else:
            file = _named(paths)
            for number, (src, tgt) in enumerate(zip(*map(lines, paths), strict=True), 1):
                yield RawPair(file, number, src, tgt)

    def read(self) -> tuple[list[str], list[str]]:
        sources, targets = [], []
        for paths, tag in zip(self.files, self.tags, strict=True):
            src, tgt = map(read_lines, paths) if len(paths) == 2 else texts(self._pairs(paths))
            sources += [f"{tag} {line}" if tag and line.strip() else line for line in src]
            targets += tgt
        return sources, targets

    def identity(self) -> Any:
        kinds = ([pair_file_kind(paths[0].name)] if len(paths) == 1 else [] for paths in self.files)
        hashes = ([self.scans.scan(path)["sha256"] for path in paths] for paths in self.files)
        return [[tag] * bool(tag) + kind + found for tag, kind, found in zip(self.tags, kinds, hashes, strict=True)]

    def count(self) -> int:
        return sum(
            self._lines(paths[0]) if len(paths) == 2 else sum(1 for _ in self._pairs(paths)) for paths in self.files
        )

    def repeats_a_file(self) -> bool:
        identities = [json.dumps(one) for one in self.identity()]
        return len(set(identities)) < len(identities)


def _named(paths: tuple[Path, ...]) -> str:
    return " and ".join(map(str, paths))


def suffix(name: str) -> str:
    """The suffix of a file's name in lower case, without that of its compression."""
    path = Path(name)
    return Path(path.stem if path.suffix.lower() in OPENERS else name).suffix.removeprefix(".").lower()


def pair_file_kind(name: str) -> str | None:
    """Returns the suffix of a file's name if it is one of READERS, else None."""
    return suffix(name) if suffix(name) in READERS else None


# Formats that are not read, by suffix, and what to do instead.
TABLE = "a spreadsheet is not read: save it as comma-separated text (.csv)"
OFFICE = "office documents are not read: save the text, a sentence a line (aiayn translate reads .html, too)"
OTHER_FORMATS = {
    **dict.fromkeys(("xlsx", "xls", "ods"), TABLE),
    **dict.fromkeys(("docx", "doc", "odt", "rtf", "pptx", "odp", "epub", "pdf"), OFFICE),
    "sdlxliff": "it is not read: export XLIFF (.xliff) or a translation memory (.tmx)",
    "zip": "archives are not read: extract it",
    "parquet": "Parquet is not read as a file: data.source=hub data.hub_path=FOLDER reads a folder of it",
}


def other_format(name: str) -> str | None:
    """Returns the message for a file whose suffix is a known format that is not read; None for all others."""
    return OTHER_FORMATS.get(suffix(name))


def _find(prefix: str, lang: str, other: str, key: str) -> Path:
    plain = Path(f"{prefix}.{lang}").expanduser()
    candidates = [plain, *(Path(f"{plain}{suffix}") for suffix in OPENERS)]
    for path in candidates:
        if path.exists():
            return path
    if Path(prefix).expanduser().is_dir():
        raise DataError(f"{key}={prefix}: this is a folder; {key} is the name of files in it without .{lang}")
    names = {path.name.casefold(): path for path in plain.parent.glob("*")} if plain.parent.is_dir() else {}
    for path in candidates:
        if similar := names.get(path.name.casefold()):
            raise DataError(f"{key}={prefix}: there is no {path}, but {similar}; rename it, or write the option so")
    for ending in (f".{code}{suffix}" for code in (lang, other) for suffix in ("", *OPENERS)):
        if prefix.endswith(ending):
            raise DataError(
                f"{key}={prefix}: leave out {ending}: {key}={prefix.removesuffix(ending)} names both languages"
            )
    raise DataError(f"{key}={prefix}: there is neither {plain} nor {plain}.gz; {key} is the file name without .{lang}")


def read_pair_file(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Streams the rows of a file of pairs; a row that is no pair has a flaw.

    Raises DataError with file and line if the format is wrong, if over 5 % of the rows are no pairs, and if there is no
    pair at all.
    """
    kind = pair_file_kind(path.name)
    assert kind is not None, path
    rows, bad, first = 0, 0, []
    for pair in READERS[kind](path, src_lang, tgt_lang):
        rows += 1
        if pair.flaw:
            bad += 1
            first = first or [pair]
        yield pair
    if rows == bad:
        raise DataError(f"{path}: there are no pairs of {src_lang} and {tgt_lang} in it{remark(first)}")
    if bad >= 20 and bad > 0.05 * rows:
        raise DataError(f"{path}: {bad} of {rows} rows are no pairs, the first{remark(first)}; correct or remove them")


def records(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yields the lines of a file with their numbers, None for one that is too long."""
    for number, line in enumerate(lines(path, RECORD_BYTES), 1):
        yield number, line if len(line) < RECORD_BYTES - 1 else None


def table_rows(path: Path) -> Iterator[tuple[int, list[str] | None]]:
    """Yields the fields of the rows of a .tsv or .csv file with their first line; None for a row that is too long.

    A .csv file and a .tsv file written by a spreadsheet follow the rules of Python's csv: fields in quotation marks,
    doubled inside. In other .tsv files a quotation mark is text: one that opens a sentence must not swallow the lines
    up to the next. Undecodable bytes become surrogates.
    """
    first = [line.decode(errors="replace") for _, line in zip(range(100), lines(path), strict=False)]
    delimiter = table_delimiter(path, "".join(first[:1]))
    if delimiter != "\t" or is_quoted(first):
        counted: list[int] = []

        def text() -> Iterator[str]:
            for number, line in enumerate(lines(path, RECORD_BYTES), 1):
                counted[:] = [number]
                yield line.decode(errors="surrogateescape") + "\n"

        end = 0
        try:
            for row in csv.reader(text(), delimiter=delimiter):
                start, end = end + 1, counted[0]
                yield start, row
        except csv.Error as error:
            raise DataError(f"{path}: line {end + 1} is no row of comma-separated text ({error}); correct it") from None
        return
    for number, line in records(path):
        yield number, None if line is None else line.decode(errors="surrogateescape").split("\t")


def table_delimiter(path: Path, header: str) -> str:
    if suffix(path.name) == "tsv":
        return "\t"
    return ";" if header.count(";") > header.count(",") else ","


def is_quoted(first: list[str]) -> bool:
    """Whether most fields of the first rows of a .tsv file are in quotation marks, as a spreadsheet writes them."""
    fields = [field for line in first for field in line.rstrip("\r").split("\t") if field]
    return sum(len(field) > 1 and field[0] == field[-1] == '"' for field in fields) > len(fields) / 2


def _read_table(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Columns are named by a first line that has both languages; without one there are two, source and target."""
    file = str(path)
    width, src, tgt = 2, 0, 1
    for number, fields in table_rows(path):
        if number == 1:
            columns = header_columns(path, fields or [], src_lang, tgt_lang)
            if columns:
                width, (src, tgt) = len(fields or []), columns
                continue
            if fields and any(fields) and len(fields) != width:
                raise DataError(
                    f"{path}: line 1 has {len(fields)} columns instead of {width}; correct it, or name the columns "
                    f"in the first line, {src_lang} and {tgt_lang} among them"
                )
        if fields is None:
            yield RawPair(file, number, b"", b"", "too_many_bytes")
        elif not any(field.strip() for field in fields):
            yield RawPair(file, number, b"", b"")
        elif len(fields) == width:
            source, target = (fields[side].replace("\n", " ").encode(errors="surrogateescape") for side in (src, tgt))
            yield RawPair(file, number, source, target)
        else:
            yield RawPair(file, number, b"", b"", "columns")


# English names of languages and their codes, for the names of columns.
LANGUAGES = (
    "arabic=ar bulgarian=bg czech=cs danish=da german=de greek=el english=en spanish=es estonian=et persian=fa "
    "finnish=fi french=fr hebrew=he hindi=hi croatian=hr hungarian=hu indonesian=id italian=it japanese=ja "
    "korean=ko lithuanian=lt latvian=lv dutch=nl norwegian=no polish=pl portuguese=pt romanian=ro russian=ru "
    "slovak=sk slovenian=sl serbian=sr swedish=sv turkish=tr ukrainian=uk vietnamese=vi chinese=zh "
)
LANGUAGE_CODES = {name: code for name, _, code in (pair.partition("=") for pair in LANGUAGES.split())}
SIDES = {"source": "src", "src": "src", "target": "tgt", "tgt": "tgt", "translation": "tgt"}


def header_columns(path: Path, fields: Iterable[str], src_lang: str, tgt_lang: str) -> tuple[int, int] | None:
    """Returns the columns of source and target, from 0, if these fields are names of columns; None for text.

    A name is a language's code or English name, source or target; `English (US)`, `en_US` and `Source text` are names,
    too. Raises DataError for names that do not say which column is which.
    """
    langs = (src_lang, tgt_lang)
    sides: list[str | None] = []
    named = True
    for field in fields:
        words = re.sub(r"\(.*?\)|[\"']|\btext\b", " ", field.casefold()).replace("_", "-").split()
        name = words[0] if len(words) == 1 else ""
        code = LANGUAGE_CODES.get(name, name)
        side = dict(zip(langs, ("src", "tgt"), strict=True)).get(best_match(code, langs) or "") or SIDES.get(name)
        sides.append(side)
        named &= bool(side) or not field.strip() or code.split("-")[0] in LANGUAGE_CODES.values()
    if sides.count("src") == sides.count("tgt") == 1:
        return sides.index("src"), sides.index("tgt")
    if named and any(field.strip() for field in fields):
        raise DataError(
            f"{path}: the first line seems to name columns, but not one {src_lang} and one {tgt_lang}; write "
            f"{src_lang} and {tgt_lang} over the columns, or remove that line if source comes first"
        )
    return None


def _json_texts(line: bytes | None, langs: tuple[str, ...]) -> list[str] | None:
    """Returns the texts of these languages in a JSON object, by language or under `translation`.

    Returns None if a line does not have them; never raises.
    """
    try:
        record = json.loads(line or b"")
        texts = [record.get("translation", record)[lang] for lang in langs]
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    return texts if all(isinstance(text, str) for text in texts) else None


def json_field(line: str, src_lang: str, tgt_lang: str) -> tuple[str, tuple[int, int]] | None:
    """Returns the text of one language in a JSON object, and where in the line that of the other is or belongs.

    Returns None if a line does not have the first. Numbers are not read, because Python has not all of them.
    """
    decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)

    def value(start: int) -> tuple[Any, int, int]:
        """Returns the next value from here on, and where it is."""
        while line[start] in " \t\n\r,:":
            start += 1
        if line[start] == "}":
            return None, start, start
        found, end = decoder.raw_decode(line, start)
        return found, start, end

    def members(start: int) -> dict[str, tuple[Any, int, int]]:
        """Returns the values of an object that begins here, and where they are; of equal names the last counts."""
        found, (name, _, end) = {}, value(start + 1)
        while name is not None:
            found[name] = value(end)
            name, _, end = value(found[name][2])
        return found

    try:
        if not isinstance(decoder.decode(line), dict):
            return None
        found = members(line.index("{"))
        if "translation" in found:
            found = members(found["translation"][1])
        text, start, _ = found[src_lang]
    except (ValueError, RecursionError, KeyError, IndexError):
        return None
    last = max(end for _, _, end in found.values())
    return (text, found.get(tgt_lang, (None, last, last))[1:]) if line[start] == '"' else None


def _read_jsonl(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    file = str(path)
    for number, line in records(path):
        found = _json_texts(line, (src_lang, tgt_lang))
        if found:
            # A lone surrogate, which JSON can hold, becomes invalid UTF-8, which cleaning drops.
            src, tgt = (text.replace("\n", " ").encode(errors="surrogatepass") for text in found)
            yield RawPair(file, number, src, tgt)
        elif line is not None and not line.strip() and number > 1:
            yield RawPair(file, number, b"", b"")
        elif number == 1:
            raise DataError(
                f"{path}: line {number} is no JSON object with two texts, "
                f'{{"{src_lang}": "...", "{tgt_lang}": "..."}}; correct or remove it'
            )
        else:
            yield RawPair(file, number, b"", b"", "too_many_bytes" if line is None else "not_json")


def _read_tmx(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    file, pairs, incomplete = str(path), 0, 0
    seen: set[str] = set()
    for unit in read_units(path, (src_lang, tgt_lang)):
        seen |= unit.languages
        if unit.flaw:
            yield RawPair(file, unit.line, b"", b"", unit.flaw)
        elif len(unit.texts) == 2:
            pairs += 1
            yield RawPair(file, unit.line, unit.texts[src_lang].encode(), unit.texts[tgt_lang].encode())
        else:
            incomplete += 1
    if not pairs:
        found = f"its languages are {', '.join(sorted(seen)[:20])}" if seen else "it has no unit (tu)"
        raise DataError(f"{path}: there are no pairs of {src_lang} and {tgt_lang} in it; {found}")
    if incomplete:
        log.info("%s: %d units without %s or %s left out", path, incomplete, src_lang, tgt_lang)


def _read_catalogue(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """The messages that have a translation which is not fuzzy; every form of a plural is one."""
    text, _ = decode_document(path, read_whole(path))
    is_reversed = False
    for message in read_messages(text.removeprefix("\ufeff"), path):
        if not message.texts["msgid"]:
            code = message.language
            is_reversed = best_match(code, (src_lang, tgt_lang)) == src_lang
            if code and not best_match(code, (src_lang, tgt_lang)):
                raise DataError(f"{path}: its language is {code:.40}, neither {src_lang} nor {tgt_lang}")
        elif not message.is_fuzzy:
            texts = ((message.source(name), target) for name, target in message.targets.items())
            yield from _pairs(path, message.line, texts, is_reversed)


def _read_xliff(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """The units that have a translation."""
    content = decode_document(path, read_whole(path))[0].encode()
    for unit in read_xliff(content, path):
        src, tgt = (code and best_match(code, (src_lang, tgt_lang)) for code in unit.languages)
        if None in (src, tgt) or (src and src == tgt):
            said = " to ".join(filter(None, unit.languages))
            raise DataError(f"{path}: line {unit.line}: it is {said}, not {src_lang} to {tgt_lang}")
        yield from _pairs(path, unit.line, [(unit.text, unit.translation)], src == tgt_lang or tgt == src_lang)


def _pairs(path: Path, line: int, texts: Iterable[tuple[str, str]], is_reversed: bool) -> Iterator[RawPair]:
    """Yields a text and its translations, if there are any."""
    for pair in texts:
        src, tgt = (text.replace("\n", " ").strip().encode() for text in (pair[::-1] if is_reversed else pair))
        if src and tgt:
            yield RawPair(str(path), line, src, tgt)


READERS = {
    **dict.fromkeys(("tsv", "csv"), _read_table),
    **{"jsonl": _read_jsonl, "tmx": _read_tmx, "po": _read_catalogue},
    **dict.fromkeys(("xlf", "xliff"), _read_xliff),
}
