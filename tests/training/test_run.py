import gzip
import hashlib
import json
import math
import signal
from dataclasses import replace

import pytest
import torch
from applications import stopped_in

from aiayn.errors import DataError
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import read_jsonl as read_metrics
from aiayn.runs.run_folder import saved_steps
from aiayn.training.run import train


def losses(folder):
    return {
        r["step"]: r["train/loss"]
        for r in read_metrics(folder / "metrics.jsonl")
        if "train/loss" in r
    }


def weights(folder, name="last"):
    return checkpoints.load(folder / "checkpoints" / f"{name}.ckpt").weights


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def changed(config, **sections):
    return replace(
        config,
        **{name: replace(getattr(config, name), **values) for name, values in sections.items()},
    )


@pytest.fixture(scope="module")
def unbroken(config, tmp_path_factory):
    """The folder of a finished run, for all tests to read and none to write into."""
    return train(config, tmp_path_factory.mktemp("unbroken"))


def test_a_run_leaves_its_checkpoints_metrics_samples_and_picture(unbroken):
    place = unbroken / "checkpoints"
    assert saved_steps(place) == [6, 9, 12]
    assert sorted(path.name for path in place.glob("*.optim")) == ["step_12.optim", "step_9.optim"]
    assert same(weights(unbroken), weights(unbroken, "step_12"))
    assert checkpoints.load(place / "averaged.ckpt").averaged == [6, 9, 12]
    assert sorted(losses(unbroken)) == list(range(1, 13))
    validated = [r for r in read_metrics(unbroken / "metrics.jsonl") if "val/ppl" in r]
    assert [r["step"] for r in validated if "val/bleu" in r] == [6, 12]
    samples = [
        json.loads(line) for line in (unbroken / "samples.jsonl").read_text().split("\n")[:-1]
    ]
    assert [sample["step"] for sample in samples] == [6, 6, 6, 12, 12, 12]
    assert all(sample["source"] and sample["reference"] for sample in samples)
    stored, last = (
        json.loads((unbroken / "corpus.json").read_text()),
        checkpoints.load(place / "last.ckpt"),
    )
    tokenizer = hashlib.sha256(last.tokenizer.encode()).hexdigest()
    assert (stored["fingerprint"], stored["tokenizer_sha256"]) == (last.corpus, tokenizer)
    assert (
        len(
            {
                stored[key]
                for key in ("fingerprint", "tokenizer_sha256", "val_sha256", "val_text_sha256")
            }
        )
        == 4
    )
    assert [path.name for path in unbroken.rglob(".*") if path.is_file()] == [".owner"], (
        "no temporary file is left"
    )


def test_the_average_is_the_mean_of_every_weight_of_the_last_checkpoints(unbroken):
    averaged = weights(unbroken, "averaged")
    saved = [weights(unbroken, f"step_{step}") for step in (6, 9, 12)]
    assert averaged.keys() == saved[-1].keys()
    for name, weight in averaged.items():
        each = torch.stack([checkpoint[name].double() for checkpoint in saved])
        assert each.std(dim=0).max() > 0, f"{name} differs from step to step"
        torch.testing.assert_close(weight.double(), each.mean(dim=0), rtol=1e-7, atol=1e-8)


def test_the_loss_falls_and_starts_near_a_uniform_guess(unbroken):
    curve = losses(unbroken)
    # Embeddings of unit variance, tied to the output, put half a nat on top of ln V.
    assert math.log(290) < curve[1] < math.log(290) + 1.5
    assert curve[12] < curve[1] - 1


@pytest.mark.slow
def test_what_is_logged_after_several_steps_is_the_same_where_a_stop_fell_among_them(
    config, tmp_path
):
    settings = changed(config, trainer={"log_every": 5})
    whole = train(settings, tmp_path / "whole")
    with stopped_in(7):
        train(settings, tmp_path / "stopped")
    assert losses(train(settings, tmp_path / "stopped")) == pytest.approx(losses(whole), abs=1e-6)
    assert sorted(losses(whole)) == [5, 10, 12]


def test_ctrl_c_saves_and_exits_with_130(config, tmp_path):
    with stopped_in(4, signal.SIGINT) as stopped:
        train(config, tmp_path)
    assert stopped.value.exit_code == 130
    assert saved_steps(tmp_path / "run" / "checkpoints")[-1] == 4


def test_a_finished_run_is_left_as_it_is_with_its_pictures(unbroken, config, caplog):
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*") if path.is_file()}
    train(config, unbroken.parent)
    assert {
        path: path.stat().st_mtime_ns for path in unbroken.rglob("*") if path.is_file()
    } == before
    [said] = [line for line in caplog.messages if line.startswith("already finished at step 12")]
    assert said.endswith("to continue, raise trainer.max_steps")


@pytest.mark.slow
def test_the_number_of_micro_batches_changes_nothing_but_rounding_without_dropout(config, tmp_path):
    ends = []
    for parts in (1, 8):
        settings = changed(config, data={"micro_batches": parts}, model={"dropout": 0.0})
        ends.append(losses(train(settings, tmp_path / str(parts))))
    assert ends[0] == pytest.approx(ends[1], abs=2e-4)


