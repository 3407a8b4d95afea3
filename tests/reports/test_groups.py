"""One's own runs as a table: what is a seed of what, what is compared with what, and in which
forms.
"""

import csv
import io
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from applications import composed, run_application
from scipy import stats

from aiayn.config.schema import Config
from aiayn.reports.comparison import comparisons
from aiayn.reports.differences import Difference, Sample
from aiayn.reports.groups import group_runs
from aiayn.reports.runs import Metric, find_runs, read_runs
from aiayn.runs.run_folder import RunFolder

PPL = Metric("val/ppl")


def store(folder: Path, config: Config, ppl: float, *, val: float | None = None, **changes) -> Path:
    """A trained run: its last measurement and, with `val` or `test=`, its sacreBLEU."""
    (folder / "checkpoints").mkdir(parents=True)
    step = config.trainer.max_steps
    (folder / "checkpoints" / f"step_{step}.ckpt").touch()
    RunFolder(folder).write_config(replace(config, name=folder.name))
    record = {"step": step, "val/ppl": ppl, "train/loss": ppl / 2} | changes.pop("measured", {})
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    for split, score in {"val": val, "test": changes.pop("test", None)}.items():
        if score is not None:
            place = folder / "evaluation" / split
            place.mkdir(parents=True)
            result = {
                "metrics": {"sacrebleu": score, "chrf": 2 * score},
                "step": step,
                "lines": 3,
                "split": split,
            }
            result |= {
                "averaged": [],
                "checkpoint": "last.ckpt",
                "text_sha256": split,
                "search": {"beam_size": 4},
            }
            result |= {"signatures": {"sacrebleu": "tok:13a", "chrf": "nc:6"}}
            (place / "evaluation.json").write_text(json.dumps(result | changes))
    return folder


@pytest.fixture(scope="module")
def base() -> Config:
    config = composed("data=files", "data.train=my/train", "data.val=my/dev", "data.vocab_size=300")
    return replace(config, trainer=replace(config.trainer, max_steps=40))


def with_rate(config: Config, rate: float, seed: int = 0) -> Config:
    return replace(config, seed=seed, optim=replace(config.optim, lr_scale=rate))


def with_dropout(config: Config, dropout: float, seed: int) -> Config:
    return replace(config, seed=seed, model=replace(config.model, dropout=dropout))


def grouped(folder: Path) -> list[tuple[str, Sample | None]]:
    return [(group.name, group.sample(PPL)) for group in group_runs(read_runs([folder])[0])]


def printed(*arguments: str) -> str:
    outcome = run_application("aiayn", "table", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome.out


# What is a seed of what.


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"vocab_size": 400}},
        {"data": {"train": "other/train"}},
        {"data": {"tokens_per_step": 999}},
        {"optim": {"warmup_steps": 7}},
        {"optim": {"beta2": 0.9}},
        {"trainer": {"max_steps": 80}},
        {"trainer": {"precision": "bf16-mixed"}},
    ],
)
def test_whatever_shapes_the_training_makes_another_row(tmp_path, base, change):
    [[section, values]] = change.items()
    other = replace(base, seed=1, **{section: replace(getattr(base, section), **values)})
    store(tmp_path / "one", base, 5.0)
    store(tmp_path / "two", other, 6.0)
    assert grouped(tmp_path) == [("one", Sample({0: 5.0})), ("two", Sample({1: 6.0}))]


def test_runs_that_differ_in_seed_name_and_devices_are_seeds_of_each_other(tmp_path, base):
    store(tmp_path / "base_seed-0", base, 5.0)
    store(
        tmp_path / "base_seed-1",
        replace(base, seed=1, trainer=replace(base.trainer, devices=2)),
        7.0,
    )
    # The same seed, other weights: seed 0 is their mean
    store(tmp_path / "again", replace(base, seed=0), 6.0)
    assert grouped(tmp_path) == [("again", Sample({0: 5.5, 1: 7.0}))]


