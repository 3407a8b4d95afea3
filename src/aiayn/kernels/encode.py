"""The encoder on a CPU, without most of the padding of a batch that was made for the decoder.

A search takes as many sentences at a time as it can, because every step of it costs as much as a few more sentences.
Their lengths differ, and the encoder would compute the padding of all of them.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.model.transformer import Transformer

SENTENCES = 32  # encoded at a time
WIDTHS = 4  # a part's width is a multiple of it, because oneDNN compiles kernels for every number of rows


def encode(model: Transformer, src: Tensor, src_mask: Tensor) -> Tensor:
    """`model.encode`, part by part; src (B, S) is padded on the right. Returns memory (B, S, D).

    At real positions it equals that of `model.encode` up to rounding. Sorted by length, a part has the least padding.
    """
    if src.device.type != "cpu" or len(src) <= SENTENCES:
        return model.encode(src, src_mask)
    parts = []
    for ids, mask in zip(src.split(SENTENCES), src_mask.split(SENTENCES), strict=True):
        longest = int(mask.sum(-1).max())
        width = min(-(-longest // WIDTHS) * WIDTHS, src.size(1))
        memory = model.encode(ids[:, :width], mask[..., :width])
        parts.append(F.pad(memory, (0, 0, 0, src.size(1) - width)))
    return torch.cat(parts)
