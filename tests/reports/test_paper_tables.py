"""The paper's tables from stored run folders, half of them incomplete or broken."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from applications import composed, run_application
from scipy import stats

from aiayn.config.model import ModelConfig
from aiayn.config.schema import Config
from aiayn.config.stored import to_dict
from aiayn.errors import ConfigError
from aiayn.model.flops import training_flops
from aiayn.reports import tables as writers
from aiayn.reports.differences import Difference, Sample
from aiayn.reports.paper_tables import paper_tables
from aiayn.reports.published import SECTION_23
from aiayn.reports.runs import find_runs, read_run, read_runs
from aiayn.reports.tables import Table
from aiayn.runs.continuation import store_end
from aiayn.runs.run_folder import RunFolder

METRICS = ("sacrebleu", "bleu_tokenized", "bleu_tokenized_lc", "bleu_compound_split", "chrf", "ter")


def evaluation(step: int, score: float, **changes) -> dict:
    """An evaluation.json whose kinds all have scores of their own; `score` is that of the paper's
    kind.
    """
    metrics = {kind: score + place - 3 for place, kind in enumerate(METRICS)}
    facts = {
        "metrics": metrics,
        "step": step,
        "lines": 7,
        "averaged": [],
        "test_set": None,
        "n_references": 1,
        "text": "split=val",
    }
    return facts | changes


def store(folder: Path, config: Config, step: int = 40, vocab_size: int = 300, **parts) -> Path:
    """A run's folder; parts: ppl, val, test (evaluations), metrics (text); None leaves a part
    out.
    """
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / f"step_{step}.ckpt").write_bytes(b"")  # the table reads its name only
    config = replace(config, data=replace(config.data, vocab_size=vocab_size))
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
    ppl = parts.get("ppl", 9.5)
    lines = [
        {"step": 10, "val/ppl": 50.0},
        {"step": step, "val/ppl": ppl},
        {"step": step, "train/loss": 2.0},
    ]
    (folder / "metrics.jsonl").write_text(
        parts.get("metrics", "".join(json.dumps(line) + "\n" for line in lines))
    )
    for split in ("val", "test"):
        if result := parts.get(split):
            (folder / "evaluation" / split).mkdir(parents=True)
            (folder / "evaluation" / split / "evaluation.json").write_text(
                json.dumps({"split": split, **result})
            )
    return folder


def read_tables(folder: Path, **how) -> dict[str, Table]:
    return {table.name: table for table in paper_tables(read_runs([folder])[0], **how)}


def collect(folder: Path, **how) -> dict[str, list[dict]]:
    return {table.name: table.records for table in read_tables(folder, **how).values()}


def markdown(folder: Path, **how) -> str:
    return writers.markdown([table for table in read_tables(folder, **how).values() if table.shown])


def printed(*arguments: str) -> str:
    outcome = run_application("aiayn", "table", *arguments)
    assert outcome.code == 0, outcome.err
    return outcome.out


def one(value: float) -> Sample:
    return Sample({0: value})


def resized(model: ModelConfig, **sizes: object) -> ModelConfig:
    """The model with other sizes, from which those of its heads follow unless they are given."""
    return ModelConfig(**vars(model) | {"d_k": None, "d_v": None} | sizes)


@pytest.fixture(scope="module")
def configs() -> dict[str, Config]:
    """The paper's own training, and short ones on files of rows of Table 3."""
    paper = composed()
    data = replace(paper.data, tokens_per_step=2000, source="files", train="my/train")
    short = replace(paper, data=data, trainer=replace(paper.trainer, max_steps=40))
    changes = {
        "base": {},
        "a_h4": {"n_heads": 4},
        "b_dk16": {"d_k": 16},
        "d_k_48": {"d_k": 48},
        "c_n2": {"n_layers": 2},
    }
    changes["e_learned"] = {"positions": "learned"}
    found = {
        name: replace(short, model=resized(short.model, **change))
        for name, change in changes.items()
    }
    found["d_ls02"] = replace(short, optim=replace(short.optim, label_smoothing=0.2))
    french = replace(paper.data, tgt_lang="fr", hub_name="fr-en", vocab_size=32_000)
    return found | {"paper": paper, "french": replace(paper, data=french)}


