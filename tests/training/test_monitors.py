"""What ThroughputMonitor reports, against the same quantities computed another way."""

import subprocess
from dataclasses import replace

import pytest
import torch

from aiayn import files
from aiayn.hardware import describe_machine, peak_memory
from aiayn.model.flops import training_flops
from aiayn.runs.run_folder import read_jsonl
from aiayn.token_ids import PAD_ID
from aiayn.training.callbacks import monitors
from aiayn.training.callbacks.monitors import ThroughputMonitor
from aiayn.training.run import train
from aiayn.training.start import TrainingClock


@pytest.fixture
def parts(monkeypatch):
    """Source and target lengths, without padding, and both widths of every micro-batch of the run,
    in order.
    """
    seen = []
    plain = ThroughputMonitor.on_micro_batch_end

    def on_micro_batch_end(self, outputs, batch):
        src, tgt = (
            [int((row != PAD_ID).sum()) for row in ids] for ids in (batch.src, batch.tgt_out)
        )
        seen.append((src, tgt, batch.src.shape[1], batch.tgt_out.shape[1]))
        plain(self, outputs, batch)

    monkeypatch.setattr(ThroughputMonitor, "on_micro_batch_end", on_micro_batch_end)
    return seen


def test_mfu_and_padding_are_those_of_the_tokens_that_the_interval_really_had(
    config, tmp_path, parts, monkeypatch
):
    ticks = iter(range(0, 10_000, 7))  # every look at the clock is 7 seconds later
    monkeypatch.setattr(TrainingClock, "now", lambda self: next(ticks))
    monkeypatch.setattr(monitors, "peak_rate", lambda *_: 1e6)
    settings = replace(config, trainer=replace(config.trainer, log_every=5))

    folder = train(settings, tmp_path)

    records = {r["step"]: r for r in read_jsonl(folder / "metrics.jsonl") if "perf/mfu" in r}
    for first, last in ((0, 5), (5, 10), (10, 12)):
        interval = parts[2 * first : 2 * last]  # two micro-batches a step
        flops = sum(
            training_flops(config.model, 290, s, t)
            for src, tgt, *_ in interval
            for s, t in zip(src, tgt, strict=True)
        )
        seconds = 28 if first == 0 else 7  # steps 1, 2 and 4 are shown, too
        assert records[last]["perf/mfu"] == pytest.approx(flops / (seconds * 1e6))
        positions = sum(
            len(src) * width_src + len(tgt) * width_tgt
            for src, tgt, width_src, width_tgt in interval
        )
        real = sum(sum(src) + sum(tgt) for src, tgt, *_ in interval)
        assert records[last]["perf/padding"] == pytest.approx(1 - real / positions)
        tokens = sum(sum(tgt) for _, tgt, *_ in interval)
        assert records[last]["perf/tokens_per_sec"] == pytest.approx(tokens / seconds)


@pytest.mark.slow
def test_the_norm_of_the_gradient_is_that_of_the_step_that_reports_it(
    config, tmp_path, monkeypatch
):
    norms = {}

    def on_before_optimizer_step(self, trainer, module, optimizer):
        gradients = [parameter.grad.double() for parameter in module.parameters()]
        norms[trainer.global_step + 1] = (
            sum(float((gradient**2).sum()) for gradient in gradients) ** 0.5
        )

    monkeypatch.setattr(ThroughputMonitor, "on_before_optimizer_step", on_before_optimizer_step)
    settings = replace(config, trainer=replace(config.trainer, log_every=5))

    folder = train(settings, tmp_path)

    reported = {
        r["step"]: r["train/grad_norm"]
        for r in read_jsonl(folder / "metrics.jsonl")
        if "train/grad_norm" in r
    }
    assert len(norms) == 12
    assert reported == pytest.approx({step: norms[step] for step in (5, 10, 12)}, rel=1e-5)


def test_a_cpu_has_no_mfu(config, tmp_path):
    records = read_jsonl(train(config, tmp_path) / "metrics.jsonl")

    assert any("perf/tokens_per_sec" in record for record in records)
    assert not any("perf/mfu" in record for record in records)
    assert 1e7 < peak_memory(torch.device("cpu")) < 1e13


def test_the_machine_is_described_without_its_name_or_user():
    import getpass
    import platform

    found = describe_machine(torch.device("cpu"), "32-true", 3)
    assert (found["devices"], found["precision"], found["torch"]) == (
        3,
        "32-true",
        torch.__version__,
    )
    assert found["device"]
    words = " ".join(map(str, found.values())).split()
    assert {platform.node(), getpass.getuser()} & set(words) == set()


def test_the_commit_that_runs_is_named_and_whether_its_files_differ(tmp_path, monkeypatch):
    def git(*arguments: str) -> str:
        person = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *person, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    source = tmp_path / "src/aiayn/files.py"
    source.parent.mkdir(parents=True)
    source.write_text("one\n")
    monkeypatch.setattr(files, "__file__", str(source))
    assert files.source_commit() is None  # installed from a wheel

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    git("tag", "v1")
    head = git("rev-parse", "--short=12", "HEAD").strip()
    assert (
        files.source_commit()
        == describe_machine(torch.device("cpu"), "32-true", 1)["commit"]
        == head
    )

    source.write_text("two\n")
    assert files.source_commit() == f"{head}-dirty"

    monkeypatch.setenv("PATH", "")
    assert files.source_commit() is None