def test_measurements_stand_in_the_order_of_the_seeds_that_are_listed(tmp_path, base):
    for seed, ppl in ((9, 5.0), (10, 7.0), (2, 8.0)):
        store(tmp_path / f"base_seed-{seed}", replace(base, seed=seed), ppl)
    [group] = json.loads(printed(str(tmp_path), "--format", "json"))["groups"]
    assert dict(zip(group["seeds"], group["val/ppl_by_seed"], strict=True)) == {
        2: 8.0,
        9: 5.0,
        10: 7.0,
    }


def test_a_run_that_is_not_finished_is_no_seed_of_finished_ones(tmp_path, base):
    store(tmp_path / "one", base, 5.0)
    torn = store(tmp_path / "two", replace(base, seed=1), 9.0)
    (torn / "checkpoints/step_40.ckpt").rename(torn / "checkpoints/step_20.ckpt")
    assert [name for name, _ in grouped(tmp_path)] == ["one", "two"]


def test_a_seed_whose_best_checkpoint_validates_better_than_its_average_is_a_seed_of_averaged_ones(
    tmp_path, base
):
    base = replace(base, trainer=replace(base.trainer, checkpoint_every=8, average_last=3))
    store(tmp_path / "one", base, 5.0, val=20.0, averaged=[24, 32, 40], checkpoint="averaged.ckpt")
    best = {"val": 24.0, "averaged": [], "checkpoint": "best.ckpt"}
    two = store(tmp_path / "two", replace(base, seed=1), 6.0, **best)
    assert len(grouped(tmp_path)) == 2  # somebody asked for checkpoint=best
    (two / "averaged.json").write_text('{"worse": true}')
    [group] = group_runs(read_runs([tmp_path])[0])
    assert group.sample(Metric("sacrebleu", "val")) == Sample({0: 20.0, 1: 24.0})
    assert any("best checkpoint" in note for note in group.runs[1].notes)


def test_runs_that_their_patience_may_end_are_seeds_only_if_they_validate_as_often(tmp_path, base):
    patient = replace(base, trainer=replace(base.trainer, patience=2, val_every=10))
    often = replace(patient, trainer=replace(patient.trainer, val_every=7))
    for name, config in (
        ("one", patient),
        ("two", replace(patient, seed=1)),
        ("often", replace(often, seed=2)),
    ):
        store(tmp_path / name, config, 5.0)
    assert {name: sample.n for name, sample in grouped(tmp_path)} == {"one": 2, "often": 1}


def test_best_checkpoints_by_different_metrics_are_no_seeds_and_not_out_of_date(tmp_path, base):
    for name, metric in (("loss", "val/loss"), ("bleu", "val/bleu")):
        config = replace(base, trainer=replace(base.trainer, best_metric=metric))
        run = store(tmp_path / name, config, 5.0, val=20.0, checkpoint="best.ckpt")
        place = run / "evaluation/val/evaluation.json"
        place.write_text(place.read_text().replace('"step": 40', '"step": 20'))
    groups = group_runs(read_runs([tmp_path])[0])
    assert [(group.name, group.options["val best_metric"]) for group in groups] == [
        ("bleu", "val/bleu"),
        ("loss", "val/loss"),
    ]
    assert [note for note in groups[0].runs[0].notes if "evaluate" in note] == []


def test_scores_of_the_text_that_an_option_named_before_it_changed_are_not_shown(tmp_path, base):
    for name, prefix in (("before", "my/old"), ("after", "my/new")):
        config = replace(base, data=replace(base.data, test="my/new"))
        store(tmp_path / name, config, 5.0, test=20.0, prefix=prefix)
    after, before = read_runs([tmp_path])[0]
    assert ("test" in after.evaluations, "test" in before.evaluations) == (True, False)
    [note] = [note for note in before.notes if "other text" in note]
    assert "data.test=my/old" in note