@pytest.fixture
def sweep(tmp_path, configs) -> Path:
    """Three whole runs, under names that say nothing, and five that are incomplete or broken."""
    folder = tmp_path / "sweeps" / "small"
    store(
        folder / "one",
        configs["base"],
        ppl=9.5,
        val=evaluation(40, 20.0),
        test=evaluation(40, 19.0),
    )
    store(folder / "two", configs["a_h4"], ppl=9.75, val=evaluation(40, 19.5))
    store(folder / "zero", configs["d_k_48"], ppl=9.6, val=evaluation(40, 20.25))
    torn = '{"step": 10, "val/ppl": 50.0}\n{"step": 20, "val/ppl": 30.5}\n[1]\n{"step": 30, "val/pp'
    store(folder / "torn", configs["b_dk16"], step=30, metrics=torn)
    averaged = store(
        folder / "averaged", configs["d_ls02"], val=evaluation(40, 25.0, averaged=[38, 40])
    )
    (averaged / "metrics.jsonl").unlink()
    damaged = store(folder / "damaged", configs["e_learned"], val=evaluation(40, 18.0))
    (damaged / "evaluation" / "val" / "evaluation.json").write_text('{"metrics": {"sacrebleu"')
    nothing = store(folder / "nothing", configs["c_n2"])
    (nothing / "config.yaml").write_text("model: [")
    old = store(folder / "foreign", configs["c_n2"])
    (old / "config.yaml").write_text(
        "new: 1\ntrainer: {max_steps: 5}\ndata: {src_lang: en, tgt_lang: de}\n"
    )
    # What else lies in a sweep's folder.
    (folder / "base.log").write_text("step 1\n")
    (folder / "sweep.json").write_text("{}")
    (folder / "never_started").mkdir()
    (folder / "one" / "wandb" / "run").mkdir(parents=True)
    (folder / "one" / "wandb" / "run" / "config.yaml").write_text("x: 1")
    return folder


def by_row(records: list[dict]) -> dict[str, dict]:
    return {record["row"]: record for record in records}


@pytest.mark.parametrize("name", ["missing", "never_started", "base.log"])
def test_a_folder_without_runs_is_refused(sweep, name):
    with pytest.raises(ConfigError, match=rf"{name}: neither a run nor a folder of runs"):
        find_runs([sweep / "one", sweep / name])


def test_the_sweep_of_the_nearest_name_is_suggested(tmp_path):
    (tmp_path / "sweeps/heads/a_h4/checkpoints").mkdir(parents=True)
    for typed, meant in (("sweps", "sweeps"), ("sweeps/haeds", "sweeps/heads")):
        with pytest.raises(ConfigError, match=rf"did you mean {tmp_path / meant}\?$"):
            find_runs([tmp_path / typed])
    model = tmp_path / "en-de.aiayn"
    model.touch()
    with pytest.raises(ConfigError, match=r"no config\.yaml\); name one, such as outputs/NAME$"):
        find_runs([model])


def test_a_run_stands_in_the_row_of_its_configuration_whatever_its_folder_is_called(sweep):
    tables = collect(sweep)
    rows = {
        record["row"]: Path(record["run"]).name for record in tables["table_3"] if record["run"]
    }
    assert rows == {
        "base": "one",
        "a_h4": "two",
        "b_dk16": "torn",
        "d_ls02": "averaged",
        "e_learned": "damaged",
    }
    assert len(tables["table_3"]) == 20


def test_measured_stands_beside_published_with_the_difference(sweep):
    row = by_row(collect(sweep)["table_3"])["a_h4"]
    assert (row["ppl"], row["paper_ppl"], row["ppl_difference"]) == (one(9.75), 5.0, 4.75)
    assert (row["bleu"], row["paper_bleu"], row["bleu_difference"]) == (one(19.5), 25.5, -6.0)
    assert (row["n_layers"], row["d_model"], row["d_ff"], row["n_heads"]) == (6, 512, 2048, 4)
    assert (row["d_k"], row["d_v"], row["dropout"], row["label_smoothing"]) == (128, 128, 0.1, 0.1)
    assert (row["steps"], row["paper_steps"]) == (40, 100_000)
    # 63.05 M with 37,000 words (section 3 of the paper, counted), here with 300.
    assert row["parameters"] == pytest.approx((63_045_632 - 36_700 * 512) / 1e6)
    base = by_row(collect(sweep)["table_3"])["base"]
    assert base["parameters_difference"] == pytest.approx(base["parameters"] - 65)


