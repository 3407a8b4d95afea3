"""Which source subword each subword of a translation comes from: where attention looks."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from aiayn.config import BOS_ID
from aiayn.data.batch import pad_sources, source_mask
from aiayn.inference.translator import Translator
from aiayn.model.attention import attention

BATCH = 64  # pairs read at once


@torch.inference_mode()
def alignments(translator: Translator, src_ids: list[list[int]], outputs: list[list[int]]) -> list[list[int]]:
    """For every target subword the position, from 0, of the source subword that it looks at most.

    Looking is the decoder's attention to the source in the layer before the last (in the only one, if there is one),
    the mean of its heads, at the step that wrote the subword; the source's end mark does not count. In trained models
    that layer is the one that comes nearest to a word alignment. Neither list may hold end marks; an output without
    subwords, or a source without any, has no alignment.
    """
    model = translator.model
    layer = model.decoder[max(len(model.decoder) - 2, 0)].cross_attention
    found: list[list[int]] = [[] for _ in outputs]
    pairs = [number for number, ids in enumerate(outputs) if ids and src_ids[number]]
    pairs.sort(key=lambda number: len(outputs[number]) + len(src_ids[number]))
    with translator.without_dropout(), recorded([layer]) as looking:
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            src = pad_sources([src_ids[number] for number in batch]).to(translator.device)
            longest = max(len(outputs[number]) for number in batch)
            # What is read behind the last subword does not change what was seen before.
            read = [[BOS_ID, *outputs[number][:-1]] for number in batch]
            tgt_in = torch.tensor([ids + [BOS_ID] * (longest - len(ids)) for ids in read], device=translator.device)
            model.decode(tgt_in, model.encode(src, source_mask(src)), source_mask(src))
            for number, weights in zip(batch, looking.pop().mean(1), strict=True):
                real = weights[: len(outputs[number]), : len(src_ids[number])]
                found[number] = real.argmax(-1).tolist()
    return found


@contextmanager
def recorded(attentions: list[nn.Module]) -> Iterator[list[Tensor]]:
    """Collects (B, H, T, S) from each of these, in the order of their use, while the context lasts.

    The fused kernels that compute attention give no weights, so they are computed once more from the same inputs.
    """
    weights: list[Tensor] = []

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, memory, mask = inputs
        keys, _ = module.keys_values(memory)
        values = torch.eye(memory.size(1)).to(keys)  # so the result is the weights
        values = values.expand(memory.size(0), module.n_heads, -1, -1)
        weights.append(attention(module.queries(x), keys, values, mask).float().cpu())

    handles = [module.register_forward_hook(record) for module in attentions]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()
