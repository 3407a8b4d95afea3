"""Decides which pairs are usable and in what form: Unicode form, blanks, rules, and counts of what
they drop.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from aiayn.config.data import DataOptions
from aiayn.data.languages import wrong_languages
from aiayn.data.placeholders import placeholders
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.text_files import MAX_LINE_BYTES
from aiayn.errors import DataError

# One table for the text of training and of translation. A line is blank if nothing is left of it.
BLANKS = "\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800\u3164"  # become a space
# Zero-width characters and soft hyphens go; U+200C and U+200D stay, they shape words of Persian and
# Indian languages.
INVISIBLE = "\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
# Line ends of other systems and of Unicode. Inside a line they become spaces; CR LF counts as one.
SEPARATORS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
REPLACED = ((re.compile(f"\r\n|[{SEPARATORS}{BLANKS}]"), " "), (re.compile(f"[{INVISIBLE}]"), ""))
MANY_MARKS = 1000  # accents of one letter, which no text has
# C0 and C1 control characters, except TAB and the separators above.
CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
# In the linear form of a tree: a symbol that is not a bracket
TREE_TAG = re.compile(r"(?<!\S)[^()\s]\S*")

# Takes source and target; returns something true if the pair is to be dropped.
Rule = Callable[[str, str], Any]


class CleanPair(NamedTuple):
    """Usable text, and where it comes from."""

    raw: RawPair
    src: str
    tgt: str
    is_normalised: bool  # its blanks, line ends, invisible characters or Unicode form were changed


@dataclass
class CleaningReport:
    """Counts of a split's pairs; `read == kept + sum(dropped.values())`."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # reason: pairs
    # reason: places of the first five pairs
    first_dropped: dict[str, list[str]] = field(default_factory=dict)
    normalised: int = 0  # kept pairs that are
    # Training pairs of each name of the option
    corpora: Counter[int] = field(default_factory=Counter)
    read_by_file: Counter[str] = field(default_factory=Counter, compare=False)
    # file: pairs, and the place of the first
    not_utf8: dict[str, tuple[int, str]] = field(default_factory=dict, compare=False)
    # Called with every dropped pair and its reason
    on_drop: Callable[[RawPair, str], None] | None = None

    def drop(self, pair: RawPair, reason: str) -> None:
        self.dropped[reason] += 1
        if reason == "not_utf8":
            pairs, first = self.not_utf8.get(pair.file, (0, pair.place))
            self.not_utf8[pair.file] = pairs + 1, first
        if self.dropped[reason] <= 5:
            self.first_dropped.setdefault(reason, []).append(pair.place)
        if self.on_drop:
            self.on_drop(pair, reason)

    def drop_kept(self, pair: CleanPair, reason: str) -> None:
        """Drops a pair that was usable."""
        self.kept -= 1
        self.normalised -= pair.is_normalised
        self.drop(pair.raw, reason)

    def check_encoding(self, text: RawText, most: float = 0.05) -> None:
        """Raises DataError if more than this share of the pairs of a file is not UTF-8.

        Then the file is in another encoding, and dropping bad lines would lose exactly the
        sentences with accents. A share of all files together would hide a small one.
        """
        for file, (bad, first) in self.not_utf8.items():
            read = self.read_by_file[file]
            if bad >= 20 and bad > most * read:
                raise DataError(
                    f"{text.option}: {bad} of {read} pairs read are not UTF-8 (the first: "
                    f"{first}); convert the file: iconv -f ENCODING -t UTF-8"
                )

    def reasons(self) -> str:
        """Returns why pairs were dropped, how many, and the place of the first: `3 empty (FILE:
        line 7), ...`.
        """
        return ", ".join(
            f"{count:,} {reason} ({self.first_dropped[reason][0]})"
            for reason, count in self.dropped.items()
        )

    def check(self, text: RawText, config: DataOptions) -> None:
        """Raises DataError if no pair is usable, and if over 5 % of a file are not UTF-8."""
        self.check_encoding(text)
        if not self.kept:
            raise DataError(
                f"{text.option}: none of {self.read} pairs is usable: {self.reasons()}; "
                f"correct the text, or raise data.max_length={config.max_length} or "
                f"data.max_length_ratio={config.max_length_ratio:g}"
            )

    def as_dict(self) -> dict:
        report = {
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
            "first_dropped": dict(sorted(self.first_dropped.items())),
            "normalised": self.normalised,
        }
        if len(self.corpora) > 1:
            report["corpora"] = [self.corpora[number] for number in sorted(self.corpora)]
        return report


def composed(text: str) -> str:
    """Returns a text in Unicode's form NFC, as nearly all text is: one character for a letter with
    its accent.
    """
    # The library sorts the accents of a letter in quadratic time. One of so many is found here.
    if any(map(_is_mark, text[MANY_MARKS::MANY_MARKS])):
        runs = []
        for are_marks, run in groupby(text, _is_mark):
            if are_marks:
                decomposed = "".join(unicodedata.normalize("NFD", mark) for mark in run)
                run = sorted(decomposed, key=unicodedata.combining)
            runs.append("".join(run))
        text = "".join(runs)
    return unicodedata.normalize("NFC", text)


@cache
def _is_mark(character: str) -> bool:
    """Returns whether a character is an accent, or decomposes into accents."""
    return unicodedata.combining(unicodedata.normalize("NFD", character)[0]) > 0


