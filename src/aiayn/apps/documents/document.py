"""Translatable documents: finds the text to translate, and keeps the rest of a file byte for byte.

A document is read into parts to translate and text between them. Libraries that read and write one
of these formats write the whole file anew, in their own order of attributes, quotation marks and
blanks; so only the places of texts are read here, and the translations are put there.
"""

import html
import io
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from aiayn.apps.documents.markup import (
    MESSAGE,
    Checked,
    Part,
    Pieces,
    Reader,
    escaped_html,
    html_text,
    parse_markup,
    parts_of,
    read_parts,
)
from aiayn.apps.encodings import decode_document
from aiayn.apps.localisation.catalogue import Message, quoted, read_messages
from aiayn.apps.localisation.exchange import read_memory, read_xliff
from aiayn.apps.localisation.formats import Format, format_of
from aiayn.data.languages import best_match
from aiayn.data.placeholders import CJK, has_letters
from aiayn.data.tables import SEPARATOR_LINE, header_columns, is_quoted, table_delimiter
from aiayn.data.text_files import SURROGATE, suffix
from aiayn.doors import load_from
from aiayn.errors import DataError, counted

# A subtitle begins with a line of times. The line before it is its number, in WebVTT its name.
# Blank lines may be doubled.
TIMES = r"[ \t]*-?\d+[ \t]*:[\d:., \t]*-->[ \t]*-?\d+[ \t]*:.*(?:\n|\Z)"
SUBTITLE = rf"(?:^[ \t]*\d+[ \t]*\r?\n(?:[ \t]*\r?\n)*+)?^{TIMES}"
AFTER_BLANK_LINE = r"(?:(?<=\n\n)|(?<=\n\r\n))"
VTT_NAME = rf"{AFTER_BLANK_LINE}[^\n]+\n(?={TIMES})"
COMMENT = r"(?:NOTE\b|(?:STYLE|REGION)[ \t]*\r?$)"
VTT_COMMENT = rf"{AFTER_BLANK_LINE}{COMMENT}.*(?:\n(?!\r?\n).+)*+"
SRT = re.compile(f"({SUBTITLE})", re.MULTILINE)
VTT = re.compile(f"({VTT_COMMENT}|(?:{VTT_NAME})?{SUBTITLE})", re.MULTILINE)
MAX_JOINED = 300  # characters of a sentence over several subtitles
# Where a line may end: at blanks, and between characters of Chinese and Japanese; not in a tag.
BREAK = re.compile(
    rf"( +|(?<=[{CJK}])(?<![\u3008-\u3010（［｛])(?=[{CJK}])"
    r"(?![\u3001-\u3002\u3005\u3009\u300b\u300d\u300f\u3011"
    r"ー）］｝，．！？：；]))(?![^<>]{0,300}(?<!--)>)"
)
PAGE = re.compile(r"<html\b", re.IGNORECASE)
PAGE_LANG = re.compile(r"""(\s(?:xml:)?lang\s*=\s*["']?)([\w-]+)""", re.IGNORECASE)
# An attribute of a tag: its name and the quotation mark before its value, its name, its value
ATTRIBUTE = re.compile(r"""(\s([\w:-]+)\s*=\s*["'])((?<=")[^"]*|(?<=')[^']*)""")
HIDDEN = re.compile("\0(\\d+)\0")  # stands for the text of an attribute
END_OF_FORM = "\0"  # of a message with plural forms
# Before the words of a subtitle: how they look, and a dash where somebody begins to speak.
START = re.compile(r"\A(?:\{\\[^{}]*\})*(?:\s*[-\u2013\u2014](?!\d)\s*)?")
STYLE = re.compile(r"\{\\[^{}]*\}|<[^<>]*>")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Document:
    """A file: pieces that are kept, and between them the parts to translate."""

    path: Path  # or its name, for messages
    text: str
    langs: tuple[str, str]
    content: bytes
    encoding: str
    read: "Read"
    markup: bool  # whether tags and placeholders are kept
    is_fuzzy: bool = True  # whether translations of messages are marked so
    attributes: bool = False  # whether `alt` and `title` of HTML are translated
    pieces: Pieces = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # for the user
    # Lines of units that were left as they were, by noun and reason
    left: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def leave(self, noun: str, reason: str, line: int) -> None:
        """Notes for the user that a unit which begins in this line stays as it was."""
        self.left.setdefault((noun, reason), []).append(line)

    def leaves_message(self, text: str, line: int) -> bool:
        """Returns whether a text is a message of ICU, which then stays as it is."""
        if is_message := MESSAGE.search(text) is not None:
            self.leave("ICU message", "not translated", line)
        return is_message

    def field(self, text: str, write: Callable[[str], str]) -> Pieces:
        """Returns the pieces of a field that holds text; `write` escapes what is written into
        one.
        """
        return [Checked(parse_markup(text, self.markup), write)]

    @property
    def is_prose(self) -> bool:
        return self.read not in FIELDS

    @property
    def parts(self) -> list[Part]:
        return list(parts_of(self.pieces))

    @property
    def remarks(self) -> list[str]:
        """What the user is told, once the document is written."""
        left = [
            f"{self.path}: {counted(len(lines), noun)} {reason}: "
            f"line {', '.join(map(str, lines[:5]))}" + ", ..." * (len(lines) > 5)
            for (noun, reason), lines in self.left.items()
        ]
        return [*self.notes, *left]

    def groups(self, size: int) -> Iterator[Pieces]:
        """Yields all pieces in groups of up to `size` parts."""
        group, count = [], 0
        for piece in self.pieces:
            added = len(list(parts_of([piece])))
            if count and added and count + added > size:
                yield group
                group, count = [], 0
            group.append(piece)
            count += added
        yield group

    def encode(self, text: str) -> bytes:
        """Returns text as the file has it. Raises DataError for characters that its encoding does
        not have.
        """
        try:
            return text.encode(
                self.encoding, "xmlcharrefreplace" if self.read in (_html, _xliff) else "strict"
            )
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise DataError(
                f"{self.path}: the translation contains {character!r}, which the file's encoding "
                f"{self.encoding} lacks; convert the file to UTF-8, and change the encoding that "
                "it declares"
            ) from None


