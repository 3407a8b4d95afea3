"""Translatable documents: finds the text to translate, and keeps the rest of a file byte for byte.

A document is read into parts to translate and text between them. Libraries that read and write one
of these formats write the whole file anew, in their own order of attributes, quotation marks and
blanks; so only the places of texts are read here, and the translations are put there.
"""

import html
import io
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from aiayn.apps.documents.markup import (
    MESSAGE,
    Checked,
    Edit,
    Part,
    Pieces,
    Reader,
    escaped_html,
    html_text,
    parse_markup,
    parts_of,
    read_parts,
)
from aiayn.apps.documents.tables import json_lines_pieces, table_pieces
from aiayn.apps.encodings import decode_document
from aiayn.apps.localisation.catalogue import Message, quoted, read_messages
from aiayn.apps.localisation.exchange import read_memory, read_xliff
from aiayn.apps.localisation.formats import Format, format_of
from aiayn.data.cleaning import composed
from aiayn.data.languages import best_match
from aiayn.data.placeholders import CJK, has_letters
from aiayn.data.text_files import suffix
from aiayn.doors import load_from
from aiayn.errors import DataError, counted

# A subtitle begins with a line of times. The line before it is its number, in WebVTT its name.
# Blank lines may be doubled.
ARROW = "(?:-{1,2}|[\u2013\u2014])>|\u2192"  # `-->`, and what editors and people make of it
TIME = r"[ \t]*\d+:\d+:\d+(?:[.,:]\d+)?[ \t]*"
TIMES = (
    rf"(?:[ \t]*-?\d+[ \t]*:[\d:., \t]*-->[ \t]*-?\d+[ \t]*:.*|{TIME}(?:{ARROW}){TIME}\r?)(?:\n|\Z)"
)
SUBTITLE = rf"(?:^[ \t]*\d+[ \t]*\r?\n(?:[ \t]*\r?\n)*+)?^{TIMES}"
AFTER_BLANK_LINE = r"(?:(?<=\n\n)|(?<=\n\r\n))"
VTT_NAME = rf"{AFTER_BLANK_LINE}[^\n]+\n(?={TIMES})"
COMMENT = r"(?:NOTE\b|(?:STYLE|REGION)[ \t]*\r?$)"
VTT_COMMENT = rf"{AFTER_BLANK_LINE}{COMMENT}.*(?:\n(?!\r?\n).+)*+"
SRT = re.compile(f"({SUBTITLE})", re.MULTILINE)
VTT = re.compile(f"({VTT_COMMENT}|(?:{VTT_NAME})?{SUBTITLE})", re.MULTILINE)
SSA_BREAK = r"\N"  # a line break in SubStation Alpha, and in subtitles made from it
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
# Somebody else begins to speak: `- Here.`, `>> Here.`, `ANNA: Here.`
SPEAKER = re.compile(r"[-\u2013\u2014](?!\d)|>>|[^\W\d_a-z](?:[^\W_a-z]|[ .'-]){1,30}:\s")
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
    reader: "DocumentReader"
    markup: bool  # whether tags and placeholders are kept
    is_fuzzy: bool = True  # whether translations of messages are marked so
    attributes: bool = False  # whether `alt` and `title` of HTML are translated
    line_end: str = "\n"  # of the file, where `text` has a line feed
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

    def field(self, text: str, write: Edit) -> Pieces:
        """Returns the pieces of a field that holds text; `write` escapes what is written into
        one.
        """
        return [Checked(parse_markup(text, self.markup), write)]

    @property
    def is_prose(self) -> bool:
        return self.reader.is_prose

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
            return text.replace("\n", self.line_end).encode(
                self.encoding, "xmlcharrefreplace" if self.reader.has_entities else "strict"
            )
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise DataError(
                f"{self.path}: the translation contains {character!r}, which the file's encoding "
                f"{self.encoding} lacks; convert the file to UTF-8, and change the encoding that "
                "it declares"
            ) from None


