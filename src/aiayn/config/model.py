"""Options of the group `model`: sizes, dropout and positions."""

from dataclasses import dataclass

from aiayn.config.rules import at_least, by_text, fraction, one_of, require


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Section 3 of the paper, in the order of the columns of its Table 3. null: by the number of training pairs."""

    n_layers: int = by_text(6)  # N
    d_model: int = by_text(512)
    d_ff: int = by_text(2048)
    n_heads: int = by_text(8)  # h
    d_k: int = by_text(None)  # null: d_model / n_heads
    d_v: int = by_text(None)  # null: d_model / n_heads
    dropout: float = by_text(0.1)  # P_drop
    attention_dropout: float = 0.0  # on the attention weights; section 6.3 has it, translation has none
    positions: str = "sinusoidal"  # sinusoidal | learned (row E)
    max_positions: int = 512  # rows of the learned tables; sinusoids have no limit
    n_decoder_layers: int | None = None  # null: n_layers; the paper's stacks are equally deep
    tie_embeddings: str = (
        "all"  # all: one matrix, section 3.4 | decoder: the source has its own | none: the output, too
    )
    attention_window: int | None = None  # r of section 4: self-attention reaches r // 2 positions each way; null: all
    parts: str | None = None  # FILE:SHA-256 of the extensions that bring others; null: the paper's. Set by the program

    def __post_init__(self) -> None:
        d_model, n_heads = self.d_model, self.n_heads
        for name in (
            "n_layers",
            "d_model",
            "d_ff",
            "n_heads",
            "d_k",
            "d_v",
            "max_positions",
            "attention_window",
            "n_decoder_layers",
        ):
            at_least(f"model.{name}", getattr(self, name), 1)
        fraction("model.dropout", self.dropout)
        fraction("model.attention_dropout", self.attention_dropout)
        one_of("model.positions", self.positions, ("sinusoidal", "learned"))
        one_of("model.tie_embeddings", self.tie_embeddings, ("all", "decoder", "none"))
        require(
            self.positions == "learned" or d_model is None or d_model % 2 == 0,
            f"model.d_model={d_model}: sinusoids come in pairs; choose an even d_model or model.positions=learned",
        )
        require(
            d_model is None or n_heads is None or d_model % n_heads == 0 or None not in (self.d_k, self.d_v),
            f"model.d_model={d_model} is not divisible by model.n_heads={n_heads}: "
            "choose another number of heads, or set both model.d_k and model.d_v",
        )
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None and None not in (d_model, n_heads):
                object.__setattr__(self, name, d_model // n_heads)  # the class is frozen

    @property
    def decoder_layers(self) -> int:
        return self.n_decoder_layers or self.n_layers
