"""Proves at the first step, by what the saved model computes, that a run can be resumed and
searched as it trains.

Rules about names would see which methods a part overrides, not whether a search gives what training
gave. So the model is loaded as every command loads it, and what it computes is compared. Every
weight is moved first: gates, biases and adapters that start at zero would hide a fault until they
have learned something.
"""

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from aiayn.config.resolve import RunConfig
from aiayn.data.batch import Batch, source_mask
from aiayn.errors import ConfigError, NonFiniteOutputError, UserError, summary_of
from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.build import build_model, load_model
from aiayn.search.translator import evaluating
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)

TOLERANCE = {"cpu": 1e-3, "cuda": 0.02}  # of log-probabilities in float32
# Of a long target that are decoded one by one, each with all of the weights: a narrow model of the
# same code does it 20 times as fast as the run's own.
POSITIONS, NARROW_POSITIONS = 16, 256
NARROW_HEAD = 8  # d_k and d_v

FAULTS = {
    "reload": "the reloaded model gives different outputs (log-probabilities differ by "
    "{:.2g}); move what changes the model into build_model, or into what a "
    "checkpoint holds",
    "forward": (
        "forward gives different outputs from decode and output, which training and search use "
        "(they differ by {:.2g}); let forward call them"
    ),
    "faster": (
        "the faster form used for translation gives different outputs (log-probabilities differ "
        "by {:.2g})"
    ),
    "future": (
        "a target position depends on later ones (log-probabilities change by {:.2g}), which a "
        "search does not know; attend only where the mask is True"
    ),
    "padding": "padding changes the outputs (log-probabilities change by {:.2g}); attend only "
    "where the mask is True",
    "search": "decoding position by position gives different outputs from training "
    "(log-probabilities differ by {:.2g}): in a search, rows are beams instead of "
    "positions, so read positions only from mask, `position` and cache (docs/ideas.md)",
}
NEIGHBOURS = (
    "warning  a sentence's outputs depend on the other sentences of its batch (log-probabilities "
    "change by %.2g): translations will depend on search.batch_tokens"
)


def prove(path: Path, trainer: pl.Trainer, module: TranslationModule, batch: Batch) -> None:
    """Reads a checkpoint of the present step as a translator does, and the states beside it as a
    resumed run does.

    Raises ConfigError if model or optimizer is not the one in training then, or if a search would
    not compute what training computes. Warns if the sentences of a batch change each other.
    """
    with torch.random.fork_rng(devices=[]):  # building a model draws weights
        try:
            checkpoint = checkpoints.load(path)
            model = load_model(checkpoint).eval()
            states = checkpoints.read_tensors(checkpoint_folder.optimizer_path(path))["lightning"][
                "optimizer_states"
            ]
        except UserError as error:
            raise ConfigError(
                f"the checkpoint of the first step cannot be read back: {error}"
            ) from error
        refuse_other_states(trainer.optimizers, states)
        builders = (checkpoint.config.model.parts or "").split(",")
        name = ", ".join(file_id.partition(":")[0] for file_id in builders)
        name = name or type(module).__name__
        try:
            with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
                faults = reload_differences(model, module, batch, checkpoint.weights)
                faults = faults or _search_faults(model, checkpoint, module)
        except Exception as error:  # whatever code of an extension raises
            raise ConfigError(
                f"{name}: fails when it decodes position by position, as a search does "
                f"({summary_of(error)}); see the contract of a part in docs/ideas.md; debug=true "
                "shows where"
            ) from error
    if neighbours := faults.pop("neighbours", 0.0):
        log.warning(NEIGHBOURS, neighbours)
    for fault, difference in faults.items():
        raise ConfigError(f"{name}: {FAULTS[fault].format(difference)}")


def refuse_other_states(optimizers: Sequence[Optimizer], states: Sequence[dict[str, Any]]) -> None:
    """Raises ConfigError for an optimizer that does not load the state that it saved."""
    for optimizer, state in zip(optimizers, states, strict=True):
        other = copy(optimizer)  # which has states of its own once it has loaded some
        other.load_state_dict(state)
        if not same(other.state_dict(), state):
            raise ConfigError(
                f"{type(optimizer).__name__}: its load_state_dict does not restore the saved state"
            )


