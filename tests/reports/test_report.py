"""report.html: what it says of a run and of a sweep, and that any browser shows it without network
or complaint.
"""

import json
import math
import os
import re
import shutil
import time
from dataclasses import replace
from datetime import date
from html import escape, unescape

import pytest
import yaml
from applications import composed, run_application, spare_the_pictures
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn.config.stored import to_dict
from aiayn.errors import ConfigError, RefusedError
from aiayn.reports import groups
from aiayn.reports.plots import panel_svg, panels
from aiayn.reports.report import marked_difference, write_report
from aiayn.runs.run_folder import RunFolder
from aiayn.training.finish import summary

NASTY = 'das </script><b>"Haus"</b> & {{Hof}}'
REFERENCE = "das alte Haus & Hof"


def write_run(folder, n_heads=4, ppl=5.25):
    """A run of 40 of 50 steps as training leaves it, with a scored test set."""
    folder.mkdir(parents=True)
    options = (
        "data=files",
        "data.train=x",
        "data.val=x",
        "data.vocab_size=300",
        "trainer.max_steps=50",
    )
    config = composed(*options, f"model.n_heads={n_heads}", "model.d_k=64", "model.d_v=64")
    RunFolder(folder).write_config(
        replace(config, name=folder.name if folder.name.isascii() else "other")
    )
    records = [
        {
            "step": step,
            "train/loss": 9 / step,
            "train/lr": step * 1e-5,
            "train/grad_norm": 2 / step,
            "perf/mfu": 0.25,
        }
        | {"perf/tokens_per_sec": 1200 + step}
        for step in range(1, 41)
    ]
    for step, bleu in ((20, 31.5), (40, 30.25)):
        records.append(
            {"step": step, "val/loss": 3.5, "val/ppl": ppl * 40 / step, "val/bleu": bleu}
        )
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records) + '{"step": 41, "tr'
    )
    samples = [
        {"step": step, "source": "the old house", "reference": REFERENCE, "hypothesis": text}
        for step, text in ((20, "nichts"), (40, NASTY))
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    split = {
        "read": 310,
        "kept": 300,
        "src_tokens": 2900,
        "tgt_tokens": 3100,
        "dropped": {"empty": 10},
    }
    corpus = {
        "splits": {"train": split},
        "pairs": 300,
        "padding": 0.0625,
        "padding_of_parts": [3, 2, 0, 1],
    }
    corpus["lengths"] = {"src": [0, 2, 5, 1], "tgt": [0, 4, 4]}
    (folder / "corpus.json").write_text(json.dumps(corpus))
    (folder / "machine.json").write_text(json.dumps({"device": "Abacus <3>", "devices": 2}))
    scored = folder / "evaluation" / "test"
    scored.mkdir(parents=True)
    result = {
        "metrics": {"sacrebleu": 33.375, "ter": None},
        "signatures": {"sacrebleu": "tok:13a"},
        "lines": 2,
    }
    (scored / "evaluation.json").write_text(
        json.dumps(result | {"checkpoint": "averaged.ckpt", "step": 40, "split": "test"})
    )
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "mine")


def write_sweep_of_heads(folder):
    for name, n_heads, ppl in (("a_h1", 1, 6.5), ("a_h16", 16, 5.75)):
        write_run(folder / name, n_heads, ppl)
        write_report(folder / name)
    return folder


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    spare_the_pictures(monkeypatch)
    return write_sweep_of_heads(tmp_path / "heads")


def cells(page):
    """The text of every cell of every table."""
    return [
        unescape(re.sub("<[^>]*>", "", cell))
        for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page, re.DOTALL)
    ]


