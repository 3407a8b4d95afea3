"""report.html from its templates: self-contained, without scripts, every text escaped."""

import base64
import difflib
import os
import re
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from aiayn.run_folder import is_number

WORD = re.compile(r"\w+|[^\w\s]")


def shown(value: Any) -> Any:
    """Returns what a cell shows: numbers with two decimals or three digits, a dash for None, else the value itself."""
    if value is None:
        return "–"
    if not is_number(value) or abs(value) >= 1e15:
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"


def marked_difference(reference: str, hypothesis: str) -> tuple[Markup, Markup]:
    """Both as HTML: words that only the reference has in <del>, words that only the hypothesis has in <ins>."""
    matcher = difflib.SequenceMatcher(None, WORD.findall(reference), WORD.findall(hypothesis), autojunk=False)
    blocks = matcher.get_matching_blocks()
    before = {block.a + i for block in blocks for i in range(block.size)}
    after = {block.b + i for block in blocks for i in range(block.size)}
    return _marked(reference, before, "del"), _marked(hypothesis, after, "ins")


def _marked(text: str, common: set[int], tag: str) -> Markup:
    """Neighbouring words that are not in common share one mark."""
    marked, end = Markup(), 0
    for is_common, group in groupby(enumerate(WORD.finditer(text)), lambda word: word[0] in common):
        words = [word for _, word in group]
        start, stop = words[0].start(), words[-1].end()
        words_marked = (
            escape(text[start:stop]) if is_common else Markup(f"<{tag}>{{}}</{tag}>").format(text[start:stop])
        )
        marked += escape(text[end:start]) + words_marked
        end = stop
    return marked + escape(text[end:])


def link(target: str, text: str) -> Markup:
    """Returns a cell of a table that leads to another file."""
    return Markup('<a href="{}">{}</a>').format(quote(os.fsencode(target)), text)


def data_uri(png: Path) -> str | None:
    """Returns a PNG as an address that holds it; None where there is no such file."""
    return f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}" if png.is_file() else None


def render_page(template: str, **content: Any) -> str:
    return TEMPLATES.get_template(template).render(content)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["shown"] = shown
TEMPLATES.globals["marked_difference"] = marked_difference