Read = Callable[[Document], Pieces]


def parse_document(
    path: Path,
    content: bytes,
    langs: tuple[str, str],
    markup: bool = False,
    fuzzy: bool = True,
    attributes: bool = False,
) -> Document:
    """Returns the document that a file's content is. With `markup` tags in the fields of tables are
    kept, too; `fuzzy` marks what is translated in a catalogue as not reviewed; with `attributes`
    `alt` and `title` of HTML are translated.

    Raises DataError with file and line if it is not what its suffix says.
    """
    ending = suffix(path.name)
    read = READERS.get(ending) or load_from("aiayn.documents", ending)
    # A memory is written anew; its parser knows the encodings of XML.
    text, encoding = (
        ("", "utf-8") if read is _memory else decode_document(path, content, read in DECLARING)
    )
    keeps_tags = markup or read not in (*FIELDS, _plain)
    document = Document(
        path,
        text.removeprefix("\ufeff"),
        langs,
        content,
        encoding,
        read,
        keeps_tags,
        fuzzy,
        attributes,
    )
    document.pieces.extend(("\ufeff" * text.startswith("\ufeff"), *read(document)))
    if not document.parts:
        document.notes.append(f"{path}: no text to translate")
    return document


def _plain(document: Document) -> Pieces:
    return [Part(document.text)]


def _html(document: Document) -> Pieces:
    """The text, and in the page's tag `<html lang="en">` the language that it has then."""
    if document.attributes:
        pieces = _with_attributes(document.text)
    else:
        pieces = parse_markup(document.text, is_html=True)

    def of_target(attribute: re.Match[str]) -> str:
        is_source = best_match(attribute[2], document.langs[:1]) is not None
        return attribute[1] + (document.langs[1] if is_source else attribute[2])

    return [
        PAGE_LANG.sub(of_target, piece) if isinstance(piece, str) and PAGE.match(piece) else piece
        for piece in pieces
    ]


