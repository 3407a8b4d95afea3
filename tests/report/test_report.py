"""report.html: what it says of a run and of a sweep, and that any browser shows it without network or complaint."""

import json
import math
import re
from html import escape, unescape

import pytest
import yaml
from applications import run_application
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn.errors import RefusedError
from aiayn.report.charts import Curve, _Axis, line_chart
from aiayn.report.page import marked_difference
from aiayn.report.report import add_evaluation, summary, sweep_summary, write_report

NASTY = 'das </script><b>"Haus"</b> & {{Hof}}'
REFERENCE = "das alte Haus & Hof"


def write_run(folder, n_heads=4, ppl=5.25):
    """A run of 40 of 50 steps as training leaves it, with a scored test set."""
    folder.mkdir(parents=True)
    config = {
        "name": folder.name,
        "model": {"n_heads": n_heads, "dropout": 0.1},
        "data": {"src_lang": "en", "tgt_lang": "de"},
        "trainer": {"max_steps": 50},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    records = [
        {"step": step, "train/loss": 9 / step, "train/lr": step * 1e-5, "train/grad_norm": 2 / step, "perf/mfu": 0.25}
        | {"perf/tokens_per_sec": 1200 + step}
        for step in range(1, 41)
    ]
    for step, bleu in ((20, 31.5), (40, 30.25)):
        records.append({"step": step, "val/loss": 3.5, "val/ppl": ppl * 40 / step, "val/bleu": bleu})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 41, "tr')
    samples = [
        {"step": step, "source": "the old house", "reference": REFERENCE, "hypothesis": text}
        for step, text in ((20, "nichts"), (40, NASTY))
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    split = {"read": 310, "kept": 300, "src_tokens": 2900, "tgt_tokens": 3100, "dropped": {"empty": 10}}
    corpus = {"splits": {"train": split}, "pairs": 300, "padding": 0.0625, "padding_of_parts": [3, 2, 0, 1]}
    corpus["lengths"] = {"src": [0, 2, 5, 1], "tgt": [0, 4, 4]}
    (folder / "corpus.json").write_text(json.dumps(corpus))
    (folder / "machine.json").write_text(json.dumps({"device": "Abacus <3>", "devices": 2}))
    scored = folder / "evaluation" / "test"
    scored.mkdir(parents=True)
    result = {"metrics": {"sacrebleu": 33.375, "ter": None}, "signatures": {"sacrebleu": "tok:13a"}, "lines": 2}
    (scored / "evaluation.json").write_text(json.dumps(result | {"checkpoint": "averaged.ckpt", "step": 40}))
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "mine")


@pytest.fixture
def sweep(tmp_path):
    for name, n_heads, ppl in (("a_h1", 1, 6.5), ("a_h16", 16, 5.75)):
        write_run(tmp_path / "heads" / name, n_heads, ppl)
        write_report(tmp_path / "heads" / name)
    return tmp_path / "heads"


def cells(page):
    """The text of every cell of every table."""
    return [unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page, re.DOTALL)]


def test_a_page_of_a_run_holds_scores_curves_samples_corpus_machine_and_configuration(run):
    page = write_report(run).read_text()
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == [
        *("Scores", "Curves", "Validation samples of step 40", "From step to step"),
        *("Corpus", "Machine", "Configuration"),
    ]
    assert "en to de, step 40 of 50" in page
    assert re.findall(r"<div><b>(.*?)</b>(.*?)</div>", page) == [
        ("33.38", "sacreBLEU, test"),
        ("5.25", "validation perplexity (lowest 5.25)"),
        ("30.2", "validation BLEU, greedy (highest 31.5)"),
        ("1,221", "target tokens per second (median)"),
    ]
    for name in ("train/loss", "val/loss", "train/lr", "val/ppl", "val/bleu", "train/grad_norm", "perf/mfu"):
        assert f">{name}</span>" in page
    shown = cells(page)
    for text in (NASTY, REFERENCE, "310", "10 empty", "Abacus <3>", "tok:13a", "2,900"):
        assert text in shown
    assert escape(yaml.safe_dump({"n_heads": 4}).strip()) in page


def test_of_a_run_that_has_hardly_begun_there_is_a_page_too(tmp_path):
    run = write_run(tmp_path / "new")
    for path in (*run.glob("*.json*"), run / "evaluation/test/evaluation.json"):
        path.write_text("[1, 2") if path.suffix == ".json" else path.unlink()
    page = write_report(run).read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == ["Configuration"]
    assert summary(run).startswith(f"done     {run}, step 0\nfiles    report.html, config.yaml\n")


def test_what_is_no_run_is_refused_in_one_line(run):
    with pytest.raises(RefusedError, match=r"evaluation: neither a run nor a folder of runs \(no config\.yaml\)$"):
        write_report(run / "evaluation")
    (run / "config.yaml").write_text("just: text")
    with pytest.raises(RefusedError, match=r"config\.yaml: not the configuration of a run; restore it"):
        write_report(run)
    outcome = run_application("aiayn", "report", str(run / "evaluation"))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (4, "", 1)


