"""Batches without padding (`trainer.packed_attention`)."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from aiayn.data.batch import Batch
from aiayn.kernels.packed_attention import Layout, packed_states
from aiayn.model.transformer import Transformer

PackedStates = Callable[[Transformer, Tensor, Tensor, Layout, Layout], Tensor]  # `packed_states`, or compiled


@dataclass(eq=False, kw_only=True)
class PackedBatch(Batch):
    """A batch whose src, tgt_in and tgt_out are (1, N): the sentences end to end."""

    src_layout: Layout
    tgt_layout: Layout

    def states(self, model: Transformer, form: PackedStates = packed_states) -> Tensor:
        """Returns the decoder's output (1, N, D)."""
        return form(model, self.src, self.tgt_in, self.src_layout, self.tgt_layout)


def pack(batch: Batch) -> PackedBatch:
    """Returns the same pairs without padding, on the same device. A batch without pairs keeps its row of weight 0."""
    src, tgt = (
        Layout.of(ids, max(1, int(lengths.sum())), int(lengths.max(initial=1)))
        for ids, lengths in zip((batch.src, batch.tgt_out), batch.lengths, strict=True)
    )
    return PackedBatch(
        number=batch.number,
        src=src.pack(batch.src),
        tgt_in=tgt.pack(batch.tgt_in),
        tgt_out=tgt.pack(batch.tgt_out),
        lengths=batch.lengths,
        step_tokens=batch.step_tokens,
        micro_batches=batch.micro_batches,
        src_layout=src,
        tgt_layout=tgt,
    )
