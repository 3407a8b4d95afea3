"""The first thing that many devices do together: open the line on which they agree."""

import pytorch_lightning as pl

from aiayn.config import TrainerConfig
from aiayn.training.distributed.control_group import ControlGroup
from aiayn.training.distributed.stop_request import StopRequest
from aiayn.training.module import TranslationModule


class Rendezvous(pl.Callback):
    """Lets every device's request to stop reach the others; runs before all others."""

    def __init__(self, settings: TrainerConfig, stop: StopRequest):
        self.settings = settings
        self.stop = stop

    def on_fit_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        if trainer.world_size > 1:
            self.stop.peers = ControlGroup(self.settings.timeout)
            if self.stop.agreed():
                self.stop.check("stopped before training")
