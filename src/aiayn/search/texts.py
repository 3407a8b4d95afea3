"""Translates texts that are more than a sentence: paragraphs, and texts with mark-up.

The model was trained on single sentences. Text that is aligned line by line (training text, test sets) is never split.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from aiayn.data.placeholders import MARK
from aiayn.errors import ConfigError, DataError
from aiayn.search.line_translator import LineTranslator, Progress
from aiayn.search.markup import Part, Pieces, parse_markup
from aiayn.search.placement import AlignedText, align, join, units_of, written
from aiayn.search.translations import Translation

MAX_WEIGHTS = 25_000_000  # of one part: 5,000 words and as many of its translation; 1 GB at work
BLANK = re.compile(r"[^\S\n]")
INITIAL = re.compile(r"[^\w]*\w\.\s*")


def split_paragraph(text: str, language: str) -> list[str]:
    """Cuts a text into blank, sentence, blank, ..., sentence, blank, which together are the text.

    Sentences end by the rules of their language (a code such as en or pt-BR) and at line ends; blanks may be empty.
    Raises ConfigError if the library that knows the rules is not installed.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'aiayn[text]'") from error
    code = re.split("[-_]", language.lower())[0]
    cuts = [0]
    # The rules are applied line by line, because they take some line ends for parts of sentences.
    for line in re.finditer("[^\n]+", text):
        try:
            parts = segment(code, BLANK.sub(" ", line[0]))  # other blanks make the library panic
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # such a panic, for it is written in Rust: the line stays whole
            parts = []
        stop = line.start()
        for part in parts:
            stop += len(part)
            if not INITIAL.fullmatch(text, cuts[-1], stop):  # as the French M. (Monsieur)
                cuts.append(stop)
        cuts.append(line.end())
    pieces = [""]
    for start, stop in pairwise([*cuts, len(text)]):
        part = text[start:stop]
        if sentence := part.strip():
            pieces[-1] += part[: part.index(sentence)]
            pieces += [sentence, part[part.index(sentence) + len(sentence) :]]
        else:
            pieces[-1] += part
    return pieces


class Restored(NamedTuple):
    """A translation with all of its mark-up, and how that was placed: see `written`."""

    text: str
    places: Counter[str]


class Texts:
    """Texts in pieces, whose parts are cut into sentences: `restore` puts the translations of these together."""

    def __init__(self, texts: Sequence[Pieces], language: str, paragraphs: bool = True, first_line: int = 1):
        """Without `paragraphs` every part is one sentence.

        Raises DataError, naming a text by its number from `first_line` on, for too many words between two tags that
        end a sentence; with `paragraphs` what `split_paragraph` raises.
        """
        self.sentences: list[str] = []
        self._texts = texts
        self._cuts: list[tuple[Part, list[str], range]] = []  # blank, sentence, blank, ...; which sentences
        for number, pieces in enumerate(texts, first_line):
            for part in (piece for piece in pieces if isinstance(piece, Part)):
                if (words := len(units_of(part.text))) ** 2 > MAX_WEIGHTS:
                    raise DataError(
                        f"text {number} has {words:,} words between two tags that end a sentence; mark-up is put back "
                        f"among {math.isqrt(MAX_WEIGHTS):,} at most: divide it by tags such as <p>, or into lines"
                    )
                cut = split_paragraph(part.text, language) if paragraphs else ["", part.text, ""]
                self._cuts.append((part, cut, range(len(self.sentences), len(self.sentences) + len(cut) // 2)))
                self.sentences += cut[1::2]

    def marked(self, best: Sequence[Translation]) -> list[int]:
        """Returns the numbers of the sentences that need alignments: those of parts with tags or placeholders."""
        found = []
        for part, _, here in self._cuts:
            if part.tags or any(map(MARK.search, [part.text, *(best[number].text for number in here)])):
                found += here
        return found

    def restore(self, best: Sequence[Translation], aligned: Mapping[int, AlignedText]) -> list[Restored]:
        """Returns the texts in the other language, given all translations and the alignments of `marked` sentences."""
        cuts, restored = iter(self._cuts), []
        for pieces in self._texts:
            out, places = "", Counter[str]()
            for piece in pieces:
                if isinstance(piece, Part):
                    part, cut, here = next(cuts)
                    if here and here[0] in aligned:
                        text = written(join(cut, [aligned[number] for number in here]), part, places)
                    else:
                        translated = iter([best[number].text for number in here])
                        text = part.escape("".join(next(translated) if n % 2 else one for n, one in enumerate(cut)))
                    piece = part.finish(text)
                out += piece
            restored.append(Restored(out, places))
        return restored


def align_sentences(
    translator: LineTranslator, sources: Sequence[str], best: Sequence[Translation]
) -> list[AlignedText]:
    """Aligns the words of sentences without white space around them, and of their translations."""
    from aiayn.search.alignment import alignment_weights  # torch, which plain text does without

    src_ids, tokenizer = translator.source_ids(list(sources)), translator.tokenizer
    src_lengths, lengths = tokenizer.source.byte_lengths, tokenizer.byte_lengths
    attention = alignment_weights(translator, src_ids, [one.tokens for one in best])
    return [
        align(source, src_lengths(ids), one.text, lengths(one.tokens), None if weights is None else weights.numpy())
        for source, ids, one, weights in zip(sources, src_ids, best, attention, strict=True)
    ]


def translate_pieces(
    translator: LineTranslator, texts: Texts, on_batch: Progress | None = None, markup: bool = True
) -> list[Restored]:
    """Translates texts and, with `markup`, puts their tags and placeholders back.

    Raises what `LineTranslator.n_best` raises.
    """
    best = [found for found, *_ in translator.n_best(texts.sentences, 1, on_batch)]
    if not (marked := texts.marked(best) if markup else []):
        return texts.restore(best, {})
    aligned = align_sentences(translator, [texts.sentences[n] for n in marked], [best[n] for n in marked])
    return texts.restore(best, dict(zip(marked, aligned, strict=True)))


def translate_texts(
    translator: LineTranslator,
    texts: list[str],
    markup: bool = True,
    is_html: bool = False,
    paragraphs: bool = False,
    on_batch: Progress | None = None,
    first_line: int = 1,
) -> list[Restored]:
    """Translates texts; with `markup` puts their tags back, and with `paragraphs` goes sentence by sentence.

    Raises what `Texts` and `LineTranslator.n_best` raise.
    """
    pieces: list[Pieces] = [parse_markup(text, is_html) if markup else [Part(text)] for text in texts]
    read = Texts(pieces, translator.languages[0], paragraphs, first_line)
    return translate_pieces(translator, read, on_batch, markup)
