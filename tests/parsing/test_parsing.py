"""A parser from trees to scores, through the real command line."""

import json
from pathlib import Path

import pytest
from applications import TINY, run_application
from parsing.generated_grammar import generated_trees, write_split

PREFIXES = ("data=treebank", "data.train=train", "data.val=val", "data.test=test")


def write_treebank(folder: Path, splits: dict[str, int]) -> None:
    """Writes disjoint parts of a generated treebank as PREFIX.words and PREFIX.trees."""
    trees = generated_trees(sum(splits.values()), seed=0)
    for split, count in splits.items():
        part, trees = trees[:count], trees[count:]
        write_split(folder / split, part)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A parser of two steps."""
    folder = tmp_path_factory.mktemp("parser")
    write_treebank(folder, {"train": 120, "val": 4, "test": 6})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run_application(
            "train.py", *PREFIXES, *TINY, "model.attention_dropout=0.1", "name=parser"
        )
    assert done.code == 0, done.err
    return folder


def test_a_parser_trains_and_is_scored_by_its_brackets(run, monkeypatch):
    monkeypatch.chdir(run)

    done = run_application("evaluate.py", "run=outputs/parser", "accelerator=cpu")

    assert done.code == 0, done.err
    for name in ("f1", "precision", "recall", "complete_match", "malformed", "right-branching"):
        assert f"\n{name} " in done.out
    assert "sacrebleu" not in done.out
    stored = json.loads((run / "outputs/parser/evaluation/test/evaluation.json").read_text())
    assert stored["metrics"]["sacrebleu"] is None
    assert stored["metrics"]["f1"] >= 0
    assert stored["brackets"]["malformed"] == 6  # two steps teach no grammar
    assert "COLLINS.prm" in stored["signature"]
    metrics = (run / "outputs/parser/metrics.jsonl").read_text()
    assert '"val/f1"' in metrics
    assert "bleu" not in metrics
    page = (run / "outputs/parser/report.html").read_text()
    assert "F1, test" in page
    assert 'class="samples parsing"' in page
    assert "\n  (NP (DT" in page  # the gold tree, indented


def test_a_parser_prints_indented_trees_of_typed_words(run, monkeypatch):
    monkeypatch.chdir(run)
    Path("typed").write_text("the cat ( left ) .\n")

    tree = run_application("aiayn", "translate", "outputs/parser", "typed", "--format", "tree")
    line = run_application("aiayn", "translate", "outputs/parser", "typed", "--format", "brackets")

    assert (tree.code, line.code) == (0, 0)
    assert line.out.startswith("(TOP ")
    assert line.out.count("\n") == 1
    for word in ("the", "cat", "-LRB-", "left", "-RRB-"):
        assert f" {word})" in tree.out
        assert f" {word})" in line.out


def test_a_parser_reads_typed_brackets_as_its_treebank_spells_them_whatever_it_prints(
    run, monkeypatch
):
    monkeypatch.chdir(run)
    for name, text in (
        ("typed", "the cat ( left ) .\n"),
        ("spelled", "the cat -LRB- left -RRB- .\n"),
    ):
        Path(name).write_text(text)
    found = [
        run_application("aiayn", "translate", "outputs/parser", name, "--format", "jsonl")
        for name in ("typed", "spelled")
    ]
    assert found[0].out == found[1].out != ""


@pytest.mark.parametrize("option", ["baseline=outputs/other", "references=more.trees"])
def test_what_compares_translations_is_refused_for_a_parser(run, monkeypatch, option):
    monkeypatch.chdir(run)

    done = run_application("evaluate.py", "run=outputs/parser", option)

    assert done.code == 2
    assert "does not apply to data.task=parsing" in done.err


def test_references_that_are_no_trees_are_refused_with_their_line(run, monkeypatch):
    monkeypatch.chdir(run)
    Path("wrong.words").write_text("a b\na b\n")
    Path("wrong.trees").write_text("(S NN NN )S\n(S NN )S\n")

    done = run_application("evaluate.py", "run=outputs/parser", "test=wrong")
    trained = run_application("train.py", *PREFIXES, *TINY, "data.val=wrong", "name=wrong")

    assert (done.code, trained.code) == (3, 3)
    for outcome in (done, trained):
        assert "line 2 of the reference is not the linear tree" in outcome.err


@pytest.mark.slow
def test_a_tiny_parser_learns_a_small_grammar_from_2000_trees(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_treebank(tmp_path, {"train": 2000, "val": 50, "test": 300})
    options = [
        "model=tiny",
        "model.n_layers=2",
        "model.dropout=0.1",
        "data.vocab_size=500",
        "data.tokens_per_step=1200",
        "data.max_length=120",
        "optim.warmup_steps=300",
        "optim.lr_scale=0.5",
        "trainer.max_steps=1500",
        "trainer.val_every=300",
        "trainer.checkpoint_every=50",
        "trainer.precision=32-true",
        "search.max_extra_tokens=100",
        "logger=none",
        "name=grammar",
    ]

    trained = run_application("train.py", *PREFIXES, *options)
    scored = run_application("evaluate.py", "run=outputs/grammar", "accelerator=cpu")

    assert (trained.code, scored.code) == (0, 0), trained.err + scored.err
    result = json.loads((tmp_path / "outputs/grammar/evaluation/test/evaluation.json").read_text())
    assert result["metrics"]["f1"] >= 95
    assert result["brackets"]["malformed"] <= 30
    assert result["brackets"]["right_branching"]["f1"] < 60