def test_a_page_of_a_run_holds_scores_curves_samples_corpus_machine_and_configuration(run):
    page = write_report(run).read_text()
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == [
        *("Scores", "Curves", "Validation samples of step 40", "Validation samples by step"),
        *("Corpus", "Machine", "Configuration"),
    ]
    assert "en to de, step 40 of 50" in page
    assert re.findall(r"<div><b>(.*?)</b>(.*?)</div>", page) == [
        ("33.38", "sacreBLEU, test"),
        ("5.25", "validation perplexity (lowest 5.25)"),
        ("30.2", "validation BLEU (greedy), highest 31.5"),
        ("1,221", "target tokens per second (median)"),
    ]
    for name in (
        *("train/loss", "val/loss", "val/ppl", "val/bleu", "train/lr", "train/grad_norm"),
        "perf/mfu",
    ):
        assert f">{name}</span>" in page
    shown = cells(page)
    for text in (NASTY, REFERENCE, "310", "10 empty", "2,900"):
        assert text in shown
    items = ["sacrebleu: tok:13a", "device: Abacus &lt;3&gt;", "devices: 2"]
    assert re.findall("<li>(.*?)</li>", page) == items
    assert escape(yaml.safe_dump({"n_heads": 4}).strip()) in page


def test_a_sentence_with_two_references_is_followed_from_step_to_step_beside_each_of_them(run):
    with (run / "samples.jsonl").open("a") as file:
        for step in (20, 40):
            more = {
                "step": step,
                "source": "the old house",
                "reference": "ein altes Haus",
                "hypothesis": "Haus",
            }
            file.write(json.dumps(more) + "\n")
    shown = cells(write_report(run).read_text())
    title = "hypothesis not in the reference"
    place = shown.index(title, shown.index(title) + 1) - 1
    assert shown[place : place + 16] == [
        *("step", title, "reference", REFERENCE, "20", "nichts", "40", NASTY),
        *("step", title, "reference", "ein altes Haus", "20", "Haus", "40", "Haus"),
    ]


def test_a_page_begins_with_the_model_the_day_and_the_time_that_training_took(tmp_path):
    run = write_sweep(tmp_path, ("seed=3", 5.0, 20.0)) / "seed-3"
    # Two epochs of 5 steps of 30 tokens: 4 steps at 10 tokens a second, then 6 at 20.
    train = {"kept": 30, "tgt_tokens": 120}
    (run / "corpus.json").write_text(json.dumps({"splits": {"train": train}, "steps_per_epoch": 5}))
    records = [
        {"step": step, "perf/tokens_per_sec": speed} for step, speed in ((4, 10.0), (10, 20.0))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    os.utime(run / "metrics.jsonl", (1_700_000_000, 1_700_000_000))

    page = write_report(run).read_text()

    lines = re.findall('<p class="dim">(.*?)</p>', page)
    assert lines[1] == (
        "n_layers 6, d_model 512, d_ff 2048, n_heads 8, d_k 64, d_v 64, dropout 0.1, parameters "
        "(M) 44.26"
    )
    assert lines[2] == f"{date.fromtimestamp(1_700_000_000)}, 0:00:21 of training"


@pytest.mark.parametrize("speed", [0, -0.0, 1e-300, -1e-300])
def test_a_speed_that_cannot_be_leaves_the_time_out_of_the_page(tmp_path, speed):
    run = write_sweep(tmp_path, ("seed=3", 5.0, 20.0)) / "seed-3"
    train = {"kept": 30, "tgt_tokens": 120}
    (run / "corpus.json").write_text(json.dumps({"splits": {"train": train}, "steps_per_epoch": 5}))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 4, "perf/tokens_per_sec": speed}) + "\n")

    page = write_report(run).read_text()

    assert " of training" not in page or "0:00:00 of training" in page


def test_of_a_run_that_has_hardly_begun_there_is_a_page_too(tmp_path):
    run = write_run(tmp_path / "new")
    for path in (*run.glob("*.json*"), run / "evaluation/test/evaluation.json"):
        path.write_text("[1, 2") if path.suffix == ".json" else path.unlink()
    page = write_report(run).read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == ["Configuration"]
    assert summary(run).startswith(f"done     {run}, step 0\nfiles    report.html, config.yaml\n")


