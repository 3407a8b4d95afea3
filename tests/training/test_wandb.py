"""Weights & Biases, with the real client offline: what it wrote is read back."""

import json
import logging
import os
import signal
import socket
import subprocess
from dataclasses import replace

import pytest
import wandb
import wandb_file
from applications import TEXT, composed
from faults.harness import wait_until
from wandb.sdk.lib import wbauth
from wandb_file import SPEED, TRAINING, VALIDATION

from aiayn.errors import ConfigError, InterruptedRunError
from aiayn.runs import checkpoints
from aiayn.runs.results import Evaluation
from aiayn.runs.run_folder import RunFolder, read_jsonl
from aiayn.training import wandb_run
from aiayn.training.callbacks.monitors import ThroughputMonitor
from aiayn.training.run import train

KEY, TOKEN = "0123456789" * 4, "token-of-a-git-remote"


@pytest.fixture
def no_account(tmp_path, monkeypatch):
    """A machine on which nobody has ever used W&B."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    wandb_run._has_wandb_key.cache_clear()
    wbauth.unauthenticate_session()  # what an earlier test logged in with


@pytest.fixture
def interrupted_and_continued(config, tmp_path, monkeypatch, no_account):
    """A row of a sweep, stopped in step 7 of 12 and started again, on a machine with secrets to
    keep.
    """
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    remote = f"https://user:{TOKEN}@example.org/repository.git"
    subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", remote], check=True)
    monkeypatch.chdir(tmp_path)
    logger = replace(
        config.logger, kind="wandb", mode="offline", group="heads", upload=True, samples=True
    )
    settings = replace(config, name="sweeps/heads/a_h3", logger=logger)
    plain = ThroughputMonitor.on_step_end

    def stop_in_step_7(self, trainer, module, batch, step):
        plain(self, trainer, module, batch, step)
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ThroughputMonitor, "on_step_end", stop_in_step_7)
    with pytest.raises(InterruptedRunError):
        train(settings, tmp_path / "outputs")
    monkeypatch.setattr(ThroughputMonitor, "on_step_end", plain)
    return train(settings, tmp_path / "outputs")


def test_the_written_run_holds_every_series_samples_pictures_configuration_and_model(
    interrupted_and_continued, tmp_path
):
    folder = interrupted_and_continued
    paths = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    starts = [wandb_file.read(path) for path in paths]
    first, second, _ = starts  # the third uploads
    runs = [record.run for records in starts for record in records if record.HasField("run")]

    # One run, wherever it was interrupted.
    assert {run.run_id for run in runs} == {(folder / "wandb" / "run_id").read_text().strip()}
    assert {
        (run.run_group, run.job_type, run.display_name, run.project, *run.tags) for run in runs
    } == {("heads", "train", "sweeps/heads/a_h3", "aiayn", "a_h3")}

    # Every number of metrics.jsonl, under its step, and no others.
    rows = wandb_file.history(first) + wandb_file.history(second)
    series = TRAINING | SPEED | VALIDATION
    logged = {
        (row["trainer/global_step"], key): row[key] for row in rows for key in series & set(row)
    }
    written = {
        (record["step"], key): value
        for record in read_jsonl(folder / "metrics.jsonl")
        for key, value in record.items()
        if key != "step"
    }
    assert {key for _, key in written} == series
    assert {step for step, key in written if key in TRAINING} == set(range(1, 13))
    assert {step for step, key in written if key in VALIDATION} == {6, 12}
    assert all(logged[at] == pytest.approx(value) for at, value in written.items())
    assert {
        key for row in rows for key in row if key.split("/")[0] in ("train", "val", "perf")
    } == series

    axes = wandb_file.axes(first)
    assert axes == wandb_file.axes(second)
    assert (axes["*"], set(axes.values())) == ("trainer/global_step", {"trainer/global_step"})
    shown = {
        record.metric.name: record.metric.summary for record in first if record.HasField("metric")
    }
    assert (shown["val/ppl"].min, shown["val/ppl"].max, shown["val/ppl"].last) == (
        True,
        False,
        True,
    )
    assert (shown["val/bleu"].min, shown["val/bleu"].max, shown["val/bleu"].last) == (
        False,
        True,
        True,
    )

    # Samples grow with the steps.
    tables = {
        row["trainer/global_step"]: row["samples.nrows"] for row in rows if "samples.nrows" in row
    }
    assert tables == {6: 3, 12: 6}
    table = max(
        folder.glob("wandb/*/files/media/table/samples*.json"), key=lambda path: path.stat().st_size
    )
    content = json.loads(table.read_text())
    assert content["columns"] == ["step", "source", "reference", "hypothesis"]
    assert content["data"] == [
        list(record.values()) for record in read_jsonl(folder / "samples.jsonl")
    ]

    pictures = [
        (key.split(".")[0], row["trainer/global_step"])
        for row in rows
        for key in row
        if "filenames" in key
    ]
    assert sorted(pictures) == [("attention", 6), ("attention", 12)]

    config = wandb_file.config(second)
    assert (config["model"]["n_heads"], config["d_k"], config["d_v"], config["row"]) == (
        3,
        5,
        7,
        "a_h3",
    )
    assert config["trainer"]["max_steps"] == 12
    assert config["corpus"]["train"]["kept"] == 300
    assert config["machine"]["precision"] == "32-true"

    def artifacts() -> list:
        return [
            record.artifact for record in wandb_file.read(paths[-1]) if record.HasField("artifact")
        ]

    wait_until(artifacts)  # wandb's own process writes it
    [artifact] = artifacts()
    assert artifact.type == "model"
    files = {entry.path: entry for entry in artifact.manifest.contents}
    assert set(files) == {"averaged.ckpt", "tokenizer.json", "config.yaml"}
    assert checkpoints.load(folder / "checkpoints" / "averaged.ckpt").averaged == [6, 9, 12]

    # What is secret stays on the machine.
    written_files = [
        path for path in tmp_path.rglob("*") if path.is_file() and ".git" not in path.parts
    ]
    assert len(written_files) > 20
    for path in written_files:
        content = path.read_bytes()
        assert KEY.encode() not in content, path
        assert TOKEN.encode() not in content, path


def refused(**_):
    raise wandb.errors.AuthenticationError("no such\nkey")


@pytest.mark.parametrize(
    ("environment", "login", "chosen", "mode"),
    [
        (None, lambda **_: True, "auto", "online"),
        (None, lambda **_: False, "auto", "offline"),
        (None, refused, "auto", "offline"),  # or nobody answers: the training matters more
        ("disabled", lambda **_: True, "auto", "disabled"),
        ("offline", lambda **_: True, "online", "offline"),
        (None, lambda **_: True, "offline", "offline"),
    ],
)
def test_it_logs_online_with_a_key_and_offline_without(
    environment, login, chosen, mode, monkeypatch, no_account
):
    monkeypatch.setattr(wandb, "login", login)
    if environment:
        monkeypatch.setenv("WANDB_MODE", environment)
    assert wandb_run.wandb_mode(chosen) == mode


def test_mode_online_without_a_network_says_so_and_logs_offline(
    config, tmp_path, no_account, monkeypatch, caplog
):
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        wandb_run._is_reachable.cache_clear()
        settings = replace(config, logger=replace(config.logger, kind="wandb", mode="online"))
        try:
            run = wandb_run._start_client(settings, tmp_path)
        finally:
            wandb_run._is_reachable.cache_clear()
    assert "W&B cannot be reached from here: the run is stored offline in" in caplog.text
    assert run.offline
    run.finish()


def test_mode_online_without_a_key_ends_in_one_line(config, tmp_path, no_account, monkeypatch):
    monkeypatch.setattr(wandb_run, "_is_reachable", lambda: True)
    settings = replace(config, logger=replace(config.logger, kind="wandb", mode="online"))
    with pytest.raises(
        ConfigError, match=r"logger=wandb: .*; run `wandb login`, or set logger\.mode=offline$"
    ):
        train(settings, tmp_path)


def test_a_row_of_a_sweep_with_a_longer_name_than_a_tag_may_have_is_logged(
    config, tmp_path, no_account
):
    row, logger = (
        "n_heads-4_" * 9 + "seed-1",
        replace(config.logger, kind="wandb", mode="offline", group="search"),
    )
    run = wandb_run._start_client(
        replace(config, name=f"sweeps/search/{row}", logger=logger), tmp_path
    )
    assert (run.name, run.tags, run.config["row"]) == (f"sweeps/search/{row}", (row[:64],), row)
    run.finish()


def test_without_a_key_a_run_logs_offline_says_so_and_asks_nothing(
    config, tmp_path, no_account, caplog, capsys, monkeypatch
):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked a question"))
    logger, trainer = (
        replace(config.logger, kind="wandb"),
        replace(config.trainer, max_steps=1, val_every=1),
    )
    settings = replace(config, logger=logger, trainer=trainer)
    with caplog.at_level(logging.INFO, "aiayn"):
        folder = train(settings, tmp_path)
    assert (
        f"wandb    curves, options, machine are stored offline in {folder}/wandb; upload with "
        f"`wandb sync {folder}" in caplog.text
    )
    assert "no text (logger.samples=true sends validation sentences)" in caplog.text
    assert "WARNING" not in capsys.readouterr().err, "a user need not act"
    # Text leaves the machine on demand only.
    sentences = [
        record[side]
        for record in read_jsonl(folder / "samples.jsonl")
        for side in ("source", "reference")
    ]
    assert any(len(sentence) > 9 for sentence in sentences)
    written = [path.read_bytes() for path in folder.glob("wandb/**/*") if path.is_file()]
    assert any(b"val/loss" in content for content in written)
    assert not [
        content for content in written for sentence in sentences if sentence.encode() in content
    ]
    assert not list(folder.glob("wandb/**/*attention*"))
    assert len(list(folder.glob("wandb/offline-run-*"))) == 1  # upload is off


def test_the_reported_score_reaches_the_summary_of_the_run_that_was_trained(tmp_path, no_account):
    run = RunFolder(tmp_path / "run")
    run.wandb_id.parent.mkdir(parents=True)
    run.wandb_id.write_text("abcd1234\n")
    run.write_config(composed(*TEXT, "logger=wandb", "logger.mode=offline"))
    signature, metrics = "nrefs:1|case:mixed", {"sacrebleu": 27.25, "ter": None}
    wandb_run.send_scores(
        run, Evaluation(metrics=metrics, signature=signature, lines=7, split="test", step=5)
    )

    def summary() -> dict:
        files = run.path.glob("wandb/*/*.wandb")
        return wandb_file.summary([record for path in files for record in wandb_file.read(path)])

    wait_until(lambda: "test/sacrebleu" in summary())
    expected = {"test/sacrebleu": 27.25, "test/signature": signature, "test/step": 5}
    assert summary().items() >= expected.items()
    assert "test/ter" not in summary()