@pytest.mark.parametrize("search", [{"beam_size": 1}, {"hypotheses": "mbr.de"}])
def test_scores_of_another_search_are_no_seeds_and_a_missing_score_changes_nothing(
    search, tmp_path, base
):
    store(tmp_path / "one", base, 5.0, val=20.0, test=30.0)
    store(tmp_path / "two", replace(base, seed=1), 6.0, val=21.0)
    store(tmp_path / "greedy", replace(base, seed=2), 7.0, val=9.0, search=search)
    groups = group_runs(read_runs([tmp_path])[0])
    assert [(group.name, group.sample(Metric("sacrebleu", "val"))) for group in groups] == [
        ("greedy", Sample({2: 9.0})),
        ("one", Sample({0: 20.0, 1: 21.0})),
    ]
    assert groups[1].sample(Metric("sacrebleu", "test")) == Sample({0: 30.0})
    [line] = [line for line in printed(str(tmp_path)).split("\n") if line.startswith("one ")]
    assert re.split("  +", line)[-4:] == ["2", "5.50 ± 0.71", "20.50 ± 0.71", "30.00 (n=1)"]
    rows = [*csv.DictReader(io.StringIO(printed(str(tmp_path), "--format", "csv")))]
    assert [rows[1][key] for key in ("n", "val/sacrebleu_n", "test/sacrebleu_n")] == ["2", "2", "1"]


# Copies.


def test_a_run_given_by_several_paths_and_copied_is_one_seed(tmp_path, base, monkeypatch):
    folder = store(tmp_path / "runs/one", base, 5.0)
    store(tmp_path / "runs/two", replace(base, seed=1), 6.0)
    os.symlink(folder, tmp_path / "link")
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    paths = [Path("runs"), tmp_path / "runs/one", tmp_path / "link", tmp_path / "copy"]

    assert len(find_runs(paths)) == 3
    runs, _ = read_runs(paths)

    [group] = group_runs(runs)
    assert group.sample(PPL) == Sample({0: 5.0, 1: 6.0})
    assert group.record()["n"] == 2


# Comparisons.


@pytest.fixture
def own(tmp_path, base) -> Path:
    """A sweep of one's own option, two seeds against two of base, and one that ran once."""
    for name, dropout, seed, ppl, score in (
        ("base_seed-1", 0.1, 1, 5.0, 20.0),
        ("base_seed-2", 0.1, 2, 5.02, 20.5),
        ("dropout-0.3_seed-1", 0.3, 1, 9.0, 20.25),
        ("dropout-0.3_seed-2", 0.3, 2, 9.01, 20.5),
        ("dropout-0.4", 0.4, 1, 9.5, 15.0),
    ):
        store(tmp_path / "own" / name, with_dropout(base, dropout, seed), ppl, val=score)
    return tmp_path / "own"


def test_groups_have_means_spreads_and_intervals_by_seed_and_what_survives_is_marked(own):
    [table] = comparisons(read_runs([own])[0])

    found = {record["group"]: record for record in table.records}
    assert list(found) == ["base", "dropout-0.3", "dropout-0.4"]
    assert [record["n"] for record in found.values()] == [2, 2, 1]
    assert [record["model.dropout"] for record in found.values()] == ["0.1", "0.3", "0.4"]
    difference = found["dropout-0.3"]["val/ppl difference"]
    by_hand = stats.ttest_rel((9.0, 9.01), (5.0, 5.02))
    assert (difference.delta, difference.p) == (pytest.approx(3.995), pytest.approx(by_hand.pvalue))
    assert (difference.low, difference.high) == pytest.approx(tuple(by_hand.confidence_interval()))
    assert difference.p_holm == pytest.approx(2 * by_hand.pvalue)
    assert difference.is_significant
    assert not found["dropout-0.3"]["val/sacrebleu difference"].is_significant
    # A single run claims nothing
    assert found["dropout-0.4"]["val/ppl difference"] == Difference(4.49)
    assert found["base"]["val/ppl difference"] is None


