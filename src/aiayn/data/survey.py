"""Counts likely faults in a sample of a training text, with the option that drops each."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from aiayn.data.cleaning import CleanPair, lacks_letters, normalised
from aiayn.data.identify import wrong_languages
from aiayn.errors import ConfigError

SAMPLE = (
    3_000  # pairs; more than that are thinned out by their hash, so that duplicates stay together
)
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
