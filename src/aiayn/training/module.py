"""One training step, as Lightning runs it."""

import hashlib

import pytorch_lightning as pl
import torch
from torch import Tensor

from aiayn.config import OptimConfig
from aiayn.data.batch import Batch
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy
from aiayn.training.schedule import learning_rate


class TranslationModule(pl.LightningModule):
    """The model, its loss and its optimizer. Files, searches and scores live elsewhere."""

    def __init__(self, model: Transformer, optim: OptimConfig, seed: int):
        super().__init__()
        self.model = model
        self.optim = optim
        self.seed = seed

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout depends on the micro-batch alone: not on what ran before, not on how many devices share the step.
        torch.manual_seed(dropout_seed(self.seed, batch.number))

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns the loss to minimise, and for the log the sum of the loss over this batch's target tokens."""
        loss_sum = self._loss(self._states(batch), batch, self.optim.label_smoothing)
        # A step's loss is the mean over the tokens of all its micro-batches. Lightning will divide by the number that
        # one device accumulates, and data parallelism by the number of devices.
        parts = self.trainer.accumulate_grad_batches * self.trainer.world_size
        return {"loss": loss_sum * (parts / batch.step_tokens), "loss_sum": loss_sum.detach()}

    def validation_step(self, batch: Batch, batch_idx: int = 0) -> tuple[Tensor, Tensor]:
        """Returns the sums of smoothed loss and of negative log-likelihood over this batch's target tokens."""
        states = self._states(batch)
        return self._loss(states, batch, self.optim.label_smoothing), self._loss(states, batch, 0.0)

    def _states(self, batch: Batch) -> Tensor:
        memory = self.model.encode(batch.src, batch.src_mask)
        return self.model.decode(batch.tgt_in, memory, batch.src_mask)

    def _loss(self, states: Tensor, batch: Batch, label_smoothing: float) -> Tensor:
        return output_cross_entropy(states, self.model.embedding.weight, batch.tgt_out, label_smoothing)

    def configure_optimizers(self) -> dict:
        optim = self.optim
        adam = torch.optim.Adam(self.parameters(), lr=1.0, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda done: self.rate(done + 1))
        return {"optimizer": adam, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def rate(self, step: int) -> float:
        """The learning rate of optimizer step 1, 2, ..."""
        return learning_rate(step, self.model.config.d_model, self.optim.warmup_steps, self.optim.lr_scale)


def dropout_seed(seed: int, number: int) -> int:
    """A seed for micro-batch `number` of a run, of 63 well-mixed bits."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