def test_a_table_of_which_two_rows_were_run_is_shown_whole_with_big_and_another_only_as_far_as_it_was_run(
    sweep,
):
    text = markdown(sweep)

    third = text.partition("## Table 3: newstest2013")[2].partition("##")[0]
    assert [line.split("|")[1].strip() for line in third.split("\n") if line.startswith("| ")][
        1:
    ] == [
        *(
            "base",
            "a_h1",
            "a_h4",
            "a_h16",
            "a_h32",
            "b_dk16",
            "b_dk32",
            "c_n2",
            "c_n4",
            "c_n8",
            "c_dmodel256",
        ),
        *(
            "c_dmodel1024",
            "c_dff1024",
            "c_dff4096",
            "d_drop00",
            "d_drop02",
            "d_ls00",
            "d_ls02",
            "e_learned",
            "big",
        ),
    ]
    second = text.partition("## Table 3")[0]
    assert "Transformer (base)" in second
    assert "3 rows of this table were not run; --all shows them as well." in second
    assert "Table 4" not in text


def test_incomplete_runs_are_shown_as_far_as_they_go_and_told(sweep):
    rows = by_row(collect(sweep)["table_3"])
    assert (rows["b_dk16"]["ppl"], rows["b_dk16"]["steps"], rows["b_dk16"]["bleu"]) == (
        one(30.5),
        30,
        None,
    )
    assert (rows["d_ls02"]["ppl"], rows["d_ls02"]["bleu"]) == (None, None)
    assert (rows["e_learned"]["ppl"], rows["e_learned"]["bleu"], rows["e_learned"]["steps"]) == (
        one(9.5),
        None,
        40,
    )
    text = printed(str(sweep))
    for name, note in {
        "torn": "unfinished: step 30 of 40",
        "averaged": "no perplexity in metrics.jsonl",
        "damaged": "evaluation.json of val is damaged; score again",
    }.items():
        assert any(
            line.startswith(f"- {sweep / name}: ") and note in line for line in text.split("\n")
        )
    assert f"{sweep}/torn: the perplexity is that of step 20" in text
    assert "- averaged: weights: average of 2 (paper: one checkpoint)" in text
    assert f"score again: aiayn evaluate run={sweep}/damaged split=val checkpoint=last" in text


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_one_table_too_is_followed_by_what_is_missing_of_its_runs(sweep, form):
    text = printed(str(sweep), "--table", "table_3", "--format", form)
    assert "Table 2" not in text
    assert f"{sweep / 'torn'}: unfinished: step 30 of 40" in text


def test_a_run_that_its_patience_ended_is_not_called_unfinished(tmp_path, configs):
    config = replace(
        configs["base"], trainer=replace(configs["base"].trainer, patience=2, val_every=10)
    )
    lines = [
        {"step": step, "val/ppl": 9.0, "val/loss": loss}
        for step, loss in ((10, 3.0), (20, 3.1), (30, 3.2))
    ]
    for name, validations in (("over", lines), ("going", lines[:2])):
        metrics = "".join(json.dumps(line) + "\n" for line in validations)
        store(tmp_path / name, config, step=validations[-1]["step"], metrics=metrics)
    text = printed(str(tmp_path))
    assert f"- {tmp_path}/over: ended by trainer.patience=2: step 30 of 40" in text
    assert f"- {tmp_path}/going: unfinished: step 20 of 40" in text


def test_which_values_of_a_metric_of_ones_own_are_better_is_not_guessed(tmp_path, configs):
    trainer = replace(configs["base"].trainer, patience=2, val_every=10, best_metric="val/errors")
    config = replace(configs["base"], trainer=trainer, extensions=["errors.py"])
    for name, values in (("ended", (5, 6, 7)), ("going", (9, 8, 7))):  # lower is better
        metrics = "".join(
            json.dumps({"step": 10 * (n + 1), "val/ppl": 9.0, "val/errors": value}) + "\n"
            for n, value in enumerate(values)
        )
        store(tmp_path / name, config, step=30, metrics=metrics)
    store_end(RunFolder(tmp_path / "ended"), trainer, 30, "trainer.patience=2", ["patience"])
    text = printed(str(tmp_path))
    assert f"- {tmp_path}/ended: ended by trainer.patience=2: step 30 of 40" in text
    assert f"- {tmp_path}/going: unfinished: step 30 of 40" in text