def _search_faults(
    model: Transformer, checkpoint: Checkpoint, module: TranslationModule
) -> dict[str, float]:
    """Returns the faults that are found twice: a router may be undecided between experts once."""
    vocab_sizes = (module.config.data.src_vocab_size or module.vocab_size, module.vocab_size)
    noise = 0.5
    faults: dict[str, float] = {}
    for seed in (0, 1):
        if seed:
            model = load_model(checkpoint).eval().to(module.device)
        try:
            max_length = module.config.data.max_length
            model = moved(model, seed, noise)
            faults = code_faults(checkpoint, model, max_length, seed, noise)
            if not faults.keys() - {"neighbours"}:
                faults |= translation_faults(model, vocab_sizes)
            if not faults:
                break
        except NonFiniteOutputError:
            noise = 0.0  # some weights may not be moved, such as arguments of logarithms
    return faults


def reload_differences(
    model: Transformer, module: TranslationModule, batch: Batch, saved: dict[str, Tensor]
) -> dict[str, float]:
    """Compares a reloaded model with the one in training on one or two pairs. Returns the
    faults.
    """
    trained = module.model
    weights = trained.state_dict()
    if not same(
        dict(weights), {name: weight.to(weights[name].dtype) for name, weight in saved.items()}
    ):
        return {}  # an `on_save_checkpoint` has saved others, such as running means
    src, tgt_in = batch.few()
    tgt_out = F.pad(tgt_in[:, 1:], (0, 1), value=EOS_ID)
    lengths = [(ids != PAD_ID).sum(1).cpu().numpy() for ids in (src, tgt_out)]
    few = Batch(batch.number, src, tgt_in, tgt_out, (lengths[0], lengths[1]), int(lengths[1].sum()))
    dtype = next(trained.parameters()).dtype
    with evaluating(module):
        expected = trained.output(module.states(few)).double().log_softmax(-1)
    if not expected.isfinite().all():
        return {}  # `NonFiniteGuard` ends such runs
    other = model.to(src.device, dtype)
    outputs = {
        "reload": other.project(
            other.decode(tgt_in, other.encode(src, few.src_mask), few.src_mask)
        ),
        "forward": other(src, tgt_in, few.src_mask),
    }
    model.float()
    tolerance = 0.1 if dtype in (torch.bfloat16, torch.float16) else TOLERANCE[src.device.type]
    return _faults(
        {name: logits.double().log_softmax(-1) for name, logits in outputs.items()},
        expected,
        tolerance,
    )


def translation_faults(model: Transformer, vocab_sizes: tuple[int, int]) -> dict[str, float]:
    """Compares the form of a model that translates with the one in training, on short sentences.
    Returns the faults.

    Accelerates the model for translation. Raises NonFiniteOutputError.
    """
    device = next(model.parameters()).device
    draw = Drawn(vocab_sizes, device)
    src, tgt_in = draw.sources(6, 9, 4), draw.targets(3, 5)
    mask = source_mask(src)
    whole = decoded(model, tgt_in, model.encode(src, mask), mask)
    require_finite(whole)
    accelerate(model, device, translates=True)
    memory = model.encode(src, mask)
    outputs = {
        "faster": decoded(model, tgt_in, memory, mask),
        "search": searched(model, tgt_in, memory, mask),
    }
    return _faults(outputs, whole, TOLERANCE[device.type])


def code_faults(
    checkpoint: Checkpoint, model: Transformer, max_length: int, seed: int, noise: float
) -> dict[str, float]:
    """Compares what other targets, padding, neighbours and distance change. Returns the faults.

    Of a narrow model of the same code, if that builds one, in a sentence of `max_length` subwords;
    else of the run's own, at the beginning of one. Raises NonFiniteOutputError.
    """
    config = checkpoint.config
    vocab_size = min(checkpoint.vocab_size, 300)
    src_vocab_size = config.data.src_vocab_size and min(config.data.src_vocab_size, vocab_size)
    sizes = (src_vocab_size or vocab_size, vocab_size)
    device = next(model.parameters()).device
    try:
        deep, shallow = (
            moved(build_model(options, vocab_size).eval(), seed, noise).to(device)
            for options in narrowed(config, src_vocab_size)
        )
        faults = context_faults(deep, sizes)
        return faults | distance_faults(
            shallow, sizes, max_length, min(max_length, NARROW_POSITIONS)
        )
    except Exception:  # code of an extension for one size
        sizes = (config.data.src_vocab_size or checkpoint.vocab_size, checkpoint.vocab_size)
        faults = context_faults(model, sizes)
        return faults | distance_faults(model, sizes, max_length, min(max_length, POSITIONS))