def test_the_page_of_a_sweep_puts_its_runs_side_by_side(sweep):
    outcome = run_application("aiayn", "report", str(sweep))
    assert outcome.out == f"{sweep}/report.html\n"
    page = (sweep / "report.html").read_text()
    shown = cells(page)
    start = shown.index("model.n_heads") + 1
    assert shown[start - 7 : start] == [
        *("run", "step", "val/ppl", "val/bleu (greedy)", "BLEU val", "BLEU test", "model.n_heads")
    ]
    assert shown[start : start + 14] == [
        *("a_h1", "40", "6.50", "30.25", "–", "33.38", "1"),
        *("a_h16", "40", "5.75", "30.25", "–", "33.38", "16"),
    ]
    targets = re.findall('href="([^"]*)"', page)
    assert targets == ["a_h1/report.html", "a_h16/report.html"]
    assert all((sweep / target).is_file() for target in targets)
    assert [text for text in shown if "Haus" in text] == [REFERENCE, NASTY, NASTY]  # neither run's first hypothesis
    assert "nichts" not in page
    assert "model.dropout: 0.1\n" in page
    assert sweep_summary(sweep) == "scores   a_h1   val/ppl 6.50\nscores   a_h16  val/ppl 5.75"


def test_scored_translations_come_to_the_page_evenly_spread(run):
    lines = [f"line {number}" for number in range(50)]
    assert add_evaluation(run, run / "evaluation/test", lines, lines, ["x"] * 50)
    page = (run / "report.html").read_text()
    assert "<h2>Samples of test</h2>" in page
    assert [text for text in cells(page) if text.startswith("line ")] == [
        f"line {n}" for n in range(0, 50, 3) for _ in "ab"
    ]
    (run / "config.yaml").unlink()
    assert not add_evaluation(run, run / "evaluation/test", lines, lines, lines)


# Texts and curves.


@given(st.text(max_size=60), st.text(max_size=60))
def test_marks_change_no_text(reference, hypothesis):
    for text, marked in zip((reference, hypothesis), marked_difference(reference, hypothesis), strict=True):
        assert unescape(re.sub("</?(del|ins)>", "", marked)) == text


def test_words_that_differ_are_marked_together_and_no_others():
    before, after = marked_difference("Sie musste <nicht> gehen.", "Sie musste eine Lampe gehen!")
    assert before == "Sie musste <del>&lt;nicht&gt;</del> gehen<del>.</del>"
    assert after == "Sie musste <ins>eine Lampe</ins> gehen<ins>!</ins>"
    assert marked_difference("gleich", "gleich") == ("gleich", "gleich")


@given(st.floats(1e-6, 1e6), st.floats(1.0, 1e4), st.booleans())
@example(1e-6, 2.0, False)
def test_an_axis_has_some_ticks_within_it_at_the_places_that_their_labels_say(low, factor, log_scale):
    axis = _Axis([low, low * factor], 300, 20, log_scale)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 12
    for place, label in ticks:
        assert 19.9 <= place <= 300.1
        value = float(label.replace("k", "e3").replace("M", "e6").replace("G", "e9"))
        if value and factor > 1.5:
            assert axis.at(value) == pytest.approx(place, abs=14)  # labels are rounded


def test_a_curve_leaves_out_what_cannot_be_drawn_and_keeps_its_end_however_long_it_is():
    points = [(step, math.nan if step == 3 else 1 / step) for step in range(1, 5002)]
    [line] = re.findall(r'<path class="line c0 d0" d="([^"]*)"', line_chart("loss", [Curve("x", points)], True))
    places = [tuple(map(float, place.split(","))) for place in line.removeprefix("M").split("L")]
    assert 500 < len(places) <= 600
    assert places == sorted(places)
    assert places[-1] == (466.0, 222.0)
    assert line_chart("loss", [Curve("x", [(1, math.inf), (2, 0.0)])], log_scale=True) == ""
    assert "NaN" not in line_chart("still", [Curve("x", [(5, 0.0)])])


# In a browser.


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1300, 380])
def test_a_browser_shows_both_pages_without_network_complaints_or_a_line_too_wide(run, sweep, browser, width, dark):
    for folder in (run, sweep):
        address = write_report(folder).resolve().as_uri()
        browser.open(address, width=width, dark=dark)
        assert browser.complaints() == []
        assert [found for found in browser.requests() if not found.startswith("data:")] == [address]
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.scripts.length") == 0
        shades = [
            sum(map(int, re.findall(r"\d+", browser.run(f"getComputedStyle(document.body).{name}"))[:3]))
            for name in ("backgroundColor", "color")
        ]
        assert (shades[0] < 150 and shades[1] > 600) if dark else (shades[0] > 700 and shades[1] < 150)
        keys = "[...document.querySelectorAll('.key')].map(e => getComputedStyle(e, '::before').content)"
        assert set(browser.run(keys)) == {'"■\xa0"'}
        outside = """[...document.querySelectorAll('svg text')].filter(e => {
            const box = e.getBBox(), whole = e.ownerSVGElement.viewBox.baseVal;
            return box.x < 0 || box.y < 0 || box.x + box.width > whole.width || box.y + box.height > whole.height;
        }).map(e => e.textContent)"""
        assert browser.run(outside) == []
