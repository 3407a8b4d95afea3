"""Figure 1 of the paper: the Transformer."""

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard, cast

from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.config.model import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.cache import DecoderCache, LayerCache
from aiayn.model.embedding import LearnedPositions, SharedEmbedding, TiedOutput
from aiayn.model.layers import (
    AddNorm,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerPosition,
    Parts,
)
from aiayn.model.masks import Mask, Ranges, causal_mask, within_window


class Positions(NamedTuple):
    """The positions of packed tokens in their sentences."""

    in_sentence: Tensor  # (1, L), from 0
    max_length: int  # no sentence is longer


class Transformer(nn.Module):
    """The encoder-decoder model of section 3.

    Shapes: B sentences of S source and T target positions, N sentences with K beams each in search,
    D = d_model, V = vocabulary. Source rows end with eos, `tgt_in` starts with bos. `src_mask`
    (B, 1, 1, S) is True at real positions.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        parts: Parts = Parts(),  # noqa: B008  (frozen)
        src_vocab_size: int | None = None,
    ):
        """`src_vocab_size`: vocabulary of the sources, if they have their own matrix
        (`tie_embeddings`); None: V.
        """
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.embedding = SharedEmbedding(vocab_size, config.d_model)
        self.src_embedding = None  # sources share the one above, as in the paper
        if config.tie_embeddings != "all":
            self.src_embedding = SharedEmbedding(src_vocab_size or vocab_size, config.d_model)
        sides = LayerPosition("encoder"), LayerPosition("decoder")
        self.src_positions, self.tgt_positions = (parts.positions(config, side) for side in sides)
        encoder = [EncoderLayer(config, parts, number) for number in range(config.n_layers)]
        decoder = [DecoderLayer(config, parts, number) for number in range(config.decoder_layers)]
        # Cast, because the type checker does not know the contents of an `nn.ModuleList`.
        self.encoder = cast(Sequence[EncoderLayer], nn.ModuleList(encoder))
        self.decoder = cast(Sequence[DecoderLayer], nn.ModuleList(decoder))
        self.encoder_norm, self.decoder_norm = (parts.final_norm(config, side) for side in sides)
        # Section 5.4: also on the sum of embeddings and positions
        self.dropout = nn.Dropout(config.dropout)
        # Can be any module from states (..., D) to logits (..., V): loss and search use only this
        # one.
        self.output: nn.Module = TiedOutput(self.embedding)
        if config.tie_embeddings == "none":
            self.output = nn.Linear(config.d_model, vocab_size, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws Glorot-uniform projections, and embeddings of standard deviation d_model^-0.5 (1
        after scaling).

        The paper does not describe its initialisation. The last projections of every sub-layer,
        whatever their names, are scaled down by (2 N)^-0.5 for N layers. This speeds up the first
        steps of a post-norm model (docs/fidelity.md).

        This applies to the paper's modules and to linear layers. Other parameters of an extension's
        part keep their values, and a part with its own `reset_parameters` draws all of its weights.
        """
        into_residual = set[nn.Linear]()
        for layer in (*self.encoder, *self.decoder):
            for sublayer in layer.children():
                if not isinstance(sublayer, AddNorm):
                    into_residual.update(_last_linears(sublayer, self.config.d_model))
        drawn_by_parts: tuple[str, ...] = ()  # beginnings of the names of their modules
        for name, module in self.named_modules():
            if name.startswith(drawn_by_parts):
                continue
            is_untied_output = name == "output" and list(module.parameters())
            if module is not self and has_own_reset(module):
                module.reset_parameters()
                drawn_by_parts += (f"{name}.",)
            elif isinstance(module, SharedEmbedding | LearnedPositions) or is_untied_output:
                nn.init.normal_(next(module.parameters()), std=self.config.d_model**-0.5)
            elif isinstance(module, nn.Linear):
                in_decoder = name.startswith("decoder")
                depth = self.config.decoder_layers if in_decoder else self.config.n_layers
                gain = (2 * depth) ** -0.5 if module in into_residual else 1.0
                nn.init.xavier_uniform_(module.weight, gain=gain)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, src: Tensor, tgt_in: Tensor, src_mask: Tensor) -> Tensor:
        """Computes logits (B, T, V) from src (B, S) and tgt_in (B, T); at t they predict the token
        after tgt_in[:, t].
        """
        return self.project(self.decode(tgt_in, self.encode(src, src_mask), src_mask))

    def encode(
        self, src: Tensor, src_mask: Tensor | Ranges, positions: Positions | None = None
    ) -> Tensor:
        """Encodes src (B, S) under src_mask (B, 1, 1, S). Returns memory (B, S, D).

        For packed sentences, src is (1, S), the mask is their ranges, and `positions` has each
        token's position in its sentence; None: columns are positions 0, 1, ...
        """
        embedding = self.src_embedding or self.embedding
        x = self.dropout(embedding(src) + _encoding(self.src_positions, src, positions))
        mask = within_window(src_mask, src.size(1), self.config.attention_window)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt_in: Tensor,
        memory: Tensor,
        src_mask: Mask,
        tgt_mask: Tensor | Ranges | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        """Decodes tgt_in (B, T), memory (B, S, D), tgt_mask broadcastable to (B, 1, T, T), by
        default causal.

        Packed sentences are as for `encode`. Returns states (B, T, D).
        """
        x = self.dropout(self.embedding(tgt_in) + _encoding(self.tgt_positions, tgt_in, positions))
        if tgt_mask is None:
            tgt_mask = causal_mask(tgt_in.size(1), tgt_in.device)
        mask = within_window(tgt_mask, tgt_in.size(1), self.config.attention_window)
        for layer in self.decoder:
            x = layer(x, memory, mask, src_mask)
        return self.decoder_norm(x)

    def project(self, states: Tensor) -> Tensor:
        """Projects states (..., D) to logits (..., V)."""
        return self.output(states)

    def init_cache(self, memory: Tensor, src_mask: Tensor, beam_size: int) -> DecoderCache:
        """Returns an empty cache for `step` over N sentences: memory (N, S, D), src_mask
        (N, 1, 1, S).
        """
        layers = [LayerCache(*layer.cross_attention.keys_values(memory)) for layer in self.decoder]
        return DecoderCache(layers, src_mask, beam_size, self.config.attention_window)

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one more position; tokens (N, K) are the newest of each beam, K = 1 at the first
        position.

        Returns states (N, K, D).
        """
        position = cache.length
        x = self.dropout(self.embedding(tokens) + self.tgt_positions(position, 1))
        ancestry = cache.extend()
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x = layer.step(x, layer_cache, position, ancestry, cache.src_mask)
        return self.decoder_norm(x)


def _last_linears(sublayer: nn.Module, d_model: int) -> list[nn.Linear]:
    """Returns the linear layers of a sub-layer that write into the residual stream."""
    if type(sublayer) is MultiHeadAttention:
        return [sublayer.w_o]
    if type(sublayer) is FeedForward:
        return [sublayer.w_2]
    from aiayn.model.initialisation import last_linears  # only for parts of extensions

    return last_linears(sublayer, d_model)


def _encoding(module: nn.Module, ids: Tensor, positions: Positions | None) -> Tensor:
    """Returns the encodings that a module of positions gives for ids (B, L): (L, D), or (1, L, D)
    for packed sentences.
    """
    if positions is None:
        return module(0, ids.size(1))
    # All possible positions, so that a longer sentence changes neither shapes nor the table.
    return F.embedding(positions.in_sentence, module(0, positions.max_length))


def has_own_reset(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Returns whether an extension, not torch or this program, defines how the module's weights are
    drawn.
    """
    owner = next(
        (base for base in type(module).__mro__ if "reset_parameters" in vars(base)), nn.Module
    )
    return owner.__module__.partition(".")[0] not in ("torch", "aiayn")
