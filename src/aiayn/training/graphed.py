"""A training step on a GPU as two CUDA graphs: forward, loss and backward; and the update.

A step of base is a thousand kernels. Started one by one, they take the host 40 to 60 ms, for 3,000
tokens as for 25,000, and the GPU waits; a graph starts all of them at once. Between the two graphs
the ranks add up their gradients, which lie in one tensor. This happens outside the graphs, so
time-outs and lost ranks are noticed as always.

What a graph reads and writes lies in tensors that stay where they are. Whatever only the host knows
is written into them before each step: token slots, learning rates, the number of the step. The seed
of dropout reaches a graph, too.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor
from torch.optim import Optimizer

from aiayn.data.batch import PackedBatch, TrainingBatch
from aiayn.training.module import (
    TranslationModule,
    dropout_seed,
    scaled_loss,
    seed_device,
)

log = logging.getLogger(__name__)

GRADIENT_TOLERANCE = 1e-3  # relative, between a step that was replayed and one that was not


class GraphedModule(TranslationModule):
    """The same training step, replayed on a GPU if the first batch shows that this changes nothing.

    On other devices, and for a batch with more token slots than the first one, the same functions
    are called plainly.
    """

    gradients: Tensor  # of all weights, one after the other

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self.is_plain = True
        self.static_batch: PackedBatch | None = None
        self.gradients_are_used = True  # by an update: the next micro-batch begins a step
        self.replayed: dict[str, Callable[[], None]] = {}

    def training_step(self, batch: TrainingBatch, batch_idx: int) -> dict[str, Tensor]:
        """Computes the loss of packed sentences, and the gradients as well."""
        assert isinstance(batch, PackedBatch)
        if self.static_batch is None:
            self._allocate(batch)
            if self.device.type == "cuda":
                self._capture(batch)
        self.begin_micro_batch(batch)
        if self.gradients_are_used:
            self.gradients.zero_()
            self.gradients_are_used = False
        self._forward_and_backward(batch)
        return {"loss": self.loss_sum * self.scale, "loss_sum": self.loss_sum.clone()}

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Adds up the gradients of all ranks, and updates the weights."""
        assert optimizer_closure is not None
        optimizer_closure()
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(self.gradients)
        for rate, group in zip(self.rates_on_device, self._adam.param_groups, strict=True):
            rate.fill_(group["lr"])
        self.applied_rate = float(self._adam.param_groups[0]["lr"])
        self.replayed.get("update", self._update)()
        self.gradients_are_used = True

    def backward(self, loss: Tensor, *arguments: Any, **settings: Any) -> None:
        """Does nothing: `training_step` has computed the gradients."""

    def optimizer_zero_grad(self, *arguments: Any, **settings: Any) -> None:
        """Does nothing: `training_step` zeroes the gradients in place at the beginning of a
        step.
        """

    def configure_gradient_clipping(self, *arguments: Any, **settings: Any) -> None:
        """Does nothing: `_update` clips."""

    @property
    def _adam(self) -> Optimizer:
        return self.trainer.optimizers[0]

    def _allocate(self, batch: PackedBatch) -> None:
        """Makes the tensors that stay where they are."""
        self.static_batch = replace(batch, slots=batch.slots.clone())
        weights = [weight for group in self._adam.param_groups for weight in group["params"]]
        sizes = [weight.numel() for weight in weights]
        self.gradients = torch.zeros(sum(sizes), dtype=weights[0].dtype, device=self.device)
        for weight, part in zip(weights, self.gradients.split(sizes), strict=True):
            weight.grad = part.view_as(weight)
        self.scale, self.loss_sum = (torch.zeros((), device=self.device) for _ in range(2))
        self.rates_on_device = [
            torch.zeros((), device=self.device) for _ in self._adam.param_groups
        ]

    def _forward_and_backward(self, batch: PackedBatch) -> None:
        """Adds the gradients of a batch to `gradients`, and writes its loss into `loss_sum`."""
        static_batch = self.static_batch
        assert static_batch is not None
        self.scale.fill_(1 / batch.step_tokens)
        if batch.slots.shape != static_batch.slots.shape:
            # Compiling its shape would take longer than it gains: such batches are rare.
            with torch.compiler.set_stance("force_eager"):
                self._differentiate(batch)
            return
        static_batch.slots.copy_(batch.slots)
        self.replayed.get("forward and backward", self._differentiate_static)()

    def _differentiate_static(self) -> None:
        assert self.static_batch is not None
        self._differentiate(self.static_batch)

    def _differentiate(self, batch: PackedBatch) -> None:
        loss_sum = self.training_loss(batch)
        with torch.autocast(self.device.type, enabled=False):  # as Lightning calls `backward`
            scaled_loss(loss_sum, self.scale).backward()
        self.loss_sum.copy_(loss_sum.detach().nan_to_num(0.0, 0.0, 0.0))

    def _update(self) -> None:
        trainer, adam = self.trainer, self._adam
        self.skip_or_clip(adam, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)
        adam.step()

    # What follows runs once, on a GPU.

    def _capture(self, batch: PackedBatch) -> None:
        """Captures both graphs and keeps them if replaying gives what calling gives; else a line
        says why not.
        """
        counters = self.skipped, self.fatal_step, self.gradient_norm
        kept = [counter.clone() for counter in counters]
        plain = self._gradients_of(batch)
        graphs = {"forward and backward": captured(self._differentiate_static)}
        # A step that Adam skips: capturing changes neither weights nor moments
        self.gradients.fill_(torch.nan)
        with rates_read_from(self.rates_on_device, self._adam):
            graphs["update"] = captured(self._update)
        self.replayed = graphs
        first, second = (self._gradients_of(batch) for _ in range(2))
        for counter, value in zip(counters, kept, strict=True):
            counter.copy_(value)
        self.gradients_are_used = True
        if reason := why_not_replayed(plain, first, second):
            self.replayed = {}
            log.warning(
                "warning  no CUDA graphs: %s; each step launches its kernels one by one", reason
            )

    def _gradients_of(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Returns loss and gradients of a batch as they are computed now."""
        seed_device(dropout_seed(self.config.seed, batch.number), self.device)
        self.gradients.zero_()
        self._forward_and_backward(batch)
        return self.loss_sum.clone(), self.gradients.clone()


def why_not_replayed(
    plain: tuple[Tensor, Tensor], first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]
) -> str | None:
    """Compares (loss, gradients) of a batch that was called plainly and replayed twice; None: they
    agree.
    """
    if not (torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])):
        return "two replays of a batch differ"
    if not torch.allclose(plain[0], first[0], rtol=1e-6):
        return (
            f"the loss of the first batch is {float(first[0]):.7g} replayed and "
            f"{float(plain[0]):.7g} otherwise"
        )
    error = float((plain[1] - first[1]).norm() / plain[1].norm())
    if error <= GRADIENT_TOLERANCE:
        return None
    return f"the gradients of the first batch differ by {error:.1e}"


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """Captures what `work` starts on the GPU. Returns a function that starts all of it again."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    # As torch asks for: what is set up at a first call is not captured
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Only this thread is captured: that of the loader pins memory meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


@contextmanager
def rates_read_from(rates: list[Tensor], optimizer: Optimizer) -> Iterator[None]:
    """Lets a captured update read its learning rates from these tensors; checkpoints keep plain
    numbers.
    """
    plain = [(group["lr"], group["capturable"]) for group in optimizer.param_groups]
    for rate, group in zip(rates, optimizer.param_groups, strict=True):
        group["lr"], group["capturable"] = rate, True
    try:
        yield
    finally:
        for (rate, capturable), group in zip(plain, optimizer.param_groups, strict=True):
            group["lr"], group["capturable"] = rate, capturable


class SameStart(DDPStrategy):
    """Gives all ranks the weights of rank 0. The module adds up the gradients."""

    def configure_ddp(self) -> None:
        module = self.lightning_module
        assert module is not None
        for weight in (*module.parameters(), *module.buffers()):
            torch.distributed.broadcast(weight.detach(), 0)