def test_a_run_that_is_not_the_papers_is_said_to_be_not_comparable_and_why(sweep):
    text = markdown(sweep)
    assert "Not comparable with the paper's figures" in text
    row = by_row(collect(sweep)["table_3"])["base"]
    assert row["not_comparable"] == [
        "training text: my/train (paper: wmt14 train)",
        "steps: 40 (paper: 100,000)",
        "data.tokens_per_step: 2,000 (paper: 25,000)",
        "data.vocab_size: 300 (paper: 37,000)",
        "text: split=val (paper: newstest2013)",
    ]
    assert all(f": {reason}\n" in text for reason in row["not_comparable"])
    assert "- one, two, torn and 2 more: data.vocab_size: 300 (paper: 37,000)" in text


def test_a_run_as_in_the_paper_is_comparable(tmp_path, configs):
    val = evaluation(100_000, 25.6, test_set="newstest2013", lines=3000)
    test = evaluation(100_000, 27.1, test_set="newstest2014", lines=3003, averaged=[1, 2, 3, 4, 5])
    parts = {"step": 100_000, "vocab_size": 37_000, "ppl": 5.0, "val": val, "test": test}
    tables = collect(store(tmp_path / "run", configs["paper"], **parts))
    run, _ = read_runs([tmp_path])
    assert run[0].notes == []
    row, line = tables["table_3"][0], tables["table_2"][0]
    assert (row["row"], row["not_comparable"]) == ("base", [])
    assert (line["model"], line["not_comparable"]) == ("Transformer (base)", [])
    assert (line["bleu"], line["bleu_kind"], line["sacrebleu"]) == (
        one(27.1),
        "bleu_compound_split",
        one(24.1),
    )
    assert line["bleu_difference"] == pytest.approx(-0.2)
    assert line["flops"] == pytest.approx(line["paper_flops_counted"])
    assert line["paper_flops"] / line["flops"] == pytest.approx(3.5, abs=0.05)
    text = markdown(tmp_path)
    assert "Not comparable" not in text
    assert "3.5 (base) and 2.4 (big) times as many" in text
    assert (line["test_set"], line["lines"]) == ("newstest2014", 3003)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"test_set": "newstest2014 (2,737 lines)", "lines": 2737},
            "text: newstest2014 (2,737 lines) (paper: newstest2014)",
        ),
        ({"search": {"beam_size": 4, "batch_tokens": 9}}, None),
        (
            {"search": {"beam_size": 1, "length_penalty": 0.6}},
            "search.beam_size: 1 (paper: 4)",
        ),
        ({"n_references": 3}, "references: 3 (paper: 1)"),
        ({"averaged": []}, "weights: one checkpoint (paper: average of 5)"),
        ({"averaged": [1, 2]}, "weights: average of 2 (paper: average of 5)"),
    ],
)
def test_a_score_of_another_text_search_or_of_other_weights_is_not_comparable(
    tmp_path, configs, change, reason
):
    good = {"test_set": "newstest2014", "lines": 3003, "averaged": [1, 2, 3, 4, 5]}
    test = evaluation(100_000, 27.1, **good | change)
    store(tmp_path / "run", configs["paper"], step=100_000, vocab_size=37_000, test=test)
    assert collect(tmp_path)["table_2"][0]["not_comparable"] == ([reason] if reason else [])


def test_french_runs_stand_in_table_2_only_and_by_the_tokenised_kind(tmp_path, configs):
    test = evaluation(100_000, 30.0, test_set="newstest2014")
    tables = collect(
        store(tmp_path / "run", configs["french"], step=100_000, vocab_size=32_000, test=test)
    )
    line = tables["table_2"][2]
    assert (line["model"], line["text"], line["paper_bleu"]) == (
        "Transformer (base)",
        "en-fr",
        38.1,
    )
    assert (line["bleu_kind"], line["bleu"]) == ("bleu_tokenized", one(28.0))
    assert not any(record["run"] for record in tables["table_3"])


