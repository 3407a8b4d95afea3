"""Texts of several sentences, which the model translates one by one: it was trained on single sentences.

Text that is aligned line by line (training text, test sets) is never split.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aiayn.errors import ConfigError

LINE_END = re.compile("(\n)")
BLANK = re.compile(r"[^\S\n]")
INITIAL = re.compile(r"[^\w]*\w\.\s*")


@dataclass(frozen=True)
class Paragraph:
    """Sentences and the white space around them: `blanks` has one more entry, and some entries may be empty."""

    sentences: list[str]
    blanks: list[str]

    def join(self, translations: list[str]) -> str:
        """Returns translations with the white space that the sentences had; `join(sentences)` is the text.

        Nothing is put between sentences that had nothing between them.
        """
        pairs = zip(self.blanks, translations, strict=False)
        assert len(translations) == len(self.sentences)
        return "".join(part for pair in pairs for part in pair) + self.blanks[-1]


def split_paragraph(text: str, language: str) -> Paragraph:
    """Cuts a text into sentences by the rules of its language (a code such as en or pt-BR), and at line ends.

    Raises ConfigError if the library that knows the rules is not installed.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'aiayn[text]'") from error
    code = re.split("[-_]", language.lower())[0]
    sentences, blanks, rest = [], [], ""
    # The rules are applied line by line, because they take some line ends for parts of sentences.
    for number, line in enumerate(LINE_END.split(text)):
        for part in _sentences(segment, code, line) if number % 2 == 0 and line else [line]:
            stripped = part.strip()
            if not stripped:
                rest += part
                continue
            start = part.index(stripped)
            sentences.append(stripped)
            blanks.append(rest + part[:start])
            rest = part[start + len(stripped) :]
    return Paragraph(sentences, [*blanks, rest])


def _sentences(segment: Callable[[str, str], list[str]], code: str, line: str) -> Iterator[str]:
    """Yields the sentences of a line, with the white space around them; together they are the line.

    What the rules cut after an initial, such as the French M. (Monsieur), stays whole, and so does a line that the
    library cannot read: it is written in Rust, whose panics are no `Exception`s.
    """
    try:
        # Some blanks make the library panic.
        lengths = [len(part) for part in segment(code, BLANK.sub(" ", line))]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        lengths = []
    start = stop = 0
    for length in lengths:
        stop += length
        if not INITIAL.fullmatch(line, start, stop):
            yield line[start:stop]
            start = stop
    if start < len(line):
        yield line[start:]
