"""Attention between the words of a line and of its translation."""

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypedDict

from aiayn.search.line_translator import LineTranslator

if TYPE_CHECKING:
    from torch import Tensor


class WordAttention(TypedDict):
    """Words of a line and of its translation, and how much each of the latter attends to the former."""

    source: list[str]  # S words
    translation: list[str]  # T words
    weights: list[list[float]]  # T rows of S numbers


def word_attention(translator: LineTranslator, src_ids: list[int], tgt_ids: list[int]) -> WordAttention:
    """Returns the attention between the words of a line and of its translation, given by their subwords.

    The weight of two words is that of `alignment_weights`, summed over the source word's subwords and averaged over the
    target word's. Neither list of subwords may be empty.
    """
    from aiayn.search.alignment import alignment_weights

    [weights] = alignment_weights(translator, [src_ids], [tgt_ids])
    assert weights is not None  # there are subwords on both sides
    (source, src_sizes), (translation, tgt_sizes) = _words(translator, src_ids), _words(translator, tgt_ids)
    sums = _sums(_sums(weights.double(), src_sizes).T, tgt_sizes).T
    means = sums / sums.new_tensor(tgt_sizes).unsqueeze(1)
    return {"source": source, "translation": translation, "weights": means.round(decimals=4).tolist()}


def _sums(weights: "Tensor", sizes: list[int]) -> "Tensor":
    """Returns the sums over groups of neighbouring columns of these sizes: (R, sum of sizes) to (R, groups)."""
    ends = weights.cumsum(1)[:, [end - 1 for end in accumulate(sizes)]]
    return ends.diff(dim=1, prepend=ends.new_zeros(len(ends), 1))


def _words(translator: LineTranslator, ids: list[int]) -> tuple[list[str], list[int]]:
    """Returns the words, as spaces divide them, and the number of subwords of each."""
    tokens = translator.tokenizer.tokens(ids)
    starts = [place for place, token in enumerate(tokens) if place == 0 or token.startswith("▁")]
    spans = list(pairwise([*starts, len(ids)]))
    words = translator.tokenizer.decode([ids[start:end] for start, end in spans])
    return words, [end - start for start, end in spans]
