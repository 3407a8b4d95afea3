"""A GPU computes while the host prepares: for as long as no step asks for a result."""

from dataclasses import replace

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from aiayn.training.module import TranslationModule
from aiayn.training.run import train

# What a host waits for: a value out of a tensor, and results whose size depends on values.
WAITING = {"_local_scalar_dense", "equal", "masked_select", "nonzero", "_unique2"}


class Waits(TorchDispatchMode):
    """Collects the steps in which the host waited; `step` is the one under way."""

    def __init__(self):
        super().__init__()
        self.step, self.steps = 0, set()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        if operation.overloadpacket.__name__ in WAITING:
            self.steps.add(self.step)
        return operation(*arguments, **(options or {}))


@pytest.mark.slow
def test_the_host_waits_for_the_device_only_in_steps_that_log_validate_or_save(
    config, tmp_path, monkeypatch
):
    waits, plain = Waits(), TranslationModule.training_step

    def training_step(self, batch, batch_idx):
        waits.step = self.trainer.global_step + 1
        return plain(self, batch, batch_idx)

    monkeypatch.setattr(TranslationModule, "training_step", training_step)
    settings = replace(
        config, trainer=replace(config.trainer, log_every=5, val_every=4, checkpoint_every=12)
    )

    with waits:
        train(settings, tmp_path)

    # 0 is before the first; steps 1, 2 and 4 are shown; after 6 the loader draws the next epoch's
    # seed, which no device does.
    assert waits.steps - {0} == {1, 2, 4, 5, 6, 8, 10, 12}
