"""Training text as the model sees it: with `data.tags=xx` every tag of a tree becomes XX."""

import re
from collections.abc import Iterable, Iterator

from aiayn.config.data import DataOptions

TAG = re.compile(r"(?<!\S)[^()\s]\S*")  # in the linear form of a tree: a symbol that is no bracket


def as_learned(config: DataOptions, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the pairs, with XX for every tag of the target if `data.tags` says so."""
    return ((src, TAG.sub("XX", tgt) if config.tags == "xx" else tgt) for src, tgt in pairs)
