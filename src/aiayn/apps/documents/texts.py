"""Translates texts that are more than a sentence: paragraphs, and texts with mark-up.

The model was trained on single sentences. Text that is aligned line by line (training text, test
sets) is never split.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from aiayn.apps.documents.markup import MARK, Part, Pieces, parse_markup, parts_of, rendered
from aiayn.apps.documents.placement import UNIT, Attention, unit_weights, written
from aiayn.data.languages import primary
from aiayn.data.placeholders import has_letters, split_symbol
from aiayn.errors import ConfigError, DataError
from aiayn.search.line_translator import LineTranslator, Progress
from aiayn.search.translations import Translation

MAX_WORDS = 5_000  # of one part: with as many of its translation 1 GB at work
BLANK = re.compile(r"[^\S\n]")
# Up to the end of a sentence if there is one, else of a word
STRETCH = re.compile(
    r"[^\n]{1,2000}(?:(?<=[.!?]\s)|(?<=[\u3002\uff01\uff1f])|$)"
    r"|[^\n]{1,2000}(?<=\s)|[^\n]{1,2000}",
    re.MULTILINE,
)
INITIAL = re.compile(r"[^\w]*\w\.\s*")


def split_paragraph(text: str, language: str) -> list[str]:
    """Cuts a text into blank, sentence, blank, ..., sentence, blank, which together are the text.

    Sentences end by the rules of their language (a code such as en or pt-BR) and at line ends;
    blanks may be empty. Raises ConfigError if the library that knows the rules is not installed.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'aiayn[text]'") from error
    code = primary(language)
    cuts = [0]
    # The rules are applied line by line, because they take some line ends for parts of sentences,
    # and to parts of long lines, because their time grows with the square of the length.
    for line in STRETCH.finditer(text):
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
        leading_blank, sentence, trailing_blank = re.findall(
            r"(?s)(\s*)(.*\S)?(\s*)", text[start:stop]
        )[0]
        pieces[-1] += leading_blank
        pieces += [sentence, trailing_blank] if sentence else []
    return pieces


@dataclass
class CutSentences:
    """The sentences of texts: all that a translator has to know of them."""

    lines: list[str] = field(default_factory=list)
    # Those whose attention is needed, because their part has tags or placeholders
    marked: list[int] = field(default_factory=list)
    tagged: set[int] = field(default_factory=set)  # those that begin with the tag of their text

    def attend(
        self, translator: LineTranslator, best: Sequence[Translation], numbers: Sequence[int]
    ) -> list[Attention]:
        """Returns the attention between the sentences of these numbers and their translations;
        `best` has those of all.
        """
        from aiayn.search.alignment import alignment_weights  # torch, which plain text does without

        tokenizer = translator.tokenizer
        src_ids = translator.source_ids([self.lines[number] for number in numbers])
        outputs = [best[number].tokens for number in numbers]
        attention: list[Attention] = []
        for number, tgt_lengths, src_lengths, weights in zip(
            numbers,
            map(tokenizer.byte_lengths, outputs),
            map(tokenizer.source.byte_lengths, src_ids),
            alignment_weights(translator, src_ids, outputs),
            strict=True,
        ):
            start = int(number in self.tagged)  # the tag is one subword
            kept_weights = None if weights is None else weights.numpy()[:, start:]
            attention.append((tgt_lengths, src_lengths[start:], kept_weights))
        return attention


