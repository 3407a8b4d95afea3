"""Target tokens per second of a training step, beside other implementations of the same model.

    python benchmarks/train_step.py [PREFIX] [--src en --tgt de] [--model base] [--tokens 4096] [--parts 4]
                                    [--steps 3] [--rounds 9] [--threads 2] [--device cuda] [--compile] [--float32]
                                    [--peers NAME ...] [--whole]

PREFIX names raw text, as for `train.py data=files`; the default is the generated phrasebook. All
implementations take the first steps of `train.py`, each of --parts micro-batches of other lengths,
whose gradients they accumulate, with the same loss (label smoothing 0.1), Adam (fused) and dropout,
in bfloat16 autocast (or --float32). Our step is that of `train.py`, packed where it packs, dropout
reseeding included; --compile adds it with `trainer.compile=true`. --whole adds the others' steps as
one padded batch, which has more padding and larger products. Ours is compared with theirs in processor seconds,
round by round: the geometric mean of the ratios and its 95 % interval. The matrix rate is the speed of the feed-forward
network's first product, measured in turn with the steps; the share of it that a step reaches counts
matrix products only (`aiayn.model.flops`, real tokens).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from lightning_fabric.utilities.apply_func import move_data_to_device
from measure import Worker, draw_bars, interleaved, parse_options, report, spread
from peers import PEERS
from table3_quarter import half_width
from torch import Tensor, nn
from torch.nn import functional as F

import aiayn
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import RunConfig, run_config
from aiayn.config.training import TrainingPrecision
from aiayn.data.batch import Batch, TrainingBatch, collate, pack
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.preparation import prepare_corpus
from aiayn.hardware import Hardware
from aiayn.kernels.accelerate import accelerate
from aiayn.model.flops import training_flops
from aiayn.reports.differences import Sample
from aiayn.token_ids import PAD_ID
from aiayn.training.loss import output_cross_entropy
from aiayn.training.module import TranslationModule, compile_layers, dropout_seed
from aiayn.training.research import Research
from aiayn.training.start import step_form

PRECISION: dict[bool, TrainingPrecision] = {True: "bf16-mixed", False: "32-true"}
WHOLE = ", one batch"
PRODUCTS = 100  # matrix products that take about as long as a step of the base model


def first_steps(
    config: RunConfig, count: int, micro_batches: int, packed: bool = False
) -> list[list[TrainingBatch]]:
    """Returns the first steps of a run, each as its micro-batches."""
    split, data = prepare_corpus(config.data).train, config.data
    plan = BatchPlan(
        split.src.lengths,
        split.tgt.lengths,
        tokens_per_step=data.tokens_per_step,
        parts=data.parts_per_step,
        seed=0,
        micro_batches=micro_batches,
        packed=packed,
    )

    def batch(number: int) -> TrainingBatch:
        micro_batch = plan.micro_batch(number)
        if packed:
            return pack(split, micro_batch, number, None, data.max_length + 1)
        return collate(split, micro_batch, number)

    starts = range(0, count * micro_batches, micro_batches)
    return [[batch(start + index) for index in range(micro_batches)] for start in starts]


def our_loss(
    module: TranslationModule, compiled: bool = False
) -> Callable[[TrainingBatch], Tensor]:
    """Returns the summed loss of a batch as `aiayn.training.module` computes it."""
    if compiled:
        compile_layers(module.model)

    def loss(batch: TrainingBatch) -> Tensor:
        torch.manual_seed(dropout_seed(0, batch.number))
        return output_cross_entropy(module.states(batch), module.model.output, batch.tgt_out, 0.1)

    return loss


def their_loss(forward: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
    smoothed = {"ignore_index": PAD_ID, "label_smoothing": 0.1, "reduction": "sum"}
    return lambda batch: F.cross_entropy(
        forward(batch).flatten(0, 1), batch.tgt_out.flatten(), **smoothed
    )


def training(
    model: nn.Module,
    loss: Callable[[Any], Tensor],
    steps: list[list[TrainingBatch]],
    device: str,
    bf16: bool,
) -> Callable[[], None]:
    """Returns a function that trains these steps."""
    model.to(device).train()
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    steps = [[move_data_to_device(batch, device) for batch in step] for step in steps]

    def train() -> None:
        for step in steps:
            for batch in step:
                with torch.autocast(device, torch.bfloat16, enabled=bf16):
                    value = loss(batch) / batch.step_tokens
                value.backward()
            adam.step()
            adam.zero_grad()

    return train


def implementation(
    name: str,
    config: ModelConfig,
    vocab_size: int,
    steps: list[list[TrainingBatch]],
    device: str,
    bf16: bool,
) -> Callable[[], None]:
    """Returns the training of aiayn, by name compiled, or of one of PEERS; raises ImportError
    without it.
    """
    torch.manual_seed(0)
    if (peer := name.removesuffix(WHOLE)) in PEERS:
        model, forward = PEERS[peer](config, vocab_size)
        return training(model, their_loss(forward), steps, device, bf16)
    options = replace(run_config(aiayn.compose("experiment=quickstart")), model=config)
    module = TranslationModule(options, vocab_size)
    accelerate(module.model, torch.device(device))
    return training(module, our_loss(module, "compiled" in name), steps, device, bf16)


def products(config: ModelConfig, rows: int, device: str, bf16: bool) -> Callable[[], None]:
    """Returns a function that multiplies rows with the first matrix of the feed-forward network,
    PRODUCTS times.
    """
    like = {"device": device, "dtype": torch.bfloat16 if bf16 else torch.float32}
    x, w = (
        torch.randn(rows, config.d_model, **like),
        torch.randn(config.d_model, config.d_ff, **like),
    )
    out = torch.empty(rows, config.d_ff, **like)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            torch.mm(x, w, out=out)

    return multiply


def mean_ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Returns the geometric mean of ours / theirs over rounds, and Student's 95 % interval of it."""
    ratios = (our / their for our, their in zip(ours, theirs, strict=True))
    logs = Sample(dict(enumerate(map(math.log, ratios))))
    half = half_width(logs) if logs.n > 1 else math.nan
    low, ratio, high = (math.exp(logs.mean + sign * half) for sign in (-1, 0, 1))
    return {"ours / theirs": ratio, "ratio low": low, "ratio high": high}


