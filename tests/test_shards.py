"""`aiayn translate --out`: what an interrupted command has translated is kept, and nothing else is mixed into it."""

import gzip
import io
import itertools
from pathlib import Path

import pytest
import torch
from applications import run_application, write_run

from aiayn.cli import shards, texts
from aiayn.cli.arguments import ModelChoice
from aiayn.evaluation import progress
from aiayn.search.translator import Translator

LINES = ["the old house", "", "two cats", "the man sees", "the cat", "é 猫", "two men", "a house"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("outputs") / "tiny")


@pytest.fixture(autouse=True)
def _three_lines_a_shard(monkeypatch, tmp_path):
    monkeypatch.setattr(texts, "FILE_LINES", 3)
    monkeypatch.chdir(tmp_path)
    Path("text.en").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")


def translate(run: Path, *arguments: str):
    return run_application("aiayn", "translate", str(run), *(arguments or ("text.en",)))


def interrupted(run: Path, calls: int, *arguments: str, method: str = "n_best") -> list[Path]:
    """The shards of a command that is interrupted in its `calls`-th chunk, counted from 0."""
    left, real = itertools.count(), getattr(Translator, method)

    def stop(*given, **named):
        if next(left) == calls:
            raise KeyboardInterrupt
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, method, stop)
        ended = translate(run, *arguments, "--out", "out")
    assert ended.code == 130
    assert f"{calls} shards are kept; the same command goes on" in ended.err
    assert not Path("out").exists()
    return sorted(Path("out.shards").glob("00*"))


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (("text.en",), "n_best"),
        (("text.en", "--n-best", "2"), "n_best"),
        (("text.en", "--format", "jsonl"), "n_best"),
        (("text.en", "--sample", "--seed", "3"), "sample"),
        (("text.en", "--markup"), "n_best"),
        (("table.tsv",), "n_best"),
        (("text.en.gz", "--scores"), "n_best"),
    ],
)
def test_the_same_command_goes_on_after_the_last_complete_shard_and_writes_the_bytes_of_standard_output(
    run, arguments, method, monkeypatch
):
    Path("table.tsv").write_text("en\tde\n" + "".join(f"{line}\t\n" for line in LINES if line), encoding="utf-8")
    Path("text.en.gz").write_bytes(gzip.compress(Path("text.en").read_bytes(), mtime=0))
    whole = translate(run, *arguments)
    kept = interrupted(run, 2, *arguments, method=method)
    times = [path.stat().st_mtime_ns for path in kept]
    seen = []
    monkeypatch.setattr(shards.StandardOutput, "has", lambda self, number: pytest.fail("not to standard output"))
    wrote, real = [], shards.Shards.write
    monkeypatch.setattr(shards.Shards, "write", lambda self, n, lines: (wrote.append(n), real(self, n, lines)))
    monkeypatch.setattr(
        shards.Shards,
        "finish",
        lambda self, real=shards.Shards.finish: (seen.extend(p.stat().st_mtime_ns for p in kept), real(self)),
    )

    ended = translate(run, *arguments, "--out", "out")

    assert (whole.code, ended.code, ended.out) == (0, 0, "")
    assert Path("out").read_bytes() == whole.out.encode()
    assert wrote[0] == len(kept) >= 2
    assert seen == times, "what was complete is not translated again"
    assert "out.shards: goes on after" in ended.err
    assert sorted(path.name for path in Path().glob("*out*")) == ["out"]


@pytest.mark.parametrize("damage", [b"", b"x"])
def test_a_damaged_shard_is_translated_again_with_all_after_it(run, damage):
    whole = translate(run).out
    kept = interrupted(run, 2, "text.en")
    kept[0].write_bytes(kept[0].read_bytes()[:-1] + damage)
    ended = translate(run, "text.en", "--out", "out")
    assert "goes on" not in ended.err
    assert Path("out").read_text(encoding="utf-8") == whole


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["text.en", "--beam-size", "2"],
            "with --beam-size 3 instead of 2; repeat that command, or remove this folder",
        ),
        (["text.en", "--sample"], "with --sample False instead of True, --seed None instead of 0"),
        (["text.en", "--checkpoint", "last"], "with another model; repeat"),
        (["other.en"], "with another text; repeat"),
    ],
)
def test_shards_of_another_model_text_or_option_are_refused_by_a_line_that_names_it(run, arguments, told):
    kept = interrupted(run, 1, "text.en")
    before = [path.read_bytes() for path in kept]
    Path("other.en").write_text("another\n")

    refused = translate(run, *arguments, "--out", "out")

    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert told in refused.err
    assert [path.read_bytes() for path in kept] == before
    assert translate(run, "text.en", "--out", "out").code == 0


def test_options_change_freely_until_the_first_shard_is_complete(run):
    assert interrupted(run, 0, "text.en") == []
    assert translate(run, "text.en", "--n-best", "2", "--out", "out").code == 0
    assert Path("out").read_text(encoding="utf-8") == translate(run, "text.en", "--n-best", "2").out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("text.en", "--out", "text.en"), 4, "--out text.en: exists; remove it to translate again"),
        (("--out", "out"), 2, "--out out: needs a FILE that can be read again"),
        (("text.en", "--out", "no/out"), 2, "--out no/out: there is no folder no"),
        (("text.en", "--precision", "auto", "--out", "out"), 2, "--precision auto: is measured at every start"),
    ],
)
def test_an_output_that_would_not_be_safe_is_refused_before_the_model_is_loaded(
    run, arguments, code, told, monkeypatch
):
    monkeypatch.setattr(Translator, "from_run", lambda *given: pytest.fail("loaded"))
    refused = translate(run, *arguments)
    assert (refused.code, refused.err.count("\n")) == (code, 1)
    assert told in refused.err
    assert not Path("out.shards").exists()


def test_two_commands_do_not_write_one_output(run):
    with shards.output_to(Path("out"), {}):
        refused = translate(run, "text.en", "--out", "out")
    assert refused.code == 2
    assert "out.shards: another command writes to it; wait" in refused.err


def test_progress_is_shown_also_where_standard_error_is_no_terminal(run, monkeypatch):
    monkeypatch.setattr(progress.TranslationProgress, "EVERY", 0.0)
    interrupted(run, 1, "text.en")
    shown = translate(run, "text.en", "--out", "out").err
    assert "translated 8 of 8 lines" in shown
    assert "translated 3 of 8 lines" not in shown, "they were translated before"


def test_lines_already_written_do_not_raise_the_shown_rate(monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", iter([0.0, 20.0]).__next__)
    monkeypatch.setattr(progress.sys, "stderr", said := io.StringIO())
    shown = progress.TranslationProgress()
    shown.before = 1000
    shown(1100, 2100)
    assert "5 lines/s  ETA 0:03:20" in said.getvalue()


def test_checkpoints_that_lightning_wrote_are_told_apart_although_they_end_alike(tmp_path):
    found, ends = set(), set()
    for value in (1.0, 2.0):
        path = tmp_path / f"{value}.ckpt"
        torch.save({"weights": torch.full((9,), value)}, tmp_path / "epoch=0.ckpt")
        (tmp_path / "epoch=0.ckpt").rename(path)
        found.add(ModelChoice().checksums(path))
        ends.add(path.read_bytes()[-64:])
    assert (len(found), len(ends)) == (2, 1)