def test_a_score_near_zero_has_the_decimals_of_the_table_of_scores(run):
    path = run / "evaluation/test/evaluation.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"metrics": {"sacrebleu": 0.00222}}))
    page = write_report(run).read_text()
    assert "0.00</b>sacreBLEU, test" in re.sub(r"</b>\s*", "</b>", page)
    assert "0.00222" not in page


def test_what_is_no_run_is_refused_in_one_line(run):
    with pytest.raises(
        ConfigError,
        match=r"evaluation: neither a run nor a folder .*no config\.yaml\); name one, such as outputs/",
    ):
        write_report(run / "evaluation")
    (run / "config.yaml").write_text("just: text")
    with pytest.raises(
        RefusedError, match=r"config\.yaml: not the configuration of a run; restore it"
    ):
        write_report(run)
    outcome = run_application("aiayn", "report", str(run / "evaluation"))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


def write_sweep(folder, *rows):
    """Runs of one sweep, each from its options, its perplexity and its BLEU."""
    for *options, ppl, bleu in rows:
        run = folder / "_".join(option.rpartition(".")[2].replace("=", "-") for option in options)
        run.mkdir(parents=True)
        config = composed(
            "data=files", "data.train=x", "data.val=x", "data.vocab_size=300", *options
        )
        (run / "config.yaml").write_text(yaml.safe_dump(to_dict(config), sort_keys=False))
        (run / "metrics.jsonl").write_text(json.dumps({"step": 10, "val/ppl": ppl}) + "\n")
        (run / "evaluation/val").mkdir(parents=True)
        scores = {"metrics": {"sacrebleu": bleu}, "step": 10, "lines": 3, "split": "val"}
        (run / "evaluation/val/evaluation.json").write_text(json.dumps(scores))
    return folder


@pytest.mark.slow
def test_a_sweep_over_heads_and_d_k_names_all_sizes_that_differ(tmp_path):
    rows = [
        (f"model.n_heads={h}", f"model.d_k={k}", 9.0, float(h + k))
        for h, k in ((8, 32), (8, 8), (16, 32))
    ]
    sweep = write_sweep(tmp_path / "grid", *rows)

    shown = cells(write_report(sweep).read_text())

    sizes = ["n_heads", "d_k", "d_v", "parameters (M)"]
    of_runs = shown[shown.index("step") - 1 :]
    assert of_runs[:8] == ["run", "step", "val/ppl", "sacrebleu (val)", *sizes], (
        "and no column that no run fills"
    )
    # By hand: base has 44.26 M with 300 words, and each of its 18 attentions 1024 for a column of
    # W_Q and of W_K.
    assert [of_runs[8 + 8 * n :][:1] + of_runs[8 + 8 * n :][4:8] for n in range(3)] == [
        ["n_heads-8_d_k-8", "8", "8", "64", "36.00"],
        ["n_heads-8_d_k-32", "8", "32", "64", "39.54"],
        ["n_heads-16_d_k-32", "16", "32", "32", "44.26"],
    ]


def test_a_sweep_over_seeds_ends_with_mean_and_standard_deviation(tmp_path):
    sweep = write_sweep(
        tmp_path / "seeds", ("seed=1", 5.0, 20.0), ("seed=2", 6.0, 21.0), ("seed=3", 7.0, 25.0)
    )

    shown = cells(write_report(sweep).read_text())
    start = shown.index("seeds")
    assert shown[start : start + 4] == [
        "seeds",
        "3",
        "6.00\u00a0±\u00a01.00",
        "22.00\u00a0±\u00a02.65",
    ]


