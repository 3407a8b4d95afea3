"""The model as a Lightning module: training, validation, test and prediction steps, and the
optimizer.
"""

import hashlib
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import LRSchedulerConfigType, OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from aiayn.config.extensions import (
    builds_model,
    constraining,
    constraint_of,
    imported,
    name_class,
    own_options,
)
from aiayn.config.resolve import RunConfig, run_config
from aiayn.config.schema import Config
from aiayn.config.stored import stored_config, to_dict
from aiayn.data.batch import Batch, SourceBatch, TrainingBatch, source_mask
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError, RefusedError
from aiayn.kernels.accelerate import accelerate
from aiayn.model.flops import n_parameters, training_flops
from aiayn.model.masks import Ranges
from aiayn.model.transformer import Positions, Transformer
from aiayn.search.beam_search import Constraint, Hypothesis, beam_search
from aiayn.search.build import build_from_parts
from aiayn.training.loss import evaluate_output, output_cross_entropy


class TranslationModule(pl.LightningModule):
    """The Transformer with its loss, its optimizer and its search, without files or scores of text.

    For research, subclass it: `build_model`, `training_loss`, `rate` and `configure_optimizers` are
    meant to be overridden (docs/lightning.md, and examples/extensions for each).
    """

    # Scalars () on the device, so that the host need not wait for it:
    step_number: Tensor  # number of the current step, from 1, int64
    skipped: Tensor  # steps skipped because their gradient was NaN or infinite, int64
    fatal_step: Tensor  # the first step skipped above the limit, or 0, int64
    gradient_norm: Tensor  # at the last step, before clipping

    def __init__(self, config: Config | Mapping[str, Any], vocab_size: int):
        """`config` may be plain values, as in a checkpoint.

        Raises ConfigError for null options, which `aiayn train` infers from the text.
        """
        super().__init__()
        self.config: RunConfig = (
            run_config(config) if isinstance(config, Config) else stored_config(config)
        )
        if builds_model(type(self)):
            model = self.config.model
            self.config = replace(
                self.config, model=replace(model, parts=model.parts or name_class(type(self)))
            )
        self.vocab_size = vocab_size
        self.save_hyperparameters(
            {"config": to_dict(self.config), "vocab_size": vocab_size}, logger=False
        )
        for counter in ("step_number", "skipped", "fatal_step"):
            self.register_buffer(counter, torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("gradient_norm", torch.tensor(math.nan), persistent=False)
        # Over the current validation or test, see `evaluation_sums`
        self.sums = torch.zeros(4, dtype=torch.float64)
        self.model = self.build_model(self.config, vocab_size)
        self.rates: dict[int, list[float]] | None = None  # see `check_rates`
        # For the out-of-memory message, see `note`
        self.at, self.batch_tokens, self.in_validation = "before its first batch", 0, False
        self.applied_rate = math.nan  # the learning rate of the last step
        self.computed = 0, 0  # the Trainer's id, and its last step whose gradient was computed
        self.compiles = False  # whether `configure_model` compiles the layers, for packed sentences
        self.compiled = False

    @cached_property
    def options(self) -> Any:
        """The options of the extension that defines this class, an instance of its `Options`; None
        if it has none.
        """
        return own_options(type(self), self.config.extension)

    # To be overridden.

    @classmethod
    def build_model(cls, config: RunConfig, vocab_size: int) -> Transformer:
        """Returns the model with fresh weights, for training and for every command that reads its
        checkpoints.
        """
        return build_from_parts(config, vocab_size)

    def initial_weights(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `init_from` loads into `model`, by default the source's weights.

        An adapter adds its own: `return self.model.state_dict() | weights`.
        """
        return weights

    def training_loss(self, batch: TrainingBatch) -> Tensor:
        """Returns the training loss: that of section 5.4, summed over this batch's target tokens,
        ().
        """
        smoothing = self.config.optim.label_smoothing
        return output_cross_entropy(self.states(batch), self.model.output, batch.tgt_out, smoothing)

    def rate(self, step: int) -> float:
        """Returns the learning rate of optimizer step 1, 2, ...: equation (3)."""
        optim = self.config.optim
        return learning_rate(step, self.config.model.d_model, optim.warmup_steps, optim.lr_scale)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Returns Adam with `rate` (section 5.3), or AdamW with `optim.weight_decay`, which treats
        gradients alike.
        """
        optim, betas = self.config.optim, (self.config.optim.beta1, self.config.optim.beta2)
        # A fused optimizer can skip a step on the device, see `skip_or_clip`; a gradient scaler
        # skips steps itself.
        fused = self._trainer is None or self.trainer.scaler is None
        settings: dict[str, Any] = {"lr": 1.0, "betas": betas, "eps": optim.eps, "fused": fused}
        adam: Optimizer
        if optim.weight_decay:
            matrices = [weight for weight in self.parameters() if weight.dim() >= 2]
            vectors = [weight for weight in self.parameters() if weight.dim() < 2]
            groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
            adam = torch.optim.AdamW(groups, weight_decay=optim.weight_decay, **settings)
        else:
            adam = torch.optim.Adam(self.parameters(), **settings)
        return {"optimizer": adam, "lr_scheduler": self.schedule(adam)}

    def schedule(self, optimizer: Optimizer) -> LRSchedulerConfigType:
        """Returns a scheduler that multiplies an optimizer's learning rates by `rate`, updated
        after every step.
        """
        return {
            "scheduler": LambdaLR(optimizer, lambda done: self.rate(done + 1)),
            "interval": "step",
        }

    def flops(self, batch: TrainingBatch) -> float | None:
        """Returns the useful FLOPs of a training step with this batch, for `perf/mfu`: of one pass,
        forward and back, over its real tokens. None: unknown.

        Known for the paper's model and loss only; override it for others.
        """
        if not self.is_plain:
            return None
        src, tgt = (lengths.astype(float) for lengths in batch.lengths)
        return float(training_flops(self.config.model, self.vocab_size, src, tgt).sum())

    @cached_property
    def is_plain(self) -> bool:
        """Returns whether model and loss are the paper's, as far as their FLOPs go."""
        # The number of weights reveals parts of extensions; rotary positions have none, but cost no
        # products.
        return (
            type(self).training_step is TranslationModule.training_step
            and type(self).training_loss is TranslationModule.training_loss
            and type(self.model) is Transformer
            and sum(weight.numel() for weight in self.parameters())
            == n_parameters(self.config.model, self.vocab_size, self.config.data.src_vocab_size)
        )

    # Lightning's hooks.

    def configure_model(self) -> None:
        accelerate(self.model, self.trainer.strategy.root_device if self._trainer else self.device)
        if self.compiles and not self.compiled:
            compile_layers(self.model)
            self.compiled = True

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Computes logits (B, T, V) from src (B, S) and tgt_in (B, T); at t they predict the token
        after tgt_in[:, t].
        """
        return self.model(src, tgt_in, source_mask(src))

    def training_step(self, batch: TrainingBatch, batch_idx: int) -> dict[str, Tensor]:
        """Returns `loss`, which Lightning minimises, and `loss_sum`, summed over this batch's
        target tokens, to log: 0 where it is not finite.

        Raises ConfigError if the step has another number of micro-batches than the Trainer
        accumulates.
        """
        # A step's loss is the mean over the tokens of all its micro-batches. Lightning divides by
        # the number of batches that one device accumulates, and DDP by the number of devices.
        scale = self.begin_micro_batch(batch) / batch.step_tokens
        loss_sum = self.training_loss(batch)
        logged = loss_sum.detach().nan_to_num(0.0, 0.0, 0.0)
        return {"loss": scaled_loss(loss_sum, scale), "loss_sum": logged}

    def begin_micro_batch(self, batch: TrainingBatch) -> int:
        """Seeds dropout, and returns the number of micro-batches that make up the step.

        Raises ConfigError if it is not the number that the Trainer accumulates.
        """
        # Dropout depends only on the micro-batch, not on earlier ones or on the number of devices.
        seed_device(dropout_seed(self.config.seed, batch.number), self.device)
        self.step_number.fill_(self.trainer.global_step + 1)  # a loss may change with it
        self.note(batch)
        micro_batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        if batch.micro_batches not in (None, micro_batches):
            raise ConfigError(
                f"accumulate_grad_batches x devices is {micro_batches} now, and the steps of the "
                f"data module have {batch.micro_batches} micro-batches: set the Trainer's "
                "accumulate_grad_batches once, before fit"
            )
        return micro_batches

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Skips a step whose gradient is NaN, infinite or too large for Adam to square; weights and
        moments stay.

        Otherwise clips according to the Trainer's options, which Lightning itself refuses in
        bfloat16 with a fused optimizer. Lightning calls this before every step, in the optimizer's
        closure. Its `on_before_optimizer_step` is left to subclasses, which seldom call super().

        Raises ConfigError for an optimizer that calls the closure again, where a step has several
        micro-batches: it computes only the last.
        """
        step, parts = self.trainer.global_step + 1, self.trainer.accumulate_grad_batches
        if self.computed == (id(self.trainer), step) and parts > 1:
            raise ConfigError(
                f"{type(optimizer).__name__} computes the gradient of a step again, from the last "
                f"of {parts} micro-batches alone; set data.micro_batches={self.trainer.world_size}"
            )
        self.computed = id(self.trainer), step
        self.applied_rate = float(optimizer.param_groups[0]["lr"])
        self.step_number.fill_(step)
        self.skip_or_clip(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def skip_or_clip(
        self, optimizer: Optimizer, clip_value: float | None, clip_algorithm: str | None
    ) -> None:
        """Skips or clips a step.

        With fused Adam the host need not wait for the device: Adam skips a step if `found_inf`,
        made for gradient scalers, is 1.
        """
        # Not `self.parameters()`, which searches all modules and takes a tenth of the host's time.
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        norm = torch.nn.utils.get_total_norm(
            [weight.grad for weight in weights if weight.grad is not None]
        )
        self.gradient_norm.copy_(norm)
        bad = ~norm.square().isfinite()
        if scaler := self.trainer.scaler:
            # The gradient scaler skips such steps itself and halves its scale. At 1, the scale
            # cannot be the cause.
            bad &= scaler.get_scale() <= 1
        elif all(group.get("fused") for group in optimizer.param_groups):
            optimizer.found_inf = bad.float()  # pyright: ignore[reportAttributeAccessIssue]
        elif bad.item():
            for weight in weights:
                weight.grad = None  # optimizers skip weights without a gradient
        self.skipped += bad
        too_many = (
            bad & (self.skipped > self.config.trainer.max_skipped_steps) & (self.fatal_step == 0)
        )
        self.fatal_step += too_many * self.step_number
        if clip_value is None:
            return
        if clip_algorithm == "value":
            torch.nn.utils.clip_grad_value_(weights, clip_value)
        else:
            torch.nn.utils.clip_grads_with_norm_(weights, clip_value, norm)

    def on_validation_epoch_start(self) -> None:
        self.sums = torch.zeros(4, dtype=torch.float64, device=self.device)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Adds this batch to the sums for `val/loss` (smoothed), `val/ppl` (not smoothed) and
        `val/accuracy` (of tokens).
        """
        self.sums += self.evaluation_sums(batch)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self._means("val"))

    # `test/loss`, `test/ppl` and `test/accuracy` in the same way
    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        self.log_dict(self._means("test"))

    def predict_step(
        self, batch: SourceBatch, batch_idx: int
    ) -> list[tuple[int, list[Hypothesis]]]:
        """Returns (line number, hypotheses, best first) for each line, searched with
        `config.search`.
        """
        if not batch.lines:
            return []
        search = self.config.search
        mask = source_mask(batch.src)
        hypotheses = beam_search(self.model, batch.src, mask, search, self._constraint())
        return list(zip(batch.lines, hypotheses, strict=True))

    def _constraint(self) -> Constraint | None:
        """Returns the constraint of the extensions that this process has imported. Raises
        ConfigError if there is one but no tokenizer.
        """
        if not (extensions := constraining(imported(self.config.extensions))):
            return None
        if not (datamodule := self._datamodule):
            raise ConfigError(
                f"extensions={[str(extension.path) for extension in extensions]}: a constraint "
                "needs the tokenizer; give the Trainer a TranslationDataModule"
            )
        return constraint_of(extensions, datamodule.tokenizer)

    @property
    def _datamodule(self) -> TranslationDataModule | None:
        """Returns the Trainer's data module, which it does not declare, if it is of this class."""
        datamodule = getattr(self.trainer, "datamodule", None)
        return datamodule if isinstance(datamodule, TranslationDataModule) else None

    def on_train_start(self) -> None:
        self.check_rates()

    def check_rates(self) -> None:
        """Records the learning rates of a few future steps. Raises RefusedError if they differ from
        those at the start of the training.

        Checks only schedules that are functions of the step; others keep their state in the
        checkpoint.
        """
        end, planned_rates = self.config.trainer.max_steps, self.rates or {}
        steps = planned_rates or {max(1, end * eighth // 8) for eighth in range(9)}
        factors = [
            factor
            for config in self.trainer.lr_scheduler_configs
            if isinstance(config.scheduler, LambdaLR)
            for factor in config.scheduler.lr_lambdas
        ]
        self.rates = {
            step: [float(factor(step - 1)) for factor in factors] for step in sorted(steps)
        }
        for step, planned in planned_rates.items():
            if self.rates[step] != planned:
                raise RefusedError(
                    f"the schedule gave step {step} {planned} times the base learning rate when "
                    f"this training began, but gives {self.rates[step]} times now: it reads an "
                    "option that has changed, such as trainer.max_steps; set it back, or give a "
                    "new run another name="
                )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["rates"] = self.rates or {}
        if datamodule := self._datamodule:  # all that `aiayn.load` needs
            checkpoint["corpus"] = datamodule.corpus.fingerprint
            checkpoint["tokenizer"] = datamodule.tokenizer.to_json()
            checkpoint["micro_batches"] = datamodule.plan.micro_batches

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self._trainer is not None and self.trainer.precision == "64-true":
            self.double()  # before Lightning loads the weights, which it converts only later
        self.rates = checkpoint.get("rates")

    # Parts of the steps above.

    def states(self, batch: TrainingBatch) -> Tensor:
        """Returns the decoder's output for a batch, (B, T, D), or (1, T, D) of packed sentences."""
        if isinstance(batch, Batch):
            memory = self.model.encode(batch.src, batch.src_mask)
            return self.model.decode(batch.tgt_in, memory, batch.src_mask)
        # Each token attends to its own sentence only, a target to itself and those before it.
        rows, longest = batch.rows, batch.max_length
        src_mask = Ranges(rows.src_start, rows.src_end, rows.src_start, rows.src_end)
        cross_mask = Ranges(
            rows.src_start_of_tgt, rows.src_end_of_tgt, rows.tgt_start_of_src, rows.tgt_end_of_src
        )
        tgt_mask = Ranges(rows.tgt_start, rows.next_slot, rows.slot, rows.tgt_end)
        src_positions = Positions(rows.src_position[None], longest)
        tgt_positions = Positions(rows.tgt_position[None], longest)
        memory = self.model.encode(rows.src[None], src_mask, src_positions)
        return self.model.decode(rows.tgt_in[None], memory, cross_mask, tgt_mask, tgt_positions)

    def evaluation_sums(self, batch: Batch) -> Tensor:
        """Returns (4,) float64, over this batch's target tokens: smoothed loss, negative
        log-likelihood, number of correct tokens, number of tokens.
        """
        smoothing = self.config.optim.label_smoothing
        sums = evaluate_output(self.states(batch), self.model.output, batch.tgt_out, smoothing)
        return torch.cat([sums, sums.new_tensor([batch.n_tokens])])

    def note(self, batch: TrainingBatch, in_validation: bool = False) -> None:
        """Records the shapes of a batch for the message of an out-of-memory error."""
        src, tgt = tuple(batch.src.shape), tuple(batch.tgt_out.shape)
        self.at = f"in a batch of {src} source and {tgt} target tokens"
        self.batch_tokens = max(math.prod(src), math.prod(tgt))
        self.in_validation = in_validation

    def _means(self, split: str) -> dict[str, float]:
        """Returns loss, perplexity and accuracy over all tokens of all ranks, if there are any; a
        collective call.
        """
        sums = self.trainer.strategy.reduce(self.sums.clone(), reduce_op="sum")
        loss, nll, right, tokens = sums.tolist()
        self.sums.zero_()  # for a subclass whose hook at the start does not call super()
        if not tokens:  # a step of a subclass has added none
            return {}
        means = {
            "loss": loss / tokens,
            "ppl": math.exp(min(nll / tokens, 700)),
            "accuracy": right / tokens,
        }
        return {f"{split}/{name}": value for name, value in means.items()}


def learning_rate(step: int, d_model: int, warmup_steps: int, lr_scale: float = 1.0) -> float:
    """Returns equation (3) of section 5.3 for step 1, 2, ...: d_model^-0.5 * min(step^-0.5, step *
    warmup_steps^-1.5), times lr_scale.
    """
    return lr_scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def scaled_loss(loss_sum: Tensor, scale: float | Tensor) -> Tensor:
    """Scales a loss. An infinite one becomes NaN, which reaches all devices; its own gradient may
    be 0.
    """
    return loss_sum * torch.where(loss_sum.detach().isfinite(), scale, torch.nan)


def compile_layers(model: Transformer, backend: str = "inductor") -> None:
    """Compiles every layer in place for packed sentences, whose batches all have one shape.

    Layers of one class share a graph. Validation and search run the layers uncompiled.
    """
    for layer in (*model.encoder, *model.decoder):
        layer.compile(dynamic=False, backend=backend)


def seed_device(seed: int, device: torch.device) -> None:
    """Seeds the generators of the CPU and of this device; torch.manual_seed would seed all GPUs of
    the machine. Seeds Python and numpy, too, for code of extensions.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)  # the current one, which is this process' own


def dropout_seed(seed: int, number: int) -> int:
    """Returns a seed for micro-batch `number` of a run, of 63 well-mixed bits."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
