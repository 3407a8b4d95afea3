"""Proves at the first step, by what the saved model computes, that a run can be resumed and
searched as it trains.

Rules about names would see which methods a part overrides, not whether a search gives what training
gave. So the model is loaded as every command loads it, and what it computes is compared. Every
weight is moved first: gates, biases and adapters that start at zero would hide a fault until they
have learned something.
"""

import inspect
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from aiayn.config.extensions import file_names
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import RunConfig
from aiayn.data.batch import BEGINNING, Batch, TrainingBatch, first_pair, source_mask, together
from aiayn.errors import (
    ConfigError,
    NonFiniteOutputError,
    UserError,
    explain_own_code,
    is_own_file,
)
from aiayn.hardware import threads
from aiayn.kernels.accelerate import accelerate
from aiayn.model.layers import DecoderLayer, EncoderLayer
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.build import build_model, load_model
from aiayn.search.translator import evaluating
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from aiayn.training.module import TranslationModule, seed_device

log = logging.getLogger(__name__)

TOLERANCE = {"cpu": 1e-3, "cuda": 0.02}  # of log-probabilities in float32
# Positions of a long target that are decoded one by one. A narrow model of the same code does so 20
# times as fast as the run's own.
POSITIONS, NARROW_POSITIONS = 16, 256
NARROW_HEAD = 8  # d_k and d_v
NARROW_VOCAB = 300

FAULTS = {  # the first that is found is reported
    "reload": "the reloaded model gives different outputs (log-probabilities differ by {:.2g}); "
    "change the model only in build_model, and draw nothing at random in evaluation mode",
    "forward": "forward gives different outputs from decode and output, which training and search "
    "use (log-probabilities differ by {:.2g}); let forward call them",
    "future": "a target position depends on later ones (log-probabilities change by {:.2g}), "
    "which a search does not know; attend only where the mask is True",
    "padding": "padding changes the outputs (log-probabilities change by {:.2g}); attend only "
    "where the mask is True, and mix positions in attention only",
    "faster": "the faster form used for translation gives different outputs (log-probabilities "
    "differ by {:.2g})",
    "search": "decoding position by position gives different outputs from training "
    "(log-probabilities differ by {:.2g}): in a search, rows are beams instead of positions, so "
    "read positions only from mask, `position` and cache (docs/ideas.md)",
}
WARNINGS = {
    "neighbours": "a sentence's outputs depend on the other sentences of its batch, or on their "
    "padding (log-probabilities change by %.2g): translations will depend on search.batch_tokens",
    "loss": "the loss of two sentences together is %.2g times the sum of their losses: return a "
    "sum over target tokens, not a mean, or a sentence's weight depends on its micro-batch",
    "resume": "the reloaded model trains differently (log-probabilities differ by %.2g with equal "
    "random numbers), and so may a resumed run: keep what training changes in buffers, or set it "
    "before every step; draw from the global generators of torch, numpy or random",
}


def prove(
    path: Path,
    trainer: pl.Trainer,
    module: TranslationModule,
    batch: TrainingBatch,
    known: dict[str, float],
) -> None:
    """Reads a checkpoint of the present step as a translator does, and the states beside it as a
    resumed run does.

    Raises ConfigError if model or optimizer is not the one in training then, or if a search would
    not compute what training computes. Warns if the sentences of a batch change each other, if a
    resumed run may train differently, and of faults that are `known`.
    """
    # Building a model draws weights. Threads would wait for each other in narrow models.
    with torch.random.fork_rng(devices=[]), threads(1):
        try:
            checkpoint = checkpoints.load(path, just_written=True)
            model = load_model(checkpoint).eval()
            checkpoints.read_tensors(checkpoint_folder.optimizer_path(path), just_written=True)
        except UserError as error:
            raise ConfigError(
                f"the checkpoint of the first step cannot be read back: {error}"
            ) from error
        [optimizer] = trainer.optimizers
        state, restored = optimizer.state_dict(), copy(optimizer)
        restored.state = defaultdict(dict)
        restored.load_state_dict(state)
        if not same(restored.state_dict(), state):
            raise ConfigError(
                f"{type(restored).__name__}: its load_state_dict does not restore the saved state"
            )
        if fault := checkpoints.fault_of_optimizer(state):
            raise ConfigError(f"{type(restored).__name__}: no run resumes from its state: {fault}")
        name = ", ".join(file_names(checkpoint.config.model.parts)) or type(module).__name__
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            faults = known | reload_faults(model, module, batch, checkpoint.weights)
            try:
                if "reload" not in faults:
                    faults |= search_faults(model, checkpoint, module.device)
            except Exception as error:  # whatever code of an extension raises
                raise ConfigError(
                    f"{name}: fails when it decodes position by position, as a search does; "
                    f"{explain_own_code(error, name)}"
                ) from error
    for fault, message in FAULTS.items():
        if fault in faults:
            raise ConfigError(f"{name}: {message.format(faults[fault])}")
    for fault, message in WARNINGS.items():
        if fault in faults:
            log.warning(f"warning  %s: {message}", name, faults[fault])