def test_a_sweep_of_parsers_has_their_scores_beside_each_run(tmp_path):
    sweep = write_sweep(tmp_path / "parsers", ("seed=1", 5.0, 20.0), ("seed=2", 6.0, 21.0))
    for run, f1 in ((sweep / "seed-1", 81.5), (sweep / "seed-2", 82.5)):
        config = yaml.safe_load((run / "config.yaml").read_text())
        config["data"]["task"] = "parsing"
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        (run / "metrics.jsonl").write_text(json.dumps({"step": 10, "val/f1": f1 - 1}) + "\n")
        (run / "evaluation/val/evaluation.json").write_text(
            json.dumps({"metrics": {"f1": f1}, "step": 10, "lines": 3, "split": "val"})
        )

    shown = cells(write_report(sweep).read_text())
    titles = ["run", "step", "val/f1 (greedy)", "f1 (val)", "seed"]
    assert shown[:15] == [
        *titles,
        "seed-1",
        "10",
        "80.50",
        "81.50",
        "1",
        "seed-2",
        "10",
        "81.50",
        "82.50",
        "2",
    ]


def test_scores_of_other_text_stand_in_no_column_of_a_sweeps_page_together(tmp_path, monkeypatch):
    sweep = write_sweep(
        tmp_path / "grid", *[(f"model.n_heads={h}", "model.d_k=8", 9.0, float(h)) for h in (8, 16)]
    )
    grouped = []
    training_options = groups.training_options
    monkeypatch.setattr(
        groups, "training_options", lambda run: grouped.append(run.path) or training_options(run)
    )
    assert cells(write_report(sweep).read_text()).count("run") == 2
    assert len(grouped) == 2, "each run once for its group"
    path = sweep / "n_heads-8_d_k-8/evaluation/val/evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"text_sha256": "a" * 64}))
    page = write_report(sweep).read_text()
    assert cells(page).count("run") == 4, "of runs and of groups two tables each"


@pytest.mark.slow
def test_groups_of_one_name_in_two_folders_each_have_a_curve(tmp_path):
    for place, rate in (("slow", 1), ("fast", 3)):
        write_sweep(
            tmp_path / "both" / place,
            *((f"optim.lr_scale={rate}", f"seed={n}", 5.0, 20.0) for n in (1, 2)),
        )
        for run in (tmp_path / "both" / place).iterdir():
            run.rename(run.with_name(f"base_{run.name.rpartition('_')[2]}"))
    page = write_report(tmp_path / "both").read_text()
    [legend] = re.findall('<p class="legend">(.*?)</p>', page, re.DOTALL)
    names = ["fast/base_seed-1 (2 seeds)", "slow/base_seed-1 (2 seeds)"]
    assert re.findall(">(.*?)</span>", legend) == names
    shutil.copytree(tmp_path / "both/fast/base_seed-1", tmp_path / "both/fast/copy")
    assert names[0] in write_report(tmp_path / "both").read_text()


@pytest.mark.slow
def test_the_legend_tells_curves_of_one_colour_apart_by_their_lines(tmp_path):
    sweep = write_sweep(
        tmp_path / "rates", *((f"optim.lr_scale={rate}", 5.0, 20.0) for rate in range(1, 11))
    )
    page = write_report(sweep).read_text()
    [legend] = re.findall('<p class="legend">(.*?)</p>', page, re.DOTALL)
    colours = [f"c{number} s0" for number in range(8)]
    assert re.findall('class="key (.*?)"', legend) == [*colours, "c0 s1", "c1 s1"]
    assert page.count("stroke-dasharray") == 2


