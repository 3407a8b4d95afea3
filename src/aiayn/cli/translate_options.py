"""Options of `aiayn translate`: what is written for a line, and whether it is searched or drawn."""

from dataclasses import dataclass
from typing import Annotated

import typer

from aiayn.config.rules import one_of
from aiayn.config.search import MAX_BEAM_SIZE, SamplingConfig
from aiayn.errors import ConfigError


@dataclass(kw_only=True, frozen=True)
class OutputOptions:
    """What is written for a line, and what of a line is translated."""

    n_best: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=MAX_BEAM_SIZE, help="N translations per line, as INDEX ||| TEXT ||| SCORE."
        ),
    ] = None
    scores: Annotated[bool, typer.Option("--scores", help="Append a tab and the score to every translation.")] = False
    given_style: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text: lines, whatever the suffix of FILE; jsonl: JSON with scores and alignments; of a parser tree "
            "(indented) or brackets.",
        ),
    ] = None
    tsv: Annotated[
        int | None,
        typer.Option("--tsv", metavar="N", min=1, help="Translate column N of tab-separated lines, keep the others."),
    ] = None
    markup: Annotated[
        bool, typer.Option("--markup", help="Keep tags, {name}, %s and web addresses, and put them where they belong.")
    ] = False
    paragraphs: Annotated[bool, typer.Option("--paragraphs", help="Translate the sentences of a line one by one.")] = (
        False
    )

    def __post_init__(self) -> None:
        one_of("--format", self.style, ("text", "jsonl", "tree", "brackets"))

    @property
    def style(self) -> str:
        return self.given_style or "text"

    def require_one_translation(self, what: str, sample: bool = False) -> None:
        """Raises ConfigError for options that write more, or something else, than one translation for each text."""
        if self.n_best or self.scores or self.style != "text" or sample:
            given = "--sample" if sample else "--n-best, --scores and --format"
            raise ConfigError(f"{what} writes one translation, the best, for each text; leave out {given}")


@dataclass(kw_only=True, frozen=True)
class SampleOptions:
    """Translations that are drawn instead of searched."""

    sample: Annotated[bool, typer.Option("--sample", help="Draw a translation at random instead of searching.")] = False
    seed: Annotated[int | None, typer.Option(help="Of --sample; by default 0.")] = None
    temperature: Annotated[float | None, typer.Option(help="Of --sample: below 1 less, above 1 more random.")] = None
    top_k: Annotated[int | None, typer.Option(help="Of --sample: only among the k most probable tokens.")] = None
    top_p: Annotated[
        float | None, typer.Option(help="Of --sample: only among the tokens that make up this probability.")
    ] = None

    def config(self, n_best: int | None, beam_size: int | None) -> SamplingConfig | None:
        """Returns None without --sample. Raises ConfigError for options that contradict each other."""
        given = {"seed": self.seed, "temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        given = {name: value for name, value in given.items() if value is not None}
        if not self.sample:
            for name in given:
                raise ConfigError(f"--{name.replace('_', '-')} is an option of --sample; add --sample or leave it out")
            return None
        for name, value in (("--n-best", n_best), ("--beam-size", beam_size)):
            if value is not None:
                raise ConfigError(f"--sample draws one translation per line, without a beam; leave out {name}")
        return SamplingConfig(**{"seed": 0} | given)
