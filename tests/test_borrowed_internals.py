"""Undocumented behaviour of libraries that this program relies on: after an upgrade, these tests fail first.

CONTRIBUTING.md lists the places in the source. A test that fails here names what changed; the remedy is in that place.
"""

import inspect
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import pytorch_lightning as pl
import torch
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning.demos.boring_classes import BoringModel
from torch import distributed
from torch.utils.data import DataLoader, Dataset

from aiayn.training.trainer import configure_libraries
from aiayn.training.validation_loop import run_validation_loop

# Hydra: config/messages.py, cli/hydra_commands.py.


@dataclass
class Stored:
    numbers: list[int] = field(default_factory=lambda: [1])


def test_hydras_store_forgets_a_file_that_is_deleted_from_its_groups():
    store = ConfigStore()
    store.store(group="hydra/launcher", name="one", node=Stored)
    store.store(group="hydra/launcher", name="two", node=Stored)

    del store.repo["hydra"]["launcher"]["one.yaml"]

    assert "two.yaml" in store.list("hydra/launcher")
    assert "one.yaml" not in store.list("hydra/launcher")
    del store.repo["hydra"]["launcher"]["two.yaml"]  # there is one repository in a process


def test_hydras_parser_takes_the_flags_that_are_passed_on_to_it():
    flags = ["--multirun", "--config-dir=x", "--config-name=y", "--config-path=z", "--cfg=job", "--info=config"]

    parsed = get_args_parser().parse_args([*flags, "--package=p", "--resolve", "--shell-completion", "a=1", "b=2"])

    assert (parsed.multirun, parsed.config_dir, parsed.config_name, parsed.config_path) == (True, "x", "y", "z")
    assert (parsed.cfg, parsed.info, parsed.package, parsed.resolve) == ("job", "config", "p", True)
    assert (parsed.shell_completion, parsed.overrides) == (True, ["a=1", "b=2"])


def test_omegaconf_names_the_key_of_a_value_of_the_wrong_type():
    with pytest.raises(OmegaConfBaseException) as raised:
        OmegaConf.merge(OmegaConf.structured(Stored), {"numbers": ["x"]})
    assert raised.value.full_key == "numbers[0]"


# Lightning: training/trainer.py, training/checkpoint_io.py.


