"""Options of the group `model`: sizes, dropout and positions."""

from dataclasses import dataclass

from aiayn.config.rules import check_rules, fraction, option, require


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Section 3 of the paper, in the order of the columns of its Table 3. null: by the number of training pairs.

    What each option does stands beside its value in `conf/model/base.yaml`.
    """

    n_layers: int = option(6, least=1, by_text=True)  # N
    d_model: int = option(512, least=1, by_text=True)
    d_ff: int = option(2048, least=1, by_text=True)
    n_heads: int = option(8, least=1, by_text=True)  # h
    d_k: int = option(None, least=1, by_text=True)  # null: d_model / n_heads
    d_v: int = option(None, least=1, by_text=True)  # null: d_model / n_heads
    dropout: float = option(0.1, fraction, by_text=True)  # P_drop
    attention_dropout: float = option(0.0, fraction)  # on the attention weights; section 6.3 has it
    positions: str = option("sinusoidal", choices=("sinusoidal", "learned"))  # learned: row E
    max_positions: int = option(512, least=1)  # rows of the learned tables; sinusoids have no limit
    n_decoder_layers: int | None = option(least=1)  # null: n_layers; the paper's stacks are equally deep
    tie_embeddings: str = option("all", choices=("all", "decoder", "none"))
    attention_window: int | None = option(least=1)
    parts: str | None = None  # FILE:SHA-256 of the extensions that bring others; null: the paper's. Set by the program

    def __post_init__(self) -> None:
        check_rules("model.", self)
        d_model, n_heads = self.d_model, self.n_heads
        require(
            self.positions == "learned" or d_model is None or d_model % 2 == 0,
            f"model.d_model={d_model}: sinusoids come in pairs; choose an even d_model or model.positions=learned",
        )
        if d_model is None or n_heads is None:
            return
        require(
            d_model % n_heads == 0 or None not in (self.d_k, self.d_v),
            f"model.d_model={d_model} is not divisible by model.n_heads={n_heads}: "
            "choose another number of heads, or set both model.d_k and model.d_v",
        )
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, d_model // n_heads)  # the class is frozen

    @property
    def decoder_layers(self) -> int:
        return self.n_decoder_layers or self.n_layers