def test_text_latex_and_csv_hold_the_same_comparison(own):
    text = printed(str(own))
    [line] = [line for line in text.split("\n") if line.startswith("dropout-0.3 ")]
    assert "9.00 ± 0.01" in line or "9.01 ± 0.01" in line
    assert line.count("*") == 1
    assert "between runs of the same seed" in text
    assert "Holm's correction for 2 comparisons" in text
    tex = printed(str(own), "--format", "latex")
    [row] = [line for line in tex.split("\n") if line.startswith("dropout-0.3 & 0.3 & $2$")]
    assert row.count("&") == 6
    assert r"\pm 0.01$" in row
    assert row.count(r"{\boldmath $") == 1
    assert all(word in tex for word in (r"\toprule", r"\midrule", r"\bottomrule"))
    rows = [*csv.DictReader(io.StringIO(printed(str(own), "--format", "csv")))]
    assert [row["n"] for row in rows] == ["2", "2", "1"]
    assert float(rows[1]["val/ppl difference"]) == pytest.approx(3.995)
    assert (
        float(rows[1]["val/ppl difference_low"]) < 3.995 < float(rows[1]["val/ppl difference_high"])
    )
    assert (rows[1]["val/ppl difference_significant"], rows[2]["val/ppl difference_p"]) == (
        "True",
        "",
    )


@pytest.mark.parametrize("name", ["dropout-0.3", "dropout-0.3_seed-1", "model.dropout=0.3"])
def test_any_group_can_be_the_baseline(own, name):
    [table] = comparisons(read_runs([own])[0], baseline=name)
    found = {record["group"]: record["val/ppl difference"] for record in table.records}
    assert found["dropout-0.3"] is None
    assert found["base"].delta == pytest.approx(-3.995)


def test_a_baseline_may_be_named_by_a_switch_as_it_is_typed(tmp_path, base):
    store(tmp_path / "one", base, 5.0)
    store(tmp_path / "two", replace(base, data=replace(base.data, lowercase=True)), 6.0)
    text = printed(str(tmp_path), "--baseline", "data.lowercase=true")
    assert re.search("^two +true ", text, re.MULTILINE)
    assert "Differences are from two" in text


def test_extensions_are_shown_and_named_by_the_first_digits_of_their_hash(tmp_path, base):
    digits = "0123456789abcdef" * 4
    for number, parts in enumerate((None, f"gelu.py:{digits}")):
        config = replace(base, model=replace(base.model, parts=parts))
        store(tmp_path / f"run{number}", replace(config, name=f"run{number}"), 5.0 + number)
    for name in ("gelu.py:01234567", f"gelu.py:{digits}"):
        text = printed(str(tmp_path), "--baseline", f"model.parts={name}")
        assert re.search(r"^run1 +gelu\.py:01234567 ", text, re.MULTILINE)
        assert digits not in text


def test_metrics_splits_and_any_logged_series_can_be_chosen(tmp_path, base):
    measured = {"val/accuracy": 61.5, "mine/entropy": 0.00862}
    store(tmp_path / "one", base, 5.0, val=20.0, test=30.0, measured=measured)
    chosen = ("--metrics", "chrf,accuracy", "--metrics", "mine/entropy")
    text = printed(str(tmp_path), *chosen, "--split", "test")
    head, _, line = text.split("\n")[3:6]
    assert head.split("  ")[-1].strip() == "mine/entropy"
    assert "chrf (test)" in head
    assert "val)" not in head
    assert line.split() == ["one", "1", "60.00", "61.50", "0.00862"]


