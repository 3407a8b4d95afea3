"""A CPU's training step packed into one pass, beside the same step in micro-batches.

    python benchmarks/packed_on_cpu.py PREFIX [--src en --tgt de] [--rounds 3] [--float32]
                                       [--sizes NAME ...] [--out DIR]

PREFIX names raw text, as for `train.py data=files`. Packed, everything but attention is computed
once over all tokens of a step, without padding. Attention is computed in as many padded groups of
sentences of about one length as a step has parts. `train.py` does not pack on CPUs; this shows what
it would gain: processor seconds of one step, in bfloat16 autocast unless --float32 is given, the
fewest of some steps.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import parse_options, report
from torch import Tensor

import aiayn
from aiayn.config.resolve import run_config
from aiayn.config.schema import Config
from aiayn.data.batch import collate, pack
from aiayn.data.batch_plan import BatchPlan, MicroBatch
from aiayn.data.corpus import PreparedCorpus, PreparedSplit
from aiayn.data.preparation import prepare_corpus
from aiayn.kernels.accelerate import accelerate
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.masks import causal_mask
from aiayn.model.transformer import Positions, Transformer
from aiayn.training.loss import output_cross_entropy

PARTS = 4  # of a step, the default
FORMS = {"4 micro-batches": 4, "2": 2, "1": 1, "packed": 0}
# Models and tokens of a step; `quickstart` has text of its own.
SIZES = {
    "quickstart": ["experiment=quickstart"],
    "captions": [
        "model=tiny",
        "model.n_layers=2",
        "model.d_model=192",
        "model.d_ff=384",
        "model.dropout=0.1",
        "data.vocab_size=4000",
        "data.tokens_per_step=2048",
    ],
    "tiny, 1,024 tokens": ["model=tiny", "data.tokens_per_step=1024"],
    "tiny, 2,048 tokens": ["model=tiny", "data.tokens_per_step=2048"],
    "base, 1,024 tokens": ["model=base", "data.tokens_per_step=1024"],
    "base, 4,096 tokens": ["model=base", "data.tokens_per_step=4096"],
}


class Gather(torch.autograd.Function):
    """rows[index], where `inverse` says which row of the result each row went to."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, inverse: Tensor, unused: Tensor) -> Tensor:
        ctx.save_for_backward(inverse, unused)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inverse, unused = ctx.saved_tensors
        return gradient.index_select(0, inverse).index_fill_(0, unused, 0), None, None, None


class Layout(NamedTuple):
    """How packed sentences become groups of padded ones; every index is of a side's tokens."""

    shapes: list[tuple[int, int]]  # sentences and columns of each group
    padded: Tensor  # (padded tokens,) the packed token at each place, 0 at padding
    packed: Tensor  # (tokens,) the place of each packed token
    padding: Tensor  # places without a token
    masks: list[Tensor]  # (b, 1, 1, L) of each group, True at tokens

    @classmethod
    def of(cls, lengths: np.ndarray, groups: list[np.ndarray]) -> "Layout":
        starts, packed = lengths.cumsum() - lengths, np.empty(lengths.sum(), np.int64)
        shapes, indices, masks = [], [], []
        for group in groups:
            columns = np.arange(lengths[group].max())
            masks.append(columns < lengths[group][:, None])
            indices.append(np.where(masks[-1], starts[group][:, None] + columns, 0).ravel())
            shapes.append(masks[-1].shape)
        padded, real = np.concatenate(indices), np.concatenate([mask.ravel() for mask in masks])
        packed[padded[real]] = np.flatnonzero(real)
        tensors = map(torch.from_numpy, (padded, packed, np.flatnonzero(~real)))
        return cls(shapes, *tensors, [torch.from_numpy(mask)[:, None, None] for mask in masks])

    def pad(self, heads: Tensor) -> list[Tensor]:
        """(1, H, tokens, d) to (b, H, L, d) for each group."""
        rows = heads[0].transpose(0, 1)
        rows = Gather.apply(rows.flatten(1), self.padded, self.packed, self.padding[:0])
        groups = rows.split([count * width for count, width in self.shapes])
        return [
            group.view(*shape, heads.size(1), -1).transpose(1, 2)
            for group, shape in zip(groups, self.shapes, strict=True)
        ]

    def unpad(self, groups: list[Tensor]) -> Tensor:
        rows = torch.cat([group.transpose(1, 2).flatten(0, 1).flatten(1) for group in groups])
        rows = Gather.apply(rows, self.packed, self.padded, self.padding)
        return rows.unflatten(1, (groups[0].size(1), -1)).transpose(0, 1)[None]


class Grouped(NamedTuple):
    """Takes the place of a mask."""

    queries: Layout
    keys: Layout
    causal: bool = False


