"""Texts of several sentences, which the model translates one by one: it was trained on single sentences.

Text that is aligned line by line (training text, test sets) is never split.
"""

import re
from itertools import pairwise

from aiayn.errors import ConfigError

BLANK = re.compile(r"[^\S\n]")
INITIAL = re.compile(r"[^\w]*\w\.\s*")


def split_paragraph(text: str, language: str) -> list[str]:
    """Cuts a text into blank, sentence, blank, ..., sentence, blank, which together are the text.

    Sentences end by the rules of their language (a code such as en or pt-BR) and at line ends; blanks may be empty.
    Raises ConfigError if the library that knows the rules is not installed.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'aiayn[text]'") from error
    code = re.split("[-_]", language.lower())[0]
    cuts = [0]
    # The rules are applied line by line, because they take some line ends for parts of sentences.
    for line in re.finditer("[^\n]+", text):
        try:
            parts = segment(code, BLANK.sub(" ", line[0]))  # other blanks make the library panic
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # such a panic, for it is written in Rust: the line stays whole
            parts = []
        stop = line.start()
        for part in parts:
            stop += len(part)
            if not INITIAL.fullmatch(text, cuts[-1], stop):  # as the French M. (Monsieur)
                cuts.append(stop)
        cuts.append(line.end())
    pieces = [""]
    for start, stop in pairwise([*cuts, len(text)]):
        part = text[start:stop]
        if sentence := part.strip():
            pieces[-1] += part[: part.index(sentence)]
            pieces += [sentence, part[part.index(sentence) + len(sentence) :]]
        else:
            pieces[-1] += part
    return pieces