def test_the_page_of_a_sweep_puts_its_runs_side_by_side(sweep):
    outcome = run_application("aiayn", "report", str(sweep))
    assert outcome.out == f"{sweep}/report.html\n"
    page = (sweep / "report.html").read_text()
    shown = cells(page)
    start = shown.index("step") - 1
    assert [shown[start + 7 * row : start + 7 * row + 6] for row in range(3)] == [
        ["run", "step", "val/ppl", "val/bleu (greedy)", "sacrebleu (test)", "n_heads"],
        ["a_h1", "40", "6.50", "30.25", "33.38", "1"],
        ["a_h16", "40", "5.75", "30.25", "33.38", "16"],
    ]
    assert '<td class="n">6.50</td>' in page, "numbers stand on the right"
    targets = re.findall('<a href="([^"]*)"', page)
    assert targets == ["a_h1/report.html", "a_h16/report.html"]
    assert all((sweep / target).is_file() for target in targets)
    # Neither run's first hypothesis
    assert [text for text in shown if "Haus" in text] == [
        REFERENCE,
        NASTY,
        NASTY,
    ]
    assert "nichts" not in page
    assert "model.dropout: 0.1\n" in page
    assert 'choose one with aiayn table <span class="option">--baseline</span> NAME.' in page


@pytest.mark.slow
def test_of_a_sweep_of_many_runs_the_best_groups_come_first_and_single_runs_are_folded(tmp_path):
    n_runs = 44
    sweep = write_sweep(tmp_path / "many", ("optim.lr_scale=1", 5.0, 20.0))
    config = (sweep / "lr_scale-1/config.yaml").read_text()
    for number in range(2, n_runs + 1):
        run = sweep / f"lr_scale-{number}"
        shutil.copytree(sweep / "lr_scale-1", run)
        (run / "config.yaml").write_text(config.replace("lr_scale: 1", f"lr_scale: {number}"))
        scores = run / "evaluation/val/evaluation.json"
        scores.write_text(scores.read_text().replace("20.0", f"{20 + number * 7 % 44}.0"))

    page = write_report(sweep).read_text()

    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == [
        "Runs, grouped by the options that differ",
        "Curves of the best 12 groups",
        "Runs",
        "Notes",
        "Configuration",
    ]
    bleus = [float(cell) for cell in re.findall(r'<td class="n">(\d\d\.\d\d)</td>', page)]
    assert bleus[:n_runs] == sorted(bleus[:n_runs], reverse=True)
    assert f"<summary>{n_runs - 40} more groups</summary>" in page
    assert f"<details><summary>all {n_runs} runs</summary>" in page
    [notes] = re.findall("<ul>(.*?)</ul>", page, re.DOTALL)
    assert notes.count("<li>") == 1
    assert f"and {n_runs - 3} more: unfinished: step 10 of 100,000" in notes
    text = run_application("aiayn", "table", str(sweep)).out
    assert f"The best 40 of {n_runs}; CSV and JSON list all." in text
    assert "and 41 more: unfinished" in text
    assert text.count("\n") < 200  # the paper's tables, too, show a part


@pytest.mark.slow
def test_d_k_8_stands_before_d_k_16_in_tables(tmp_path):
    sweep = write_sweep(
        tmp_path / "sizes", *((f"model.d_k={size}", 5.0, 20.0) for size in (16, 8, 128))
    )
    lines = run_application("aiayn", "table", str(sweep)).out.split("\n")
    assert [line.split()[0] for line in lines if line.startswith("d_k-")] == [
        "d_k-8",
        "d_k-16",
        "d_k-128",
    ]


# Texts and curves.


@settings(max_examples=30)
@given(st.text(max_size=60), st.text(max_size=60))
def test_marks_change_no_text(reference, hypothesis):
    for text, marked in zip(
        (reference, hypothesis), marked_difference(reference, hypothesis), strict=True
    ):
        assert unescape(re.sub("</?(del|ins)>", "", marked)) == text


def test_words_that_differ_are_marked_together_and_no_others():
    before, after = marked_difference("Sie musste <nicht> gehen.", "Sie musste eine Lampe gehen!")
    assert before == "Sie musste <del>&lt;nicht&gt;</del> gehen<del>.</del>"
    assert after == "Sie musste <ins>eine Lampe</ins> gehen<ins>!</ins>"
    assert marked_difference("gleich", "gleich") == ("gleich", "gleich")
    tree = "(NP DT NN )NP " * 150  # all other symbols would be compared with all others, many times
    start = time.process_time()
    assert marked_difference(tree, tree) == (tree, tree)
    marked_difference(tree, "(NP DT JJ )NP " * 150)
    assert time.process_time() - start < 1


