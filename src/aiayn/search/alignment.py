"""Aligns the subwords of translations with those of their sources, by the decoder's attention."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from aiayn.data.batch import shift_right, source_mask
from aiayn.data.batch_plan import evaluation_batches
from aiayn.data.tokenizer import SubwordIds, Tokenizer
from aiayn.errors import ConfigError, ResourceError, summary_of
from aiayn.hardware import is_out_of_memory
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.transformer import Transformer
from aiayn.search.line_translator import LineTranslator
from aiayn.search.translator import evaluating

BATCH_TOKENS = 4096  # padded subwords of a side at once; one pair may have more


@torch.inference_mode()
def alignment_weights(
    translator: LineTranslator, src_ids: SubwordIds, outputs: SubwordIds
) -> list[Tensor | None]:
    """Returns for every pair how much each target subword attends to each source subword, (T, S);
    None if one is empty.

    Attention is the decoder's cross-attention in the last but one layer (in the only one, if there
    is one), averaged over heads, at the step that produced the subword. In trained models this
    layer comes nearest to a word alignment. The source's eos is left out, so rows sum to less than
    1, and neither list may contain it.
    """
    translator = translator.in_torch()
    model = translator.models[0]  # the first of an ensemble
    layer = model.decoder[max(len(model.decoder) - 2, 0)].cross_attention
    weights_of_line: list[Tensor | None] = [None for _ in outputs]
    pairs = np.array([number for number, ids in enumerate(outputs) if ids and src_ids[number]], int)
    lengths = [np.array([len(ids[number]) for number in pairs], int) for ids in (src_ids, outputs)]
    for batch in (pairs[rows].tolist() for rows in evaluation_batches(lengths, BATCH_TOKENS)):
        # The decoder is causal, so what follows a shorter output does not matter.
        src = translator.padded(src_ids, batch)
        tgt_in = shift_right(translator.padded(outputs, batch))[:, :-1]
        doing = (
            f"while aligning {len(batch)} lines of up to {src.size(1)} subwords; split the lines"
        )
        weights_of = attention_of_pass(model, [layer], src, tgt_in, doing)
        for number, weights in zip(batch, weights_of(layer).mean(1), strict=True):
            weights_of_line[number] = weights[: len(outputs[number]), : len(src_ids[number])]
    return weights_of_line


def attention_of_pass(
    model: Transformer, modules: list[MultiHeadAttention], src: Tensor, tgt_in: Tensor, doing: str
) -> Callable[[MultiHeadAttention], Tensor]:
    """Decodes tgt_in (B, T) after src (B, S) and returns a function that gives the weights of one
    of these modules, (B, H, T, S).

    Raises ResourceError, which says what was being done, where memory runs out, and what
    `record_attention` raises.
    """
    # A compiled graph calls no attention module that could be recorded.
    is_compiling = "torch._dynamo" in sys.modules
    uncompiled = torch.compiler.set_stance("force_eager") if is_compiling else nullcontext()
    mask = source_mask(src)
    try:
        with evaluating(model), uncompiled, record_attention(modules) as weights_of:
            model.decode(tgt_in, model.encode(src, mask), mask)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise ResourceError(f"out of memory {doing}") from error
        raise
    return weights_of


def word_attention(
    translator: LineTranslator, src_ids: list[int], tgt_ids: list[int]
) -> dict[str, object]:
    """Returns the words of a line and of its translation, given by their subwords, and the
    attention between them.

    `weights` are a row for each word of the translation: those of `alignment_weights`, summed over
    the source word's subwords and averaged over the target word's. Neither list of subwords may be
    empty.
    """
    [weights] = alignment_weights(translator, [src_ids], [tgt_ids])
    assert weights is not None  # there are subwords on both sides
    tokenizer = translator.tokenizer
    source, columns = _words(tokenizer.source, src_ids)
    translation, rows = _words(tokenizer, tgt_ids)
    sums = np.add.reduceat(np.add.reduceat(weights.double().numpy(), columns, axis=1), rows, axis=0)
    means = sums / np.diff([*rows, len(tgt_ids)])[:, None]
    return {"source": source, "translation": translation, "weights": means.round(4).tolist()}


def _words(tokenizer: Tokenizer, ids: list[int]) -> tuple[list[str], list[int]]:
    """Returns the words, as spaces divide them, and the place of the first subword of each."""
    tokens = tokenizer.tokens(ids)
    starts = [index for index, token in enumerate(tokens) if index == 0 or token.startswith("▁")]
    words = tokenizer.decode([ids[a:b] for a, b in pairwise([*starts, len(ids)])])
    return words, starts


@contextmanager
def record_attention(
    modules: list[MultiHeadAttention],
) -> Iterator[Callable[[MultiHeadAttention], Tensor]]:
    """Yields a function that returns the weights, (B, H, T, S), of one of these modules in the
    latest forward pass.

    Kernels do not return weights, so `MultiHeadAttention.weights` computes them again. Raises
    ConfigError where these are not the weights that the module used, or where it was not called.
    """
    recorded: dict[MultiHeadAttention, Tensor] = {}

    def record(module: MultiHeadAttention, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, context, mask = inputs
        q, (k, v) = module.queries(x), module.keys_values(context)
        attended = module.heads(q, k, v, mask)
        tolerance = 1e-3 if q.dtype in (torch.float32, torch.float64) else 0.05
        reason = "weights that differ from those it attends with"
        try:
            weights = module.weights(q, k, mask)
            most = tolerance * float(attended.abs().max())
            if torch.allclose(weights @ v, attended, tolerance, most):
                recorded[module] = weights.float().cpu()
                return
        except Exception as error:  # the part of an extension may have no weights
            reason = summary_of(error)
        name = type(module).__name__
        raise ConfigError(
            f"{name}.weights gives {reason}; override it together with heads(q, k, v, mask)"
        )

    def weights_of(module: MultiHeadAttention) -> Tensor:
        if module not in recorded:
            raise ConfigError(
                f"the model does not call one of its {type(module).__name__} modules, so it has no "
                "attention weights"
            )
        return recorded[module]

    handles = [module.register_forward_hook(record) for module in modules]
    try:
        yield weights_of
    finally:
        for handle in handles:
            handle.remove()