def context_faults(model: Transformer, vocab_sizes: tuple[int, int]) -> dict[str, float]:
    """Compares what a model computes of short sentences beside other targets, padding and
    neighbours. Returns the faults. Raises NonFiniteOutputError.
    """
    device = next(model.parameters()).device
    draw = Drawn(vocab_sizes, device)

    def decode(src: Tensor, *targets: Tensor) -> list[Tensor]:
        mask = source_mask(src)
        memory = model.encode(src, mask)
        return [decoded(model, tgt_in, memory, mask) for tgt_in in targets]

    src, tgt_in = draw.sources(6, 9, 4), draw.targets(3, 5)
    later = torch.cat([tgt_in[:, :-2], draw.targets(3, 3)[:, 1:]], 1)
    whole, other_later = decode(src, tgt_in, later)
    require_finite(whole)
    [padded] = decode(F.pad(src, (0, 5)), F.pad(tgt_in, (0, 3)))
    [alone] = decode(src[:1, :6], tgt_in[:1])
    tolerance = TOLERANCE[device.type]
    return {
        **_faults({"future": other_later[:, :-2]}, whole[:, :-2], tolerance),
        **_faults({"padding": padded[:, :-3]}, whole, tolerance),
        **_faults({"neighbours": alone}, whole[:1], tolerance),
    }


def narrowed(config: RunConfig, src_vocab_size: int | None) -> tuple[RunConfig, RunConfig]:
    """Returns the options of a model with as many layers and heads, which are narrow, and of one
    with two layers a side.
    """
    sizes = {"d_k": NARROW_HEAD, "d_v": NARROW_HEAD, "d_model": NARROW_HEAD * config.model.n_heads}
    layers = {
        "n_layers": min(2, config.model.n_layers),
        "n_decoder_layers": min(2, config.model.decoder_layers),
    }
    deep = replace(config.model, **sizes, d_ff=2 * sizes["d_model"])
    data = replace(config.data, src_vocab_size=src_vocab_size)
    return (
        replace(config, model=deep, data=data),
        replace(config, model=replace(deep, **layers), data=data),
    )


def distance_faults(
    model: Transformer, vocab_sizes: tuple[int, int], max_length: int, positions: int
) -> dict[str, float]:
    """Compares search and training in the first positions of a long target. Returns the faults.

    Raises NonFiniteOutputError.
    """
    device = next(model.parameters()).device
    draw = Drawn(vocab_sizes, device)
    src, tgt_in = draw.sources(max_length + 1), draw.targets(1, positions)
    mask = source_mask(src)
    memory = model.encode(src, mask)
    whole = decoded(model, tgt_in, memory, mask)
    require_finite(whole)
    return _faults({"search": searched(model, tgt_in, memory, mask)}, whole, TOLERANCE[device.type])


class Drawn:
    """Sentences of random subwords, the same in every proof."""

    def __init__(self, vocab_sizes: tuple[int, int], device: torch.device):
        self.vocab_sizes, self.device = vocab_sizes, device
        self.generator = torch.Generator().manual_seed(1)

    def sources(self, *lengths: int) -> Tensor:
        """Returns sources of these lengths, eos included."""
        ids = self._ids(self.vocab_sizes[0], len(lengths), max(lengths))
        ends, positions = torch.tensor(lengths)[:, None] - 1, torch.arange(max(lengths))
        ended = ids.masked_fill(positions == ends, EOS_ID).masked_fill(positions > ends, PAD_ID)
        return ended.to(self.device)

    def targets(self, rows: int, length: int) -> Tensor:
        """Returns targets that start with bos."""
        ids = self._ids(self.vocab_sizes[1], rows, length)
        return F.pad(ids[:, 1:], (1, 0), value=BOS_ID).to(self.device)

    def _ids(self, vocab_size: int, *shape: int) -> Tensor:
        return torch.randint(UNK_ID + 1, vocab_size, shape, generator=self.generator)


