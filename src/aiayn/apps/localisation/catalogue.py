"""Catalogues of messages (gettext's PO): comments, `msgid` and `msgstr` with text in quotation
marks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aiayn.errors import DataError

LINE = re.compile(
    r"\A[ \t]*(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*)?"
    r"(\"(?:[^\"\\]|\\.)*\")[ \t\r]*$"
)
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
MOST_FORMS = 20  # keywords of a message; no language has more than six plural forms
CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class Message:
    """A message: texts by keyword (`msgid`, `msgstr[0]`), and where the text of each is, quotation
    marks included.
    """

    line: int  # that its first keyword is in
    start: int = 0  # of its line of flags, or of that keyword's
    flags: set[str] = field(default_factory=set)  # such as fuzzy and c-format
    texts: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)  # of which the texts are made

    @property
    def is_fuzzy(self) -> bool:
        return "fuzzy" in self.flags

    @property
    def end(self) -> int:
        return max(end for _, end in self.spans.values())

    @property
    def targets(self) -> dict[str, str]:
        """Returns the translations by keyword: one, or one for each plural form."""
        return {name: text for name, text in self.texts.items() if name.startswith("msgstr")}

    @property
    def language(self) -> str:
        """Returns the language that a header names; empty without one."""
        language_header = re.search(
            r"^Language:[ \t]*([^\s;]+)", self.texts.get("msgstr", ""), re.MULTILINE
        )
        return language_header[1] if language_header else ""

    def source(self, target: str) -> str:
        """Returns the text that a translation is of: `msgstr[0]` of the singular, unless it is the
        only form.
        """
        is_plural = "msgid_plural" in self.texts and (
            target != "msgstr[0]" or len(self.targets) == 1
        )
        return self.texts["msgid_plural" if is_plural else "msgid"]


def read_messages(text: str, path: Path) -> Iterator[Message]:
    """Yields the messages of a catalogue, the header (whose `msgid` is empty) among them, without
    obsolete ones.

    Raises DataError with the line if it is no catalogue.
    """
    message, keyword, start = Message(0), "", 0
    flags: set[str] = set()  # of the message that comes
    flags_start = None
    for line_number, line in enumerate(text.split("\n"), 1):
        line_match = LINE.match(line)
        name = line_match[1] if line_match else None
        is_complete = "msgstr" in message.lines or "msgstr[0]" in message.lines
        if is_complete and (name in ("msgctxt", "msgid") or line.lstrip().startswith("#")):
            yield _whole(message, path)
            message = Message(0)
        if line_match and (name or keyword):
            if name in message.lines or (
                name and name != "msgctxt" and name != "msgid" and not message.lines
            ):
                raise DataError(f"{path}: line {line_number}: unexpected {name}; correct it")
            keyword, begin = name or keyword, start + line_match.start(2)
            if not message.lines:
                message = Message(line_number, start if flags_start is None else flags_start, flags)
                flags, flags_start = set(), None
            if len(message.lines) > MOST_FORMS:
                raise DataError(
                    f"{path}: line {line_number}: a message has more than {MOST_FORMS} forms; "
                    "correct it"
                )
            message.lines.setdefault(keyword, []).append(unquoted(line_match[2]))
            message.spans[keyword] = (
                message.spans.get(keyword, (begin, 0))[0],
                start + line_match.end(2),
            )
        elif not line.strip() or line.lstrip().startswith("#"):
            comment = line.strip()
            if comment.startswith("#,"):
                flags_start = start if flags_start is None else flags_start
                flags |= {flag.strip() for flag in comment[2:].split(",")}
            elif comment.startswith("#~"):  # an obsolete message takes its flags with it
                flags, flags_start = set(), None
            keyword = ""
        else:
            raise DataError(
                f"{path}: line {line_number} is not valid in a PO catalogue; correct it"
            )
        start += len(line) + 1
    if message.lines:
        yield _whole(message, path)


def _whole(message: Message, path: Path) -> Message:
    message.texts = {keyword: "".join(lines) for keyword, lines in message.lines.items()}
    if "msgid" not in message.texts or not message.targets:
        raise DataError(
            f"{path}: line {message.line}: a message needs msgid and msgstr; correct it"
        )
    return message


def unquoted(quoted: str) -> str:
    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code[0] in "01234567" else CHARACTERS.get(code, code)

    return ESCAPE.sub(character, quoted[1:-1])


def quoted(text: str) -> str:
    """Returns text as it stands between the quotation marks of a catalogue."""
    for name, character in {"\\": "\\", '"': '"', **CHARACTERS}.items():
        text = text.replace(character, f"\\{name}")
    return text
