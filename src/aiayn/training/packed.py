"""A training step over sentences that lie one after the other: no padding, and one pass for all lengths of a step.

A step mixes lengths (`data/batch_plan.py`). Padded, each length needs a pass of its own, and on a GPU the host takes
longer to start the kernels of four passes than the GPU to compute them (docs/multi-gpu.md). Packed, only attention and
positions know where sentences begin.
"""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from aiayn.data.batch import PackedBatch
from aiayn.kernels.packed import Segments
from aiayn.model.transformer import Transformer

STEP = 64  # the longest sentence is given in steps of this, so that compiled layers meet few values of it


def packed_states(model: Transformer, batch: PackedBatch) -> Tensor:
    """What `decode` returns for the padded batch, at its real positions, one after the other: (1, T, D)."""
    src, tgt = batch.src_starts, batch.tgt_starts
    s_longest, t_longest = (int(lengths.max()) for lengths in batch.lengths)
    s, t = (-(-longest // STEP) * STEP for longest in (s_longest, t_longest))
    own: Any = Segments(src, src, s, s)  # layers pass on what attention takes for a mask
    before: Any = Segments(tgt, tgt, t, t, causal=True)
    across: Any = Segments(tgt, src, t, s)
    embedding = model.src_embedding or model.embedding
    places = F.embedding(batch.src_positions, model.src_positions(0, s_longest))
    x = model.dropout(embedding(batch.src) + places)
    for layer in model.encoder:
        x = layer(x, own)
    memory = model.encoder_norm(x)
    places = F.embedding(batch.tgt_positions, model.tgt_positions(0, t_longest))
    x = model.dropout(model.embedding(batch.tgt_in) + places)
    for layer in model.decoder:
        x = layer(x, memory, before, across)
    return model.decoder_norm(x)