def _with_attributes(page: str) -> Pieces:
    """Returns the pieces of a page, with the texts of `alt` and `title` before those in whose tags
    they are.
    """
    texts: list[Pieces] = []

    def hidden(attribute: re.Match[str]) -> str:
        text = read_parts([("text", "", attribute[3])], html_text, html.escape)
        if attribute[2].lower() not in ("alt", "title") or not list(parts_of(text)):
            return attribute[0]
        texts.append([*text, "\0"])
        return f"{attribute[1]}\0{len(texts) - 1}\0"

    pieces: Pieces = []
    tokens = Reader(page.replace("\0", "\ufffd")).tokens
    for piece in read_parts(
        tokens, html_text, escaped_html, edit_tag=partial(ATTRIBUTE.sub, hidden)
    ):
        tags = [tag.raw for part in parts_of([piece]) for tag in part.tags]
        numbers = HIDDEN.findall(piece if isinstance(piece, str) else "".join(tags))
        parts = [part for number in numbers for part in texts[int(number)]]
        pieces.append(Checked([*parts, piece], partial(_shown, numbers)) if numbers else piece)
    return pieces


def _shown(numbers: list[str], translation: str) -> str:
    """Puts the texts of attributes, which are before a translation, to their places in it."""
    *texts, written = translation.split("\0", len(numbers))
    text_by_number = dict(zip(numbers, texts, strict=True))
    return HIDDEN.sub(lambda mark: text_by_number[mark[1]], written)


def _markdown_pieces(document: Document) -> Pieces:
    from aiayn.apps.documents.markdown import parse_markdown

    def leave(noun: str, reason: str, position: int) -> None:
        document.leave(noun, reason, bisect_right(line_starts, position))

    line_starts = [0, *(line_end.end() for line_end in re.finditer("\n", document.text))]
    return parse_markdown(document.text, leave)


def _catalogue(document: Document) -> Pieces:
    """Translates the messages that have no translation, in every form of the plural."""
    pieces: Pieces = []
    done = 0
    for message in read_messages(document.text, document.path):
        if not message.texts["msgid"]:
            if message.language and best_match(message.language, document.langs[1:]) is None:
                raise DataError(
                    f"{document.path}: its header has the language {message.language:.40}, but the "
                    f"model translates into {document.langs[1]}; choose another model or file, or "
                    "correct the header"
                )
            continue
        message_format = format_of(message.flags, message.texts["msgid"])
        names = [
            name
            for name, text in message.targets.items()
            if not text
            and not document.leaves_message(
                message_format.outside(message.source(name)), message.line
            )
        ]
        if not names:
            continue
        of_forms: Pieces = []
        for name in names:
            of_forms += [*message_format.pieces(message.source(name)), END_OF_FORM]
        write = partial(_written_message, document, message, message_format, names)
        pieces += [document.text[done : message.start], Checked(of_forms, write)]
        done = message.end
    return [*pieces, document.text[done:]]


def _written_message(
    document: Document,
    message: Message,
    message_format: Format,
    names: list[str],
    translation: str,
) -> str:
    """Returns a message with its translations, or as it was if a program could not use one."""
    as_it_was = document.text[message.start : message.end]
    forms = translation.split(END_OF_FORM)[:-1]
    settled = (
        message_format.settled(form, message.source(name))
        for name, form in zip(names, forms, strict=False)
    )
    texts = [text for text in settled if text is not None]
    if not len(texts) == len(forms) == len(names):
        document.leave(
            "message", "left empty, because placeholders would have changed", message.line
        )
        return as_it_was
    pieces: list[str] = []
    done = message.start
    for name, text in zip(names, texts, strict=True):
        start, end = message.spans[name]
        pieces += [document.text[done:start], f'"{quoted(text)}"']
        done = end
    written = "".join([*pieces, document.text[done : message.end]])
    if message.is_fuzzy or not document.is_fuzzy:
        return written
    if message.flags:
        return written.replace("#,", "#, fuzzy,", 1)
    line_end = "\r\n" if "\r\n" in as_it_was else "\n"
    return f"#, fuzzy{line_end}{written}"


def _xliff(document: Document) -> Pieces:
    """Translates the units that have no translation."""
    content = document.text.encode()
    pieces: Pieces = []
    done = 0
    for unit in read_xliff(content, document.path):
        if any(
            code and best_match(code, (lang,)) is None
            for code, lang in zip(unit.languages, document.langs, strict=True)
        ):
            file_direction, model_direction = (
                " to ".join(filter(None, pair)) for pair in (unit.languages, document.langs)
            )
            raise DataError(
                f"{document.path}: line {unit.line} is {file_direction}, but the model translates "
                f"{model_direction}; choose another model or file"
            )
        is_done = unit.is_kept or unit.translation or not unit.text
        if is_done or document.leaves_message(unit.text, unit.line):
            continue
        opening, closing = unit.tags
        pieces += [
            content[done : unit.span[0]].decode(),
            opening,
            *read_parts(unit.source, html_text, _in_xml),
            closing,
        ]
        done = unit.span[1]
    return [*pieces, content[done:].decode()]


