"""Nothing is written to a folder that was lost."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from aiayn.errors import RefusedError
from aiayn.runs import checkpoint_folder, checkpoints, sealed_files
from aiayn.training import checkpoint_io
from aiayn.training.checkpoint_io import RunCheckpointIO


@pytest.mark.parametrize("lost", range(4))
def test_no_file_is_written_once_the_folder_is_lost(tmp_path, monkeypatch, lost):
    written, owned = [], iter([None] * lost)

    def check_folder() -> None:
        if next(owned, RefusedError):
            raise RefusedError("moved or removed")

    modules = {"write_sealed": sealed_files, "save": checkpoints, "update_last": checkpoint_folder}
    for name, module in (modules | {"prune": checkpoint_folder}).items():
        monkeypatch.setattr(module, name, lambda *_, name=name: written.append(name))
    monkeypatch.setattr(checkpoint_io, "checkpoint_of", lambda *_: None)
    config = SimpleNamespace(trainer=SimpleNamespace(max_steps=9, checkpoint_every=3, average_last=2))
    writer = RunCheckpointIO(SimpleNamespace(check_folder=check_folder, config=config), None)
    with pytest.raises(RefusedError) if lost < 3 else nullcontext():
        writer._write(tmp_path / "step_3.ckpt", {"adam": torch.ones(2)}, 3, {})
    assert written == ["write_sealed", "save", "update_last", "prune"][: lost if lost < 3 else 4]
