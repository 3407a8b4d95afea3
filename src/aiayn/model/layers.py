"""Sections 3.1 and 3.3: the layers of the encoder and of the decoder.

Every sub-layer is wrapped as LayerNorm(x + Dropout(Sublayer(x))): post-norm, with the dropout of
section 5.4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.config.model import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.cache import LayerCache
from aiayn.model.embedding import LearnedPositions, SinusoidalPositions
from aiayn.model.masks import Mask


class FeedForward(nn.Module):
    """Section 3.3, equation (2): max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Computes equation (2): x (B, T, D) to (B, T, D)."""
        return self.w_2(F.relu(self.w_1(x)))


class AddNorm(nn.Module):
    """Section 3.1: the residual connection around a sub-layer, followed by layer normalisation."""

    def __init__(self, d_model: int, dropout: float, norm: nn.Module | None = None):
        super().__init__()
        self.norm = norm or nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Adds and normalises: x (B, T, D); `sublayer` maps (B, T, D) to (B, T, D). Returns (B, T,
        D).
        """
        return self.norm(x + self.dropout(sublayer(x)))


class LayerPosition(NamedTuple):
    """Where in the model a part stands."""

    stack: str  # encoder | decoder, whose masks also hide later positions
    number: int = 0  # of its layer, from 0 at the embeddings; 0 for positions and final norms


def multi_head_attention(config: ModelConfig, layer: LayerPosition) -> MultiHeadAttention:
    sizes = config.d_model, config.n_heads, config.d_k, config.d_v
    return MultiHeadAttention(*sizes, dropout=config.attention_dropout)


POSITIONS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "sinusoidal": lambda config: SinusoidalPositions(config.d_model),
    "learned": lambda config: LearnedPositions(config.max_positions, config.d_model),
}


Part = Callable[[ModelConfig, LayerPosition], nn.Module]
AttentionPart = Callable[[ModelConfig, LayerPosition], MultiHeadAttention]


@dataclass(frozen=True)
class Parts:
    """Constructors of the parts of a model: the paper's, unless an extension replaces them.

    These rules hold in training, validation and search, on every device and in every precision:

    - Masks are boolean, True = may attend, broadcastable to (B, H, T, S), and leave every query at
      least one key; None hides nothing. Nothing else hides a position: a part that ignores its mask
      sees the future.
    - A search decodes position by position, with K beams instead of T positions: (N, K, D) instead
      of (B, T, D). Attention's `step` calls the same `queries`, `keys_values` and `heads` as its
      `forward`; other modules are called as always.
    - Search and training compute the same, or the run ends at its first step
      (`aiayn.training.proof`). Faster versions (`aiayn.kernels`) replace only modules that are
      exactly the paper's.
    - A part's own `reset_parameters`, if it has one, draws its weights. Otherwise linear layers are
      initialised like the paper's, and other parameters keep the part's values.
    - In evaluation mode, the output at a position depends only on positions that it may attend to.
    """

    self_attention: AttentionPart = multi_head_attention
    cross_attention: AttentionPart = multi_head_attention
    feed_forward: Part = lambda config, layer: FeedForward(config.d_model, config.d_ff)
    add_norm: Part = lambda config, layer: AddNorm(config.d_model, config.dropout)
    positions: Part = lambda config, layer: POSITIONS[config.positions](config)
    final_norm: Part = lambda config, layer: nn.Identity()  # after a stack; the paper has none


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig, parts: Parts = Parts(), number: int = 0):
        super().__init__()
        layer = LayerPosition("encoder", number)
        self.self_attention = parts.self_attention(config, layer)
        self.feed_forward = parts.feed_forward(config, layer)
        self.norm_1 = parts.add_norm(config, layer)
        self.norm_2 = parts.add_norm(config, layer)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Encodes x (B, S, D), mask broadcastable to (B, H, S, S). Returns (B, S, D)."""
        x = self.norm_1(x, lambda x: self.self_attention(x, x, mask))
        return self.norm_2(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then the feed-forward network."""

    def __init__(self, config: ModelConfig, parts: Parts = Parts(), number: int = 0):
        super().__init__()
        layer = LayerPosition("decoder", number)
        self.self_attention = parts.self_attention(config, layer)
        self.cross_attention = parts.cross_attention(config, layer)
        self.feed_forward = parts.feed_forward(config, layer)
        self.norm_1 = parts.add_norm(config, layer)
        self.norm_2 = parts.add_norm(config, layer)
        self.norm_3 = parts.add_norm(config, layer)

    def forward(self, x: Tensor, memory: Tensor, tgt_mask: Mask, src_mask: Mask) -> Tensor:
        """Decodes x (B, T, D), memory (B, S, D), tgt_mask broadcastable to (B, H, T, T), src_mask
        (B, 1, 1, S).

        Returns (B, T, D).
        """
        x = self.norm_1(x, lambda x: self.self_attention(x, x, tgt_mask))
        x = self.norm_2(x, lambda x: self.cross_attention(x, memory, src_mask))
        return self.norm_3(x, self.feed_forward)

    def step(
        self, x: Tensor, cache: LayerCache, position: int, ancestry: Tensor, src_mask: Tensor
    ) -> Tensor:
        """Computes `forward` for the newest position of N sentences with K beams each; the cache
        holds the older ones.

        x (N, K, D), src_mask (N, 1, 1, S); ancestry (N, 1, K, R) marks which of the R cached keys
        belong to each beam. Returns (N, K, D).
        """
        target, source = cache.self_attention, cache.cross_attention
        x = self.norm_1(x, lambda x: self.self_attention.step(x, target, position, ancestry))
        # All beams of a sentence attend to the same keys and values, so they take the place of
        # target positions.
        x = self.norm_2(x, lambda x: self.cross_attention.step(x, source, position, src_mask))
        return self.norm_3(x, self.feed_forward)