def test_flops_are_counted_from_the_tokens_of_the_corpus_where_they_are_known(tmp_path, configs):
    run = store(tmp_path / "run", configs["base"])
    src, tgt = [600, 610, 590, 605, 595, 620], [590, 620, 600, 615, 610, 595]
    train = {"kept": 6, "src_tokens": sum(src), "tgt_tokens": sum(tgt)}
    (run / "corpus.json").write_text(json.dumps({"splits": {"train": train}, "steps_per_epoch": 2}))
    counted = read_run(RunFolder(run)).flops(40)
    # 40 steps are twenty epochs.
    model = configs["base"].model
    epoch = sum(training_flops(model, 300, s + 1, t + 1) for s, t in zip(src, tgt, strict=True))
    assert counted == pytest.approx(20 * epoch, rel=1e-4)


@pytest.mark.parametrize(
    "corpus",
    [
        {"splits": {"train": {"kept": 6, "tgt_tokens": 60}}, "steps_per_epoch": 2},
        {"splits": {"train": {"kept": 6, "src_tokens": 60, "tgt_tokens": 60}}},
        {"splits": {"train": 6}, "steps_per_epoch": 2},
        {"splits": {"train": {"kept": 6, "tgt_tokens": "60"}}, "steps_per_epoch": 2},
        {"splits": {"train": {"kept": 0, "tgt_tokens": 10**400}}, "steps_per_epoch": [2]},
        {"fingerprint": 7, "tokenizer_sha256": [1]},
        {"splits": None},
    ],
)
def test_flops_are_those_of_full_steps_where_what_is_known_of_the_corpus_is_incomplete(
    tmp_path, configs, corpus
):
    run = store(tmp_path / "run", configs["base"], test=evaluation(40, 19.0))
    full = read_run(RunFolder(run)).flops(40)
    (run / "corpus.json").write_text(json.dumps(corpus))
    assert read_run(RunFolder(run)).flops(40) == full
    [base, *_] = json.loads(printed(str(run), "--format", "json"))["table_2"]
    assert base["flops"] == full


@pytest.mark.parametrize(
    "more", [{"weights": [3.0, 0.5], "train": ["a", "b"]}, {"temperature": 5.0}]
)
def test_pairs_that_an_epoch_has_several_times_make_no_step_cheaper(tmp_path, configs, more):
    run = store(
        tmp_path / "run", replace(configs["base"], data=replace(configs["base"].data, **more))
    )
    full = read_run(RunFolder(run)).flops(40)
    # An epoch of these pairs, each counted once
    train = {
        "kept": 6,
        "src_tokens": 3620,
        "tgt_tokens": 3630,
    }
    (run / "corpus.json").write_text(json.dumps({"splits": {"train": train}, "steps_per_epoch": 6}))
    assert read_run(RunFolder(run)).flops(40) == full


def seeded(config: Config, seed: int, **optim) -> Config:
    return replace(config, seed=seed, optim=replace(config.optim, **optim))


def test_seeds_of_a_row_are_one_line_with_their_spread_and_other_trainings_are_lines_of_their_own(
    tmp_path, configs
):
    for seed in (0, 1):
        store(tmp_path / f"a_h4_seed-{seed}", seeded(configs["a_h4"], seed), ppl=9.0 + seed)
    store(tmp_path / "fast", seeded(configs["a_h4"], 0, lr_scale=3.0), ppl=74_328_688.96)

    records = [record for record in collect(tmp_path)["table_3"] if record["row"] == "a_h4"]

    assert [record["ppl"] for record in records] == [Sample({0: 9.0, 1: 10.0}), one(74_328_688.96)]
    assert [record["n"] for record in records] == [2, 1]
    assert f"9.50 ± {0.5**0.5:.2f}" in markdown(tmp_path)


