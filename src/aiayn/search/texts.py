"""Translates texts that are more than a sentence: paragraphs, and texts with mark-up."""

import math
from collections.abc import Iterator
from itertools import islice

from aiayn.errors import DataError
from aiayn.search.line_translator import LineTranslator, Progress
from aiayn.search.markup import MarkedText, Restored, parse_markup
from aiayn.search.paragraphs import Paragraph, split_paragraph
from aiayn.search.projection import MAX_WEIGHTS, align, count_units, join
from aiayn.search.translations import Translation


def translate_paragraphs(translator: LineTranslator, texts: list[str], on_batch: Progress | None = None) -> list[str]:
    """Translates texts sentence by sentence, all in one batch. Raises what `n_best` and `split_paragraph` raise."""
    split = [split_paragraph(text, translator.languages[0]) for text in texts]
    found = iter(translator.translate([one for paragraph in split for one in paragraph.sentences], on_batch))
    return [paragraph.join([next(found) for _ in paragraph.sentences]) for paragraph in split]


def translate_markup(
    translator: LineTranslator,
    texts: list[str],
    is_html: bool = False,
    paragraphs: bool = False,
    on_batch: Progress | None = None,
    first_line: int = 1,
) -> list[Restored]:
    """Translates texts and puts their mark-up back; with `paragraphs`, sentence by sentence.

    Raises DataError, naming the text by its number from `first_line` on, if too many words stand between two tags that
    end a sentence; and what `Translator.n_best` and, with `paragraphs`, `split_paragraph` raise.
    """
    marked = [parse_markup(text, is_html) for text in texts]
    sizes = [_weights(one, number) for number, one in enumerate(marked, first_line)]
    language = translator.languages[0]
    split = [
        [split_paragraph(part.text, language) if paragraphs else Paragraph([part.text], ["", ""]) for part in one.parts]
        for one in marked
    ]
    sentences = [sentence for text in split for paragraph in text for sentence in paragraph.sentences]
    best = iter([found for found, *_ in translator.n_best(sentences, 1, on_batch)])
    restored: list[Restored] = []
    for here in _groups(sizes):
        restored += _restored(translator, marked[here], split[here], best)
    return restored


def _weights(text: MarkedText, number: int) -> int:
    """Returns how many pairs of words have weights. Raises DataError if a part has too many."""
    words = [count_units(part.text) for part in text.parts]
    if words and max(words) ** 2 > MAX_WEIGHTS:
        raise DataError(
            f"line {number} has {max(words):,} words between two tags that end a sentence; mark-up is put back among "
            f"{math.isqrt(MAX_WEIGHTS):,} at most: divide the line, or leave --markup out"
        )
    return sum(count**2 for count in words)


def _groups(sizes: list[int]) -> Iterator[slice]:
    """Yields slices of texts whose weights fit into memory together."""
    start, total = 0, 0
    for number, size in enumerate(sizes):
        if number > start and total + size > MAX_WEIGHTS:
            yield slice(start, number)
            start, total = number, 0
        total += size
    yield slice(start, len(sizes))


def _restored(
    translator: LineTranslator, texts: list[MarkedText], split: list[list[Paragraph]], best: Iterator[Translation]
) -> list[Restored]:
    """Returns texts with their mark-up. `best` gives the translations of their sentences, and goes on after them."""
    sentences = [sentence for text in split for paragraph in text for sentence in paragraph.sentences]
    aligned = iter(align(translator, sentences, list(islice(best, len(sentences)))))
    return [
        text.restore(
            [
                join(part.text, paragraph, list(islice(aligned, len(paragraph.sentences))))
                for part, paragraph in zip(text.parts, paragraphs, strict=True)
            ]
        )
        for text, paragraphs in zip(texts, split, strict=True)
    ]
