"""Training without padding: the sentences of a batch end to end in one row, in which attention keeps to each sentence.

Everything except attention and positions works token by token, so layers take the row as a batch of one. On a GPU
attention is torch's `varlen_attn`, which skips what lies in other sentences; it has never run for this program.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.errors import ConfigError
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.layers import DecoderLayer, EncoderLayer
from aiayn.model.transformer import Transformer
from aiayn.token_ids import PAD_ID

MAX_HEAD_SIZE = 256  # of flash attention's kernels
ALL, CAUSAL = (-1, -1), (-1, 0)  # how many positions before and after a query are seen; -1: all

Window = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the B sentences of a row of N tokens are."""

    sentences: Tensor  # (N,) int64: which one a token belongs to
    positions: Tensor  # (N,) int64: where in it
    ends: Tensor  # (B + 1,) int32: sentence i is tokens ends[i] to ends[i + 1]
    longest: int

    @classmethod
    def of(cls, ids: Tensor, total: int, longest: int) -> "Layout":
        """Of padded ids (B, L). The host knows the number of tokens and the longest row, and need not wait for a GPU.

        A row without real tokens counts as one.
        """
        lengths = (ids != PAD_ID).sum(1).clamp(min=1)
        ends = F.pad(lengths.cumsum(0), (1, 0))
        sentences = torch.repeat_interleave(lengths, output_size=total)
        positions = torch.arange(total, device=ids.device) - ends[sentences]
        return cls(sentences, positions, ends.int(), longest)

    def pack(self, ids: Tensor) -> Tensor:
        """Padded ids (B, L). Returns (1, N)."""
        return ids[self.sentences, self.positions][None]


EncoderForm = Callable[[EncoderLayer, Tensor, Layout, Window], Tensor]
DecoderForm = Callable[[DecoderLayer, Tensor, Tensor, Layout, Layout, Window], Tensor]


def check(model: Transformer) -> None:
    """Raises ConfigError for a model whose attention is not the paper's, or that `varlen_attn` has no kernel for."""
    key, remedy, config = "trainer.packed_attention=true", "set trainer.packed_attention=false", model.config
    if config.parts is not None:
        raise ConfigError(f"{key}: parts of an extension may need padded sentences; {remedy}")
    if config.attention_dropout:
        raise ConfigError(
            f"{key}: has no model.attention_dropout={config.attention_dropout}; set that to 0, or {remedy}"
        )
    if max(config.d_k, config.d_v) > MAX_HEAD_SIZE:
        sizes = f"model.d_k={config.d_k}, model.d_v={config.d_v}"
        raise ConfigError(f"{key}: heads are at most {MAX_HEAD_SIZE} wide, not {sizes}; {remedy}")


def encoder_layer(layer: EncoderLayer, x: Tensor, src: Layout, window: Window) -> Tensor:
    """`EncoderLayer.forward` of x (1, N, D)."""
    x = layer.norm_1(x, lambda x: _attend(layer.self_attention, x, x, src, src, window))
    return layer.norm_2(x, layer.feed_forward)


def decoder_layer(layer: DecoderLayer, x: Tensor, memory: Tensor, tgt: Layout, src: Layout, window: Window) -> Tensor:
    """`DecoderLayer.forward` of x (1, N, D) over memory (1, M, D)."""
    x = layer.norm_1(x, lambda x: _attend(layer.self_attention, x, x, tgt, tgt, window))
    x = layer.norm_2(x, lambda x: _attend(layer.cross_attention, x, memory, tgt, src, ALL))
    return layer.norm_3(x, layer.feed_forward)


def packed_states(
    model: Transformer,
    src: Tensor,
    tgt_in: Tensor,
    src_layout: Layout,
    tgt_layout: Layout,
    layers: tuple[EncoderForm, DecoderForm] = (encoder_layer, decoder_layer),
) -> Tensor:
    """`Transformer.encode` and `decode` of packed ids src (1, M) and tgt_in (1, N). Returns states (1, N, D)."""
    encode, decode = layers
    reach = model.masks.reach
    both, before = (ALL, CAUSAL) if reach is None else ((reach, reach), (reach, 0))
    x = model.dropout(model.embedding(src) + model.src_positions(0, src_layout.longest)[src_layout.positions])
    for layer in model.encoder:
        x = encode(layer, x, src_layout, both)
    memory = model.encoder_norm(x)
    x = model.dropout(model.embedding(tgt_in) + model.tgt_positions(0, tgt_layout.longest)[tgt_layout.positions])
    for layer in model.decoder:
        x = decode(layer, x, memory, tgt_layout, src_layout, before)
    return model.decoder_norm(x)


def _attend(
    module: MultiHeadAttention, x: Tensor, context: Tensor, queries: Layout, keys: Layout, window: Window
) -> Tensor:
    """`MultiHeadAttention.forward`: x (1, N, D), context (1, M, D). Returns (1, N, D)."""
    q, k, v = module.project(x, context)
    form = varlen_attention if x.device.type == "cuda" else plain_attention
    return module.w_o(form(q, k, v, queries, keys, window).transpose(1, 2).flatten(2))


def plain_attention(q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, window: Window) -> Tensor:
    """Equation (1) within each sentence, by a mask over all: for tests on a CPU, where padded batches are faster.

    q (1, H, N, d_k), k (1, H, M, d_k), v (1, H, M, d_v). Returns (1, H, N, d_v).
    """
    distance = keys.positions - queries.positions[:, None]
    mask = keys.sentences == queries.sentences[:, None]
    for reach, away in zip(window, (-distance, distance), strict=True):
        mask = mask if reach < 0 else mask & (away <= reach)
    return attention(q, k, v, mask)


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, window: Window) -> Tensor:
    """The same in one kernel of a GPU, for 16-bit types; it takes heads of one size, a multiple of 8."""
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q.size(-1), v.size(-1)
    size = -(-max(d_k, d_v) // 8) * 8
    q, k, v = (_widened(x[0].transpose(0, 1), size) for x in (q, k, v))  # (N or M, H, size)
    sizes = queries.ends, keys.ends, queries.longest, keys.longest
    heads = varlen_attn(q, k, v, *sizes, scale=d_k**-0.5, window_size=window)
    assert isinstance(heads, Tensor)
    return heads[..., :d_v].transpose(0, 1)[None]


def _widened(x: Tensor, size: int) -> Tensor:
    """Adds zeros to (N, H, d), which change no product of queries and keys."""
    return x if x.size(-1) == size else F.pad(x, (0, size - x.size(-1)))