def test_scores_of_a_later_seed_are_shown_with_what_they_are_of(tmp_path, configs):
    val, test = (
        evaluation(40, 25.0, averaged=[38, 40]),
        evaluation(40, 26.0, checkpoint="best.ckpt", lines=3003),
    )
    store(tmp_path / "seed-0", configs["base"])
    store(
        tmp_path / "seed-1",
        replace(configs["base"], seed=1),
        val=val,
        test=test | {"test_set": "newstest2014"},
    )

    tables = collect(tmp_path)

    row, line = by_row(tables["table_3"])["base"], tables["table_2"][0]
    assert (row["n"], row["bleu"], row["length_ratio"]) == (2, None, None)
    assert row["not_comparable"][-1] == "weights: average of 2 (paper: one checkpoint)"
    assert (line["bleu"], line["weights"], line["test_set"], line["lines"]) == (
        Sample({1: 26.0}),
        "best",
        "newstest2014",
        3003,
    )
    assert line["not_comparable"][-1] == "weights: best (paper: average of 5)"


def test_a_row_on_text_that_changed_under_its_name_is_not_compared_with_base(tmp_path, configs):
    for name, corpus in {"base": "a", "c_n2": "b"}.items():
        run = store(tmp_path / name, configs[name], val=evaluation(40, 20.0))
        (run / "corpus.json").write_text(
            json.dumps({"fingerprint": corpus, "tokenizer_sha256": "t"})
        )
    tables = read_tables(tmp_path)
    assert tables["table_3_changes"].records == []
    assert "c_n2 is not compared with base: they differ in text." in tables["table_3"].after


def test_changes_have_students_intervals_and_only_what_survives_correction_is_bold(
    tmp_path, configs
):
    ppls = {"base": (9.0, 9.5, 10.0), "a_h4": (9.4, 9.2, 10.1), "c_n2": (19.0, 19.5, 20.0)}
    for row, values in ppls.items():
        for seed, ppl in enumerate(values):
            store(tmp_path / f"{row}-{seed}", seeded(configs[row], seed), ppl=ppl)
    store(tmp_path / "d_ls02", configs["d_ls02"], ppl=30.0)

    changes = {change["row"]: change["ppl"] for change in collect(tmp_path)["table_3_changes"]}

    assert changes["c_n2"].delta == pytest.approx(10)
    # By hand, the seed as a block: two degrees of freedom for each of two rows.
    by_seed = np.array([ppls[row] for row in ("base", "a_h4", "c_n2")])
    rest = by_seed - by_seed.mean(0) - by_seed.mean(1, keepdims=True) + by_seed.mean()
    reach = stats.t.isf(0.025, 4) * (np.sum(rest**2) / 4) ** 0.5 * (2 / 3) ** 0.5
    assert (changes["c_n2"].low, changes["c_n2"].high) == (
        pytest.approx(10 - reach),
        pytest.approx(10 + reach),
    )
    assert [changes[row].is_significant for row in ("a_h4", "c_n2", "d_ls02")] == [
        False,
        True,
        False,
    ]
    assert changes["d_ls02"] == Difference(pytest.approx(20.5))  # one run claims nothing
    lines = {
        line.split("|")[1].strip(): line
        for line in markdown(tmp_path).partition("change against")[2].split("\n")[2:]
        if "|" in line
    }
    assert "**+10.00 [" in lines["c_n2"]
    assert "**" not in lines["a_h4"] + lines["d_ls02"]
    assert "+20.50 " in lines["d_ls02"]


def test_rows_of_two_trainings_are_each_compared_with_their_own_base_though_both_are_called_base(
    tmp_path, configs
):
    for tokens, change in ((2000, 1.0), (4000, 3.0)):
        for row, ppl in (("base", 9.0), ("c_n2", 9.0 + change)):
            for seed, noise in enumerate((0.0, 0.25, 0.125 * change)):
                config = seeded(configs[row], seed)
                config = replace(config, data=replace(config.data, tokens_per_step=tokens))
                store(
                    tmp_path / str(tokens) / f"{row}_seed-{seed}",
                    config,
                    ppl=ppl + seed + noise * (row == "c_n2"),
                )
    tables = read_tables(tmp_path)
    changes = [change["ppl"] for change in tables["table_3_changes"].records]
    assert [change.delta for change in changes] == [
        pytest.approx(1.0 + 0.375 / 3),
        pytest.approx(3.0 + 0.625 / 3),
    ]
    assert all(change.p_holm is not None for change in changes)
    said = "\n".join(tables["table_3_changes"].after)
    assert f"{tmp_path}/2000/base_seed-0 (3 seeds); {tmp_path}/4000/base_seed-0 (3 seeds)" in said
    assert "Holm's correction for 2 comparisons" in said


