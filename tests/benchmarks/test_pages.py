"""Figures on the pages of results come from files, or say that none was kept."""

import json
import re
from pathlib import Path

import pytest
from pages import ROOT, replaced
from result_pages import PAGES, blocks_of

# Its rows are written by hand from benchmarks/results/gpu_*.json
GPU = ROOT / "docs/results/gpu.md"
FIGURE = re.compile(
    r"(?<![\w.-])\d[\d,]*\.\d+(?![.\w])|\b\d[\d,.]*(?= ?(?:ms|MB|GB|processor seconds)\b)"
)
BLOCK = re.compile(r"<!-- begin (\S+) -->\n(.*?)\n<!-- end \1 -->", re.DOTALL)


def hand_written_figures(page: str) -> list[str]:
    """Figures outside generated blocks, code and settings, in paragraphs that do not say "not
    kept".
    """
    generated = " ".join(match[2] for match in BLOCK.finditer(page))
    text = re.sub(r"```.*?```", "", BLOCK.sub("", page), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)|(?:torch|CTranslate2|JoeyNMT\S*) [\d.]+", "", text)
    text = re.sub(r"[Ss]ection \d\.\d|\(\d\.\d(?:, \d\.\d)*\)", "", text)
    # A table belongs to the paragraph before it.
    paragraphs = re.sub(r"\n\n(?=\|)", "\n", text).split("\n\n")
    unmarked = [paragraph for paragraph in paragraphs if "unrecorded" not in paragraph]
    return [
        figure
        for paragraph in unmarked
        for figure in FIGURE.findall(paragraph)
        if figure not in generated
    ]


@pytest.mark.quick("steps", "multi30k", "paper-checked")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_one_command_makes_of_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert replaced(text, blocks_of(page)) == text
    assert {match[1] for match in BLOCK.finditer(text)} == {*blocks_of(page)}


@pytest.mark.parametrize(
    "page", sorted({*(ROOT / "docs/results").glob("*.md")} - {GPU}), ids=lambda page: page.stem
)
def test_every_figure_of_a_results_page_is_generated_or_marked_as_not_kept(page):
    assert hand_written_figures(page.read_text(encoding="utf-8")) == []


def test_a_figure_that_is_written_by_hand_is_found_and_settings_summaries_and_marked_ones_are_not():
    page = """Set `lr=0.5`; torch 2.13.0. BLEU is 34.88 here, 41.02 there.

It took 3.5 s (unrecorded):

| a |
|---|
| 7.25 |

<!-- begin rows -->
| 34.88 |
<!-- end rows -->
"""
    assert hand_written_figures(page) == ["41.02"]


@pytest.mark.parametrize("folder", ["results", "benchmarks/results"])
def test_no_file_of_results_was_made_by_uncommitted_code(folder):
    files = [path for path in (ROOT / folder).iterdir() if path.suffix in (".json", ".jsonl")]
    assert [path.name for path in files if "-dirty" in path.read_text(encoding="utf-8")] == []


def test_benchmarks_write_no_results_of_uncommitted_code(tmp_path, monkeypatch):
    import measure

    monkeypatch.setattr(measure, "describe_machine", lambda *_: {"commit": "abc-dirty"})
    measure.report("small", [{"seconds": 1.5}], tmp_path)
    assert json.loads((tmp_path / "small.json").read_text())["commit"] == "abc-dirty"
    with pytest.raises(SystemExit, match="commit abc-dirty has uncommitted changes"):
        measure.report("small", [{"seconds": 1.5}], Path(measure.KEPT))