def decoded(model: Transformer, tgt_in: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Returns the log-probabilities (N, T, V) that training gives."""
    return model.project(model.decode(tgt_in, memory, mask)).log_softmax(-1)


def require_finite(outputs: Tensor) -> None:
    """Raises NonFiniteOutputError for NaN or infinity among outputs."""
    if not outputs.isfinite().all():
        raise NonFiniteOutputError("with weights that were moved a little")


def searched(model: Transformer, tgt_in: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Decodes given targets (N, T) position by position as a search does. Returns log-probabilities
    (N, T, V).

    One of two beams holds the target and the other one rubbish; they change places at every step,
    and halfway the sentences change theirs.
    """
    cache = model.init_cache(memory, mask, 2)
    order, states = torch.arange(len(tgt_in), device=tgt_in.device), []
    for position in range(tgt_in.size(1)):
        tokens, beam = tgt_in[order, position, None], position % 2
        if position:
            rubbish = tgt_in[order, position - 1, None]
            tokens = torch.cat([rubbish, tokens] if beam else [tokens, rubbish], 1)
        states.append(model.step(tokens, cache)[order.argsort(), beam if position else 0])
        cache.reorder(torch.full((len(tgt_in), 2), beam if position else 0, device=tgt_in.device))
        if position == tgt_in.size(1) // 2:
            cache.select(torch.arange(len(tgt_in) - 1, -1, -1, device=tgt_in.device))
            order = order.flip(0)
    return model.project(torch.stack(states, 1)).log_softmax(-1)


def moved(model: Transformer, seed: int, noise: float = 0.5) -> Transformer:
    """Adds noise to every weight of a model in place: this share of what it is or, at zero, might
    become.
    """
    values = torch.empty(65_521).uniform_(-1, 1, generator=torch.Generator().manual_seed(seed))
    for weight in model.parameters():
        if weight.is_floating_point():
            usual = weight.size(-1) ** -0.5 if weight.dim() > 1 else 0.5
            scale = max(usual, float(weight.norm()) / max(1, weight.numel()) ** 0.5)
            n = weight.numel()
            weight.add_(
                values.repeat(-(-n // len(values)))[:n].view_as(weight).to(weight),
                alpha=noise * scale,
            )
    return model


def _faults(outputs: dict[str, Tensor], expected: Tensor, tolerance: float) -> dict[str, float]:
    """Returns the largest differences that exceed the tolerance: NaN among them, shapes that differ
    as infinity.
    """
    tolerance *= max(1.0, float(expected.std()))
    differences = {
        name: float((values - expected).abs().max())
        if values.shape == expected.shape
        else torch.inf
        for name, values in outputs.items()
    }
    return {
        name: difference for name, difference in differences.items() if not difference <= tolerance
    }


def refuse_unequal_buffers(world_size: int, module: pl.LightningModule) -> None:
    """Raises ConfigError, on all ranks, for what a part counts or averages on each rank by itself.

    A checkpoint holds the buffers of rank 0: the others would be lost, and no resumed run would be
    the same.
    """
    mine = {
        name: buffer.cpu() for name, buffer in module.named_buffers() if name in module.state_dict()
    }
    ranks = [mine] * world_size
    torch.distributed.all_gather_object(ranks, mine)
    if unequal := [
        name for name in mine if not all(same(mine[name], other[name]) for other in ranks)
    ]:
        raise ConfigError(
            f"the buffers {', '.join(unequal[:3])} differ between the ranks, and a checkpoint "
            "holds those of rank 0: all-reduce them where they change, register them with "
            "persistent=False, or set trainer.devices=1"
        )


def same(state: Any, other: Any) -> bool:
    """Returns whether two states hold the same keys and values, whatever device they are on."""
    if isinstance(state, Tensor):
        return (
            isinstance(other, Tensor)
            and state.shape == other.shape
            and bool(torch.equal(state.cpu(), other.cpu()))
        )
    if isinstance(state, dict):
        return (
            isinstance(other, dict)
            and state.keys() == other.keys()
            and all(same(state[key], other[key]) for key in state)
        )
    if isinstance(state, list | tuple):
        return len(state) == len(other) and all(map(same, state, other))
    return state == other