def check_shapes(module: TranslationModule) -> None:
    """Computes two short sentences before the first step. Raises ConfigError for a part that
    returns another shape than docs/ideas.md says: it would fail elsewhere, or train by
    broadcasting.
    """
    model, config = module.model, module.config
    width, faults = config.model.d_model, list[str]()

    def note(name: str, part: Any, output: Any, expected: Sequence[int]) -> None:
        code = getattr(part, "__code__", None) or inspect.unwrap(type(part).forward).__code__
        location = ", ".join(file_names(config.model.parts))
        if is_own_file(code.co_filename):
            location = f"{code.co_filename}, line {code.co_firstlineno}, in {code.co_qualname}"
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        faults.append(
            f"extensions: {location}: the part {name} returned {shape}; expected {tuple(expected)} "
            "(docs/ideas.md, the contract of a part)"
        )

    def compare(name: str, part: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        if getattr(output, "shape", None) != inputs[0].shape:
            note("add_norm" if name.startswith("norm") else name, part, output, inputs[0].shape)

    parts = [("final_norm", model.encoder_norm), ("final_norm", model.decoder_norm)]
    for layer in (*model.encoder, *model.decoder):
        if type(layer).forward in (EncoderLayer.forward, DecoderLayer.forward):
            parts += layer.named_children()
    hooks = [
        part.register_forward_hook(partial(compare, name))
        for name, part in parts
        if isinstance(part, nn.Module)  # a function may take its place
    ]
    # What fails here and not by its shape is told by the first step, on the device of the training
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        evaluating(module),
        suppress(Exception),
    ):
        for positions in (model.src_positions, model.tgt_positions):
            encoding = positions(0, 2)
            sizes = zip(reversed(encoding.shape), (width, 2), strict=False)
            if not all(size in (1, n) for size, n in sizes):
                note("positions", positions, encoding, (2, width))
        vocab_size = smaller_vocabulary(config, module.vocab_size)
        decoded(model, *sentences(model, vocab_size, (3, 2), 2))
    for hook in hooks:
        hook.remove()
    for fault in faults:
        raise ConfigError(fault)


def reload_faults(
    model: Transformer, module: TranslationModule, batch: TrainingBatch, saved: dict[str, Tensor]
) -> dict[str, float]:
    """Compares a reloaded model with the one in training on one pair. Returns the faults."""
    pair = first_pair(batch)
    dtype = next(module.model.parameters()).dtype
    with evaluating(module):
        expected = module.model.output(module.states(pair)).double().log_softmax(-1)
    if not expected.isfinite().all():
        return {}  # `NonFiniteGuard` ends such runs
    reloaded = decoded(model.to(pair.src.device, dtype), pair.src, pair.tgt_in)
    tolerance = 0.1 if dtype in (torch.bfloat16, torch.float16) else None
    faults = differences({"reload": reloaded}, expected, tolerance)
    if not faults and module.config.model.parts:
        expected, reloaded = in_training(module.model, model, pair)
        if expected.isfinite().all():
            faults = differences({"resume": reloaded}, expected, tolerance)
    model.float()
    # An `on_save_checkpoint` may have saved other weights, such as running means
    return faults if faults and holds(module.model, saved) else {}


