"""What looks wrong in a text before anybody trains on it: sides in the wrong language are refused,
likely faults are counted in a sample and reported with the option that drops them.

Exchanged columns, swapped prefixes and files in a third language look like any other text to a
training. Their words do not: two texts in one language share their frequent words, whatever they
are about.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import log10, sqrt
from typing import Any, NamedTuple

from aiayn.config.data import DataOptions
from aiayn.config.rules import tagged
from aiayn.data.cleaning import CleaningReport, CleanPair, clean, lacks_letters, normalised
from aiayn.data.languages import wrong_languages
from aiayn.data.placeholders import CJK
from aiayn.data.raw_text import RawText
from aiayn.data.sources import FileText
from aiayn.errors import ConfigError, DataError

FIRST_PAIRS = 1000  # compared of each text
FEWEST_PAIRS = 20  # below which two texts may share no word by chance
# Measured on 98 pairs of texts about different things in English, German and French, of 20 to 1,000
# pairs each:
# a side's likeness to its own language is 2.3 times that to the other or more, and both sides
# together 2.8 times.
EXCHANGED_SIDE, EXCHANGED_PAIR = 2.0, 1.5
FOREIGN_PAIRS = 100  # below which words of one language differ as much as those of two
SAME_LETTERS = 0.7  # likeness of trigrams that only texts of one language have
UNSPACED = f"{CJK}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # each character counts as a word
WORD = re.compile(rf"[{UNSPACED}]|[^\W\d_{UNSPACED}]+")
# Pairs; more than that are thinned out by their hash, so that duplicates stay together
SAMPLE = 3_000
# Worth a line
SHARE = {
    "duplicates": 0.1,
    "equal_sides": 0.01,
    "without_letters": 0.01,
    "wrong_language": 0.002,
}
REMEDIES = {
    "duplicates": "data.drop_duplicates=exact drops them",
    "equal_sides": "data.drop_equal=true drops them",
    "without_letters": "data.drop_without_letters=true drops them",
    "wrong_language": "data.drop_wrong_language=true drops them",
}


class SideProfile(NamedTuple):
    """How often words and trigrams occur in one side of a text."""

    words: Counter[str]
    trigrams: Counter[str]

    def likeness(self, other: "SideProfile") -> float:
        # Small texts may share no word; then letters decide.
        return (overlap(self.words, other.words) + 0.02) * overlap(self.trigrams, other.trigrams)


class TextProfile(NamedTuple):
    option: str  # as it is written on the command line
    pairs: int
    src: SideProfile
    tgt: SideProfile


def overlap(counts: Counter[str], others: Counter[str]) -> float:
    """Returns the Bhattacharyya coefficient of two distributions: 1 for equal ones, 0 if nothing is
    in both.
    """
    total = counts.total() * others.total()
    return (
        sum(sqrt(n * others[key]) for key, n in counts.items() if key in others) / sqrt(total)
        if total
        else 0.0
    )


def profile_of(lines: Iterable[str]) -> SideProfile:
    words = Counter(word for line in lines for word in WORD.findall(line.casefold()))
    trigrams = Counter[str]()
    for word, count in words.items():
        for start in range(len(word)):
            trigrams[f" {word} "[start : start + 3]] += count
    return SideProfile(words, trigrams)


def check_sides(texts: dict[str, RawText], config: DataOptions) -> None:
    """Raises DataError if a side of the training or test text is like the other side of the
    development text, or like neither. Reads the first pairs of each; texts with a tag, whose
    languages differ, are left out.
    """
    if not config.check_sides or config.task != "translation":
        return
    val = _profile(texts["val"])
    if val.pairs < FEWEST_PAIRS:
        return
    for text in (
        part
        for split in ("train", "test")
        if split in texts
        for part in _untagged(texts[split], config)
    ):
        profile = _profile(text)
        if profile.pairs >= FEWEST_PAIRS:
            _compare(profile, val, config)


def _untagged(text: RawText, config: DataOptions) -> Iterator[RawText]:
    """Yields each name of a text as a text of its own."""
    if not isinstance(text, FileText):
        yield text
        return
    for name in text.names:
        if not tagged(name)[0]:
            yield FileText(text.key, [name], text.langs, config.max_expansion)


def _profile(text: RawText) -> TextProfile:
    pairs = list(clean(islice(text.pairs(), FIRST_PAIRS), CleaningReport()))
    sides = (profile_of(getattr(pair, side) for pair in pairs) for side in ("src", "tgt"))
    return TextProfile(text.option, len(pairs), *sides)


def _compare(text: TextProfile, val: TextProfile, config: DataOptions) -> None:
    """Raises DataError unless each side of a text is more like its side of the development text
    than like the other.
    """
    own_sides = [text.src.likeness(val.src), text.tgt.likeness(val.tgt)]
    crossed_sides = [text.src.likeness(val.tgt), text.tgt.likeness(val.src)]
    src_ratio, tgt_ratio = (
        crossed / max(straight, 1e-6)
        for crossed, straight in zip(crossed_sides, own_sides, strict=True)
    )
    remedy = "correct the names of the files or of the columns, or set data.check_sides=false"
    shown = (
        f"words in common with the sources of {val.option}: {_percent(text.src, val.src)} of its "
        f"sources, {_percent(text.tgt, val.src)} of its targets; with the targets: "
        f"{_percent(text.src, val.tgt)} and {_percent(text.tgt, val.tgt)}"
    )
    if src_ratio * tgt_ratio > EXCHANGED_PAIR and min(src_ratio, tgt_ratio) > 1:
        raise DataError(
            f"{text.option}: source and target are swapped compared with {val.option} ({shown}); "
            f"{remedy}"
        )
    # Words in common grow with both texts: those of one language had 0.05 to 0.24 or more, those of
    # two 0.08 to 0.15 or less, of 100 and of 1,000 pairs each.
    is_large = min(text.pairs, val.pairs) >= FOREIGN_PAIRS
    least = 0.05 * log10(text.pairs * val.pairs) - 0.16 if is_large else 0.0
    for name, side, lang in (
        ("source", text.src, config.src_lang),
        ("target", text.tgt, config.tgt_lang),
    ):
        words = max(overlap(side.words, other.words) for other in (val.src, val.tgt))
        letters = max(overlap(side.trigrams, other.trigrams) for other in (val.src, val.tgt))
        if words < least and letters < SAME_LETTERS:
            raise DataError(
                f"{text.option}: its {name} side should be {lang}, but is in neither language of "
                f"{val.option} ({shown}); {remedy}"
            )
    for name, ratio, opposite in (("source", src_ratio, "target"), ("target", tgt_ratio, "source")):
        if ratio > EXCHANGED_SIDE:
            raise DataError(
                f"{text.option}: its {name} side is in the language of the {opposite} side of "
                f"{val.option} ({shown}); {remedy}"
            )


def _percent(side: SideProfile, other: SideProfile) -> str:
    shared = sum(count for word, count in side.words.items() if word in other.words)
    return f"{100 * shared / max(side.words.total(), 1):.0f} %"


@dataclass
class Survey:
    """A sample of a text's distinct pairs, and how often each comes."""

    langs: tuple[str, str]
    stride: int = 1  # of pairs whose hash is a multiple of it
    pairs: dict[int, tuple[str, str]] = field(default_factory=dict)  # by hash
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, pairs: Iterable[CleanPair]) -> None:
        for pair in pairs:
            content = f"{pair.src}\n{pair.tgt}".encode()
            key = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
            if key % self.stride == 0:
                self.pairs.setdefault(key, (pair.src, pair.tgt))
                self.counts[key] += 1
        while len(self.pairs) > SAMPLE:
            self.stride *= 2
            self.pairs = {key: pair for key, pair in self.pairs.items() if key % self.stride == 0}
            self.counts = Counter(
                {key: n for key, n in self.counts.items() if key % self.stride == 0}
            )

    def as_dict(self) -> dict[str, Any]:
        """Returns counts among the pairs that were looked at; wrong languages are None without the
        library.
        """
        sizes = {
            "pairs": self.counts.total(),
            "duplicates": self.counts.total() - len(self.pairs),
            "equal_sides": self._count(lambda src, tgt: normalised(src) == normalised(tgt)),
            "without_letters": self._count(lacks_letters),
        }
        try:
            languages = wrong_languages(self.langs)
        except ConfigError:
            return sizes | {"wrong_language": None}
        names = Counter[str]()
        for key, pair in self.pairs.items():
            if name := languages(*pair):
                names[name] += self.counts[key]
        return sizes | {"wrong_language": names.total(), "languages": dict(names.most_common(5))}

    def _count(self, is_counted: Any) -> int:
        return sum(self.counts[key] for key, pair in self.pairs.items() if is_counted(*pair))


def remarks(survey: dict[str, Any]) -> list[str]:
    """Returns a line for each count that is large enough to say."""
    total = survey.get("pairs") or 0
    lines = []
    for name, least in SHARE.items():
        count = survey.get(name) or 0
        if count >= 2 and count > least * total:
            which = ", ".join(survey.get("languages", {})) if name == "wrong_language" else ""
            shown = f"{name.replace('_', ' ')}{f' ({which})' if which else ''}"
            lines.append(
                f"{shown}: {count:,} of {total:,} sampled training pairs; {REMEDIES[name]}"
            )
    return lines
