"""Which source subword each subword of a translation comes from."""

import torch

from aiayn.config import BOS_ID
from aiayn.data.batch import pad_sources, source_mask
from aiayn.inference.translator import Translator
from aiayn.model.attention import attention_weights

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
    looking: list[torch.Tensor] = []

    def look(module, inputs, output) -> None:
        x, memory, mask = inputs
        keys, _ = module.keys_values(memory)
        looking.append(attention_weights(module.queries(x), keys, mask).float().mean(1))  # (B, T, S)

    handle = layer.register_forward_hook(look)
    try:
        with translator.without_dropout():
            for start in range(0, len(pairs), BATCH):
                batch = pairs[start : start + BATCH]
                src = pad_sources([src_ids[number] for number in batch]).to(translator.device)
                longest = max(len(outputs[number]) for number in batch)
                # What is read behind the last subword does not change what was seen before.
                read = [[BOS_ID, *outputs[number][:-1]] for number in batch]
                tgt_in = torch.tensor([ids + [BOS_ID] * (longest - len(ids)) for ids in read], device=translator.device)
                model.decode(tgt_in, model.encode(src, source_mask(src)), source_mask(src))
                for number, weights in zip(batch, looking.pop().cpu(), strict=True):
                    real = weights[: len(outputs[number]), : len(src_ids[number])]
                    found[number] = real.argmax(-1).tolist()
    finally:
        handle.remove()
    return found