class SubtitleLine(NamedTuple):
    """A line of a subtitle, and the text that is kept before it."""

    lead: str  # line ends, times, numbers
    words: str


def _subtitles(document: Document) -> Pieces:
    """Translates subtitles. The text of one ends where the next begins; a sentence may go on there.

    Dashes before what somebody says, and styles at the beginning, stay.
    """
    is_vtt = document.text.startswith("WEBVTT")
    kept, *blocks = (VTT if is_vtt else SRT).split(document.text)
    outside = [] if is_vtt else [kept]
    texts: list[list[SubtitleLine]] = []
    for timing, block in zip(blocks[::2], blocks[1::2], strict=True):
        if timing.startswith(("NOTE", "STYLE", "REGION")):
            kept += timing + block
            outside.append(block)
            continue
        shown = block.rstrip()
        kept += timing
        for words in re.split(r"(\r?\n(?:[ \t]*\r?\n)*+)", shown):
            if not words.strip():
                kept += words
                continue
            line = SubtitleLine(kept, words)
            if texts and _goes_on(texts[-1], line):
                texts[-1].append(line)
            else:
                texts.append([line])
            kept = ""
        kept += block[len(shown) :]
    if left_out := [line for line in "\n".join(outside).split("\n") if has_letters(line)]:
        lines, first = counted(len(left_out), "line"), " ".join(left_out[0].split())
        document.notes.append(
            f"{document.path}: {lines} not translated (no times above): {first:.60}"
        )
    return [*chain.from_iterable(map(_subtitle_pieces, texts)), kept]


def _goes_on(text: list[SubtitleLine], line: SubtitleLine) -> bool:
    """Returns whether a text goes on in this line of the same or the next subtitle."""
    end, start = (STYLE.sub("", words).strip() for words in (text[-1].words, line.words))
    if re.match(r"[-\u2013\u2014](?!\d)", start):
        return False
    if line.lead in ("\n", "\r\n"):
        return True
    is_open = end[-1:] in tuple(",;\u060c\u3001\uff0c") or (
        end[-1:].isalnum() and start[:1].islower()
    )
    return is_open and sum(len(part.words) for part in [*text, line]) <= MAX_JOINED


def _subtitle_pieces(text: list[SubtitleLine]) -> Pieces:
    """Returns the pieces of a text whose translation gets as many lines, of lengths in
    proportion.
    """
    first, *others = text
    rest = START.sub("", first.words, count=1)
    text = [SubtitleLine(first.lead + first.words.removesuffix(rest), rest), *others]
    lines = [line.words for line in text]
    pieces = parse_markup(re.sub(rf"(?<=[{CJK}])\n(?=[{CJK}])", "", "\n".join(lines)))
    if not lines[0].strip() or sum(isinstance(piece, Part) for piece in pieces) != 1:
        # Nothing to translate, or tags that end a sentence
        return [piece for line in text for piece in (line.lead, *parse_markup(line.words))]
    divide = partial(in_lines, lengths=list(map(len, lines)), ends=[line.lead for line in others])
    divided: Pieces = [
        Checked([piece], divide) if isinstance(piece, Part) else piece for piece in pieces
    ]
    return [text[0].lead, Checked(divided, str, "".join([*chain(*text)][1:]))]


def in_lines(text: str, lengths: Sequence[int], ends: Sequence[str]) -> str:
    """Returns a text in lines in proportion to `lengths`, with `ends` between them. A line without
    a word is left out, but not the times of the next subtitle.
    """
    # A word, the blank before the next or nothing, the next, ...
    words = BREAK.split(text.lstrip(" "))
    divided, start, left = "", 0, sum(map(len, words))
    for number, end in enumerate(["", *ends]):
        share = (lengths[number] + 1) / sum(length + 1 for length in lengths[number:])
        line, wanted = "".join(words[start : start + 1]), (left + 1) * share - 1
        stop = start + 1
        while stop < len(words):
            more = "".join(words[stop : stop + 2])
            if len(line) + len(more) / 2 > wanted:
                break
            line += more
            stop += 2
        divided += end + line if line or "-->" in end else ""
        left -= len(line) + len("".join(words[stop : stop + 1]))
        start = stop + 1
    return divided


