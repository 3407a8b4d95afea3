"""TensorBoard and CSV hold what metrics.jsonl holds, also of a run that was killed and
continued.
"""

import csv
import math
from dataclasses import replace

import pytest
from wandb_file import SPEED, TRAINING, VALIDATION

from aiayn.errors import ConfigError
from aiayn.runs.run_folder import read_jsonl
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.module import TranslationModule
from aiayn.training.run import train


class Logging(TranslationModule):
    def training_loss(self, batch):
        self.log("own/step", self.trainer.global_step + 1.0)
        self.log("own/never", math.nan)
        return super().training_loss(batch)


@pytest.fixture
def killed_and_continued(config, tmp_path, monkeypatch):
    """Twelve steps with the logger of this name; the first start died in step 8, after the
    checkpoint of step 6.

    Returns the run's folder, and the CSV files as they were then.
    """
    at_death: dict[str, str] = {}

    def run(kind, module=None):
        settings = replace(config, logger=replace(config.logger, kind=kind))
        plain = CheckpointSaver.on_step_end

        def die(self, trainer, module, batch, step):
            plain(self, trainer, module, batch, step)
            if step == 8:
                at_death.update(
                    (path.parent.name, path.read_text()) for path in tmp_path.rglob("metrics.csv")
                )
                raise RuntimeError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(CheckpointSaver, "on_step_end", die)
            with pytest.raises(RuntimeError, match="planted"):
                train(settings, tmp_path, module=module)
        return train(settings, tmp_path, module=module), at_death

    return run


def of_the_run(folder):
    """(step, metric): value, of the run's own file."""
    records = read_jsonl(folder / "metrics.jsonl")
    return {
        (record["step"], key): value
        for record in records
        for key, value in record.items()
        if key != "step"
    }


def test_csv_files_hold_every_series_and_each_start_has_its_own(killed_and_continued):
    folder, at_death = killed_and_continued("csv", Logging)
    kept = [int(row["step"]) for row in csv.DictReader(at_death["from_step_0"].splitlines())]
    assert sorted(set(kept)) == [*range(1, 9)]
    found = {}
    starts = sorted(folder.glob("csv/*/metrics.csv"))
    for path in starts:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                found |= {
                    (int(row["step"]), k): float(v) for k, v in row.items() if v and k != "step"
                }
    assert [path.parent.name for path in starts] == ["from_step_0", "from_step_6"]
    assert {key for _, key in found} == TRAINING | SPEED | VALIDATION | {"own/step"}
    assert found == pytest.approx(of_the_run(folder))
    logged = {step: value for (step, key), value in found.items() if key == "own/step"}
    assert logged == {step: step for step in range(1, 13)}


@pytest.mark.slow
def test_tensorboard_holds_every_series_samples_and_options_and_no_step_twice(killed_and_continued):
    pytest.importorskip("tensorboard", reason="the extra `dashboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = killed_and_continued("tensorboard")
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    scalars = [
        (event.step, key, event.value)
        for key in sorted({key for _, key in of_the_run(folder)})
        for event in events.Scalars(key)
    ]
    assert len({(step, key) for step, key, _ in scalars}) == len(scalars)
    assert {(step, key): value for step, key, value in scalars} == pytest.approx(
        of_the_run(folder), rel=1e-6
    )

    shown = {
        event.step: event.tensor_proto.string_val[0].decode()
        for event in events.Tensors("samples/text_summary")
    }
    last = read_jsonl(folder / "samples.jsonl")[-1]
    assert list(shown) == [6, 12]
    row = f"| {last['source']} | {last['reference']} | {last['hypothesis']} |"
    assert " ".join(row.split()) in " ".join(shown[12].replace("\\|", "|").split())
    options = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| model.n_heads | 3 |" in " ".join(options.split())

    assert [event.step for event in events.Images("attention")] == [6, 12]


def test_a_missing_tensorboard_is_one_line_before_anything_of_the_run_is_written(
    config, tmp_path, monkeypatch
):
    monkeypatch.setattr("pytorch_lightning.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    settings = replace(config, logger=replace(config.logger, kind="tensorboard"))
    with pytest.raises(
        ConfigError,
        match=r"^logger=tensorboard: .* not installed; pip install 'aiayn\[dashboard\]'",
    ):
        train(settings, tmp_path)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
