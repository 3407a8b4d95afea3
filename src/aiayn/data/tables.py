"""Tables of text in several languages: tab- or comma-separated columns (.tsv, .csv) and JSON lines
(.jsonl).

A line feed inside a text becomes a space, because a sentence is one line.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import methodcaller
from pathlib import Path

from aiayn.data.languages import LANGUAGE_CODES, best_match, primary
from aiayn.data.raw_text import RawPair
from aiayn.data.text_files import lines, suffix
from aiayn.errors import DataError, counted

MOST_NOT_PAIRS = 500  # lines of JSON before the first pair; more have other names for the languages
RECORD_BYTES = 1 << 20  # limit of a line: room for two sentences and their metadata
# Python's default is so small that a long field, which is only to be dropped, would end reading.
csv.field_size_limit(RECORD_BYTES)
SEPARATOR_LINE = re.compile(r"(?i:\ufeff?\"?sep *= *([,;|\t])\"? *\r?)")
SIDES = {"source": 0, "src": 0, "target": 1, "tgt": 1, "translation": 1}


def read_table(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Yields the rows of a .tsv or .csv file.

    Columns are named by a first line that has both languages; without one there are two, source and
    target. Blank lines before it are left out.
    """
    width, columns, is_first = 2, (0, 1), True
    for number, fields, flaw in _table_rows(path):
        is_blank = not any(map(str.strip, fields))
        if is_first and not is_blank and not flaw:
            is_first = False
            if named := header_columns(path, fields, src_lang, tgt_lang):
                width, columns = len(fields), named
                continue
            if len(fields) != width:
                raise DataError(
                    f"{path}: line {number} has {counted(len(fields), 'column')} instead of "
                    f"{width}; correct it, or head the columns {src_lang} and {tgt_lang}"
                )
        src, tgt = b"", b""
        if flaw or (len(fields) != width and not is_blank):
            src, flaw = "\t".join(fields).encode(errors="surrogateescape"), flaw or "columns"
        elif not is_blank:
            src, tgt = (
                fields[column].replace("\n", " ").encode(errors="surrogateescape")
                for column in columns
            )
        yield RawPair(str(path), number, src, tgt, flaw)


def _table_rows(path: Path) -> Iterator[tuple[int, list[str], str]]:
    """Yields the first line, the fields and the flaw of each row of a .tsv or .csv file.

    A first line `sep=;`, as Excel writes it, names what is between columns; blank lines may come
    before it.

    A .csv file and a .tsv file written by a spreadsheet follow the rules of Python's csv: fields in
    quotation marks, doubled inside. In other .tsv files a quotation mark is text: one that opens a
    sentence must not swallow the lines up to the next. Undecodable bytes become surrogates.
    """
    first = [line.decode(errors="replace") for line in islice(lines(path), 100)]
    number, line = next(((n, line) for n, line in enumerate(first, 1) if line.strip()), (0, ""))
    separator = SEPARATOR_LINE.fullmatch(line)
    skipped = number if separator else 0
    first = [line for line in first[skipped:] if line.strip()]
    delimiter = separator[1] if separator else table_delimiter(path, "".join(first[:1]))
    decode = methodcaller("decode", errors="surrogateescape")
    if delimiter == "\t" and not is_quoted(first):
        for number, line, flaw in islice(_records(path), skipped, None):
            yield number, decode(line).split("\t"), flaw
        return
    text = (decode(line) + "\n" for line in islice(lines(path, RECORD_BYTES), skipped, None))
    reader = csv.reader(text, delimiter=delimiter, strict=True, skipinitialspace=True)
    done = skipped
    try:
        for row in reader:
            yield done + 1, row, ""
            done = skipped + reader.line_num
    except csv.Error as error:
        raise DataError(
            f"{path}: line {done + 1} is not a row of comma-separated text ({error}); correct it"
        ) from None


def _records(path: Path) -> Iterator[tuple[int, bytes, str]]:
    """Yields the number, text and flaw of each line of a file; one that is too long is cut."""
    for number, line in enumerate(lines(path, RECORD_BYTES), 1):
        yield number, line, "" if len(line) < RECORD_BYTES - 1 else "too_many_bytes"