def _table_pieces(document: Document) -> Pieces:
    """Fills the empty cells of the target language's column from the source's column."""
    path, (src, tgt) = document.path, document.langs
    separator = re.match(rf"(?:{SEPARATOR_LINE.pattern})\n", document.text)
    table = document.text[separator.end() :] if separator else document.text
    first = [written for written in table.split("\n", 100)[:100] if written.strip()]
    delimiter = separator[1] if separator else table_delimiter(path, "".join(first[:1]))
    by_rules = delimiter != "\t" or is_quoted(first)
    pieces: Pieces = [separator[0]] if separator else []
    columns, width, line = None, 0, 1 + len(pieces)
    for row in _rows(table, delimiter, by_rules):
        values = [_unquoted(raw) if by_rules else raw for raw, _ in row]
        text = ""
        if not any(map(str.strip, values)):
            pass  # as it is, before the heads as well
        elif columns is None:
            columns, width = header_columns(path, values, src, tgt), len(row)
            if columns is None:
                remedy = (
                    "add --tsv N to translate column N and keep the others, or "
                    if delimiter == "\t"
                    else ""
                )
                raise DataError(
                    f"{path}: the columns have no languages as heads; {remedy}write {src} and "
                    f"{tgt} as their heads"
                )
        elif len(row) != width:
            raise DataError(
                f"{path}: line {line} has {counted(len(row), 'column')} instead of {width}; "
                "correct it"
            )
        elif not values[columns[1]].strip():
            text = values[columns[0]].replace("\n", " ")
        for column, (raw, end) in enumerate(row):
            if columns is None or column != columns[1] or not text.strip():
                pieces.append(raw)
            elif not by_rules:
                pieces += document.field(text, lambda cell: re.sub(r"[\t\n\r]", " ", cell))
            elif document.markup or row[columns[0]][0].startswith('"'):
                pieces += ['"', *document.field(text, lambda cell: cell.replace('"', '""')), '"']
            else:
                pieces += document.field(text, lambda cell: _quoted_if_needed(cell, delimiter))
            pieces.append(end)
            line += raw.count("\n") + end.count("\n")
    return pieces


def _rows(text: str, delimiter: str, by_rules: bool) -> Iterator[list[tuple[str, str]]]:
    """Yields rows of cells as they are written, each with the delimiter or line end after it."""
    if by_rules:
        cells = re.compile(
            rf'( *"(?:[^"]|"")*"[^{delimiter}\r\n]*|[^{delimiter}\r\n]*)({delimiter}|\r?\n|\r|\Z)'
        )
    else:
        cells = re.compile(r"([^\t\n]*?)(\t|\r?\n|\Z)")
    row: list[tuple[str, str]] = []
    for cell_match in cells.finditer(text):
        raw, end = cell_match.groups()
        if row or raw or end:
            row.append((raw, end))
        if row and end != delimiter:
            yield row
            row = []


def _quoted_if_needed(cell: str, delimiter: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"' if re.search(rf'["\r\n{delimiter}]', cell) else cell


def _unquoted(raw: str) -> str:
    raw = raw.lstrip(" ")  # as for training
    if raw[:1] != '"':
        return raw
    inside, _, tail = raw[1:].rpartition('"')
    return inside.replace('""', '"') + tail


def _json_lines(document: Document) -> Pieces:
    """Translates each object that lacks the target language's text, into its place or the last."""
    src, tgt = document.langs
    pieces: Pieces = []
    record = f'a JSON object with a text, {{"{src}": "..."}}'
    has_texts = False
    for number, line in enumerate(document.text.split("\n"), 1):
        pieces.append("\n" * (number > 1))
        if not line.strip():
            pieces.append(line)
            continue
        text_and_span = _json_field(line, src, tgt, f"{document.path}: line {number}")
        if text_and_span is None:
            document.leave("line", f"left unchanged, not {record}", number)
            pieces.append(line)
            continue
        has_texts = True
        text, (start, stop) = text_and_span
        if line[start:stop].strip(' \t"') not in ("", "null"):  # it has a translation
            pieces.append(line)
            continue
        if SURROGATE.search(text):
            raise DataError(f"{document.path}: line {number} contains a lone surrogate; correct it")
        name = f", {json.dumps(tgt)}: " if start == stop else ""
        pieces += [f'{line[:start]}{name}"', *document.field(text, _in_json), f'"{line[stop:]}']
    if document.left and not has_texts:
        [[first, *_]] = document.left.values()
        raise DataError(f"{document.path}: line {first} is not {record}; correct it")
    return pieces


