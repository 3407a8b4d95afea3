"""Target tokens per second of a training step, beside other implementations of the same model.

The same batches, loss (label smoothing 0.1), Adam (fused) and dropout for all; bfloat16 autocast. Our step is the one
that `train.py` runs, dropout reseeding included. The floor is the matrix multiplications alone (`aiayn.model.flops`,
real tokens) at the rate that this machine reaches on the model's largest shape.

    python benchmarks/train_step.py [PREFIX] [--src en --tgt de] [--tokens 4096] [--threads 2] [--compile]

PREFIX names raw text, as for `train.py data=files`; without it the generated phrasebook is used.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from measure import Apart, draw_bars, interleaved, report, spread
from peers import PEERS
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.config import PAD_ID, Config, ModelConfig
from aiayn.data.batch import Batch, collate
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.prepare import prepare
from aiayn.entry import check_config, register
from aiayn.model.flops import training_flops
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy
from aiayn.training.module import dropout_seed

NAMES = f"which to run beside ours, of {', '.join(PEERS)}; default: all that are installed"
CONF = Path(__file__).parent.parent / "conf"
OURS = ("aiayn", "aiayn, compiled")
PRODUCTS = 100  # so many take about as long as a step of the base model


def read_config(*overrides: str) -> Config:
    """The configuration of `python train.py ...`."""
    register(Config)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return check_config(compose("train", overrides=list(overrides)), Config)


def batches(config: Config, count: int) -> tuple[list[Batch], int]:
    """The first micro-batches of a run, whole steps each, and the size of the vocabulary."""
    prepared = prepare(config.data)
    tokens = config.data.tokens_per_step
    split = prepared.train
    plan = BatchPlan(split.src_lengths + 1, split.tgt_lengths + 1, tokens_per_step=tokens, seed=0, micro_batches=1)
    return [collate(split, plan.micro_batch(i), i) for i in range(count)], prepared.tokenizer.vocab_size


def our_loss(model: Transformer, compiled: bool = False) -> Callable[[Batch], Tensor]:
    """The summed loss of a batch, as `aiayn.training.module` computes it."""

    def plain(batch: Batch) -> Tensor:
        return model.decode(batch.tgt_in, model.encode(batch.src, batch.src_mask), batch.src_mask)

    states = torch.compile(plain, dynamic=True) if compiled else plain

    def loss(batch: Batch) -> Tensor:
        torch.manual_seed(dropout_seed(0, batch.number))
        return output_cross_entropy(states(batch), model.embedding.weight, batch.tgt_out, 0.1)

    return loss


def their_loss(forward: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
    def loss(batch: Batch) -> Tensor:
        logits = forward(batch).flatten(0, 1)
        return F.cross_entropy(
            logits, batch.tgt_out.flatten(), ignore_index=PAD_ID, label_smoothing=0.1, reduction="sum"
        )

    return loss


def stepper(model: nn.Module, loss: Callable[[Batch], Tensor], several: list[Batch], bf16: bool) -> Callable[[], None]:
    """One optimizer step after the other, through the batches again and again."""
    adam = torch.optim.Adam(model.train().parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    device = next(model.parameters()).device.type
    done = 0

    def step() -> None:
        nonlocal done
        batch = several[done % len(several)]
        done += 1
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            value = loss(batch) / batch.n_tokens
        value.backward()
        adam.step()
        adam.zero_grad()

    return step


def steps(
    name: str, config: ModelConfig, vocab_size: int, several: list[Batch], device: str, bf16: bool
) -> Callable[[], Any]:
    """One pass through the batches, a step each, of ours or one of PEERS. Raises ImportError without its library."""
    torch.manual_seed(0)
    several = [batch.to(torch.device(device)) for batch in several]
    if name in OURS:
        model = Transformer(config, vocab_size)
        loss = our_loss(model, compiled=name != "aiayn")
    else:
        model, forward = PEERS[name](config, vocab_size)
        loss = their_loss(forward)
    step = stepper(model.to(device), loss, several, bf16)
    return lambda: [step() for _ in several]


def products(config: ModelConfig, rows: int, device: str, bf16: bool) -> Callable[[], Any]:
    """The first product of the feed-forward network over that many rows, as often as a step multiplies."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    x = torch.randn(rows, config.d_model, device=device, dtype=dtype)
    w = torch.randn(config.d_model, config.d_ff, device=device, dtype=dtype)
    out = torch.empty(rows, config.d_ff, device=device, dtype=dtype)
    return lambda: [torch.mm(x, w, out=out) is None for _ in range(PRODUCTS)]


def products_flops(config: ModelConfig, rows: int) -> int:
    return PRODUCTS * 2 * rows * config.d_model * config.d_ff


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", nargs="?")
    parser.add_argument("--src", default="en")
    parser.add_argument("--tgt", default="de")
    parser.add_argument("--model", default="base", help="a file of conf/model")
    parser.add_argument("--tokens", type=int, default=4096, help="source, and as many target, tokens of a step")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="beside it our step with `trainer.compile=true`")
    parser.add_argument("--float32", action="store_true", help="no bfloat16")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS), metavar="NAME", help=NAMES)
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    bf16 = not options.float32

    text = ["data=phrasebook"]
    if options.prefix:
        text = ["data=files", *(f"data.{split}={options.prefix}" for split in ("train", "val", "test"))]
        text += [f"data.src_lang={options.src}", f"data.tgt_lang={options.tgt}", "data.vocab_size=10000"]
    config = read_config(*text, f"model={options.model}", f"data.tokens_per_step={options.tokens}")
    several, vocab_size = batches(config, options.batches)
    where = config.model, vocab_size, several, options.device, bf16
    runs = {}
    for name in [*OURS[: 1 + options.compile], *options.peers]:
        try:
            runs[name] = Apart(steps, name, *where)
        except ImportError as error:
            print(f"without {name}: {error}")
    runs["products"] = Apart(products, config.model, options.tokens, options.device, bf16)

    # A round is one pass through all batches, so that every round weighs the same.
    seconds = {name: spread(s) for name, s in interleaved(runs, options.rounds, warmup=1).items()}
    rate = products_flops(config.model, options.tokens) / seconds.pop("products")["median"]
    tokens = sum(batch.n_tokens for batch in several)
    needed = sum(_flops(config.model, vocab_size, batch) for batch in several)
    rows = [
        {
            "step of": name,
            "target tokens/s": tokens / s["median"],
            "low": tokens / s["high"],
            "high": tokens / s["low"],
            "ours is": s["median"] / seconds["aiayn"]["median"],
            "share of matrix rate": needed / s["median"] / rate,
        }
        for name, s in seconds.items()
    ]
    report("train_step", rows, options.out)
    draw_bars(options.out / "train_step.png", rows, "step of", ("target tokens/s", "low", "high"))
    widths = ", ".join(f"{len(batch.src)} x {batch.src.size(1)}+{batch.tgt_in.size(1)}" for batch in several)
    print(
        f"matrix rate {rate / 1e9:,.0f} GFLOP/s; {needed / tokens / 1e6:,.0f} MFLOP per target token; batches {widths}"
    )


def _flops(config: ModelConfig, vocab_size: int, batch: Batch) -> int:
    src, tgt = batch.src_mask.sum((1, 2, 3)), (batch.tgt_out != PAD_ID).sum(1)
    return int(training_flops(config, vocab_size, src, tgt).sum())


if __name__ == "__main__":
    main()