def table_delimiter(path: Path, header: str) -> str:
    if suffix(path.name) == "tsv":
        return "\t"
    return max(",;\t|", key=header.count)


def is_quoted(first: list[str]) -> bool:
    """Returns whether most fields of the first rows of a .tsv file are in quotation marks, as a
    spreadsheet writes them.
    """
    fields = [field for line in first for field in line.rstrip("\r").split("\t") if field]
    return (
        sum(len(field) > 1 and field[0] == field[-1] == '"' for field in fields) > len(fields) / 2
    )


def header_columns(
    path: Path, fields: Sequence[str], src_lang: str, tgt_lang: str
) -> tuple[int, int] | None:
    """Returns the columns of source and target, from 0, if these fields are names of columns; None
    for text.

    A name is a language's code or English name, source or target; `English (US)`, `en_US` and
    `Source text` are names, too, as are names that are alike but for the language, such as
    `text_de` and `text_en`. Raises DataError for names that do not say which column is which.
    """
    langs = (src_lang, tgt_lang)
    # By column: 0 for the source, 1 for the target, None for others
    sides: list[int | None] = []
    named = any(field.strip() for field in fields)
    for field in fields:
        words = (
            re.sub(r"\([^()]*\)|[\"'#]|\btext\b", " ", field.casefold()).replace("_", "-").split()
        )
        name = words[0] if len(words) == 1 else ""
        code = LANGUAGE_CODES.get(name, name)
        in_brackets = re.search(r"[(\[]([\w-]+)[)\]]\s*\Z", field)
        lang = best_match(code, langs) or (in_brackets and best_match(in_brackets[1], langs))
        sides.append(SIDES.get(name) if lang is None else langs.index(lang))
        named &= (
            sides[-1] is not None or not field.strip() or primary(code) in LANGUAGE_CODES.values()
        )
    sides = sides if 0 in sides or 1 in sides else _sides_in_pattern(fields, langs)
    if sides.count(0) == sides.count(1) == 1:
        return sides.index(0), sides.index(1)
    if named:
        raise DataError(
            f"{path}: the first line seems to name columns, but not {src_lang} and {tgt_lang}; "
            "name two columns so, or remove the line if source comes first"
        )
    return None


def _sides_in_pattern(fields: Sequence[str], langs: tuple[str, str]) -> list[int | None]:
    """Returns 0 for a name with the source's language in it, 1 for the target's, if the rest of
    both is the same.
    """
    sides: list[int | None] = []
    rests = set[tuple[str, ...]]()
    for field in fields:
        words = re.split(r"[\W_]+", field.casefold())
        matches = [best_match(LANGUAGE_CODES.get(word, word), langs) for word in words]
        named = [lang for lang in matches if lang]
        sides.append(langs.index(named[0]) if len(named) == 1 and len(words) <= 3 else None)
        if sides[-1] is not None:
            rests.add(
                tuple(
                    word
                    for word, lang in zip(words, matches, strict=True)
                    if not lang and word not in SIDES
                )
            )
    return sides if len(rests) == 1 else []


def read_json_lines(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Yields the texts of the JSON objects of a .jsonl file, by language or under `translation`.

    Raises DataError with the first line if none of them is a pair, or none of the first ones.
    """
    first, count, has_pair = 0, 0, False
    for number, line, flaw in _records(path):
        src, tgt = b"", b""
        try:
            record = json.loads(line)
            # A lone surrogate, which JSON can hold, becomes invalid UTF-8, which cleaning drops.
            src, tgt = (
                record.get("translation", record)[lang]
                .replace("\n", " ")
                .encode(errors="surrogatepass")
                for lang in (src_lang, tgt_lang)
            )
            has_pair = True
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            if line.strip():
                src, flaw, first, count = line, flaw or "not_json", first or number, count + 1
            if count > MOST_NOT_PAIRS and not has_pair:
                break
        yield RawPair(str(path), number, src, tgt, flaw)
    if first and not has_pair:
        raise DataError(
            f"{path}: line {first} is not a JSON object with two texts, "
            f'{{"{src_lang}": "...", "{tgt_lang}": "..."}}; correct or remove it'
        )