@dataclass(frozen=True)
class DocumentReader:
    """How documents of one format are read."""

    read: Callable[[Document], Pieces]
    is_prose: bool = True  # whether paragraphs are cut into sentences; else a field is one sentence
    keeps_tags: bool = True  # whether tags and placeholders are kept, even if nobody asks for it
    declares_encoding: bool = False  # whether a document says in which encoding it is
    has_entities: bool = False  # whether it can hold characters that its encoding lacks
    ends_at_returns: bool = False  # whether carriage returns alone, as of old Macs, end lines
    is_decoded: bool = True  # else `read` reads the bytes


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
    reader = READERS.get(ending) or DocumentReader(load_from("aiayn.documents", ending))
    text, encoding = "", "utf-8"
    if reader.is_decoded:
        text, encoding = decode_document(path, content, reader.declares_encoding)
    line_end = "\n"
    if reader.ends_at_returns and "\r" in text and "\n" not in text:
        text, line_end = text.replace("\r", "\n"), "\r"
    document = Document(
        path,
        text.removeprefix("\ufeff"),
        langs,
        content,
        encoding,
        reader,
        markup or reader.keeps_tags,
        fuzzy,
        attributes,
        line_end,
    )
    document.pieces.extend(("\ufeff" * text.startswith("\ufeff"), *reader.read(document)))
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
        if unit.translation and unit.is_partial and not unit.is_kept:
            document.leave("unit", "kept, already translated in part", unit.line)
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
        for words in re.split(r"(\r?\n(?:[ \t]*\r?\n)*+|(?<!:)\\N)", shown):
            if words == SSA_BREAK or not words.strip():
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
            f"{document.path}: {lines} not translated (no timing above): {first:.60}"
        )
    return [*chain.from_iterable(_subtitle_pieces(text, is_vtt) for text in texts), kept]


def _goes_on(text: list[SubtitleLine], line: SubtitleLine) -> bool:
    """Returns whether a text goes on in this line of the same or the next subtitle."""
    end, start = (STYLE.sub("", words).strip() for words in (text[-1].words, line.words))
    if SPEAKER.match(start) or line.words.lstrip().startswith(("<v ", "<v.")):
        return False
    if line.lead in ("\n", "\r\n", SSA_BREAK):
        return True
    is_open = end[-1:] in tuple(",;\u060c\u3001\uff0c") or (
        end[-1:].isalnum() and start[:1].islower()
    )
    return is_open and sum(len(part.words) for part in [*text, line]) <= MAX_JOINED


def _subtitle_pieces(text: list[SubtitleLine], is_vtt: bool) -> Pieces:
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
    # An accent of its own takes no place on the screen.
    lengths = [len(composed(line)) for line in lines]

    def divide(translation: str) -> str:
        translation = translation.replace("-->", "--&gt;") if is_vtt else translation
        return in_lines(translation, lengths, [line.lead for line in others])

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
    length_left = sum(lengths) + len(lengths)
    for length, end in zip(lengths, ["", *ends], strict=True):
        share = (length + 1) / length_left
        length_left -= length + 1
        line, wanted = "".join(words[start : start + 1]), (left + 1) * share - 1
        stop = start + 1
        while stop < len(words):
            more = "".join(words[stop : stop + 2])
            if len(line) + len(more) / 2 > wanted:
                break
            line += more
            stop += 2
        divided += end + line if line or re.search(ARROW, end) else ""
        left -= len(line) + len("".join(words[stop : stop + 1]))
        start = stop + 1
    return divided


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


_HTML = DocumentReader(_html, declares_encoding=True, has_entities=True)
_XLIFF = DocumentReader(_xliff, declares_encoding=True, has_entities=True)
_TABLE = DocumentReader(table_pieces, is_prose=False, keeps_tags=False)
READERS = {
    **dict.fromkeys(("html", "htm", "xhtml"), _HTML),
    **dict.fromkeys(("md", "markdown"), DocumentReader(_markdown_pieces)),
    **dict.fromkeys(("po", "pot"), DocumentReader(_catalogue, declares_encoding=True)),
    **dict.fromkeys(("xlf", "xliff"), _XLIFF),
    **dict.fromkeys(("srt", "vtt"), DocumentReader(_subtitles, ends_at_returns=True)),
    "txt": DocumentReader(_plain, keeps_tags=False),
    **dict.fromkeys(("csv", "tsv"), _TABLE),
    "jsonl": DocumentReader(json_lines_pieces, is_prose=False, keeps_tags=False),
    # A memory is written anew; its parser knows the encodings of XML.
    "tmx": DocumentReader(_memory, is_prose=False, keeps_tags=False, is_decoded=False),
}
