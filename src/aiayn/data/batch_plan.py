"""Which pairs make up optimizer step k: a pure function of the corpus, the seed and k.

A prepared corpus keeps its pairs in the order of their lengths. It is cut once into steps of at most `tokens_per_step`
source and as many target tokens, all about equally full, and each step into M micro-batches. Epoch e then draws two
things from (seed, e): pairs of equal source and target length are permuted, which moves no boundary, and the steps are
shuffled. So every epoch contains every pair once, steps are as full in one epoch as in the next, and step k is computed
without the steps before it, on any number of devices.

No array has an entry per pair, so a billion pairs are planned as quickly as a million; and pairs are permuted among
`WINDOW` neighbours only, so those of a step lie close together on the disk.
"""

from bisect import bisect_right
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np

from aiayn.data.length_order import LengthRuns, SideLengths, scrambled

WINDOW = 4096  # neighbours of equal lengths that are permuted among themselves


@dataclass(frozen=True)
class MicroBatch:
    """Indices of a micro-batch's pairs, possibly none, and the step it belongs to."""

    pairs: np.ndarray
    step_tokens: int  # target tokens of the whole step
    micro_batches: int | None = None  # that make up the step

    @classmethod
    def empty(cls) -> "MicroBatch":
        return cls(np.empty(0, np.int64), 1)