def test_a_split_on_which_no_run_was_scored_is_refused_and_its_scores_are_not_offered(
    tmp_path, base
):
    store(tmp_path / "one", base, 5.0, val=20.0)
    unscored = run_application("aiayn", "table", str(tmp_path), "--split", "test")
    assert unscored.code == 2
    assert unscored.err.startswith("error: --split test: none of these runs was scored on it; ")
    store(tmp_path / "two", with_rate(base, 3.0), 6.0, test=31.0)
    chosen = ("--split", "test", "--metrics", "bleu_tokenized_lc")
    unmeasured = run_application("aiayn", "table", str(tmp_path), *chosen)
    assert unmeasured.code == 2
    assert "bleu_tokenized_lc: not measured in these runs with --split test; " in unmeasured.err


def test_scores_of_extensions_and_of_the_references_can_be_chosen(tmp_path, base):
    more = {
        "metrics": {"sacrebleu": 30.0, "exact_match": 12.5},
        "forced": {"perplexity": 7.25, "accuracy": 64.5},
    }
    store(tmp_path / "one", base, 5.0, test=30.0, **more)
    store(tmp_path / "two", with_rate(base, 3.0), 6.0, test=31.0)  # evaluated without the extension
    text = printed(str(tmp_path), "--metrics", "exact_match,perplexity,token_accuracy")
    head = next(line for line in text.split("\n") if "exact_match" in line)
    assert [
        f"{name} (test)" in head for name in ("exact_match", "perplexity", "token_accuracy")
    ] == [True] * 3
    lines = [line.split() for line in text.split("\n") if line.startswith(("one", "two"))]
    assert [line[-3:] for line in lines] == [["12.50", "7.25", "64.50"], ["-", "-", "-"]]


def test_a_series_and_a_score_of_one_name_have_columns_of_their_own(tmp_path, base):
    store(
        tmp_path / "one",
        base,
        5.0,
        val=30.0,
        metrics={"exact_match": 12.5},
        measured={"val/exact_match": 50.0},
    )
    chosen = ("--metrics", "val/exact_match,exact_match")
    [line] = [
        line.split()
        for line in printed(str(tmp_path), *chosen).split("\n")
        if line.startswith("one")
    ]
    assert line == ["one", "1", "50.00", "12.50"]
    [row] = csv.DictReader(io.StringIO(printed(str(tmp_path), *chosen, "--format", "csv")))
    assert (row["val/exact_match (series)"], row["val/exact_match"]) == ("50.0", "12.5")


def test_a_group_that_was_not_scored_has_no_option_of_the_search(tmp_path, base):
    store(tmp_path / "one", base, 5.0, test=30.0)
    store(tmp_path / "two", with_rate(base, 3.0), 6.0, test=31.0, search={"beam_size": 5})
    store(tmp_path / "unscored", with_rate(base, 5.0), 7.0)
    lines = [
        line.split()
        for line in printed(str(tmp_path)).split("\n")
        if line.startswith(("one", "two", "unsc"))
    ]
    assert [line[:3] for line in lines] == [
        ["one", "1", "4"],
        ["two", "3", "5"],
        ["unscored", "5", "-"],
    ]


def test_scores_of_another_text_or_signature_stand_in_a_table_of_their_own(tmp_path, base):
    store(tmp_path / "base_seed-1", replace(base, seed=1), 5.0, val=20.0)
    store(tmp_path / "two", with_rate(base, 3.0), 6.0, val=21.0)
    store(tmp_path / "three", with_rate(base, 4.0), 6.0, val=90.0, text_sha256="other")
    store(
        tmp_path / "four", with_rate(base, 5.0), 6.0, val=80.0, signatures={"sacrebleu": "tok:intl"}
    )

    tables = comparisons(read_runs([tmp_path])[0], baseline="base_seed-1")

    assert [[record["group"] for record in table.records] for table in tables] == [
        ["base", "two"],
        ["four"],
        ["three"],
    ]
    assert tables[0].before == [
        "3 tables: scores of different languages, texts or signatures must not be compared."
    ]
    # The score to report alone decides.
    assert len(comparisons(read_runs([tmp_path])[0], metrics=["val/ppl"])) == 1