class Texts:
    """Texts, whole or in pieces, whose parts are cut into sentences: `restore` joins their
    translations.

    A sentence without a letter outside its placeholders, such as 1984 or an address, is copied, not
    translated. What is written may begin with a tag of the training text, such as <2de>, which then
    begins all of its sentences.
    """

    def __init__(
        self,
        texts: Sequence[str | Pieces],
        language: str,
        markup: bool,
        paragraphs: bool,
        first_line: int = 1,
        is_html: bool = False,
        symbols: Sequence[str] = (),
        tag: str | None = None,
    ):
        """With `markup` tags and placeholders are put back; without `paragraphs` every part is one
        sentence.

        `symbols` are words that are one subword each (`data.symbols`), tags among them; `tag` is
        one, of texts that begin with none. Raises DataError, naming a text by its number from
        `first_line` on, for too many words between two tags that end a sentence; with `paragraphs`
        what `split_paragraph` raises.
        """
        self.sentences = CutSentences()
        self._texts: list[Pieces] = []
        self._markup = markup
        # Of each part blank, sentence, blank, ...; which sentences
        self._cuts: list[tuple[list[str], range]] = []
        lines = self.sentences.lines
        for number, text in enumerate(texts, first_line):
            text_tag, pieces = tag, text
            if isinstance(pieces, str):
                own_tag, pieces = split_symbol(pieces, symbols)
                text_tag = own_tag or tag
                pieces = parse_markup(pieces, markup, is_html)
            self._texts.append(pieces)
            for part in parts_of(pieces):
                if markup and (words := len(UNIT.findall(part.text))) > MAX_WORDS:
                    raise DataError(
                        f"text {number} has {words:,} words without a tag such as <p> between "
                        f"them; with mark-up at most {MAX_WORDS:,} are supported: divide it by "
                        "such tags, or into lines"
                    )
                cut = split_paragraph(part.text, language) if paragraphs else ["", part.text, ""]
                sentence_numbers = range(len(lines), len(lines) + len(cut) // 2)
                self._cuts.append((cut, sentence_numbers))
                start = f"{text_tag} " if text_tag else ""
                # A blank one is not translated; `restore` copies it.
                lines += [
                    f"{start}{sentence}" if has_letters(sentence) else "" for sentence in cut[1::2]
                ]
                if text_tag:
                    self.sentences.tagged.update(sentence_numbers)
                if markup and (part.tags or part.kept or MARK.search(part.text)):
                    self.sentences.marked += sentence_numbers

    def restore(
        self, translations: Sequence[str], attention: Sequence[Attention]
    ) -> tuple[list[str], Counter[str]]:
        """Returns the texts in the other language, and how mark-up was placed (see `written`), from
        the translations of all sentences and the attention of those that are `marked`.
        """
        attention_by_sentence = dict(zip(self.sentences.marked, attention, strict=True))
        cuts = iter(self._cuts)
        placement_counts = Counter[str]()

        def translated(part: Part) -> str:
            cut, sentence_numbers = next(cuts)
            pieces = list(cut)
            for number, sentence in enumerate(sentence_numbers):
                if self.sentences.lines[sentence]:
                    pieces[2 * number + 1] = translations[sentence]
            text = "".join(pieces)
            if not self._markup:
                return part.escape(text)
            part_attention = [
                attention_by_sentence[sentence]
                for sentence in sentence_numbers
                if sentence in attention_by_sentence
            ]
            weights = unit_weights(pieces, cut, part_attention)
            return written(part, text, weights, placement_counts)

        return [rendered(pieces, translated) for pieces in self._texts], placement_counts


def translate_texts(
    translator: LineTranslator,
    texts: Sequence[str | Pieces],
    markup: bool = True,
    paragraphs: bool = False,
    on_batch: Progress | None = None,
    first_line: int = 1,
    tag: str | None = None,
) -> tuple[list[str], Counter[str]]:
    """Returns what `Texts.restore` does for texts, as they are written or in pieces. Raises what
    `Texts` raises, too.

    With `markup` tags and placeholders are kept, and with `paragraphs` sentences are translated one
    by one.
    """
    symbols = translator.tokenizer.source.symbols
    read = Texts(
        texts, translator.languages[0], markup, paragraphs, first_line, symbols=symbols, tag=tag
    )
    sentences = read.sentences
    best = [translation for translation, *_ in translator.n_best(sentences.lines, 1, on_batch)]
    attention = sentences.attend(translator, best, sentences.marked) if sentences.marked else []
    return read.restore([translation.text for translation in best], attention)
