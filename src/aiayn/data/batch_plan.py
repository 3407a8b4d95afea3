"""Which pairs make up optimizer step k: a pure function of the corpus, the seed and k.

The paper's eight GPUs took batches of eight different lengths in every step (section 5.1 and
tensor2tensor's buckets). So a step here consists of P parts (`data.parts_per_step`). The longer
sides of a part's pairs have about the same length, so there is little padding; their shorter sides,
and so the length ratios, vary. Epoch e is planned like this:

1. All pairs are shuffled, from (seed, e), and sorted by the length of their longer side.
2. This order is cut into steps x P parts of equal tokens.
3. The first P-th of these parts provides the first part of every step, the second P-th the second,
   and so on, each P-th in random order. So the mean length and the mean ratio of a step are near
   those of the corpus, and every epoch contains every pair once.

If an epoch repeats pairs, it is divided into sections that are each planned like this, and copies
of a pair go to different sections, so that no step has a pair twice.

A step of one part would hold one length: it biases the model towards that length and its ratio
(docs/fidelity.md).

The parts of a step are computed in M micro-batches, shared evenly by the devices; M does not change
which pairs make up a step. If sentences are padded, a micro-batch is a part, several neighbouring
parts, or a piece of a part. If they are packed, the step's pairs are dealt to the micro-batches in
turn, so that all have about the same size.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from aiayn.data.corpus import PreparedCorpus
from aiayn.errors import DataError, counted

SAMPLED = 1000  # steps of an epoch from which padding and memory are estimated
SAMPLED_BATCHES = 20_000  # about as many of their micro-batches at most
SLOTS_UNIT = 128  # the number of token slots in a packed batch is a multiple of this
SLOTS_SPARE = 1.01  # later epochs have other steps; their largest is within 1 % of the first one's
BINS = 40  # bins of the histogram of padding, from 0 to 1


@dataclass(frozen=True)
class MicroBatch:
    """Indices of a micro-batch's pairs, possibly none, and the step it belongs to."""

    pairs: np.ndarray
    step_tokens: int  # target tokens of the whole step
    micro_batches: int | None = None  # number in the step