def _json_field(
    line: str, src_lang: str, tgt_lang: str, where: str
) -> tuple[str, tuple[int, int]] | None:
    """Returns the text of one language in a JSON object, and where in the line that of the other is
    or belongs.

    Returns None if a line does not have the first. Raises DataError if it is not JSON.
    """
    # Numbers are not read, because Python has not all of them.
    decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)

    def members(start: int) -> dict[str, tuple[Any, int, int]]:
        """Returns the values of an object that begins here, and where they are; of equal names the
        last counts.
        """
        values_by_name, end = {}, start + 1
        while line[start := _after_blanks(line, end)] != "}":
            name, end = decoder.raw_decode(line, start)
            start = _after_blanks(line, end)
            value, end = decoder.raw_decode(line, start)
            values_by_name[name] = value, start, end
        return values_by_name

    try:
        record = decoder.decode(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where} is not JSON; correct it") from None
    if not isinstance(record, dict):
        return None
    try:
        fields = members(line.index("{"))
        if "translation" in fields:
            fields = members(fields["translation"][1])
        text, start, _ = fields[src_lang]
    except (ValueError, RecursionError, KeyError, IndexError):
        return None
    last = max(end for _, _, end in fields.values())
    return (text, fields.get(tgt_lang, (None, last, last))[1:]) if line[start] == '"' else None


def _after_blanks(line: str, start: int) -> int:
    """Returns where the next name or value of an object begins, or the object ends."""
    while line[start] in " \t\n\r,:":
        start += 1
    return start


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _memory(document: Document) -> Pieces:
    """Returns the units that have the source language as a new memory of both languages, with the
    translations that are there.
    """
    from aiayn import __version__

    src, tgt = document.langs
    pieces: Pieces = [
        f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header creationtool="aiayn" '
        f'creationtoolversion="{__version__}" segtype="sentence" o-tmf="aiayn" adminlang="en" '
        f'srclang={quoteattr(src)} datatype="plaintext"/>\n<body>\n'
    ]
    has_units = False
    for unit in read_memory(document.path, io.BytesIO(document.content), document.langs):
        text = unit.texts.get(src)
        if not text or unit.flaw:
            document.leave("unit", f"left out, without exactly one text in {src}", unit.line)
            continue
        has_units = True
        name = f" tuid={quoteattr(unit.name)}" if unit.name else ""
        pieces += [
            f"<tu{name}><tuv xml:lang={quoteattr(src)}><seg>{_in_xml(text)}</seg></tuv>",
            f"<tuv xml:lang={quoteattr(tgt)}><seg>",
            *([_in_xml(unit.texts[tgt])] if unit.texts.get(tgt) else document.field(text, _in_xml)),
            "</seg></tuv></tu>\n",
        ]
    if not has_units:
        raise DataError(
            f"{document.path}: no unit has exactly one text in {src}; check the file and its "
            "languages"
        )
    return [*pieces, "</body></tmx>\n"]


def _in_xml(text: str) -> str:
    """Returns text escaped, and without the characters that XML cannot hold."""
    return escape(NOT_XML.sub("", text))


READERS: dict[str, Read] = {
    **dict.fromkeys(("html", "htm", "xhtml"), _html),
    **dict.fromkeys(("md", "markdown"), _markdown_pieces),
    **dict.fromkeys(("po", "pot"), _catalogue),
    **dict.fromkeys(("xlf", "xliff"), _xliff),
    **dict.fromkeys(("srt", "vtt"), _subtitles),
    "txt": _plain,
    "csv": _table_pieces,
    "tsv": _table_pieces,
    "jsonl": _json_lines,
    "tmx": _memory,
}
# A field is one sentence. In all other documents, those of other packages among them, paragraphs
# are cut into sentences, and but for plain text tags and placeholders are kept in any case.
FIELDS = (_table_pieces, _json_lines, _memory)
DECLARING = (_html, _xliff, _catalogue)  # these say in which encoding they are