def attention_in_groups(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | Grouped, p_drop: float = 0.0
) -> Tensor:
    assert isinstance(mask, Grouped)
    masks = mask.keys.masks
    if mask.causal:
        masks = [causal_mask(width, q.device) for _, width in mask.keys.shapes]
    sides = mask.queries.pad(q), mask.keys.pad(k), mask.keys.pad(v)
    return mask.queries.unpad(
        [attention(*group, p_drop) for group in zip(*sides, masks, strict=True)]
    )


def states_of_packed(
    model: Transformer, split: PreparedSplit, parts: list[np.ndarray]
) -> tuple[Tensor, Tensor]:
    """Returns the decoder's output, (1, T, D), of a step whose sentences lie one after the other,
    and its targets, (1, T).
    """
    pairs = np.concatenate(parts)
    src_lengths, tgt_lengths = split.src.lengths[pairs], split.tgt.lengths[pairs]
    longer = np.argsort(np.maximum(src_lengths, tgt_lengths), kind="stable")
    groups = np.array_split(longer, PARTS)
    src, tgt = Layout.of(src_lengths, groups), Layout.of(tgt_lengths, groups)
    n_src, n_tgt = int(src_lengths.sum()), int(tgt_lengths.sum())
    batch = pack(split, MicroBatch(pairs, n_tgt), 0, max(n_src, n_tgt), 256)
    rows = batch.rows
    positions = [
        Positions(of_side[None, :count], 256)
        for of_side, count in ((rows.src_position, n_src), (rows.tgt_position, n_tgt))
    ]
    memory = model.encode(batch.src[:, :n_src], Grouped(src, src), positions[0])
    self_mask, cross_mask = Grouped(tgt, tgt, causal=True), Grouped(tgt, src)
    states = model.decode(batch.tgt_in[:, :n_tgt], memory, cross_mask, self_mask, positions[1])
    return states, batch.tgt_out[:, :n_tgt]


def training(
    config: Config, corpus: PreparedCorpus, micro_batches: int, bf16: bool
) -> Callable[[], None]:
    """Returns a function that trains a step in so many micro-batches; 0: packed."""
    split, smoothing = corpus.train, config.optim.label_smoothing
    torch.manual_seed(0)
    model = Transformer(config.model, corpus.tokenizer.vocab_size).train()
    adam = torch.optim.Adam(accelerate(model, torch.device("cpu")).parameters(), fused=True)
    plan = BatchPlan(
        split.src.lengths,
        split.tgt.lengths,
        tokens_per_step=config.data.tokens_per_step,
        parts=PARTS,
        seed=0,
        micro_batches=micro_batches or PARTS,
    )
    numbers = itertools.count()
    if not micro_batches:
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.attention = attention_in_groups

    def differentiate_packed() -> None:
        states, targets = states_of_packed(model, split, plan.step(next(numbers)))
        loss = output_cross_entropy(states, model.output, targets, smoothing)
        (loss / targets.numel()).backward()

    def differentiate_padded() -> None:
        for number in itertools.islice(numbers, micro_batches):
            batch = collate(split, plan.micro_batch(number), number)
            memory = model.encode(batch.src, batch.src_mask)
            states = model.decode(batch.tgt_in, memory, batch.src_mask)
            loss = output_cross_entropy(states, model.output, batch.tgt_out, smoothing)
            (loss / batch.step_tokens).backward()

    def train() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            (differentiate_padded if micro_batches else differentiate_packed)()
        adam.step()
        adam.zero_grad()

    return train


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(
        __doc__,
        arguments,
        {"prefix": None},
        src="en",
        tgt="de",
        rounds=3,
        threads=1,
        float32=False,
        sizes=list(SIZES),
    )
    text = ["data=files", *(f"data.{split}={options.prefix}" for split in ("train", "val", "test"))]
    text += [f"data.src_lang={options.src}", f"data.tgt_lang={options.tgt}"]
    text += ["data.vocab_size=10000", "optim=adam", "trainer=default"]
    rows = []
    for name in options.sizes:
        usual = [] if name == "quickstart" else text
        config = run_config(aiayn.compose(*usual, *SIZES[name]))
        corpus = prepare_corpus(config.data)
        forms = {
            form: training(config, corpus, micro_batches, not options.float32)
            for form, micro_batches in FORMS.items()
        }
        seconds: dict[str, list[float]] = {form: [] for form in forms}
        for _ in range(1 + options.rounds):
            for form, train in forms.items():
                start = time.process_time()
                train()
                seconds[form].append(time.process_time() - start)
        rows.append(
            {"step of": name} | {form: min(of_rounds[1:]) for form, of_rounds in seconds.items()}
        )
        print(rows[-1], flush=True)
    report("packed_on_cpu", rows, options.out)


if __name__ == "__main__":
    main()