def test_greedy_scores_of_other_sentences_are_neither_averaged_nor_compared(tmp_path, base):
    for name, seed, rate, sentences, bleu in (
        ("one", 1, 1.0, 500, 20.0),
        ("two", 2, 1.0, 9, 60.0),
        ("three", 3, 1.0, 500, 22.0),
        ("other", 1, 2.0, 9, 61.0),
        ("others", 3, 2.0, 9, 62.0),
    ):
        trainer, optim = (
            replace(base.trainer, val_bleu_sentences=sentences),
            replace(base.optim, lr_scale=rate),
        )
        run = store(
            tmp_path / name,
            replace(base, seed=seed, trainer=trainer, optim=optim),
            5.0 + seed / 100,
        )
        with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": 40, "val/bleu": bleu}) + "\n")
    groups = {group.name: group for group in group_runs(read_runs([tmp_path])[0])}
    [first, second] = [group.sample(Metric("val/bleu")) for group in groups.values()]
    assert (first, second) == (Sample({1: 20.0, 3: 22.0}), Sample({1: 61.0, 3: 62.0}))
    assert [group.sample(PPL).n for group in groups.values()] == [3, 2]
    shown = printed(
        str(tmp_path), "--metrics", "val/bleu,val/ppl", "--baseline", "optim.lr_scale=1"
    )
    assert "val/bleu is not compared across" in shown
    assert "val/ppl is not compared across" not in shown


def test_perplexities_of_other_vocabularies_are_not_compared_and_their_scores_are(tmp_path, base):
    store(tmp_path / "base", base, 5.0, val=20.0)
    store(tmp_path / "words", replace(base, data=replace(base.data, vocab_size=900)), 3.0, val=21.0)
    [table] = comparisons(read_runs([tmp_path])[0], baseline="base")
    found = table.records[1]
    assert (found["val/ppl difference"], found["val/sacrebleu difference"]) == (
        None,
        Difference(1.0),
    )
    assert "val/ppl is not compared across vocabularies, texts and losses." in table.after


def store_text(folder: Path, **fingerprints: str) -> None:
    """What a training stores of the content of its text."""
    (folder / "corpus.json").write_text(json.dumps(fingerprints))


def test_runs_on_two_texts_under_one_name_are_no_seeds_of_each_other(tmp_path, base):
    for seed, (ppl, corpus) in enumerate([(193.0, "a" * 64), (211.0, "a" * 64), (112.0, "b" * 64)]):
        run = store(tmp_path / f"run_seed-{seed}", replace(base, seed=seed), ppl, val=20.0 + seed)
        store_text(
            run, fingerprint=corpus, tokenizer_sha256="t", val_sha256=corpus, val_text_sha256=corpus
        )
    [table] = comparisons(read_runs([tmp_path])[0], baseline="run_seed-0")
    assert [(record["n"], record["text"]) for record in table.records] == [
        (2, "a" * 12),
        (1, "b" * 12),
    ]
    assert table.records[0]["val/ppl"] == Sample({0: 193.0, 1: 211.0})
    assert table.records[1]["val/ppl difference"] is None
    assert "val/ppl is not compared across vocabularies, texts and losses." in table.after


def test_a_text_that_changed_under_its_name_between_two_options_is_shown(tmp_path, base):
    for rate, corpus in ((1.0, "a" * 64), (2.0, "b" * 64)):
        store_text(
            store(tmp_path / f"rate{rate:g}", with_rate(base, rate), 5.0), fingerprint=corpus
        )
    [table] = comparisons(read_runs([tmp_path])[0])
    assert [(record["optim.lr_scale"], record["text"]) for record in table.records] == [
        ("1", "a" * 12),
        ("2", "b" * 12),
    ]


