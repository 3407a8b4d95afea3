"""Where the model looked, word by word."""

from itertools import pairwise
from typing import Any

from aiayn.inference.alignment import alignment_weights
from aiayn.inference.translator import Translator


def word_attention(translator: Translator, src_ids: list[int], tgt_ids: list[int]) -> dict[str, Any]:
    """Returns the words of a line and of its translation, and how much each of the latter attends to the former.

    {"source": [S words], "translation": [T words], "weights": T rows of S numbers}. The weight of two words is that of
    `alignment_weights`, summed over the source word's subwords and averaged over the target word's. Neither list of
    subwords may be empty.
    """
    [weights] = alignment_weights(translator, [src_ids], [tgt_ids])
    (source, src_sizes), (translation, tgt_sizes) = _words(translator, src_ids), _words(translator, tgt_ids)
    columns = [part.sum(1).split(tgt_sizes) for part in weights.split(src_sizes, dim=1)]
    rows = zip(*columns, strict=True)
    return {
        "source": source,
        "translation": translation,
        "weights": [[round(part.mean().item(), 4) for part in row] for row in rows],
    }


def _words(translator: Translator, ids: list[int]) -> tuple[list[str], list[int]]:
    """Returns the words, as spaces divide them, and the number of subwords of each."""
    tokens = translator.tokenizer.tokens(ids)
    starts = [place for place, token in enumerate(tokens) if place == 0 or token.startswith("▁")]
    spans = list(pairwise([*starts, len(ids)]))
    words = translator.tokenizer.decode([ids[start:end] for start, end in spans])
    return words, [end - start for start, end in spans]
