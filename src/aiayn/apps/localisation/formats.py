"""Placeholders of messages, which programs replace or read. A message's flag names their grammar,
as in gettext.

A message without a flag may be one of Sphinx, whose roles and literals stay as they are.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from aiayn.apps.documents.markup import Pieces, Reader, Token, read_parts
from aiayn.data.placeholders import SCHEME

SIZE = "(?:hh?|ll?|[LqjzZt]|I64|I32|I|wf?[0-9]{1,3})?"
NUMBERED = re.compile(r"%\d{1,4}\$")
# What `Format.pieces` writes before an argument that has no number, and the argument's beginning
PLACE = re.compile("\2(\\d+)\2(%?)")
NUMBER = r"(?:(?P<number>\d{1,4})\$)?"


def _printf(argument: str, flags: str, size: str, conversions: str) -> str:
    width = r"(?:\*(?:\d{1,4}\$)?|\d{1,4})?"
    return rf"%{argument}[{flags}]{{0,9}}{width}(?:\.{width})?{size}(?:{conversions})"


# `<PRIu64>` stands for letters that the compiler puts in, `%m` for the text of an error.
C = _printf(NUMBER, "-+ #0'I", SIZE, r"[diouxXeEfFgGaAcsCSpnbB@]|<[A-Za-z]\w{0,30}>")
JAVA, AGAIN = (
    _printf(argument, "-+ #0,(<", "", "[tT][A-Za-z]|[bBhHsScCdoxXeEfgGaA]")
    for argument in (NUMBER, "(?=[-+ #0,(]{0,9}<)")
)
JAVA = f"(?P<name>%n)|(?P<again>{AGAIN})|{JAVA}"  # `%<tm` takes what the one before it takes
PYTHON = _printf(r"(?P<name>\([^()\n]{1,100}\))?", "-+ #0", "[hlL]?", "[diouxXeEfFgGcrsa]")
RUBY = r"(?P<name>%\{\w{1,60}\}|%<\w{1,60}>[-+ #0]{0,5}[\d.]{0,9}[A-Za-z])|" + _printf(
    NUMBER, "-+ #0", "", "[diouxXeEfgGaAcsp]"
)
LUA = _printf("", "-+ #0", "", "[acdeEfgGiopqsuxX]")
PHP = rf"%{NUMBER}(?:[-+ 0]|'.){{0,9}}\d{{0,4}}(?:\.\d{{1,4}})?[bcdeEfFgGhHosuxX]"
GO = r"(?P<name>%[-+# 0]{0,5}\[\d{1,4}\][\d.]{0,9}[A-Za-z])|" + _printf(
    "", "-+# 0", "", "[vTtbcdoOqxXUeEfFgGspw]"
)
PASCAL = r"(?P<name>%\d{1,4}:-?[\d.]{0,9}(?i:[duefgnmpsx]))|" + _printf(
    "", "-", "", "(?i:[duefgnmpsx])"
)
# Of gcc's messages: `%qE` is in quotation marks, `%<` and `%>` are such marks.
GCC = rf"(?P<name>%[m<>'R])|%{NUMBER}[q+#-]{{0,3}}(?:\.(?:\*|\d{{1,4}}))?(?:ll?|[jtwz])?[A-Za-z]"
GFC = rf"(?P<name>%[C<>'])|%{NUMBER}(?:q?[A-Za-z]|l[diu])"  # of gcc for Fortran
JAVASCRIPT = _printf(NUMBER, "-+ #0'I", "", "[bcdeEfFgGijosuxX]")
BRACES = (
    r"\{(?P<name>[^{}\s:!,]{1,100})?(?:,[ \t]{0,9}-?\d{1,4})?"
    r"(?:[!:](?:[^{}\n]|\{[^{}\n]{0,60}\}){0,100})?\}"
)
# Of Java, including quoted braces: `'{0}'` is text, not an argument.
NUMBER_IN_BRACES = (
    r"(?P<name>\{\s*\d{1,4}\s*(?:,(?!\s*(?:choice|plural|select))[^{}\n]{0,200})?\}"
    r"|'[^'{}\n]{0,200}[{}][^'\n]{0,200}(?:'|\Z))"
)
# Of reStructuredText: what stays with its words, and what is around words.
LITERAL = (
    r"(?<!\w)``(?=[^\s`])[^\n]{0,200}?(?<=\S)``(?![\w`])"
    r"|(?<![\w:`])(?::[A-Za-z][\w.+:-]{0,50}:)?`[^`\n]{1,300}`_{0,2}(?!\w)"
    r"|(?<![\w|])\|[^\s|](?:[^|\n]{0,60}[^\s|])?\|_{0,2}(?![\w|])"
    r"|\[(?:\d{1,4}|[#*A-Za-z][\w.-]{0,60}|[#*])\]_(?!\w)"
    r"|(?<![\w.-])[^\W_](?:[\w.-]{0,60}[^\W_])?_{1,2}(?!\w)"
)
AROUND = (
    r"(?<![\w:`])(?:(?::[A-Za-z][\w.+:-]{0,50}:)?`)(?P<title>[^`<>\s](?:[^`<>\n]{0,200}[^`<>\s])?)"
    r"\s*<[^`<>\n]{1,300}>`_{0,2}(?!\w)"
    r"|(?<![\w*])(?P<stars>\*\*?)(?P<strong>[^\s*](?:[^*\n]{0,300}[^\s*])?)(?P=stars)(?![\w*])"
)
# The blank between words and their target, which goes with the end of the words.
UNSPACED_TARGET = re.compile(r"(?<=[^\s`<>])(?=<[^`<>\n]{1,300}>`)")
# Never text, in no message: line ends, tabs and keys after them (`Ctrl+H`), addresses, and the
# mark of the letter that opens a menu (`&File`, `E&xit`, `_Open`).
KEY = (
    r"\S{0,20}\+\S{1,20}|(?:Ctrl|Control|Alt|Shift|Cmd|Meta|Super|Win)-\S{1,20}|<\w{1,20}>\S{1,20}|\S"
    r"|F\d\d?|Del(?:ete)?|Ins(?:ert)?|Esc|Enter|Return|Space|Tab|Backspace|Home|End|Pg(?:Up|Dn)"
    r"|(?:Page ?)?(?:Up|Down)|Left|Right"
)
MNEMONIC = r"(?<![\w&])[&_](?=[^\W_])(?!\w{1,30};)|(?<=[A-Za-z])&(?=[a-z])(?!\w{1,30};)"
OF_ALL = (
    rf"(?P<blank>\t(?:{KEY})\s*\Z|[\t\n\r\v\f]+)"
    rf"|{SCHEME}[^\s<>\"'«»“”„]*[^\s<>\"'«»“”„.,;:!?)\]}}]"
)


@dataclass(frozen=True)
class Format:
    """How the messages of one flag write what is replaced, their arguments."""

    argument: str  # a pattern
    doubled: str = ""  # characters that text has twice
    is_ordered: bool = True  # whether arguments without a name are told apart by their order
    is_numbered: bool = False  # whether `%2$s` is the second argument

    @cached_property
    def _argument_pattern(self) -> re.Pattern[str]:
        doubled = f"(?P<doubled>(?P<once>[{self.doubled}])(?P=once))|" if self.doubled else ""
        # What begins as an argument does but is none that is known, such as `%!`, stays in order.
        unknown = {
            "{}": r"|(?P<unknown>\{[^{}\n]{0,100}\}|[{}]\S{0,60})",
            "%": r"|(?P<unknown>%[^\s%]{0,2})",
            "~": r"|(?P<unknown>~[^\s~]?)",
        }
        return re.compile(doubled + self.argument + unknown.get(self.doubled, ""))

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        return re.compile(f"{OF_ALL}|{self._argument_pattern.pattern}|(?P<mnemonic>{MNEMONIC})")

    def pieces(self, message: str) -> Pieces:
        """Returns parts to translate, and what is between them.

        Arguments that are told apart by their order alone get numbers, which `settled` reads.
        """
        marks = Counter(mark.lastgroup for mark in self._marks.finditer(message))
        tokens: list[Token] = []
        for token_type, name, raw in Reader(message, self._marks).tokens:
            if token_type == "text":
                tokens += self._text_tokens(raw, has_mnemonic=marks["mnemonic"] == 1)
            else:
                tokens.append((token_type, name, raw))
        numbers = count(1)
        tokens = [
            (token_type, name, raw if token_type == "text" else self._numbered(raw, numbers))
            for token_type, name, raw in tokens
        ]
        return read_parts(tokens, self._read, self._escape)

    def outside(self, message: str) -> str:
        """Returns what a message has besides its arguments."""
        return self._argument_pattern.sub("", message)

    def settled(self, translation: str, message: str) -> str | None:
        """Returns a translation as its program needs it, or None if its arguments are not those of
        its message, or are in another order and cannot have numbers.
        """
        order = [int(number) for number, _ in PLACE.findall(translation)]
        is_moved = order != sorted(order)
        if is_moved and not self._is_numberable(message):
            return None
        translation = PLACE.sub(r"%\1$" if is_moved else r"\2", translation)
        if Counter(self._arguments_of(translation)) != Counter(self._arguments_of(message)):
            return None
        return UNSPACED_TARGET.sub(" ", translation) if self is UNFLAGGED else translation

    def _text_tokens(self, text: str, has_mnemonic: bool) -> Iterator[Token]:
        """Cuts text without tags at its arguments, keys, addresses and line ends."""
        done = 0
        for mark in self._marks.finditer(text):
            group = mark.lastgroup
            if group == "doubled" or (group == "mnemonic" and not has_mnemonic):
                continue
            yield "text", "", text[done : mark.start()]
            done = mark.end()
            if group in ("title", "strong"):
                start, end = mark.span(group)
                yield "open", "role", text[mark.start() : start]
                yield "text", "", text[start:end]
                yield "close", "role", text[end:done]
            elif group == "blank":
                yield "other", "", mark[0]
            elif group == "mnemonic":
                yield "open", group, mark[0]
            else:
                yield "kept", mark[0], mark[0]
        yield "text", "", text[done:]

    def _arguments_of(self, text: str) -> list[tuple[int, str]]:
        """Returns the arguments of a text, each with its number or, where order is free, with 0."""
        arguments: list[tuple[int, str]] = []
        numbers = count(1)
        latest = None  # which `%<s` takes again
        for mark in self._argument_pattern.finditer(text):
            groups = mark.groupdict()
            words = groups.get("title") or groups.get("strong")
            if groups.get("again"):
                arguments.append((0, f"{latest} {mark[0]}"))
            elif number := groups.get("number"):
                latest = int(number), NUMBERED.sub("%", mark[0])
                arguments.append(latest)
            elif self.is_ordered and not groups.get("name") and not groups.get("doubled"):
                latest = next(numbers), mark[0]
                arguments.append(latest)
            elif words:
                arguments.append((0, "".join(mark[0].replace(words, "", 1).split())))
            elif not groups.get("doubled"):
                arguments.append((0, mark[0]))
        return arguments

    def _is_numberable(self, message: str) -> bool:
        """Returns whether a translation may need numbers that its message does without."""
        arguments = [key for number, key in self._arguments_of(message) if number]
        marks = self._argument_pattern.finditer(message)
        is_plain = not any("*" in key for key in arguments) and not any(
            mark.lastgroup in ("unknown", "again") for mark in marks
        )
        return self.is_numbered and is_plain and len(arguments) > 1 and not NUMBERED.search(message)

    def _numbered(self, raw: str, numbers: Iterator[int]) -> str:
        def with_number(mark: re.Match[str]) -> str:
            groups = mark.groupdict()
            is_counted = self.is_ordered and not any(
                map(groups.get, ("name", "number", "again", "doubled"))
            )
            return f"\2{next(numbers)}\2{mark[0]}" if is_counted else mark[0]

        return self._argument_pattern.sub(with_number, raw)

    def _read(self, raw: str) -> str:
        return re.sub(rf"([{self.doubled}])\1", r"\1", raw) if self.doubled else raw

    def _escape(self, text: str) -> str:
        return re.sub(f"[{self.doubled}]", r"\g<0>\g<0>", text) if self.doubled else text


PRINTF = Format(f"(?P<name>%m)|{C}", "%", is_numbered=True)
UNFLAGGED = Format(f"{AROUND}|{LITERAL}", is_ordered=False)
MESSAGE_FORMAT = Format(NUMBER_IN_BRACES, "'", is_ordered=False)
JAVA_PRINTF = Format(JAVA, "%", is_numbered=True)
FORMATS = {
    **dict.fromkeys(("c", "objc", "awk", "perl", "tcl"), PRINTF),
    "javascript": Format(JAVASCRIPT, "%", is_numbered=True),
    **dict.fromkeys(("elisp", "librep", "d", "modula2", "ocaml", "sh-printf"), PRINTF),
    "lua": Format(LUA, "%"),
    "php": Format(PHP, "%", is_numbered=True),
    "go": Format(GO, "%"),
    "object-pascal": Format(PASCAL, "%"),
    "gcc-internal": Format(GCC, "%", is_numbered=True),
    "gfc-internal": Format(GFC, "%", is_numbered=True),
    "python": Format(PYTHON, "%"),
    "ruby": Format(RUBY, "%", is_numbered=True),
    **dict.fromkeys(("python-brace", "csharp", "rust", "c++"), Format(BRACES, "{}")),
    "perl-brace": Format(r"\{[A-Za-z_]\w{0,60}\}", is_ordered=False),
    "java": MESSAGE_FORMAT,
    "java-printf": JAVA_PRINTF,
    "smalltalk": Format(r"%\d{1,2}%", is_ordered=False),
    **dict.fromkeys(
        ("qt", "qt-plural", "kde", "kde-kuit", "ycp"), Format(r"%(?:L?\d\d?|n)", is_ordered=False)
    ),
    "boost": Format(rf"(?P<name>%\d{{1,2}}%|%\|[^|\n]{{1,60}}\|)|{C}", "%", is_numbered=True),
    "sh": Format(r"\$(?:\w{1,60}|\{\w{1,60}\})", is_ordered=False),
    **dict.fromkeys(("lisp", "scheme"), Format(r"~(?:[-+\d,@:]|'.){0,9}[^\s\d~]", "~")),
}


def format_of(flags: Collection[str], message: str) -> Format:
    """Returns how a message with these flags, such as c-format, is written."""
    names = [name for name in FORMATS if f"{name}-format" in flags]
    message_format = FORMATS[names[0]] if names else UNFLAGGED
    # Java has two formats of this name; programs choose one by the function that they call.
    is_printf = message_format is MESSAGE_FORMAT and not re.search(r"\{\s*\d", message)
    return JAVA_PRINTF if is_printf else message_format