def test_one_text_under_two_names_is_one_text(tmp_path, base):
    for seed, place in enumerate(["my/train", "elsewhere/train"]):
        run = store(
            tmp_path / f"run_seed-{seed}",
            replace(base, seed=seed, data=replace(base.data, train=place)),
            5.0 + seed,
        )
        store_text(run, fingerprint="a" * 64, tokenizer_sha256="t")
    assert grouped(tmp_path) == [("run", Sample({0: 5.0, 1: 6.0}))]


@pytest.mark.parametrize(
    "change", [{"lowercase": True}, {"drop_equal": True}, {"max_length_ratio": 2.0}]
)
@pytest.mark.parametrize("stored", [False, True])
def test_perplexities_of_other_subwords_are_not_compared_whatever_option_changed_them(
    tmp_path, base, change, stored
):
    other = replace(base, data=replace(base.data, **change))
    for name, config in (("base", base), ("other", other)):
        run = store(tmp_path / name, config, 5.0, val=20.0)
        if stored:
            store_text(
                run, fingerprint=name, tokenizer_sha256=name, val_sha256=name, val_text_sha256="v"
            )
    [table] = comparisons(
        read_runs([tmp_path])[0], baseline="base", metrics=["val/ppl", "sacrebleu"]
    )
    assert (
        table.records[1]["val/ppl difference"],
        table.records[1]["val/sacrebleu difference"],
    ) == (
        None,
        Difference(0),
    )


def test_perplexities_of_other_training_text_with_the_same_subwords_are_compared(tmp_path, base):
    for name in ("base", "more"):
        run = store(
            tmp_path / name,
            replace(base, data=replace(base.data, train=name)),
            5.0 if name == "base" else 4.0,
        )
        store_text(run, fingerprint=name, tokenizer_sha256="t", val_sha256="v")
    [table] = comparisons(read_runs([tmp_path])[0], baseline="base")
    assert table.records[1]["val/ppl difference"] == Difference(-1.0)


def test_asking_for_fewer_metrics_buys_no_star(own):
    def corrected(*metrics: str, splits: tuple[str, ...] = ("val", "test")) -> float:
        [table] = comparisons(read_runs([own])[0], metrics=metrics, splits=splits)
        return table.records[1]["val/ppl difference"].p_holm

    assert (
        corrected("val/ppl")
        == corrected("val/ppl", splits=("test",))
        == corrected()
        == corrected("val/ppl", "chrf")  # in the place of sacrebleu
        < corrected("val/ppl", "chrf", "sacrebleu")
    )


def test_comparisons_that_are_corrected_for_without_being_shown_are_named(own):
    said = "The correction also counts sacrebleu (val), not shown."
    for metrics, is_said in ((["val/ppl"], True), (["val/ppl", "chrf"], False), ([], False)):
        [table] = comparisons(read_runs([own])[0], metrics=metrics)
        assert (said in table.after) is is_said


def test_the_ratio_of_lengths_stands_beside_every_bleu(tmp_path, base):
    lengths = {"sacrebleu": {"hypothesis_tokens": 91, "reference_tokens": 100}}
    store(tmp_path / "one", base, 5.0, val=20.0, details=lengths)
    text = printed(str(tmp_path), "--metrics", "sacrebleu,chrf")
    head, _, line = text.split("\n")[3:6]
    assert [word.strip() for word in re.split("  +", head)] == [
        "run",
        "n",
        "sacrebleu (val)",
        "length ratio",
        "chrf (val)",
    ]
    assert line.split() == ["one", "1", "20.00", "0.910", "40.00"]


def test_a_run_of_another_version_is_told_and_not_compared(own):
    (own / "dropout-0.4/config.yaml").write_text(
        yaml.safe_dump({"trainer": {"max_steps": 5}, "data": {"src_lang": "en", "tgt_lang": "de"}})
    )
    assert "dropout-0.4: not shown: " in printed(str(own))