def test_a_row_at_a_quarter_of_the_widths_stands_beside_the_papers_row(tmp_path, configs):
    quarter = {"d_model": 128, "d_ff": 512}
    for name, change in {"base": {}, "b_dk4": {"d_k": 4}, "c_dmodel64": {"d_model": 64}}.items():
        model = resized(configs["base"].model, **quarter | change)
        run = store(
            tmp_path / name,
            replace(configs["base"], model=model),
            ppl=12.0 + len(name),
            val=evaluation(40, 9.0),
        )
        # A folder of collected results has no checkpoints
        (run / "checkpoints/step_40.ckpt").unlink()
        (run / "checkpoints").rmdir()

    tables = collect(tmp_path)

    rows = {record["row"]: record for record in tables["table_3_quarter"] if record["run"]}
    assert {row: Path(record["run"]).name for row, record in rows.items()} == {
        "base": "base",
        "b_dk16": "b_dk4",
        "c_dmodel256": "c_dmodel64",
    }
    assert len(tables["table_3_quarter"]) == 19
    assert not any(record["run"] for record in tables["table_3"])
    row = rows["b_dk16"]
    assert (row["ppl"], row["paper_ppl"], row["bleu"], row["paper_bleu"], row["steps"]) == (
        one(17.0),
        5.16,
        one(9.0),
        25.1,
        40,
    )
    page = markdown(tmp_path)
    line = [line for line in page.split("\n") if line.startswith("| b_dk16")][-1]
    assert [cell.strip() for cell in line.split("|")[2:7]] == [
        "1",
        "+1.00",
        "+0.24",
        "+0.00",
        "-0.7",
    ]
    assert "## Table 3:" not in page


def test_a_row_in_another_precision_shows_it_and_is_not_compared_with_base(tmp_path, configs):
    for name, precision in {"base": "bf16-mixed", "c_n2": "bf16-mixed", "a_h4": "32-true"}.items():
        run = store(tmp_path / name, configs[name])
        (run / "machine.json").write_text(json.dumps({"precision": precision}))
    tables = read_tables(tmp_path)
    third = tables["table_3"]
    assert "precision" in [column.title for column in third.columns]
    assert third.after[-1] == "a_h4 is not compared with base: they differ in trainer.precision."
    assert [record["row"] for record in tables["table_3_changes"].records] == ["c_n2"]
    (tmp_path / "a_h4" / "machine.json").write_text(json.dumps({"precision": "bf16-mixed"}))
    text = markdown(tmp_path)
    assert "precision" not in text
    assert "not compared with base" not in text


def test_a_file_of_csv_holds_one_table(sweep):
    for name in ("groups", "table_2", "table_3", "table_3_changes"):
        heads = printed(str(sweep), "--format", "csv", "--table", name).split("\n")[0].split(",")
        assert len(heads) == len(set(heads)) < 40


def test_parameters_need_no_run():
    outcome = run_application("aiayn", "table", "--parameters", "--vocab-size", "10000")
    assert outcome.code == 0
    [line] = [line for line in outcome.out.split("\n") if line.startswith("big ")]
    assert line.split() == ["big", "213", "186.52", "-26.48", "218.23", "+5.23"]
    plain = json.loads(printed("--parameters", "--format", "json"))
    assert plain["parameters"][0]["parameters"] == pytest.approx(63.045632)
    assert plain["parameters"][0]["vocab_size"] == 37_000


def test_the_papers_tables_need_no_run_either():
    assert "other" not in printed("--all")
    tables = json.loads(printed("--all", "--format", "json"))
    [row] = [row for row in tables["table_3"] if row["row"] == "a_h4"]
    assert (row["paper_ppl"], row["paper_bleu"]) == (5.00, 25.5)


