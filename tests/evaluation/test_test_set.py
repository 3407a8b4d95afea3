"""Which text is scored, with which references, and which of the paper's figures may stand beside
it.
"""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from applications import TEXT, TINY, composed, run_application, write_pairs

from aiayn.config.evaluate import EvaluateConfig
from aiayn.errors import ConfigError, RefusedError
from aiayn.reports import published
from aiayn.runs.run_folder import RunFolder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a run, its text, a further reference of five lines and one of four."""
    folder = tmp_path_factory.mktemp("place")
    write_pairs(folder / "train", 60, seed=1)
    write_pairs(folder / "dev", 5, seed=2)
    write_pairs(folder / "newstest2014", 5, seed=2)
    write_pairs(folder / "ref.B", 5, seed=3)
    write_pairs(folder / "ref.short", 4, seed=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_application("train.py", *TEXT, *TINY, "name=small").code == 0
    return folder


@pytest.fixture(autouse=True)
def _there(place, monkeypatch) -> None:
    monkeypatch.chdir(place)


def evaluate(*options: str, name: str = "test") -> tuple[str, dict]:
    """Returns what is printed and evaluation.json; its folder begins with `name`."""
    outcome = run_application("evaluate.py", "run=outputs/small", "accelerator=cpu", *options)
    assert outcome.code == 0, outcome.err
    [path] = re.findall(r"^files +(\S+/evaluation\.json)", outcome.out, flags=re.MULTILINE)
    assert Path(path).parent.name.startswith(name)
    return outcome.out, json.loads(Path(path).read_text())


@pytest.mark.slow
def test_several_references_are_all_scored_against():
    first, one = evaluate()
    own = Path("own.de")
    own.write_bytes(Path("outputs/small/evaluation/test/hypotheses.txt").read_bytes())
    out, several = evaluate("references=[ref.B.de,own.de]")
    assert one["metrics"]["chrf"] < 50
    forced = one["forced"]
    assert forced["perplexity"] > 1
    assert 0 <= forced["accuracy"] <= 100
    assert (
        f"{forced['perplexity']:6.2f}  per subword of the reference ({forced['tokens']:,} subwords)"
        in first
    )
    # Of each line the best reference counts
    assert several["metrics"]["chrf"] == pytest.approx(100)
    assert (one["n_references"], several["n_references"]) == (1, 3)
    assert several["signature"].startswith("nrefs:3|")
    assert "split=test references=[ref.B.de,own.de], en -> de, 5 lines, 3 references" in out


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("ref.short.de", "references=ref.short.de: it has 4 lines and the source has 5"),
        ("nowhere.de", "nowhere.de: cannot be read"),
    ],
)
def test_references_that_do_not_fit_are_refused_before_torch_is_imported(
    file, message, monkeypatch
):
    monkeypatch.setitem(sys.modules, "aiayn.evaluation.evaluate", None)  # which imports torch
    outcome = run_application("evaluate.py", "run=outputs/small", f"references=[ref.B.de,{file}]")
    assert (outcome.code, outcome.err.count("\n")) == (3, 1)
    assert message in outcome.err


@pytest.mark.quick("x/val")
@pytest.mark.parametrize("prefix", ["x/val", "x/test"])
def test_other_text_under_the_name_of_a_split_does_not_overwrite_its_scores(prefix):
    split = prefix.removeprefix("x/")
    evaluate(f"split={split}", name=split)
    before = Path(f"outputs/small/evaluation/{split}/evaluation.json").read_bytes()
    write_pairs(Path(prefix), 3, seed=9)
    outcome = run_application("evaluate.py", "run=outputs/small", f"test={prefix}")
    assert (outcome.code, outcome.err.count("\n")) == (4, 1)
    assert (
        f"test={prefix}: evaluation/{split} belongs to the run's own split, data.{split}=dev"
        in outcome.err
    )
    assert Path(f"outputs/small/evaluation/{split}/evaluation.json").read_bytes() == before


@pytest.mark.slow
def test_a_splits_own_text_from_another_folder_is_that_split_even_if_the_first_is_gone():
    _, own = evaluate("split=val", name="val")
    for lang in ("en", "de"):
        Path("moved").mkdir(exist_ok=True)
        Path(f"moved/val.{lang}").write_bytes(Path(f"dev.{lang}").read_bytes())
    _, moved = evaluate("test=moved/val", name="val")
    files = [Path(f"dev.{lang}") for lang in ("en", "de")]
    for file in files:
        file.rename(f"{file}.away")
    try:
        _, gone = evaluate("test=moved/val", name="val")
        write_pairs(Path("x/val"), 3, seed=9)
        assert run_application("evaluate.py", "run=outputs/small", "test=x/val").code == 4
    finally:
        for file in files:
            Path(f"{file}.away").rename(file)
    assert [result["split"] for result in (own, moved, gone)] == ["val"] * 3


def test_a_finished_run_is_scored_on_the_test_set_that_the_same_command_names_now():
    shutil.copytree("outputs/small", "outputs/again")
    write_pairs(Path("another"), 4, seed=7)
    before = Path("outputs/again/config.yaml").read_text().replace("test: dev", "test: another")
    again = run_application(
        "train.py", *TEXT, *TINY, "name=again", "data.test=another", "trainer.average_last=7"
    )
    assert (again.code, "already finished" in again.err) == (0, True)
    assert "trainer.average_last: 5 -> 7 has no effect on a finished run" in again.err
    assert Path("outputs/again/config.yaml").read_text() == before

    scores = evaluate("run=outputs/again")[1]
    assert (scores["lines"], scores["split"], scores["prefix"]) == (4, "test", "another")


@pytest.mark.quick("[..]", "q/.hidden")
@pytest.mark.parametrize("name", ["q/..", "..", "q/.hidden", ".", "/", "", "q/a\nb"])
def test_names_that_lead_out_of_the_folder_of_evaluations_are_refused(name):
    Path("q").mkdir(exist_ok=True)
    for lang in ("en", "de"):
        for file in (f"q/...{lang}", f"q/.hidden.{lang}"):
            Path(file).write_bytes(Path(f"dev.{lang}").read_bytes())
    samples = Path("outputs/small/samples.jsonl").read_bytes()
    outcome = run_application("evaluate.py", "run=outputs/small", f"test='{name}'")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "name the files FOLDER/NAME" in outcome.err
    assert Path("outputs/small/samples.jsonl").read_bytes() == samples


@pytest.mark.slow
def test_the_papers_figures_are_printed_for_its_own_test_set_only(monkeypatch):
    plain, result = evaluate()
    assert (result["test_set"], result["paper"]) == (None, None)
    assert "27.3" not in plain
    monkeypatch.setitem(published.LINES, "newstest2014", 5)
    shown, result = evaluate("test=newstest2014", name="newstest2014")
    assert (result["test_set"], result["paper"]["kind"]) == ("newstest2014", "bleu_compound_split")
    assert " 27.30 base, 28.40 big (newstest2014, Table 2)" in shown
    assert (
        "compare only bleu_compound_split with it: the paper states neither tokenisation "
        "nor case" in shown
    )
    several, result = evaluate("test=newstest2014", "references=ref.B.de", name="newstest2014")
    assert (result["test_set"], result["paper"]) == ("newstest2014", None)
    assert "27.3" not in several


def test_text_outside_the_folder_is_read_only_if_it_is_named_or_trusted(
    place, tmp_path, monkeypatch
):
    # As if somebody else had made the run: from here its own text is elsewhere.
    for lang in ("en", "de"):
        (tmp_path / f"secret.{lang}").write_bytes((place / f"dev.{lang}").read_bytes())
    from aiayn.config.data import DataConfig
    from aiayn.evaluation.test_set import read_test_set

    def read(run="outputs/small", own=tmp_path / "secret", **options):
        config = EvaluateConfig(run=str(place / run), **options)
        return read_test_set(config, DataConfig(source="files", test=str(own))).sources

    with pytest.raises(
        RefusedError,
        match=r"data.test=.*secret is outside its folder and this one.* add test=.*secret, or",
    ):
        read()
    assert len(read(trusted=True)) == len(read(test=str(tmp_path / "secret"))) == 5
    monkeypatch.chdir(tmp_path)
    assert len(read()) == 5
    for lang in ("en", "de"):
        (place / f"outputs/small/own.{lang}").write_bytes((place / f"dev.{lang}").read_bytes())
    for run in ("outputs/small", "outputs/small/checkpoints/last.ckpt"):
        assert len(read(run, place / "outputs/small/own")) == 5
    Path("inside").symlink_to(place)
    with pytest.raises(RefusedError):
        read_test_set(
            EvaluateConfig(run="x"), DataConfig(source="files", test=["secret", "inside/dev"])
        )


def test_a_run_that_this_user_trained_may_name_text_anywhere_and_a_changed_one_may_not(
    place, tmp_path, monkeypatch
):
    from aiayn.evaluation.test_set import read_test_set

    for name in ("mine", "other"):
        for lang in ("en", "de"):
            (tmp_path / f"{name}.{lang}").write_bytes((place / f"dev.{lang}").read_bytes())
    config = composed(
        "data=files",
        "data.train=x",
        *(f"data.{split}={tmp_path}/mine" for split in ("val", "test")),
    )
    data = config.data
    run = RunFolder(tmp_path / "outputs/run")
    run.path.mkdir(parents=True)
    run.write_config(config)

    def lines(split="test", data=data):
        return len(read_test_set(EvaluateConfig(run=str(run.path), split=split), data).sources)

    assert lines() == lines("val") == 5
    with pytest.raises(RefusedError, match="is outside its folder and this one"):
        lines(data=replace(data, test=str(tmp_path / "other")))
    (tmp_path / "mine.txt").write_text("private")
    with pytest.raises(RefusedError, match="is outside its folder and this one"):
        lines(data=replace(data, src_lang="txt"))
    # Another user, or another machine
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(RefusedError, match="is outside its folder and this one"):
        lines()


def test_a_run_is_known_after_it_was_renamed_or_restored_in_its_place_and_a_copy_is_not(
    place, tmp_path
):
    from aiayn.evaluation.test_set import read_test_set

    for lang in ("en", "de"):
        (tmp_path / f"mine.{lang}").write_bytes((place / f"dev.{lang}").read_bytes())
    config = composed(
        "data=files", "data.train=x", *(f"data.{s}={tmp_path}/mine" for s in ("val", "test"))
    )
    run, renamed = tmp_path / "outputs/run", tmp_path / "outputs/renamed"
    run.mkdir(parents=True)
    RunFolder(run).write_config(config)

    def is_known(folder):
        try:
            read_test_set(EvaluateConfig(run=str(folder)), config.data)
        except RefusedError:
            return False
        return True

    assert is_known(run)
    (tmp_path / "link").symlink_to(run)
    assert is_known(tmp_path / "link")
    # As what somebody else sends back, or an archive that is unpacked here
    copy = shutil.copytree(run, tmp_path / "elsewhere/run")
    assert not is_known(copy)
    assert is_known(run.rename(renamed))
    # The backup of a run, where that was
    shutil.copytree(copy, run)
    assert is_known(run)
    RunFolder(copy).write_config(config)
    assert is_known(copy), "a run that is continued with the same command is one's own"


@pytest.mark.parametrize("lang", ["ssh/id_rsa", "../x", "e n", ".en", "en.gz", "", "-x"])
def test_a_language_is_a_code_and_leads_nowhere(lang):
    from aiayn.config.data import DataConfig

    with pytest.raises(ConfigError, match=r"data\.src_lang"):
        DataConfig(src_lang=lang)
    assert DataConfig(src_lang="pt-BR", tgt_lang="zh_Hant").src_lang == "pt-BR"
