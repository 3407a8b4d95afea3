"""One training step, as Lightning runs it."""

import hashlib
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from aiayn.config.schema import OptimConfig
from aiayn.data.batch import Batch
from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy
from aiayn.training.schedule import learning_rate

BEFORE_FIRST_BATCH = "before its first batch"


class TranslationModule(pl.LightningModule):
    """The model, its loss and its optimizer, without files, search or scores."""

    def __init__(
        self, model: Transformer, optim: OptimConfig, seed: int, max_skipped_steps: int = 0, compile: bool = False
    ):
        super().__init__()
        self.max_skipped_steps = max_skipped_steps
        # Steps skipped because their gradient was NaN or infinite; the first one too many of them, or 0.
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("fatal_step", torch.zeros((), dtype=torch.int64), persistent=False)
        self.model = model
        self.optim = optim
        self.seed = seed
        self.at = BEFORE_FIRST_BATCH  # for a message about a lack of memory
        self.gradient_norm = torch.zeros(())  # of the last step, on the device
        self.loss_sums = self._loss_sums
        if compile:
            # One graph for batches of every shape, and from the embedding to the loss: so the float32 copy of the
            # logits, their softmax and its gradient are never stored.
            self.loss_sums = torch.compile(self._loss_sums, dynamic=True)
            torch._dynamo.config.optimize_ddp = False  # cutting the graph for DDP fails on dynamic shapes

    def configure_model(self) -> None:
        accelerate(self.model, self.trainer.strategy.root_device)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout depends on the micro-batch alone, neither on what ran before nor on how many devices share the step.
        torch.manual_seed(dropout_seed(self.seed, batch.number))
        self.at = f"in a batch of {tuple(batch.src.shape)} source and {tuple(batch.tgt_out.shape)} target tokens"

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns `loss`, which Lightning minimises, and `loss_sum`, summed over this batch's target tokens, to log."""
        [loss_sum] = self.loss_sums(batch, [self.optim.label_smoothing])
        # A step's loss is the mean over the tokens of all its micro-batches. Lightning divides by the number of batches
        # that one device accumulates, and DDP by the number of devices.
        micro_batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        # An infinite loss can have a gradient of zero; NaN makes all devices notice it, through the gradient.
        finite = loss_sum.detach().isfinite()
        loss = loss_sum * torch.where(finite, micro_batches / batch.step_tokens, torch.nan)
        return {"loss": loss, "loss_sum": torch.where(finite, loss_sum.detach(), 0.0)}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Skips a step whose gradient is NaN, infinite or too large for Adam to square: weights and moments stay.

        The host need not wait for the device: Adam skips a step if `found_inf`, made for gradient scalers, is 1.
        """
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        self.gradient_norm = torch.nn.utils.get_total_norm(gradients)
        bad = ~self.gradient_norm.square().isfinite()
        optimizer.found_inf = bad.float()
        self.skipped += bad
        too_many = bad & (self.skipped > self.max_skipped_steps) & (self.fatal_step == 0)
        self.fatal_step += too_many * (self.trainer.global_step + 1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped_steps"] = int(self.skipped)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped.fill_(checkpoint["skipped_steps"])

    def validation_sums(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the sums of smoothed loss and of negative log-likelihood over this batch's target tokens.

        Called by `Validate`, not by Lightning.
        """
        smoothed, nll = self.loss_sums(batch, [self.optim.label_smoothing, 0.0])
        return smoothed, nll

    def _loss_sums(self, batch: Batch, label_smoothings: list[float]) -> list[Tensor]:
        """The loss summed over this batch's target tokens, for each value of label smoothing."""
        memory = self.model.encode(batch.src, batch.src_mask)
        states = self.model.decode(batch.tgt_in, memory, batch.src_mask)
        weight = self.model.embedding.weight
        return [output_cross_entropy(states, weight, batch.tgt_out, smoothing) for smoothing in label_smoothings]

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