def packs(config: RunConfig, bf16: bool) -> bool:
    """Returns whether `train.py` packs on a CPU in this precision."""
    return step_form(config, Hardware("cpu", PRECISION[bf16]), Research()).is_packed


def flops(config: ModelConfig, vocab_size: int, batch: TrainingBatch) -> int:
    src, tgt = (torch.from_numpy(lengths) for lengths in batch.lengths)
    return int(training_flops(config, vocab_size, src, tgt).sum())


def main(arguments: list[str] | None = None) -> None:
    sizes: dict[str, Any] = {"model": "base", "tokens": 4096, "parts": 4, "steps": 3, "rounds": 9}
    sizes |= {"threads": 1, "device": "cpu"}
    flags = {"compile": False, "float32": False, "peers": list(PEERS), "whole": False}
    options = parse_options(
        __doc__, arguments, {"prefix": "?"}, src="en", tgt="de", **sizes, **flags
    )
    text = ["data=phrasebook"]
    if options.prefix:
        text = [
            "data=files",
            *(f"data.{split}={options.prefix}" for split in ("train", "val", "test")),
        ]
        text += [
            f"data.src_lang={options.src}",
            f"data.tgt_lang={options.tgt}",
            "data.vocab_size=10000",
        ]
        text += ["optim=adam", "trainer=default"]
    text += [f"data.tokens_per_step={options.tokens}", f"data.parts_per_step={options.parts}"]
    whole_config = run_config(aiayn.compose(*text, f"model={options.model}"))
    config, bf16 = whole_config.model, not options.float32
    vocab_size = prepare_corpus(whole_config.data).tokenizer.vocab_size
    padded = first_steps(whole_config, options.steps, options.parts)
    steps_of = dict.fromkeys(
        ["aiayn", *["aiayn, compiled"] * options.compile],
        first_steps(whole_config, options.steps, 1, packed=True)
        if options.device == "cpu" and packs(whole_config, bf16)
        else padded,
    )
    steps_of |= dict.fromkeys(options.peers, padded)
    if options.whole:
        one_batch = first_steps(whole_config, options.steps, 1)
        steps_of |= {f"{peer}{WHOLE}": one_batch for peer in options.peers}
    workers = {}
    for name, steps in steps_of.items():
        try:
            workers[name] = Worker(
                implementation, name, config, vocab_size, steps, options.device, bf16
            )
        except ImportError as error:
            print(f"without {name}: {error}")
    workers["products"] = Worker(products, config, options.tokens, options.device, bf16)

    batches = [batch for step in padded for batch in step]
    # A round is one pass through all steps, so that every round is the same work.
    seconds = {
        name: spread(quartiles) for name, quartiles in interleaved(workers, options.rounds).items()
    }
    rate = (
        PRODUCTS
        * 2
        * options.tokens
        * config.d_model
        * config.d_ff
        / seconds.pop("products")["median"]
    )
    tokens = sum(batch.n_tokens for batch in batches)
    needed = sum(flops(config, vocab_size, batch) for batch in batches)
    ours = workers["aiayn"].cpu[1:]
    rows = [
        {
            "step of": name,
            "target tokens/s": tokens / quartiles["median"],
            "low": tokens / quartiles["high"],
            "high": tokens / quartiles["low"],
            **mean_ratio(ours, workers[name].cpu[1:]),
            "tokens per processor s": tokens / spread(workers[name].cpu[1:])["median"],
            "share of matrix rate": needed / quartiles["median"] / rate,
        }
        for name, quartiles in seconds.items()
    ]
    name = f"train_step_{options.model}_{options.tokens}{'_bfloat16' * bf16}"
    report(name, rows, options.out, PRECISION[bf16])
    draw_bars(options.out / "train_step.png", rows, "step of", "target tokens/s")
    widths = ", ".join(
        f"{len(batch.src)} x {batch.src.size(1)}+{batch.tgt_in.size(1)}" for batch in batches
    )
    print(
        f"matrix rate {rate / 1e9:,.0f} GFLOP/s; {needed / tokens / 1e6:,.0f} MFLOP per target "
        f"token; batches {widths}"
    )


if __name__ == "__main__":
    main()