@pytest.mark.slow
def test_a_data_set_in_the_hubs_own_layout_is_trained_on_from_a_local_folder(
    config, corpus, tmp_path
):
    """WMT14's: one configuration folder, parquet files named by split, a `translation` struct."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "wmt14" / "de-en"
    folder.mkdir(parents=True)
    for split, name in (("train", "train"), ("val", "validation"), ("test", "test")):
        texts = [
            gzip.decompress((corpus / f"{split}.{lang}.gz").read_bytes()).decode()
            for lang in ("en", "xx")
        ]
        sides = [text.split("\n")[:-1] for text in texts]
        rows = [{"de": xx, "en": en} for en, xx in zip(*sides, strict=True)]
        pq.write_table(pa.table({"translation": rows}), folder / f"{name}-00000-of-00001.parquet")
    hub = {
        "source": "hub",
        "hub_path": str(tmp_path / "wmt14"),
        "hub_name": "de-en",
        "tgt_lang": "de",
    }
    splits = {"train": "train", "val": "validation", "test": "test"}
    settings = changed(
        config, data=hub | splits | {"folder": str(tmp_path / "data")}, trainer={"max_steps": 2}
    )
    from_hub, from_files = (
        train(settings, tmp_path / "hub"),
        train(changed(config, trainer={"max_steps": 2}), tmp_path),
    )
    assert losses(from_hub) == losses(from_files)


def test_validation_text_with_a_line_that_is_not_utf8_is_refused_before_anything_is_written(
    config, corpus, tmp_path
):
    """Such a pair is dropped when the corpus is prepared; scores are made from the text as it
    stands.
    """
    settings = changed(
        config, data={"val": bad_validation(corpus, tmp_path), "folder": str(tmp_path / "data")}
    )
    with pytest.raises(DataError, match=r"val\.en\.gz .*\(source\): line 22 is not UTF-8"):
        train(settings, tmp_path / "outputs")
    assert not list((tmp_path / "outputs").iterdir())


def test_validation_text_is_read_only_where_it_is_translated(config, corpus, tmp_path):
    data = {"val": bad_validation(corpus, tmp_path), "folder": str(tmp_path / "data")}
    folder = train(
        changed(config, data=data, trainer={"val_bleu_sentences": 0}), tmp_path / "outputs"
    )
    assert sorted(r["step"] for r in read_metrics(folder / "metrics.jsonl") if "val/loss" in r) == [
        6,
        12,
    ]
    assert not (folder / "samples.jsonl").exists()
    assert not (folder / "attention.png").exists()


def bad_validation(corpus, folder):
    """The prefix of validation text whose last source is not UTF-8."""
    for lang, line in (("en", b"f\xfcnf\n"), ("xx", b"5\n")):
        content = gzip.decompress((corpus / f"val.{lang}.gz").read_bytes())
        (folder / f"val.{lang}.gz").write_bytes(gzip.compress(content + line))
    return str(folder / "val")


def fails_with(error):
    def fail(*arguments):
        raise error

    return fail


def test_a_picture_and_a_page_that_fail_cost_a_line_and_the_same_command_makes_the_page(
    config, tmp_path, monkeypatch, caplog
):
    with monkeypatch.context() as broken:
        broken.setattr(
            "aiayn.visualize.maps.attention_maps",
            fails_with(RuntimeError("shapes (3, 1)\nand (3, 4)")),
        )
        broken.setattr("aiayn.reports.report.write_report", fails_with(KeyError("column")))
        folder = train(config, tmp_path)
    said = [message for message in caplog.messages if "left out" in message]
    assert said == [
        f"warning  {folder}/attention.png: left out (RuntimeError: shapes (3, 1) and (3, 4))",
        f"warning  {folder}/report.html: left out (KeyError: 'column')",
    ]
    assert checkpoints.load(folder / "checkpoints/averaged.ckpt").averaged == [6, 9, 12]
    assert (folder / "averaged.json").exists()
    train(config, tmp_path)
    assert (folder / "report.html").exists()


@pytest.mark.quick("maps")
@pytest.mark.parametrize(
    "broken", ["visualize.maps.attention_maps", "training.finish.compare_with_best"]
)
def test_what_comes_after_a_checkpoint_cannot_lose_it(
    broken, config, unbroken, tmp_path, monkeypatch
):
    class End(BaseException):
        """As a kill would be."""

    with monkeypatch.context() as patch:
        patch.setattr(f"aiayn.{broken}", fails_with(End()))
        with pytest.raises(End):
            train(config, tmp_path)
    folder = tmp_path / "run"
    assert same(weights(folder), weights(unbroken))
    assert (folder / "checkpoints/averaged.ckpt").exists() == broken.endswith("best")
    train(config, tmp_path)
    assert same(weights(folder, "averaged"), weights(unbroken, "averaged"))
    assert json.loads((folder / "averaged.json").read_text()) == json.loads(
        (unbroken / "averaged.json").read_text()
    )
