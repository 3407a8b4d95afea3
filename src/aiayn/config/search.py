"""Options of the group `search`, and how else a translation may be made: by sampling, in another
number format.
"""

from dataclasses import dataclass, field, replace

from aiayn.config.rules import (
    Options,
    at_least,
    option,
    option_group,
    positive,
    require,
)

# The number formats that a translation can be computed in
PRECISIONS = ("float32", "bfloat16", "int8")
ENGINES = ("auto", "ctranslate2", "torch")

MAX_BEAM_SIZE = 1000


@dataclass(frozen=True, kw_only=True)
class SearchOverrides(Options):
    """Section 6.1: beam search. In `evaluate.py` and `aiayn translate` None means as the run was
    configured.
    """

    prefix = "search."
    # Useful values are far below the most: with these, one sentence takes seconds and not hours, no
    # score overflows.
    beam_size: int | None = option(
        "hypotheses kept per sentence; 1 is greedy search",
        least=1,
        most=MAX_BEAM_SIZE,
        default=None,
    )
    length_penalty: float | None = option(
        "exponent alpha of the length penalty", least=0, most=5, default=None
    )
    penalty: str | None = option(
        "((5 + |Y|) / 6)^alpha, or |Y|^alpha", choices=("gnmt", "power"), default=None
    )
    max_extra_tokens: int | None = option(
        "an output has at most |X| + this many tokens", least=1, most=10_000, default=None
    )
    batch_tokens: int | None = option(
        "padded source tokens times beams in a batch; null: 8192 on a CPU, 65536 on a GPU",
        least=1,
        default=None,
    )
    patience: float | None = option(
        "end a search after patience * beam_size outputs; 0: exact search",
        least=0,
        most=1000,
        default=None,
    )

    def apply(self, search: "SearchConfig") -> "SearchConfig":
        return replace(search, **{name: v for name, v in vars(self).items() if v is not None})


@option_group("train", "search")
class SearchConfig(SearchOverrides):
    """The search options of a run."""

    beam_size: int = field()
    length_penalty: float = field()
    penalty: str = field()
    max_extra_tokens: int = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience == 0:
            object.__setattr__(self, "patience", None)  # one value for an exact search


@dataclass(kw_only=True)
class SamplingConfig:
    """How `aiayn translate --sample` draws translations."""

    seed: int = 0
    temperature: float = 1.0  # divides the logits: below 1 less, above 1 more random
    top_k: int | None = None  # draw among the k most probable tokens only
    top_p: float | None = None  # draw among the fewest tokens whose probabilities sum to p

    def __post_init__(self) -> None:
        positive("--temperature", self.temperature)
        at_least("--top-k", self.top_k, 1)
        is_share = self.top_p is None or 0 < self.top_p <= 1
        require(
            is_share,
            f"--top-p {self.top_p}: must be above 0 and at most 1",
        )
        is_one = None in (self.top_k, self.top_p)
        require(is_one, "--top-k and --top-p: choose one of them")