def loss_faults(module: TranslationModule, batch: TrainingBatch) -> dict[str, float]:
    """Compares a loss of one's own of two sentences with the sum of their losses. Returns its share
    of the sum if it is another one; nothing of a loss that draws at random or cannot be compared.
    """
    ours, long = TranslationModule, first_pair(batch)
    names = ("training_step", "training_loss")
    is_ours = all(getattr(type(module), name) is getattr(ours, name) for name in names)
    if is_ours or not long.n_tokens:
        return {}
    short = first_pair(batch, BEGINNING // 2)
    both = together(long, short)
    pairs = both, replace(both, number=both.number + 1), long, short
    probe, losses = copy(module), list[float]()  # what a loss counts or logs here is not kept
    vars(probe).update(vars(module), log=lambda *given, **settings: None)
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with evaluating(probe), suppress(Exception):  # such as of code for packed sentences
        for number, pair in enumerate(pairs):
            output = probe.training_step(pair, number)
            losses.append((output["loss"] if isinstance(output, dict) else output).item())
    for buffer, value in buffers:
        buffer.copy_(value)
    if len(losses) < len(pairs) or losses[0] != losses[1]:
        return {}
    expected = losses[2] + losses[3]
    # What experts add to share their load evenly is a few thousandths
    is_sum = abs(losses[0] - expected) <= 0.02 * abs(expected)
    return {} if is_sum or not expected else {"loss": losses[0] / expected}


def in_training(model: Transformer, reloaded: Transformer, pair: Batch) -> list[Tensor]:
    """Returns the log-probabilities of a pair that both give in training, with equal random
    numbers: they differ by what is neither weight nor buffer, such as a counter.
    """
    accelerate(reloaded, pair.src.device)
    for module, other in zip(model.modules(), reloaded.modules(), strict=False):
        other.training = module.training  # some may be frozen
    buffers = [
        (part, name, buffer, buffer.clone())
        for part in model.modules()
        for name, buffer in part.named_buffers(recurse=False)
    ]
    outputs = []
    for trained in (model, reloaded):
        seed_device(0, pair.src.device)
        # What a part keeps of it must serve its training
        with torch.inference_mode(trained is reloaded), torch.no_grad():
            outputs.append(decoded(trained, pair.src, pair.tgt_in))
    for part, name, buffer, value in buffers:
        setattr(part, name, buffer.copy_(value))
    reloaded.eval()
    return outputs


def search_faults(
    model: Transformer, checkpoint: Checkpoint, device: torch.device
) -> dict[str, float]:
    """Returns the faults that are found twice: a router may be undecided between experts once."""
    noise = 0.5
    faults: dict[str, float] = {}
    for seed in (0, 1):
        if seed:
            model = load_model(checkpoint).eval().to(device)
        try:
            faults = code_faults(checkpoint, moved(model, seed, noise), seed, noise)
            if not faults:
                break
        except NonFiniteOutputError:
            noise = 0.0  # some weights may not be moved, such as arguments of logarithms
    return faults


def code_faults(
    checkpoint: Checkpoint, model: Transformer, seed: int, noise: float
) -> dict[str, float]:
    """Compares what other targets, padding, neighbours and distance change. Returns the faults.

    Compares in a narrow model of the same code, if the code builds one, over a sentence of
    `max_length` subwords; else in the run's own, at the beginning of one. Raises
    NonFiniteOutputError.
    """
    config, device = checkpoint.config, next(model.parameters()).device
    vocab_size = smaller_vocabulary(config, checkpoint.vocab_size)
    narrow_vocab, width = min(NARROW_VOCAB, vocab_size), NARROW_HEAD * config.model.n_heads
    narrow_data = replace(config.data, src_vocab_size=config.data.src_vocab_size and narrow_vocab)
    deep = replace(config.model, d_k=NARROW_HEAD, d_v=NARROW_HEAD, d_model=width, d_ff=2 * width)
    shallow = replace(
        deep, n_layers=min(2, deep.n_layers), n_decoder_layers=min(2, deep.decoder_layers)
    )

    def narrow(options: ModelConfig) -> Transformer:
        built = build_model(replace(config, model=options, data=narrow_data), narrow_vocab)
        return moved(built.eval(), seed, noise).to(device)

    max_length = config.data.max_length
    longest = (max_length + 1,)  # with eos
    try:
        return (
            position_faults(
                narrow(shallow), narrow_vocab, longest, min(max_length, NARROW_POSITIONS)
            )
            | short_faults(narrow(deep), narrow_vocab)
            | position_faults(model, vocab_size, (5, 3), 3)
        )
    except Exception:  # code of an extension for one size
        faults = position_faults(model, vocab_size, longest, min(max_length, POSITIONS))
        return faults | short_faults(model, vocab_size)


def position_faults(
    model: Transformer, vocab_size: int, lengths: Sequence[int], n_positions: int
) -> dict[str, float]:
    """Compares search and training position by position, of sources of these lengths. Returns the
    faults. Raises NonFiniteOutputError.
    """
    src, tgt_in = sentences(model, vocab_size, lengths, n_positions)
    return differences({"search": searched(model, src, tgt_in)}, decoded(model, src, tgt_in))


def short_faults(model: Transformer, vocab_size: int) -> dict[str, float]:
    """Compares what a model computes of short sentences with `forward`, beside other targets,
    padding and neighbours, and in the form that translates, in which it leaves the model. Returns
    the faults. Raises NonFiniteOutputError.
    """
    src, tgt_in = sentences(model, vocab_size, (6, 9, 4), 5)
    expected = decoded(model, src, tgt_in)
    other_later = decoded(model, src, tgt_in[:, [0, 1, 2, 2, 1]])
    padded = decoded(model, F.pad(src, (0, 5)), F.pad(tgt_in, (0, 3)))
    alone = decoded(model, src[:1], tgt_in[:1])  # with its padding
    neighbours = differences({"neighbours": alone}, expected[:1])
    if neighbours:  # such as words that compete for an expert: those of padding do, too
        padded = expected
    called = model(src, tgt_in, source_mask(src)).double().log_softmax(-1)
    accelerate(model, src.device, translates=True)
    whole = {
        "forward": called,
        "padding": padded[:, :5],
        "faster": decoded(model, src, tgt_in),
        "search": searched(model, src, tgt_in),
    }
    return {
        **differences(whole, expected),
        **differences({"future": other_later[:, :3]}, expected[:, :3]),
        **neighbours,
    }


def smaller_vocabulary(config: RunConfig, vocab_size: int) -> int:
    """Returns how many ids both sides have."""
    return min(vocab_size, config.data.src_vocab_size or vocab_size)


def sentences(
    model: Transformer, vocab_size: int, lengths: Sequence[int], n_positions: int
) -> tuple[Tensor, Tensor]:
    """Returns random sources of these lengths, eos included, and as many targets that start with
    bos, the same in every proof.
    """
    device, generator = next(model.parameters()).device, torch.Generator().manual_seed(1)

    def ids(*shape: int) -> Tensor:
        return torch.randint(UNK_ID + 1, vocab_size, shape, generator=generator)

    sources = [F.pad(ids(length - 1), (0, 1), value=EOS_ID) for length in lengths]
    targets = F.pad(ids(len(lengths), n_positions - 1), (1, 0), value=BOS_ID)
    src = pad_sequence(sources, batch_first=True, padding_value=PAD_ID)
    return src.to(device), targets.to(device)


def decoded(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Returns the log-probabilities (N, T, V) that training gives, in float64."""
    mask = source_mask(src)
    logits = model.project(model.decode(tgt_in, model.encode(src, mask), mask))
    return logits.double().log_softmax(-1)


def searched(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    """Decodes given targets (N, T) position by position as a search does. Returns log-probabilities
    (N, T, V) in float64.

    One of two beams holds the target and the other one rubbish; they change places at every step,
    and halfway the sentences change theirs.
    """
    mask = source_mask(src)
    cache = model.init_cache(model.encode(src, mask), mask, 2)
    order, states = torch.arange(len(tgt_in), device=tgt_in.device), []
    for position in range(tgt_in.size(1)):
        tokens, beam = tgt_in[order, position, None], position % 2
        if position:
            rubbish = tgt_in[order, position - 1, None]
            tokens = torch.cat([rubbish, tokens] if beam else [tokens, rubbish], 1)
        states.append(model.step(tokens, cache)[order.argsort(), beam])
        cache.reorder(torch.full((len(tgt_in), 2), beam, device=tgt_in.device))
        if position == tgt_in.size(1) // 2:
            order = order.flip(0)
            cache.select(order.argsort())
    return model.project(torch.stack(states, 1)).double().log_softmax(-1)


def moved(model: Transformer, seed: int, noise: float = 0.5) -> Transformer:
    """Adds noise to every weight of a model in place: a share of its size or, at zero, of its usual
    size.
    """
    values = torch.empty(65_521).uniform_(-1, 1, generator=torch.Generator().manual_seed(seed))
    for weight in model.parameters():
        if weight.is_floating_point():
            usual = weight.size(-1) ** -0.5 if weight.dim() > 1 else 0.5
            scale = max(usual, float(weight.norm()) / max(1, weight.numel()) ** 0.5)
            if not weight.is_contiguous():
                weight.data = weight.data.contiguous()
            noise_of_weight = values.to(weight) * (noise * scale)
            for section in weight.view(-1).split(len(values)):  # needs no memory for as much noise
                section.add_(noise_of_weight[: len(section)])
    return model


def differences(
    outputs: dict[str, Tensor], expected: Tensor, tolerance: float | None = None
) -> dict[str, float]:
    """Returns the largest differences that exceed the tolerance: NaN among them, shapes that differ
    as infinity. Raises NonFiniteOutputError for NaN or infinity in what is expected.
    """
    if not expected.isfinite().all():
        raise NonFiniteOutputError("with slightly perturbed weights")
    tolerance = tolerance or TOLERANCE[expected.device.type]
    tolerance *= max(1.0, float(expected.std()))
    largest = {
        name: float((values - expected).abs().max())
        if values.shape == expected.shape
        else torch.inf
        for name, values in outputs.items()
    }
    return {name: value for name, value in largest.items() if not value <= tolerance}


def refuse_unequal_buffers(world_size: int, module: pl.LightningModule) -> None:
    """Raises ConfigError, on all ranks, for what a part counts or averages on each rank by itself.

    A checkpoint holds the buffers of rank 0: the others would be lost, and no resumed run would be
    the same.
    """
    saved = module.state_dict()
    mine = {name: buffer.cpu() for name, buffer in module.named_buffers() if name in saved}
    ranks = [mine] * world_size
    torch.distributed.all_gather_object(ranks, mine)
    unequal = [name for name in mine if not all(same(mine[name], other[name]) for other in ranks)]
    if unequal:
        raise ConfigError(
            f"the buffers {', '.join(unequal[:3])} differ between the ranks, and a checkpoint "
            "holds those of rank 0: all-reduce them where they change, register them with "
            "persistent=False, or set trainer.devices=1"
        )


def holds(model: nn.Module, saved: dict[str, Tensor]) -> bool:
    """Returns whether a model has the weights of a checkpoint, in whatever precision."""
    weights = dict(model.state_dict())
    return same(weights, {name: weight.to(weights[name].dtype) for name, weight in saved.items()})


def same(state: Any, other: Any) -> bool:
    """Returns whether two states hold the same keys and values, whatever device they are on."""
    if isinstance(state, Tensor):
        return state is other or (
            isinstance(other, Tensor) and torch.equal(state.cpu(), other.cpu())
        )
    if isinstance(state, dict):
        return state.keys() == other.keys() and all(same(state[key], other[key]) for key in state)
    if isinstance(state, list | tuple):
        return len(state) == len(other) and all(map(same, state, other))
    return state == other
