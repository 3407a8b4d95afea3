"""Where parts of a source sentence are in its translation, by the decoder's attention."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from aiayn.data.placeholders import PLACEHOLDER, TAG, TAG_START
from aiayn.data.tokenizer import Tokenizer
from aiayn.search.alignment import alignment_weights
from aiayn.search.line_translator import LineTranslator
from aiayn.search.paragraphs import Paragraph
from aiayn.search.translations import Translation

# A web address begins a unit even where a tag was between it and the word before.
UNIT = re.compile(rf"{PLACEHOLDER.pattern}|(?:(?!(?:https?|ftp|file)://)\w)+|[^\w\s]", PLACEHOLDER.flags)
UNIT_OR_TAG = re.compile(f"{TAG.pattern}|{UNIT.pattern}", TAG.flags | UNIT.flags)

MAX_WEIGHTS = 25_000_000  # of one text: 5,000 words and as many of its translation; 1 GB at work
Span = tuple[int, int]  # first character, and the one after the last


@dataclass(frozen=True)
class AlignedText:
    """A text and its translation, both cut into words, punctuation marks and placeholders.

    Where the text has no tags, those of the translation are units, too.
    """

    source: str
    text: str
    source_units: list[Span]
    units: list[Span]
    weights: Tensor  # (units, source units): how much each unit attends to each source unit; rows sum to 1 or are 0


def align(translator: LineTranslator, sources: list[str], translations: Sequence[Translation]) -> list[AlignedText]:
    """Aligns the words of sources, which must be sentences without white space around them, and translations."""
    src_ids = translator.source_ids(sources)
    outputs = [translation.tokens for translation in translations]
    found = []
    for source, ids, best, weights in zip(
        sources, src_ids, translations, alignment_weights(translator, src_ids, outputs), strict=True
    ):
        source_units, units = _units(source), _units(best.text, not TAG_START.search(source))
        matrix = torch.zeros(len(units), len(source_units))
        if weights is not None and units and source_units:
            rows = _units_of(_subword_spans(translator.tokenizer, best.tokens, best.text), units)
            columns = _units_of(_subword_spans(translator.tokenizer, ids, source), source_units)
            matrix = torch.zeros(len(units), weights.size(1)).index_add_(0, rows, weights)
            matrix = torch.zeros(len(units), len(source_units)).index_add_(1, columns, matrix)
            matrix = matrix / matrix.sum(1, keepdim=True).clamp_min(1e-9)
        found.append(AlignedText(source, best.text, source_units, units, matrix))
    return found


def join(text: str, paragraph: Paragraph, sentences: list[AlignedText]) -> AlignedText:
    """Returns the alignment of a whole text, given those of its sentences."""
    joined = paragraph.join([sentence.text for sentence in sentences])
    source_units, units, src_start, tgt_start = [], [], 0, 0
    for blank, sentence in zip(paragraph.blanks, sentences, strict=False):
        src_start, tgt_start = src_start + len(blank), tgt_start + len(blank)
        source_units += [(start + src_start, stop + src_start) for start, stop in sentence.source_units]
        units += [(start + tgt_start, stop + tgt_start) for start, stop in sentence.units]
        src_start, tgt_start = src_start + len(sentence.source), tgt_start + len(sentence.text)
    weights = torch.block_diag(*(sentence.weights for sentence in sentences)) if sentences else torch.zeros(0, 0)
    return AlignedText(text, joined, source_units, units, weights)


def count_units(text: str) -> int:
    """Returns how many words, punctuation marks and placeholders a text has."""
    return len(_units(text))


def _units(text: str, with_tags: bool = False) -> list[Span]:
    return [match.span() for match in (UNIT_OR_TAG if with_tags else UNIT).finditer(text)]


def _subword_spans(tokenizer: Tokenizer, ids: list[int], text: str) -> list[Span]:
    """Returns the characters of every subword. A character that several share belongs to the one in which it begins."""
    starts, size = [], 0  # in bytes
    for length in tokenizer.byte_lengths(ids):
        starts.append(size)
        size += length
    character_of = [n for n, character in enumerate(f" {text}") for _ in character.encode(errors="replace")]
    character_of += [len(text) + 1] * (size + 1 - len(character_of))
    # The line's first space is the tokenizer's, not the text's.
    bounds = [max(0, character_of[start] - 1) for start in [*starts, size]]
    return list(pairwise(bounds))


def _units_of(subwords: list[Span], units: list[Span]) -> Tensor:
    """Returns (subwords,): the unit that a subword's last character is in, or that follows it."""
    found, unit = [], 0
    for _, stop in subwords:
        while unit < len(units) - 1 and units[unit][1] < stop:
            unit += 1
        found.append(unit)
    return torch.tensor(found, dtype=torch.long)
