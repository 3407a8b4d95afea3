"""report.html from its templates: self-contained, without scripts, every text escaped."""

import base64
import difflib
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from aiayn.reports.tables import Style, shown

WORD = re.compile(r"\s+|\w+|[^\w\s]")


def marked_difference(reference: str, hypothesis: str) -> tuple[Markup, Markup]:
    """Return both as HTML: words that only the reference has in <del>, words that only the
    hypothesis has in <ins>.
    """
    words, other_words = WORD.findall(reference), WORD.findall(hypothesis)
    # Blanks alone do not count as equal, so neighbouring words that differ are marked together.
    matcher = difflib.SequenceMatcher(str.isspace, words, other_words, autojunk=False)
    deleted, inserted = Markup(), Markup()
    for change, start, end, other_start, other_end in matcher.get_opcodes():
        is_equal = change == "equal"
        deleted += _marked(words[start:end], None if is_equal else "del")
        inserted += _marked(other_words[other_start:other_end], None if is_equal else "ins")
    return deleted, inserted


def _marked(words: list[str], tag: str | None) -> Markup:
    text = escape("".join(words))
    return Markup(f"<{tag}>{text}</{tag}>") if words and tag else text


# A cell of numbers stays on one line, but for what follows an interval.
PAGE = Style(
    plus_minus="\u00a0±\u00a0",
    escape=escape,
    number=lambda cell: escape(cell.replace(" ", "\u00a0").replace("]\u00a0", "] ")),
    strong=lambda cell: Markup("<b>{}</b>").format(cell),
    missing="–",
)


def link(target: str, text: str) -> Markup:
    """Returns a cell that leads to another file, for a table that is only shown on a page."""
    return Markup('<a href="{}">{}</a>').format(quote(os.fsencode(target)), text)


def data_uri(png: Path) -> str | None:
    """Returns a data: URI with the content of a PNG; None without the file."""
    return (
        f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"
        if png.is_file()
        else None
    )


def render_page(template: str, **content: Any) -> str:
    return TEMPLATES.get_template(template).render(content)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["shown"] = shown
TEMPLATES.globals |= {"marked_difference": marked_difference, "style": PAGE}