class BatchPlan:
    """Every micro-batch of a training run, numbered from 0: number = step * micro_batches + place in the step."""

    def __init__(
        self,
        lengths: LengthRuns,
        *,
        tokens_per_step: int,
        seed: int,
        micro_batches: int | None = None,
        devices: int = 1,
        max_tokens_per_device: int = 2**31,
    ):
        """lengths: tokens of each pair, end mark included, in the order of the corpus; none longer than a step.

        Without `micro_batches`, M is the smallest multiple of `devices` for which every padded micro-batch has at most
        `max_tokens_per_device` source and target tokens; where a device takes several, up to a third more, if 2, 4, 8
        or 16 times as many devices can then share them.
        """
        assert len(lengths) > 0, "a plan needs pairs"
        assert lengths.longest <= tokens_per_step, "a pair does not fit into a step"
        self.seed = seed
        self._sides = (lengths.src, lengths.tgt)
        self._windows = _cut_windows(lengths.src.first)
        self._steps = _cut_steps(self._sides, tokens_per_step)
        self._step_tokens = np.diff(self._sides[1].tokens_before(self._steps))
        if micro_batches is None:
            micro_batches = self._fewest_micro_batches(devices, max_tokens_per_device)
        self._epoch = (-1, np.uint64(0), np.empty(0, np.intp))
        self._cut_into(micro_batches)

    def cut_into(self, micro_batches: int) -> "BatchPlan":
        """Returns the plan of the same steps with another number of micro-batches."""
        plan = copy(self)
        plan._cut_into(micro_batches)
        return plan

    def fits(self, micro_batches: int, max_tokens_per_device: int) -> bool:
        """Whether steps cut into `micro_batches` have no micro-batch with more padded tokens on a side than allowed."""
        cuts = self._cut_micro_batches(micro_batches)
        return max(side.padded(cuts).max() for side in self._sides) <= max_tokens_per_device

    def _cut_into(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self._cuts = self._cut_micro_batches(micro_batches)
        # Tokens and positions of every micro-batch of an epoch, both sides together.
        src, tgt = self._sides
        self._tokens = np.ravel(np.diff(src.tokens_before(self._cuts)) + np.diff(tgt.tokens_before(self._cuts)))
        self._positions = np.ravel(src.padded(self._cuts) + tgt.padded(self._cuts))

    @property
    def steps_per_epoch(self) -> int:
        return len(self._steps) - 1

    @property
    def padding(self) -> float:
        """Share of padding among all source and target positions of an epoch."""
        return 1 - self._tokens.sum() / self._positions.sum()

    @property
    def padding_by_micro_batch(self) -> np.ndarray:
        """The same share of every micro-batch that has pairs, (n,) float64."""
        used = self._positions > 0
        return 1 - self._tokens[used] / self._positions[used]

    def micro_batch(self, number: int) -> MicroBatch:
        """Returns micro-batch `number` of the run."""
        step, i = divmod(number, self.micro_batches)
        epoch, place = divmod(step, self.steps_per_epoch)
        salt, steps = self._drawn(epoch)
        step = steps[place]
        start, stop = self._cuts[step, i], self._cuts[step, i + 1]
        return MicroBatch(self._shuffled(start, stop, salt), int(self._step_tokens[step]), self.micro_batches)

    def _drawn(self, epoch: int) -> tuple[np.uint64, np.ndarray]:
        """Returns the random part of an epoch: the salt that orders its pairs, and the order of its steps."""
        if self._epoch[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            self._epoch = (epoch, rng.integers(2**64, dtype=np.uint64), rng.permutation(self.steps_per_epoch))
        return self._epoch[1:]

    def _shuffled(self, start: int, stop: int, salt: np.uint64) -> np.ndarray:
        """Returns the pairs at positions start to stop of the permuted corpus, (stop - start,) int64."""
        if start == stop:
            return np.empty(0, np.int64)
        windows = self._windows
        edges = windows[windows.searchsorted(start, "right") - 1 : windows.searchsorted(stop) + 1]
        places = np.arange(edges[0], edges[-1])
        window = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        order = np.lexsort((scrambled(scrambled(places.astype(np.uint64)) ^ salt), window))
        return places[order[start - edges[0] : stop - edges[0]]]

    def _cut_micro_batches(self, count: int) -> np.ndarray:
        """Cuts every step where its tokens, of both sides, reach 1/count, 2/count, ... Returns (steps, count + 1)."""
        src, tgt = self._sides
        both = SideLengths.of(src.first, src.length + tgt.length)
        edges = both.tokens_before(self._steps)
        start, stop = edges[:-1, None], edges[1:, None]
        cuts = both.reaching(start + (stop - start) * np.arange(count + 1) / count)
        cuts[:, 0], cuts[:, -1] = self._steps[:-1], self._steps[1:]
        return cuts

    def _fewest_micro_batches(self, devices: int, limit: int) -> int:
        assert max(side.length.max() for side in self._sides) <= limit, "a pair does not fit a device"
        fullest = max(np.diff(side.tokens_before(self._steps)).max() for side in self._sides)
        each = -(-int(fullest) // (limit * devices))  # micro-batches per device
        while not self.fits(each * devices, limit):
            each += 1
        if each > 1:
            each = next(more for more in shareable(each) if self.fits(more * devices, limit))
        return each * devices


def shareable(count: int) -> Iterator[int]:
    """Yields numbers of micro-batches that more devices can share: `count` rounded up to a multiple of 16, 8, 4, 2, 1.

    Those more than a third above `count` are left out, because smaller micro-batches are slower.
    """
    multiples = (-(-count // factor) * factor for factor in (16, 8, 4, 2, 1))
    return (more for more in multiples if 3 * more <= 4 * count)


def device_counts(micro_batches: int) -> str:
    """Says how many devices can share so many micro-batches of a step: 1, 2 or 4."""
    counts = [str(count) for count in range(1, micro_batches + 1) if micro_batches % count == 0]
    return " or ".join([", ".join(counts[:-1]), counts[-1]] if counts[:-1] else counts)


def _cut_windows(first: np.ndarray) -> np.ndarray:
    """Returns the edges of all windows, (windows + 1,): every run of equal lengths, in parts of at most WINDOW."""
    parts = -(-np.diff(first) // WINDOW)
    inside = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.append(np.repeat(first[:-1], parts) + WINDOW * inside, first[-1])


def _cut_steps(sides: tuple[SideLengths, SideLengths], budget: int) -> np.ndarray:
    """Packs sorted pairs into as few steps as the budget allows, about equally full. Returns (steps + 1,) boundaries.

    They are cut with the smallest budget that needs no more steps. A plain greedy cut would leave a last step of a few
    pairs, and Adam would give that step the same weight as the others.
    """
    best = _greedy(sides, budget)
    assert best is not None, "a pair does not fit into a step"
    # With a budget below the mean, so many steps could not hold all tokens.
    mean = max(side.total for side in sides) // (len(best) - 1)
    low, high = max(budget // 2, mean - 1), budget
    while high - low > 1:
        middle = (low + high) // 2
        steps = _greedy(sides, middle)
        if steps is not None and len(steps) == len(best):
            best, high = steps, middle
        else:
            low = middle
    return np.array(best)


def _greedy(sides: tuple[SideLengths, SideLengths], budget: int) -> list[int] | None:
    """Returns the boundaries of the longest possible steps, or None if a single pair exceeds the budget."""
    # Plain lists: tens of thousands of sequential look-ups, each ten times as fast as a numpy call.
    first = sides[0].first.tolist()
    tables = [(side.sums.tolist(), side.length.tolist()) for side in sides]
    bounds, run, end = [0], 0, first[-1]
    while (start := bounds[-1]) < end:
        stop = end
        for sums, length in tables:
            room = sums[run] + (start - first[run]) * length[run] + budget
            if room < sums[-1]:
                last = bisect_right(sums, room) - 1
                stop = min(stop, first[last] + (room - sums[last]) // length[last])
        if stop == start:
            return None
        # Steps that end inside a run of equal lengths are all of one size; one that reaches its end may go on after it.
        more = max(1, (first[run + 1] - 1 - start) // (stop - start))
        bounds.extend(range(stop, start + more * (stop - start) + 1, stop - start))
        run = bisect_right(first, bounds[-1], run) - 1
    return bounds
