"""The parts of a self-contained HTML page: no scripts, nothing fetched, every text escaped."""

import base64
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

STYLE = Path(__file__).with_name("report.css")


def page(title: str, subtitle: str, sections: Iterable[tuple[str, str]]) -> str:
    """A whole document. Sections are (heading, HTML); empty ones are left out."""
    body = "\n".join(f"<h2>{escape(heading)}</h2>\n{content}" for heading, content in sections if content)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f'<p class="dim">{escape(subtitle)}</p>\n{body}\n</body>\n</html>\n'
    )


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Large figures, each with what it is."""
    if not values:
        return ""
    shown = "".join(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in values)
    return f'<div class="tiles">{shown}</div>'


def charts(figures: Iterable[str]) -> str:
    drawn = "\n".join(figure for figure in figures if figure)
    return f'<div class="charts">\n{drawn}\n</div>' if drawn else ""


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Numbers stand on the right, None shows as a dash."""
    if not rows:
        return ""
    numeric = [all(not isinstance(row[i], (str, Link)) for row in rows) for i in range(len(columns))]
    sides = [' class="n"' if side else "" for side in numeric]
    head = "".join(f"<th{side}>{escape(name)}</th>" for side, name in zip(sides, columns, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{side}>{_cell(value)}</td>" for side, value in zip(sides, row, strict=True)) + "</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def samples_table(samples: Sequence[dict[str, Any]]) -> str:
    """Source, reference and hypothesis side by side, the last two with their differences marked."""
    if not samples:
        return ""
    rows = []
    for sample in samples:
        reference, hypothesis = marked_difference(sample["reference"], sample["hypothesis"])
        cells = (escape(sample["source"]), reference, hypothesis)
        rows.append("<tr>" + "".join(f'<td class="sentence">{cell}</td>' for cell in cells) + "</tr>")
    return (
        '<div class="scroll"><table>\n<thead><tr><th>source</th>'
        '<th>reference <span class="key del">not in the hypothesis</span></th>'
        '<th>hypothesis <span class="key ins">not in the reference</span></th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def compared_samples(samples: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]) -> str:
    """Of every (source, reference, [(run, hypothesis), ...]) a folded table, in which the hypotheses are marked."""
    parts = []
    for source, reference, hypotheses in samples:
        rows = [f'<tr class="reference"><td>reference</td><td>{escape(reference)}</td></tr>']
        rows += [
            f"<tr><td>{escape(run)}</td><td>{marked_difference(reference, hypothesis)[1]}</td></tr>"
            for run, hypothesis in hypotheses
        ]
        head = '<th>run</th><th>hypothesis <span class="key ins">not in the reference</span></th>'
        body = "\n".join(rows)
        content = (
            f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
        )
        parts.append(folded(source, content, is_open=not parts))
    return "\n".join(parts)


def marked_difference(reference: str, hypothesis: str) -> tuple[str, str]:
    """Both as HTML: words that only the reference has in <del>, words that only the hypothesis has in <ins>."""
    before, after = (re.findall(r"\w+|[^\w\s]", text) for text in (reference, hypothesis))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    same_before: set[int] = set()
    same_after: set[int] = set()
    for i, j, size in matcher.get_matching_blocks():
        same_before |= set(range(i, i + size))
        same_after |= set(range(j, j + size))
    return _marked(reference, same_before, "del"), _marked(hypothesis, same_after, "ins")


def picture(path: Path, caption: str) -> str:
    """A PNG inside the page; nothing where there is no such file."""
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    text = escape(caption)
    return f'<figure><figcaption>{text}</figcaption><img alt="{text}" src="data:image/png;base64,{data}"></figure>'


def folded(summary: str, content: str, is_open: bool = False) -> str:
    start = "<details open>" if is_open else "<details>"
    return f"{start}<summary>{escape(summary)}</summary>\n{content}\n</details>" if content else ""


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another file."""

    text: str
    target: str


def preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _marked(text: str, same: set[int], tag: str) -> str:
    """Neighbouring words that differ share one mark."""
    pieces: list[str] = []
    end, inside = 0, False
    for number, word in enumerate(re.finditer(r"\w+|[^\w\s]", text)):
        differs = number not in same
        gap = escape(text[end : word.start()])
        if inside and not differs:
            pieces.append(f"</{tag}>{gap}")
        elif differs and not inside:
            pieces.append(f"{gap}<{tag}>")
        else:
            pieces.append(gap)
        pieces.append(escape(word.group()))
        end, inside = word.end(), differs
    return "".join(pieces) + (f"</{tag}>" if inside else "") + escape(text[end:])


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Link):
        return f'<a href="{escape(quote(value.target))}">{escape(value.text)}</a>'
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(str(value))
