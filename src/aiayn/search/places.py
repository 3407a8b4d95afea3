"""Where in a translation a tag or a placeholder goes, and how sure that is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aiayn.search.projection import Span

SURE = 0.2  # share of a word's attention below which a place is a guess


@dataclass
class Places:
    """How the places of tags and placeholders were found."""

    by_model: int = 0  # placeholders that the model itself repeated
    by_alignment: int = 0
    guessed: int = 0  # attention was too spread out
    removed: int = 0  # tags, placeholders and halves of them that the model added

    def count(self, is_sure: bool) -> None:
        if is_sure:
            self.by_alignment += 1
        else:
            self.guessed += 1

    def shown(self) -> str:
        """Returns the counts in words."""
        total = self.by_model + self.by_alignment + self.guessed
        return (
            f"{total} tags and placeholders: {self.by_model} as the model wrote them, {self.by_alignment} put where "
            f"the alignment says, {self.guessed} where it says nothing; {self.removed} removed that the source does "
            "not have"
        )

    def add(self, other: "Places") -> None:
        self.by_model += other.by_model
        self.by_alignment += other.by_alignment
        self.guessed += other.guessed
        self.removed += other.removed


def best_interval(gains: Tensor, free: Tensor) -> tuple[float, Span]:
    """Returns the interval of free units with the largest sum of gains, and that sum.

    Gains (units,) are between -1/2 and 1/2. The interval has at least one unit; (-inf, (0, 0)) if none is free.
    """
    if not bool(free.any()):
        return float("-inf"), (0, 0)
    # Outweighs any sum of gains.
    limited = gains.double().where(free, torch.tensor(-(len(gains) + 1.0), dtype=torch.float64))
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), limited.cumsum(0)])
    totals = sums[1:] - sums[:-1].cummin(0).values
    last = int(totals.argmax())
    begin = last - int(sums[: last + 1].flip(0).argmin())  # the shortest of equals
    return float(totals[last]), (begin, last + 1)


def boundary(weights: Tensor, within: Span) -> int:
    """Returns the place before the unit, of those within, that attends most to something; the last if none does."""
    start, stop = within
    if start == stop or float(weights[start:stop].max()) < SURE:
        return stop
    return start + int(weights[start:stop].argmax())