def test_curves_of_groups_are_means_over_seeds_in_a_band_at_the_steps_that_all_of_them_logged():
    first = [{"step": 1, "train/loss": 4.0, "val/ppl": 8.0}, {"step": 2, "train/loss": 2.0}]
    second = [{"step": 1, "train/loss": 6.0}, {"step": 3, "train/loss": 1.0}]
    other = [{"step": 2, "train/loss": 3.0, "mine/entropy": 0.5}]

    two, one = [(1, first), (2, second), (1, first)], [(1, other)]  # with a copy, which counts once
    drawn = drawn_curves({"two": two, "one": one})

    assert drawn == {
        "Loss (training)": {"two": [(1, 5.0, 4.0, 6.0)], "one": [(2, 3.0, 3.0, 3.0)]},
        "Entropy": {"two": [], "one": [(2, 0.5, 0.5, 0.5)]},
    }
    assert drawn_curves({"two": two}) == {"Loss": {"train/loss": [(1, 5.0, 4.0, 6.0)]}}
    assert drawn_curves({"copied": one * 2})["Loss"] == {"train/loss": [(2, 3.0, 3.0, 3.0)]}


def drawn_curves(groups):
    """The step, the mean and the band of every point of every curve, by panel."""
    return {
        panel.title: {name: [*curve.itertuples(name=None)] for name, curve in panel.curves.items()}
        for panel in panels(groups)
    }


EXTREMES = [
    (1, 1e304),
    (2, 1e-300),
    (3, math.nan),
    (4, -math.inf),
    (5, 0.0),
    (10**400, 1.0),
    (math.nan, 1.0),
    ("x", 2.0),
]


def write_metrics(run, points):
    keys = (
        "train/loss",
        "train/lr",
        "val/ppl",
        "val/bleu",
        "train/grad_norm",
        "perf/tokens_per_sec",
    )
    lines = [json.dumps({"step": step, **dict.fromkeys(keys, value)}) for step, value in points]
    (run / "metrics.jsonl").write_text("\n".join(lines))


def test_pages_and_summaries_of_extreme_numbers_are_made(run):
    write_metrics(run, EXTREMES)
    assert "<h2>Curves</h2>" in write_report(run).read_text()
    assert "<h2>Curves</h2>" in write_report(run.parent).read_text()
    assert summary(run).startswith("done ")
    assert run_application("aiayn", "table", str(run.parent)).code == 0


@pytest.mark.parametrize(
    "content",
    ["[]", '"x"', "{", "null", "[" * 99_999, '{"step": 1}', '{"metrics": {"sacrebleu": "x"}}'],
)
def test_a_page_leaves_out_files_that_hold_something_else(run, content):
    stored = [
        run / name for name in ("metrics.jsonl", "samples.jsonl", "corpus.json", "machine.json")
    ]
    for path in (
        *stored,
        run / "evaluation/test/evaluation.json",
        run / "evaluation/test/samples.jsonl",
    ):
        path.write_text(content)
    assert "<h2>Configuration</h2>" in write_report(run).read_text()
    assert summary(run)


@pytest.mark.slow
def test_half_of_a_character_in_a_name_or_a_text_ends_no_page(tmp_path):
    folder = tmp_path / "sweep"
    run = write_run(folder / os.fsdecode(b"a\xff"))
    (run / "samples.jsonl").write_text(
        r'{"step": 1, "source": "\ud800", "reference": "b", "hypothesis": "c"}'
    )
    write_report(run)
    assert 'href="a%FF/report.html"' in write_report(folder).read_text()
    for command in (
        ["report", str(run)],
        ["table", str(folder)],
        ["table", str(run), "--format", "json"],
    ):
        outcome = run_application("aiayn", *command)
        assert outcome.code == 0, outcome.err
        assert r"a\udcff" in outcome.out


