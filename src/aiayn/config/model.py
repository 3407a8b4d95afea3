"""Options of the group `model`: sizes, dropout and positions."""

from aiayn.config.rules import Options, fraction, option, option_group, require

# d_model, up to which matrix products are too small to gain from several threads of a CPU
NARROW = 128


@option_group("train", "model")
class ModelOptions(Options):
    """Section 3 of the paper, in the order of the columns of its Table 3."""

    n_layers: int | None = option("layers of each stack (N)", least=1, inferred_from_data=True)
    d_model: int | None = option("width of embeddings and layers", least=1, inferred_from_data=True)
    d_ff: int | None = option(
        "width inside the feed-forward networks", least=1, inferred_from_data=True
    )
    n_heads: int | None = option("attention heads (h)", least=1, inferred_from_data=True)
    d_k: int | None = option("null: d_model / n_heads", least=1, inferred_from_data=True)
    d_v: int | None = option(
        "null: d_model / n_heads; set it (base: 64) for a sweep over n_heads and d_k, or d_v "
        "varies with n_heads",
        least=1,
        inferred_from_data=True,
    )
    dropout: float | None = option("dropout rate (P_drop)", fraction, inferred_from_data=True)
    attention_dropout: float = option(
        "dropout on the attention weights; the paper uses it in section 6.3 only", fraction
    )
    positions: str = option("learned is row E of Table 3", choices=("sinusoidal", "learned"))
    max_positions: int = option(
        "rows of the learned position tables; sinusoids have no limit", least=1
    )
    n_decoder_layers: int | None = option("null: n_layers", least=1)
    tie_embeddings: str = option(
        "one matrix (section 3.4), a separate one for the source, or three separate ones",
        choices=("all", "decoder", "none"),
    )
    attention_window: int | None = option(
        "r: self-attention reaches r // 2 positions to each side; null: all", least=1
    )
    parts: str | None = option("set by the program: extensions whose parts replace the paper's")

    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, n_heads = self.d_model, self.n_heads
        is_even = d_model is None or d_model % 2 == 0
        require(
            is_even or self.positions == "learned",
            f"model.d_model={d_model}: sinusoids come in pairs; choose an even d_model or "
            "model.positions=learned",
        )
        if d_model is None or n_heads is None:
            return
        has_both = None not in (self.d_k, self.d_v)
        require(
            has_both or d_model % n_heads == 0,
            f"model.d_model={d_model} is not divisible by model.n_heads={n_heads}: "
            "choose another number of heads, or set both model.d_k and model.d_v",
        )
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, d_model // n_heads)  # the class is frozen


class ModelConfig(ModelOptions):
    """The options of a model whose sizes are all known."""

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    d_k: int
    d_v: int
    dropout: float

    @property
    def decoder_layers(self) -> int:
        return self.n_decoder_layers or self.n_layers