def test_scores_of_other_text_are_not_taken_for_the_runs_dev_score(tmp_path, configs):
    own = {"text": "split=val", "text_sha256": "a"}
    store(tmp_path / "first", configs["base"], val=evaluation(40, 20.0, **own))
    store(
        tmp_path / "other", configs["a_h4"], val=evaluation(40, 99.0, split="test", text_sha256="b")
    )
    store(
        tmp_path / "newer",
        configs["b_dk16"],
        val=evaluation(40, 90.0, text="test=x/val", split=None),
    )
    store(
        tmp_path / "edited", configs["c_n2"], val=evaluation(40, 30.0, split="val", text_sha256="c")
    )
    records = collect(tmp_path)
    found = by_row(records["table_3"])
    assert [found[row]["bleu"] for row in ("base", "a_h4", "b_dk16", "c_n2")] == [
        one(20.0),
        None,
        None,
        one(30.0),
    ]
    assert "has scores of other text (test=x/val): aiayn evaluate" in printed(str(tmp_path))
    assert {change["row"]: change["bleu"] for change in records["table_3_changes"]}["c_n2"] is None


def test_runs_of_no_row_of_the_paper_show_none_of_its_tables_unless_asked_for(tmp_path, configs):
    tiny = replace(
        configs["base"], model=replace(configs["base"].model, n_layers=2, d_model=48, n_heads=3)
    )
    store(tmp_path / "tiny" / "seed0", tiny, test=evaluation(40, 30.0))
    named = re.compile(r"Table \d")
    assert not named.search(markdown(tmp_path))
    assert named.findall(markdown(tmp_path, every_row=True)) == ["Table 2", "Table 3", "Table 4"]
    assert "\ntiny" in printed(str(tmp_path))  # the folder seed0 names no configuration
    store(tmp_path / "base", configs["base"], test=evaluation(40, 25.0))
    assert "other" in markdown(tmp_path)  # beside a row of the paper


# Table 4: parsers beside the paper's figures, on section 23 only.


def parsed(f1: float, test_set: str | None) -> dict:
    """A parser's evaluation.json."""
    metrics = {
        "sacrebleu": None,
        "f1": f1,
        "precision": f1 + 1,
        "recall": f1 - 1,
        "complete_match": 30.0,
    }
    more = {"lines": 2416, "text": "split=test", "brackets": {"malformed": 12}, "metrics": metrics}
    return evaluation(70, f1, test_set=test_set, **more)


@pytest.fixture
def parsers(tmp_path) -> Path:
    """The paper's parser on section 23 and on another text, and a smaller one on section 23."""
    wsj = composed("experiment=table4_wsj")
    small = replace(wsj, model=replace(wsj.model, d_model=512))
    for name, config, f1, test_set in (
        ("wsj", wsj, 90.5, SECTION_23),
        ("elsewhere", wsj, 95.0, None),
        ("small", small, 80.0, SECTION_23),
    ):
        store(tmp_path / name, config, 80, wsj.data.vocab_size, test=parsed(f1, test_set))
    return tmp_path


def test_only_the_papers_model_on_section_23_stands_beside_its_figure(parsers):
    records = collect(parsers)["table_4"]

    shown = [
        (record["training"], Path(record["run"] or "none").name, record["paper_f1"])
        for record in records
    ]
    assert shown == [
        ("WSJ only", "wsj", 91.3),
        ("semi-supervised", "none", 92.7),
        (None, "elsewhere", None),
        (None, "small", None),
    ]
    assert records[0]["f1_difference"] == pytest.approx(-0.8)
    assert records[0]["f1"] == Sample({0: 90.5})
    assert (records[0]["malformed"], records[0]["steps"], records[1]["f1"]) == (12, 70, None)


def test_parsers_stand_in_no_table_of_translations(parsers):
    tables = collect(parsers)

    assert not any(record["run"] for name in ("table_2", "table_3") for record in tables[name])


def test_the_table_prints_rows_that_were_not_run_as_such(parsers):
    done = run_application("aiayn", "table", str(parsers), "--all", "--format", "markdown")

    assert done.code == 0
    lines = done.out.partition("## Table 4")[2].split("\n")
    [wsj, semi] = [line for line in lines if line.startswith("| Transformer")]
    assert [cell.strip() for cell in wsj.split("|")[4:11]] == [
        *("90.50", "91.3", "-0.80", "91.50", "89.50", "30.00", "12")
    ]
    assert [cell.strip() for cell in semi.split("|")[4:6]] == ["not run", "92.7"]
    assert sum(line.startswith("| other") for line in lines) == 2
