"""What a checkpoint's files are written from, and that nothing is written to a folder that was lost."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from aiayn.errors import RefusedError
from aiayn.runs import checkpoints
from aiayn.training import checkpoint_io
from aiayn.training.checkpoint_io import RunCheckpointIO, copied


def test_a_copy_has_the_values_of_its_time_at_any_depth_and_shares_no_tensor():
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    state = {"state": {0: {"step": torch.tensor(3.0), "moments": [weight]}}, "rates": (0.5, None, "text")}
    copy = copied(state)
    with torch.no_grad():
        weight.add_(10)
        state["state"][0]["step"] += 1
    [moment] = copy["state"][0]["moments"]
    assert moment.tolist() == [1.0, 2.0]
    assert not moment.requires_grad
    assert copy["state"][0]["step"] == 3
    assert copy["rates"] == (0.5, None, "text")


@pytest.mark.parametrize("lost", range(4))
def test_no_file_is_written_once_the_folder_is_lost(tmp_path, monkeypatch, lost):
    written, owned = [], iter([None] * lost)

    def check_folder() -> None:
        if next(owned, RefusedError):
            raise RefusedError("moved or removed")

    for name in ("write_sealed", "save", "update_last", "prune"):
        monkeypatch.setattr(checkpoints, name, lambda *_, name=name: written.append(name))
    monkeypatch.setattr(checkpoint_io, "checkpoint_of", lambda *_: None)
    config = SimpleNamespace(trainer=SimpleNamespace(max_steps=9, checkpoint_every=3, average_last=2))
    writer = RunCheckpointIO(SimpleNamespace(check_folder=check_folder, config=config), None)
    with pytest.raises(RefusedError) if lost < 3 else nullcontext():
        writer._write(tmp_path / "step_3.ckpt", {"adam": torch.ones(2)}, 3, {})
    assert written == ["write_sealed", "save", "update_last", "prune"][: lost if lost < 3 else 4]
