"""A text of a request: cut into sentences, and put together again with its blanks and its mark-up."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from aiayn.errors import DataError
from aiayn.search.line_translator import SURROGATE
from aiayn.search.markup import MarkedText, Restored, parse_markup
from aiayn.search.paragraphs import Paragraph, split_paragraph
from aiayn.search.projection import MAX_WEIGHTS, AlignedText, join
from aiayn.search.translations import Translation

# The time to place tags grows with the tags times the words.
MAX_HTML = 30_000  # characters of a text
MAX_TAGS = 1000


@dataclass(frozen=True)
class CutText:
    """The paragraphs of a text. Plain text is one; in HTML (`marked`) they stand between tags that end a sentence."""

    paragraphs: list[Paragraph]
    marked: MarkedText | None

    @property
    def sentences(self) -> list[str]:
        return [sentence for paragraph in self.paragraphs for sentence in paragraph.sentences]

    def join(self, translations: Sequence[Translation]) -> str:
        """Returns the translation of plain text, given those of its sentences."""
        [paragraph] = self.paragraphs
        return paragraph.join([translation.text for translation in translations])

    def restore(self, aligned: Sequence[AlignedText]) -> Restored:
        """Returns the translation of HTML, given those of its sentences. Raises 413 for what is too large."""
        assert self.marked
        remaining, whole = iter(aligned), []
        for part, paragraph in zip(self.marked.parts, self.paragraphs, strict=True):
            sentences = [next(remaining) for _ in paragraph.sentences]
            words = sum(len(one.source_units) for one in sentences)
            if words * sum(len(one.units) for one in sentences) > MAX_WEIGHTS:
                raise HTTPException(413, f"a paragraph of the HTML has {words:,} words; divide it by tags such as <p>")
            whole.append(join(part.text, paragraph, sentences))
        return self.marked.restore(whole)


def cut(texts: list[str], language: str, is_html: bool) -> list[CutText]:
    """Cuts texts of this language into sentences. Raises DataError for what is not text, 413 for HTML too large."""
    for number, text in enumerate(texts, 1):
        if SURROGATE.search(text):
            raise DataError(f"text {number} is not valid text: it contains a lone surrogate; correct it")
    return [_cut(text, language, is_html) for text in texts]


def restore(texts: list[CutText], aligned: list[AlignedText]) -> list[Restored]:
    """Returns the translations of texts of HTML, given those of all their sentences."""
    remaining = iter(aligned)
    return [text.restore([next(remaining) for _ in text.sentences]) for text in texts]


def _cut(text: str, language: str, is_html: bool) -> CutText:
    if not is_html:
        return CutText([split_paragraph(text, language)], None)
    if len(text) > MAX_HTML or text.count("<") + text.count("&lt;") > MAX_TAGS:
        limits = f"{MAX_HTML:,} characters and {MAX_TAGS:,} tags"
        raise HTTPException(413, f"a text of HTML may have {limits}; send it in parts, or as a list of texts")
    marked = parse_markup(text, is_html=True)
    return CutText([split_paragraph(part.text, language) for part in marked.parts], marked)