@pytest.fixture
def trainer(tmp_path) -> pl.Trainer:
    """A trainer that takes three steps."""
    return pl.Trainer(
        default_root_dir=tmp_path,
        accelerator="cpu",
        max_steps=3,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def test_lightning_installs_signal_handlers_through_its_signal_connector(trainer):
    configure_libraries()
    before, calls = signal.getsignal(signal.SIGTERM), []
    trainer._signal_connector.register_signal_handlers = lambda: calls.append(signal.getsignal(signal.SIGTERM))
    trainer.fit(BoringModel())
    assert calls == [before]
    assert signal.getsignal(signal.SIGTERM) == before


def test_lightnings_checkpoints_count_batches_under_the_keys_that_are_rewritten(trainer, tmp_path):
    configure_libraries()
    trainer.fit(BoringModel())
    trainer.save_checkpoint(tmp_path / "lightning.ckpt")
    loops = torch.load(tmp_path / "lightning.ckpt", weights_only=True)["loops"]
    counts = {"ready": 3, "started": 3, "processed": 3, "completed": 3}
    assert loops["fit_loop"]["epoch_loop.state_dict"] == {"_batches_that_stepped": 3}
    assert loops["fit_loop"]["epoch_progress"].keys() == {"total", "current"}
    assert loops["fit_loop"]["epoch_loop.batch_progress"] == {
        "total": counts,
        "current": counts,
        "is_last_batch": False,
    }


def test_lightnings_validation_loop_runs_within_a_training_and_leaves_it_as_it_was(tmp_path):
    configure_libraries()
    found = []

    class InTheMiddle(pl.Callback):
        def on_train_batch_end(self, trainer, module, *arguments) -> None:
            run_validation_loop(trainer)
            found.append((trainer.training, module.training, len(trainer.loggers), int(trainer.callback_metrics["x"])))

    class Counting(BoringModel):
        def validation_step(self, batch, batch_idx):
            self.log("x", float(batch_idx + 1), reduce_fx="max")

    options = {"max_steps": 2, "limit_val_batches": 3, "check_val_every_n_epoch": 99, "num_sanity_val_steps": 0}
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    logger = pl.loggers.CSVLogger(tmp_path)
    trainer = pl.Trainer(**options, **quiet, accelerator="cpu", logger=logger, callbacks=[InTheMiddle()])
    trainer.fit(Counting())
    assert found == [(True, True, 1, 3)] * 2


# torch: training/module.py, kernels/int8.py, hardware.py.


def test_fused_adam_skips_a_step_whose_found_inf_is_one():
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    adam = torch.optim.Adam([weight], lr=0.1, fused=True)
    weight.grad = torch.tensor([3.0, torch.nan])

    adam.found_inf = torch.tensor(1.0)
    adam.step()
    assert weight.tolist() == [1.0, 2.0]
    assert adam.state[weight]["step"] == 0
    assert adam.state[weight]["exp_avg"].tolist() == adam.state[weight]["exp_avg_sq"].tolist() == [0.0, 0.0]

    weight.grad = torch.tensor([3.0, 4.0])
    adam.found_inf = torch.tensor(0.0)
    adam.step()
    assert weight.tolist() == pytest.approx([0.9, 1.9])


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.parametrize("rows", [1, 5, 200])
def test_onednn_multiplies_with_weights_prepacked_for_another_number_of_rows(rows):
    x, weight, bias = torch.randn(rows, 32), torch.randn(24, 32), torch.randn(24)
    prepacked = torch.ops.mkldnn._reorder_linear_weight(weight, 128)
    assert torch.equal(prepacked.to_dense(), weight)
    product = torch.ops.mkldnn._linear_pointwise(x, prepacked, bias, "none", [], "")
    torch.testing.assert_close(product, torch.nn.functional.linear(x, weight, bias))


def test_torch_tells_whether_the_hardware_computes_in_bfloat16():
    assert isinstance(torch.ops.mkldnn._is_mkldnn_bf16_supported(), bool)
    assert "including_emulation" in inspect.signature(torch.cuda.is_bf16_supported).parameters


# Errors that only their English text tells apart: training/distributed/.


def test_a_lack_of_memory_on_a_cpu_is_told_by_its_text():
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        torch.empty(2**50)


class Fatal(Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_loader_process_is_told_by_its_text():
    with pytest.raises(RuntimeError, match=r"^DataLoader worker"):
        list(DataLoader(Fatal(), num_workers=1))


def test_a_store_that_waits_in_vain_says_how_many_joined():
    with pytest.raises(distributed.DistError, match=r"\b1/3 clients joined"):
        distributed.TCPStore("127.0.0.1", 0, 3, is_master=True, timeout=timedelta(seconds=1))


PEER = """
import os, sys, torch
from torch import distributed
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=1, world_size=2)
distributed.all_reduce(torch.tensor(1))
os._exit(1)
"""


def test_the_default_store_is_shared_and_a_lost_rank_is_told_by_the_text_of_gloo(tmp_path):
    from aiayn.training.distributed.control_group import lost_contact

    peer = subprocess.Popen([sys.executable, "-c", PEER, str(tmp_path / "store")])
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=2)
    try:
        distributed.all_reduce(torch.tensor(1))
        store = distributed.distributed_c10d._get_default_store()
        store.set("a", "1")
        assert (store.check(["a"]), store.check(["b"])) == (True, False)
        assert peer.wait() == 1
        with pytest.raises(RuntimeError) as raised:
            distributed.all_reduce(torch.tensor(1))
        assert lost_contact(raised.value), raised.value
    finally:
        distributed.destroy_process_group()


# Weights & Biases: reports/wandb_workspace.py.


def test_a_workspace_becomes_json_through_its_model():
    workspaces = pytest.importorskip("wandb_workspaces.workspaces")
    workspace = workspaces.Workspace(entity="", project="p", name="n", sections=[])
    assert json.loads(workspace._to_model().model_dump_json(by_alias=True, exclude_none=True))["displayName"] == "n"
