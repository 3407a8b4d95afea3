"""What becomes of mark-up in translation: how much is kept, and what it costs in BLEU.

    python benchmarks/markup.py RUN --text manuals/gnome manuals/man

Each prefix names source and reference with tags, a paragraph a line, as `benchmarks/manuals.py`
makes them. Every text is translated sentence by sentence in three ways: with the tags taken out and
put back (`format=html` of the server), with them left in the text, and without any. `kept` is the
share of the source's tags and placeholders that the translation has; `well_formed` the share of
lines that are well-formed XML, among those that were; `as_reference` the share of the translation's
elements around the very words that the reference has in such an element. `bleu` compares text
without tags, `bleu_with_tags` text with them; both are sacreBLEU.
"""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manuals import plain
from measure import parse_options, report

import aiayn
from aiayn.apps.documents.markup import parse_markup
from aiayn.apps.documents.texts import translate_texts
from aiayn.data.placeholders import PLACEHOLDER, TAG
from aiayn.data.text_files import read_lines
from aiayn.evaluation.scoring import score
from aiayn.search.translator import Translator


def marks(text: str) -> Counter[str]:
    """Returns the tags and placeholders of HTML."""
    return Counter(TAG.findall(text)) + Counter(PLACEHOLDER.findall(plain(text)))


def elements(text: str) -> Counter[tuple[Any, ...]] | None:
    """Returns the elements with text of a line, with that text; None if the line is not
    well-formed.
    """
    try:
        root = ET.fromstring(f"<p>{text}</p>")
    except ET.ParseError:
        return None
    elements_of_line = (
        (
            element.tag,
            *sorted(element.attrib.items()),
            " ".join("".join(element.itertext()).split()),
        )
        for element in root.iter()
    )
    return Counter(
        element for number, element in enumerate(elements_of_line) if number and element[-1]
    )


def measured(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], lang: str
) -> dict:
    """Returns the columns of a way of translating that gives text with tags."""
    source_marks, translated_marks = (
        [marks(text) for text in sources],
        [marks(text) for text in translations],
    )
    formed = [number for number, text in enumerate(sources) if elements(text) is not None]
    written = {number: elements(translations[number]) for number in formed}
    around = [
        (elements_of_line, elements(references[number]) or Counter())
        for number, elements_of_line in written.items()
        if elements_of_line
    ]
    return {
        "kept": sum((a & b).total() for a, b in zip(source_marks, translated_marks, strict=True))
        / sum(a.total() for a in source_marks),
        "well_formed": sum(elements_of_line is not None for elements_of_line in written.values())
        / len(formed),
        "as_reference": sum((a & b).total() for a, b in around)
        / max(1, sum(a.total() for a, _ in around)),
        "bleu": bleu(
            [plain(text) for text in translations], [plain(text) for text in references], lang
        ),
        "bleu_with_tags": bleu(list(translations), list(references), lang),
    }


def bleu(translations: list[str], references: list[str], lang: str) -> float:
    return score(translations, references, lang, ["sacrebleu"]).metrics["sacrebleu"] or 0.0


def three_ways(translator: Translator, prefix: str) -> list[dict[str, Any]]:
    """Returns a row for each way of translating a text with tags."""
    lang = translator.languages[1]
    sources, references = (read_lines(f"{prefix}.{language}") for language in translator.languages)
    size = {"lines": len(sources), "marks": sum(marks(text).total() for text in sources)}
    restored, placements = translate_texts(
        translator, [parse_markup(source, is_html=True) for source in sources], paragraphs=True
    )
    put_back = measured(sources, restored, references, lang)
    left_in, without = (
        translate_texts(translator, texts, markup=False, paragraphs=True)[0]
        for texts in (sources, [plain(text) for text in sources])
    )
    left_in = measured(sources, left_in, references, lang)
    alone = dict.fromkeys(put_back) | {
        "bleu": bleu(without, [plain(text) for text in references], lang)
    }
    counts = {name: placements[name] for name in ("by_model", "by_alignment", "guessed", "removed")}
    none = dict.fromkeys(counts)
    return [
        {"text": Path(prefix).name, "tags": way, **size, **columns, **placed}
        for way, columns, placed in (
            ("put back", put_back, counts),
            ("left in", left_in, none),
            ("none", alone, none),
        )
    ]


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, {"run": None}, text=["manuals/gnome"], threads=1)
    translator = aiayn.load(options.run, engine="torch", patience=2)
    report(
        "markup",
        [row for prefix in options.text for row in three_ways(translator, prefix)],
        options.out,
    )


if __name__ == "__main__":
    main()