class BatchPlan:
    """Every micro-batch of a training run, numbered from 0: number = step * micro_batches + index
    in the step.
    """

    def __init__(
        self,
        src_lengths: np.ndarray,
        tgt_lengths: np.ndarray,
        *,
        tokens_per_step: int,
        parts: int,
        seed: int,
        micro_batches: int | None = None,
        devices: int = 1,
        max_tokens_per_device: int = 2**31,
        repetitions: np.ndarray | None = None,
        packed: bool = False,
    ):
        """src_lengths, tgt_lengths (pairs,): tokens with the end mark.

        A step has about `tokens_per_step` tokens on the side that has more. If `micro_batches` is
        None, M is the smallest multiple of `devices` whose micro-batches have at most about
        `max_tokens_per_device` positions a side, padding included; unless sentences are `packed`, M
        is also a multiple of `parts`. An epoch has each pair once, or on average `repetitions`
        (pairs,) times. Raises ValueError for padded micro-batches that are neither a multiple nor a
        divisor of `parts`.
        """
        assert len(src_lengths) > 0, "a plan needs pairs"
        self.src_lengths, self.tgt_lengths = src_lengths, tgt_lengths
        self.seed, self.parts, self.packed = seed, parts, packed
        longer = np.maximum(src_lengths, tgt_lengths)
        # Lengths of 16 bits are sorted in linear time.
        self._longer = longer.astype(np.uint16) if longer.max() < 2**16 else longer
        self.repetitions = repetitions
        sides = src_lengths, tgt_lengths
        tokens = max(side.sum() if repetitions is None else side @ repetitions for side in sides)
        self.steps_per_epoch = max(1, math.ceil(tokens / tokens_per_step))
        self._epoch: tuple[int, np.ndarray, np.ndarray, np.ndarray] | None = None
        if micro_batches is None:
            unit = devices if packed else math.lcm(parts, devices)
            micro_batches = unit
            while not self.fits(micro_batches, max_tokens_per_device):
                micro_batches += unit
        self.cut_into(micro_batches)

    def cut_into(self, micro_batches: int) -> None:
        """Divides the same steps into another number of micro-batches."""
        if not self.packed and micro_batches % self.parts and self.parts % micro_batches:
            raise ValueError(
                f"{micro_batches} micro-batches are neither a multiple nor a divisor of "
                f"{self.parts} parts"
            )
        self.micro_batches = micro_batches

    def micro_batch(self, number: int) -> MicroBatch:
        """Returns micro-batch `number` of the run."""
        step, index = divmod(number, self.micro_batches)
        parts = self.step(step)
        tokens = max(1, int(self.tgt_lengths[np.concatenate(parts)].sum()))
        return MicroBatch(self._piece(parts, self.micro_batches, index), tokens, self.micro_batches)

    def step(self, step: int) -> list[np.ndarray]:
        """Returns the pairs of each of the P parts of a step, shorter parts first."""
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        order, cuts, parts_of_step = self._drawn(epoch)
        return [order[cuts[part] : cuts[part + 1]] for part in parts_of_step[:, step_of_epoch]]

    def _drawn(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns an epoch's order of all pairs, the cuts between its parts, and the parts of each
        step, (P, steps).
        """
        if self._epoch is None or self._epoch[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            orders, cuts, parts_of_step, n_steps, n_pairs = [], [], [], 0, 0
            for order, steps in self._sections(epoch, rng):
                rng.shuffle(order)
                order = order[np.argsort(self._longer[order], kind="stable")]
                tokens = (self.src_lengths[order] + self.tgt_lengths[order]).cumsum(dtype=np.int64)
                total, parts = tokens[-1:].sum(), steps * self.parts
                cuts.append(n_pairs + np.searchsorted(tokens, total * np.arange(parts) / parts))
                drawn = rng.permuted(np.arange(parts).reshape(self.parts, -1), axis=1)
                parts_of_step.append(n_steps * self.parts + drawn)
                orders.append(order)
                n_steps, n_pairs = n_steps + steps, n_pairs + len(order)
            bounds = np.concatenate([*cuts, [n_pairs]])
            self._epoch = epoch, np.concatenate(orders), bounds, np.hstack(parts_of_step)
        return self._epoch[1:]

    def _sections(self, epoch: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the pairs and the number of steps of each section of an epoch; if no pair is
        repeated, there is one section.

        The copies of a pair are spaced evenly over the epoch, from a random start, so a section has
        at most one copy, unless an epoch has more copies than steps. A pair with 0.5 repetitions is
        in every second epoch.
        """
        pairs, steps = np.arange(len(self._longer), dtype=np.uint32), self.steps_per_epoch
        if self.repetitions is None:
            yield pairs, steps
            return
        phase = (np.random.default_rng(self.seed).permutation(len(pairs)) + 0.5) / len(pairs)
        totals = [np.floor(epochs * self.repetitions + phase) for epochs in (epoch, epoch + 1)]
        counts = np.subtract(totals[1], totals[0]).astype(int)
        copies = np.repeat(pairs, counts)
        number = np.arange(len(copies)) - np.repeat(counts.cumsum() - counts, counts)
        positions = (rng.random(len(pairs))[copies] + number / counts[copies]) % 1
        width = max(1, steps // max(1, counts.max()))
        for first in range(0, steps, width):
            end = min(first + width, steps)
            yield copies[(positions >= first / steps) & (positions < end / steps)], end - first

    def fits(self, micro_batches: int, max_tokens_per_device: int) -> bool:
        """Returns whether no micro-batch has more padded tokens on a side than allowed, in the
        first epoch.
        """
        are_single_pairs = micro_batches >= self.parts * len(self.src_lengths)
        return are_single_pairs or self._sampled(micro_batches)[1].max() <= max_tokens_per_device

    def _piece(self, parts: list[np.ndarray], micro_batches: int, index: int) -> np.ndarray:
        """Returns the pairs of micro-batch `index` of a step that is computed in
        `micro_batches`.
        """
        if self.packed:
            return np.concatenate(parts)[index::micro_batches]
        if micro_batches <= len(parts):
            together = len(parts) // micro_batches
            return np.concatenate(parts[index * together : (index + 1) * together])
        pieces = micro_batches // len(parts)
        part, piece = parts[index // pieces], index % pieces
        size, n_longer = divmod(len(part), pieces)  # the first pieces have a pair more
        start = piece * size + min(piece, n_longer)
        return part[start : start + size + (piece < n_longer)]

    @property
    def n_slots(self) -> int:
        """Returns the number of token slots per side that suffices for every packed micro-batch,
        except rare ones of later epochs.
        """
        largest = self._sampled(self.micro_batches)[1].max()
        return SLOTS_UNIT * math.ceil(SLOTS_SPARE * largest / SLOTS_UNIT)

    @property
    def padding(self) -> np.ndarray:
        """Returns the share of padding among the source and target positions of micro-batches of
        the first epoch, (n,).
        """
        tokens, positions = self._sampled(self.micro_batches).sum(2)
        return 1 - tokens / positions

    def _sampled(self, micro_batches: int) -> np.ndarray:
        """Returns the tokens and the positions of the sides of micro-batches of up to `SAMPLED`
        steps of the first epoch, about `SAMPLED_BATCHES` in all, without empty ones: (2, n, 2).
        """
        # The step with the longest pairs needs the most memory; there are few steps like it.
        longest = int(np.argmax(self._drawn(0)[2][-1]))
        steps = self.steps_per_epoch
        count = min(SAMPLED, steps, max(1, SAMPLED_BATCHES // micro_batches))
        spread = np.linspace(0, steps - 1, count, dtype=int)
        tokens, positions = [], []
        for step in {longest, *spread.tolist()}:
            parts = self.step(step)
            for index in range(micro_batches):
                if len(pairs := self._piece(parts, micro_batches, index)):
                    sides = self.src_lengths[pairs], self.tgt_lengths[pairs]
                    tokens.append([int(side.sum()) for side in sides])
                    positions.append([int(side.max()) * len(pairs) for side in sides])
        return np.array([tokens, tokens if self.packed else positions])


def evaluation_batches(lengths: list[np.ndarray], max_tokens: int) -> list[np.ndarray]:
    """Returns batches of sentences, or pairs, of at most `max_tokens` padded tokens a side, the
    longest first.

    lengths: (sentences,) tokens of each side. A sentence that is longer than that is a batch of its
    own.
    """
    longer = np.max(lengths, axis=0)
    order = np.argsort(-longer, kind="stable")
    batches, start = [], 0
    while start < len(order):
        stop = start + max(1, max_tokens // int(longer[order[start]]))
        batches.append(order[start:stop])
        start = stop
    return batches


def repetitions(
    corpus: PreparedCorpus, temperature: float, weights: list[float] | None = None
) -> np.ndarray | None:
    """Returns how often an epoch has each training pair on average, (pairs,); None: every pair
    once.

    With `weights`, this is the weight of the pair's file. Otherwise the share of file f, with p_f
    of the pairs, is proportional to p_f ^ (1 / T), and the largest file has each pair once. Raises
    DataError for text of one file.
    """
    if temperature == 1 and weights is None:
        return None
    pairs = np.array(corpus.report["train"].get("corpora", []))
    if len(pairs) < 2 or len(weights or pairs) != len(pairs):
        option = f"weights={weights}" if weights else f"temperature={temperature:g}"
        raise DataError(
            f"data.{option}: mixes several files, but data.train has only "
            f"{counted(len(pairs) or 1, 'file')} with usable pairs; name more files, or leave this "
            "option out"
        )
    return np.repeat(weights or (pairs.max() / pairs) ** (1 - 1 / temperature), pairs)


def describe_corpus(prepared: PreparedCorpus, plan: BatchPlan) -> dict[str, Any]:
    """Describes corpus and plan in plain values, for JSON. Only runs of the same text are seeds of
    each other (`reports/groups.py`).

    `lengths` counts the training sentences of 0, 1, 2, ... subwords, by side; `padding` is the mean
    share of padding in a micro-batch, and `padding_of_parts` counts micro-batches by their share,
    in `BINS` equal bins.
    """
    sides, padding = {"src": plan.src_lengths, "tgt": plan.tgt_lengths}, plan.padding
    subwords = prepared.val.src.flat.tobytes() + prepared.val.tgt.flat.tobytes()
    counts, _ = np.histogram(padding, bins=BINS, range=(0, 1))
    return {
        "splits": prepared.report,
        "pairs": len(prepared.train),
        "vocab_size": prepared.tokenizer.vocab_size,
        "steps_per_epoch": plan.steps_per_epoch,
        "micro_batches": plan.micro_batches,
        "lengths": {side: np.bincount(lengths - 1).tolist() for side, lengths in sides.items()},
        "padding": float(padding.mean()),
        "padding_of_parts": counts.tolist(),
        "fingerprint": prepared.fingerprint,
        "tokenizer_sha256": prepared.tokenizer.fingerprint,
        "val_sha256": hashlib.sha256(subwords).hexdigest(),
    }
