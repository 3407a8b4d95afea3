"""Translations as lines of output: with scores, and as JSON."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiayn.search.line_translator import LineTranslator
    from aiayn.search.translations import Translation


def as_text(results: "list[list[Translation]]", first_index: int, n_best: bool, scores: bool) -> Iterator[str]:
    """Yields the output lines for the translations of each input line."""
    for index, translations in enumerate(results, first_index):
        for translation in translations:
            if n_best:
                yield f"{index} ||| {translation.text} ||| {translation.score:.4f}"
            else:
                yield f"{translation.text}\t{translation.score:.4f}" if scores else translation.text


def as_json(
    translator: "LineTranslator", lines: list[str], results: "list[list[Translation]]", first_index: int
) -> Iterator[str]:
    """Yields one JSON object per translation, in order of the lines."""
    from aiayn.search.alignment import alignments

    src_ids = translator.source_ids(lines)
    found = [(number, translation) for number, best in enumerate(results) for translation in best]
    outputs = [translation.tokens for _, translation in found]
    aligned = alignments(translator, [src_ids[number] for number, _ in found], outputs)
    for (number, translation), alignment in zip(found, aligned, strict=True):
        fields = {
            "index": first_index + number,
            "source": lines[number],
            "translation": translation.text,
            "score": translation.score,
            "log_prob": translation.log_prob,
            "source_tokens": translator.tokenizer.tokens(src_ids[number]),
            "tokens": translator.tokenizer.tokens(translation.tokens),
            "alignment": alignment,
        }
        yield json.dumps(fields, ensure_ascii=False)