def test_a_curve_is_svg_text_in_the_pages_colours_and_no_two_panels_share_an_id(run):
    page = write_report(run).read_text()
    drawn = re.findall("<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 7 + 2
    assert all("<text" in svg and "var(--c0)" in svg and "var(--dim)" in svg for svg in drawn)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("count", [1, 2])
def test_a_point_alone_is_drawn_larger_and_numbers_beside_an_axis_have_no_factor_above_it(count):
    records = [{"step": 10 * step, "train/lr": step * 1e-6} for step in range(1, count + 1)]

    [panel] = panels({"run": [(0, records)]})
    svg = panel_svg(panel, 10 * count)

    [radius] = re.findall(r'd="M 0 ([\d.]+) \nC', svg)
    assert (float(radius) > 3) == (count == 1)
    assert "1e\N{MINUS SIGN}06" in re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_panel_has_whole_steps_and_room_for_long_numbers_beside_its_label():
    records = [{"step": step, "val/bleu": 0.008 + step * 5e-5} for step in (1, 2, 3, 4)]

    [panel] = panels({"run": [(0, records)]})
    svg = panel_svg(panel, 4)

    numbers = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert [number for number in numbers if "." in number and len(number) >= 6]
    assert [number for number in numbers if number.isdigit()] == ["0", "1", "2", "3", "4"]
    assert not [number for number in numbers if number.endswith("m")]
    [left] = re.findall(r'x="(\S+)" y="\S+" transform="rotate\(-90 [^>]*>points<', svg)
    assert float(left) > 9, "the height of a letter"


# In a browser.


@pytest.fixture(scope="module")
def addresses(browser, tmp_path_factory):
    """Of the page of a run and that of a sweep."""
    folder = tmp_path_factory.mktemp("pages")
    folders = write_run(folder / "mine"), write_sweep_of_heads(folder / "heads")
    return [write_report(each).resolve().as_uri() for each in folders]


@pytest.mark.quick("380-True")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1300, 380])
def test_a_browser_shows_both_pages_without_network_complaints_or_a_line_too_wide(
    addresses, browser, width, dark
):
    for address in addresses:
        browser.open(address, width=width, dark=dark)
        assert browser.complaints() == []
        assert [found for found in browser.requests() if not found.startswith("data:")] == [address]
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.scripts.length") == 0
        shades = [
            sum(
                map(
                    int,
                    re.findall(r"\d+", browser.run(f"getComputedStyle(document.body).{name}"))[:3],
                )
            )
            for name in ("backgroundColor", "color")
        ]
        assert (
            (shades[0] < 150 and shades[1] > 600) if dark else (shades[0] > 700 and shades[1] < 150)
        )
        keys = (
            "[...document.querySelectorAll('.key')].map(e => getComputedStyle(e, "
            "'::before').content)"
        )
        assert set(browser.run(keys)) == {'"■\xa0"'}
        outside = """[...document.querySelectorAll('svg text')].filter(e => {
            const box = e.getBoundingClientRect(), whole = e.ownerSVGElement.getBoundingClientRect();
            return box.left < whole.left - 1 || box.top < whole.top - 1
                || box.right > whole.right + 1 || box.bottom > whole.bottom + 1;
        }).map(e => e.textContent)"""
        assert browser.run(outside) == []
        # A table may be wider than a narrow window, which then scrolls; no name in it is broken.
        broken = """[...document.querySelectorAll('.scroll th')].filter(e => {
            const range = document.createRange();
            range.selectNodeContents(e);
            return new Set([...range.getClientRects()].map(box => box.top)).size > 1;
        }).map(e => e.textContent)"""
        assert browser.run(broken) == []
        assert browser.run(broken.replace(".scroll th", ".option")) == []
        assert browser.faint_words() == []
