"""Sections 3.1 and 3.3: the layers of the encoder and of the decoder.

Every sub-layer is wrapped as LayerNorm(x + Dropout(Sublayer(x))): post-norm, with the dropout of section 5.4.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.config.schema import ModelConfig
from aiayn.kernels.dropout import Dropout
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.cache import LayerCache


class FeedForward(nn.Module):
    """Section 3.3, equation (2): max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D). Returns (B, T, D)."""
        return self.w_2(F.relu(self.w_1(x)))


class AddNorm(nn.Module):
    """Section 3.1: the residual connection around a sub-layer, followed by layer normalisation."""

    def __init__(self, d_model: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """x and the sub-layer's output for x, both (B, T, D). Returns (B, T, D)."""
        return self.norm(x + self.dropout(sublayer))


def _attention(config: ModelConfig) -> MultiHeadAttention:
    sizes = config.d_model, config.n_heads, config.key_size, config.value_size
    return MultiHeadAttention(*sizes, dropout=config.attention_dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = _attention(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.norm_1 = AddNorm(config.d_model, config.dropout)
        self.norm_2 = AddNorm(config.d_model, config.dropout)

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, S, D), src_mask broadcastable to (B, H, S, S) or a block mask. Returns (B, S, D)."""
        x = self.norm_1(x, self.self_attention(x, x, src_mask))
        return self.norm_2(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then the feed-forward network."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = _attention(config)
        self.cross_attention = _attention(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.norm_1 = AddNorm(config.d_model, config.dropout)
        self.norm_2 = AddNorm(config.d_model, config.dropout)
        self.norm_3 = AddNorm(config.d_model, config.dropout)
        self.window = config.attention_window

    def forward(self, x: Tensor, memory: Tensor, tgt_mask: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, T, D), memory (B, S, D), src_mask (B, 1, 1, S), tgt_mask broadcastable to (B, H, T, T) or a block
        mask. Returns (B, T, D).
        """
        x = self.norm_1(x, self.self_attention(x, x, tgt_mask))
        x = self.norm_2(x, self.cross_attention(x, memory, src_mask))
        return self.norm_3(x, self.feed_forward(x))

    def step(self, x: Tensor, cache: LayerCache, ancestry: Tensor, src_mask: Tensor) -> Tensor:
        """Computes `forward` for the newest position of N sentences with K beams each; the cache holds the older ones.

        x (N, K, D), src_mask (N, 1, 1, S); ancestry (N, 1, K, C * K) marks the cached positions that belong to each
        beam. Returns (N, K, D).
        """
        q, k, v = self.self_attention.queries_keys_values(x)
        k, v = cache.append(k, v)
        if self.window is not None:  # section 4
            window = slice(max(0, cache.used - (self.window // 2 + 1) * x.size(1)), cache.used)
            k, v, ancestry = k[:, :, window], v[:, :, window], ancestry[..., window]
        x = self.norm_1(x, self.self_attention.attend(q, k, v, ancestry))
        # All beams of a sentence attend to the same keys and values, so they take the place of target positions.
        cross = self.cross_attention.attend(self.cross_attention.queries(x), cache.cross_k, cache.cross_v, src_mask)
        x = self.norm_2(x, cross)
        return self.norm_3(x, self.feed_forward(x))
