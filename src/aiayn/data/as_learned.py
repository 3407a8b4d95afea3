"""What a model learns where that is not the text itself: trees with XX for every tag."""

import re
from collections.abc import Iterable, Iterator

from aiayn.config.schema import DataConfig

TAG = re.compile(r"(?<!\S)[^()\s]\S*")  # in the linear form of a tree: a symbol that is no bracket


def as_learned(config: DataConfig, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the pairs, with XX for every tag of the target if `data.tags` says so."""
    return ((src, TAG.sub("XX", tgt) if config.tags == "xx" else tgt) for src, tgt in pairs)