def canonical(text: str) -> str:
    """Returns a text as the tokenizer reads it: composed, with plain blanks and without invisible
    characters.
    """
    for pattern, replacement in () if is_plain(text) else REPLACED:
        text = pattern.sub(replacement, text)
    return composed(text)


def is_plain(text: str) -> bool:
    """Returns whether a text has printable characters only, as nearly every line has; ten times as
    fast as a search.
    """
    # Python calls two of the blanks printable: those of Hangul and of Braille.
    return text.isprintable() and "\u3164" not in text and "\u2800" not in text


def normalise(text: str) -> str:
    """Returns a line as training text is: canonical, and without white space around it."""
    return canonical(text.strip()).strip()


def clean(
    pairs: Iterable[RawPair],
    report: CleaningReport,
    rules: Sequence[tuple[str, Rule]] = (),
    tags: str = "kept",
) -> Iterator[CleanPair]:
    """Yields the usable pairs as text and counts the others in `report`. One bad side drops the
    pair.

    The rules apply in their order to pairs that are usable. `tags` is `data.tags`, see
    `learned_target`.
    """
    for pair in pairs:
        report.read += 1
        report.read_by_file[pair.file] += 1
        src, src_changed, src_flaw = _usable(pair.src)
        tgt, tgt_changed, tgt_flaw = _usable(pair.tgt)
        faults = (fault for fault, is_faulty in rules if is_faulty(src, tgt))
        if reason := pair.flaw or src_flaw or tgt_flaw or next(faults, None):
            report.drop(pair, reason)
            continue
        is_normalised = src_changed or tgt_changed
        report.kept += 1
        report.normalised += is_normalised
        yield CleanPair(pair, src, learned_target(tgt, tags), is_normalised)


def learned_target(tgt: str, tags: str) -> str:
    """Returns a target as the model learns it: with `data.tags=xx` every part-of-speech tag of a
    tree is XX.
    """
    return TREE_TAG.sub("XX", tgt) if tags == "xx" else tgt


def grouped(pairs: Iterable[CleanPair], size: int, characters: int) -> Iterator[list[CleanPair]]:
    """Yields the pairs in lists, limited in pairs and roughly in characters."""
    chunk: list[CleanPair] = []
    length = 0
    for pair in pairs:
        chunk.append(pair)
        length += len(pair.src) + len(pair.tgt)
        if len(chunk) == size or length > characters:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def _usable(raw: bytes) -> tuple[str, bool, str]:
    """Returns the text of a line, whether more than white space around it was replaced, and why it
    is unusable.
    """
    if len(raw) > MAX_LINE_BYTES:
        return "", False, "too_many_bytes"
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError:
        return "", False, "not_utf8"
    if is_plain(text):
        plain = composed(text)
    elif CONTROL.search(text):
        return "", False, "control_characters"
    else:
        plain = normalise(text)
    return plain, plain != text, "" if plain else "empty"


def training_rules(config: DataOptions) -> list[tuple[str, Rule]]:
    """Returns the reasons and rules that the options turn on, for one pass over the training text.

    Duplicates come last: a pair that another rule drops does not count as the first of its kind.
    They take some 70 bytes of memory a pair.
    """
    # Only sources have the tag of a corpus, so it does not count as content.
    symbols = re.compile("|".join(map(re.escape, config.all_symbols)) or "(?!)")
    rules: list[tuple[str, Rule]] = []

    def add(reason: str, is_faulty: Rule) -> None:
        rules.append(
            (reason, lambda src, tgt: is_faulty(symbols.sub("", src), symbols.sub("", tgt)))
        )

    if config.drop_equal:
        add("equal_sides", equal_sides)
    if config.drop_placeholder_mismatch:
        add("placeholders", lambda src, tgt: placeholders(src) != placeholders(tgt))
    if config.drop_without_letters:
        add("without_letters", lacks_letters)
    if config.drop_wrong_language:
        add("wrong_language", wrong_languages((config.src_lang, config.tgt_lang)))
    if config.drop_duplicates:
        seen = set[int]()
        compared = folded if config.drop_duplicates == "normalised" else str

        def is_duplicate(src: str, tgt: str) -> bool:
            key = pair_hash(compared(src), compared(tgt))
            is_known = key in seen
            seen.add(key)
            return is_known

        rules.append(("duplicate", is_duplicate))
    return rules


def pair_hash(src: str, tgt: str) -> int:
    """Returns 64 bits: ten million pairs have a collision with probability 3e-6."""
    digest = hashlib.blake2b(f"{src}\n{tgt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def equal_sides(src: str, tgt: str) -> bool:
    return folded(src) == folded(tgt)


def lacks_letters(*sides: str) -> bool:
    """Returns whether a side of a pair has no letter."""
    return not all(any(map(str.isalpha, side)) for side in sides)


class _WithoutPunctuation(dict[int, str]):
    """Maps characters other than letters, marks, numbers and symbols to a space."""

    def __missing__(self, code: int) -> str:
        self[code] = chr(code) if unicodedata.category(chr(code))[0] in "LMNS" else " "
        return self[code]


_WITHOUT_PUNCTUATION = _WithoutPunctuation()


def folded(text: str) -> str:
    """Returns a text without case and punctuation, to compare it with others; the text itself if
    nothing else is in it.

    Vowel signs of Hindi and accents are marks, which belong to their letters; `+` and `<` are
    symbols.
    """
    words = unicodedata.normalize("NFKC", text).casefold().translate(_WITHOUT_PUNCTUATION)
    return " ".join(words.split()) or text
