"""What a GPU does with this program: stages for half an hour on one, each of which can be stopped at any time.

    python benchmarks/gpu.py STAGE [--device cuda] [--models base big] [--tokens 25000] [--shapes 40] [--rounds 10]
                             [--vocab 37000] [--toy]

    ceilings   versions, copy rate, matrix products cold and warm
    correct    loss and gradients against the CPU, with windows and heads of unusual size
    sdpa       attention by backend and length
    step       training steps, plain and compiled, each on --shapes new shapes first
    loss       the output layer and its loss
    save       writing a checkpoint
    decode     beam search in float32 and bfloat16, by batch size

Every stage writes OUT/gpu_STAGE.json after each row, so that nothing measured is lost, and prints its table at the end.
Text is random subwords in the lengths of WMT14. --toy makes everything tiny, to try the stages without a GPU.
"""

import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engines import our_engine
from measure import parse_options, report, synchronize
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from train_step import flops, our_loss, read_config, training
from translate import sources

from aiayn import checkpoints
from aiayn.checkpoints import Checkpoint
from aiayn.config import PAD_ID, ModelConfig
from aiayn.data.batch import Batch, pad_sources, shift_right
from aiayn.files import atomic_write_text
from aiayn.hardware import gpu_seconds, matmul_rate
from aiayn.inference.translator import convert_precision
from aiayn.model.attention import additive_mask
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy

Row = dict[str, Any]


def seconds(work: Callable[[], Any], options: Any) -> float:
    """Returns the median seconds of `work`, by the device's own clock on a GPU."""
    if options.device != "cpu":
        return gpu_seconds(work, options.rounds, 0.0 if options.toy else 0.3)
    return statistics.median(once(work) for _ in range(options.rounds))


def once(work: Callable[[], Any]) -> float:
    """Returns the seconds of `work`, that of the host included."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def model_config(name: str, options: Any) -> ModelConfig:
    config = read_config("data=phrasebook", f"model={name}").model
    return replace(config, n_layers=2, d_model=16, d_ff=32, n_heads=2) if options.toy else config


def batches(options: Any, count: int) -> list[Batch]:
    """Returns batches of --tokens padded tokens a side, each in another shape."""
    made = []
    pool = [ids for batch in sources(None, max(64, 40 * count), 1) for ids in batch]
    pool.sort(key=len)
    for number in range(count):
        length = len(pool[len(pool) * (2 * number + 1) // (2 * count)]) + 1
        rows = max(1, options.tokens // (length + 1 + number % 3))
        src = torch.randint(4, options.vocab, (rows, length - 1)).tolist()
        tgt = torch.randint(4, options.vocab, (rows, length + number % 3)).tolist()
        tgt_out = pad_sources(tgt)
        sizes = rows * length, rows * (length + 1 + number % 3)
        made.append(Batch(number, pad_sources(src), shift_right(tgt_out), tgt_out, *sizes, sizes[1]))
    return made


def ceilings(options: Any) -> Iterator[Row]:
    device = torch.device(options.device)
    size = 2**10 if options.toy else 2**28
    data = torch.empty(size, dtype=torch.bfloat16, device=device)
    yield {"what": "copy, bytes/s", "value": 2 * 2 * size / seconds(data.clone, options)}
    for size in (64,) if options.toy else (1024, 4096, 8192):
        matrix = torch.randn(size, size, dtype=torch.bfloat16, device=device)
        for state, measured in (("first", once), ("warm", lambda work: seconds(work, options))):
            taken = measured(lambda: torch.mm(matrix, matrix))  # noqa: B023 (called at once)
            yield {"what": f"product {size}, bfloat16, {state}, FLOP/s", "value": 2 * size**3 / taken}
    if options.device != "cpu":
        yield {"what": "versions", "value": f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"}


def correct(options: Any) -> Iterator[Row]:
    """The differences of loss and gradient from those of the CPU in float32, relative to their size."""
    tiny = model_config("base", options) if options.toy else replace(model_config("base", options), n_layers=2)
    variants = {"plain": {}, "window 8": {"attention_window": 8}, "d_k 16": {"d_k": 16}, "d_k 512": {"d_k": 512}}
    short = type(options)(**vars(options) | {"tokens": min(options.tokens, 600)})
    [batch] = batches(short, 1)
    for name, change in variants.items():
        config = replace(tiny, dropout=0.0, **change)
        torch.manual_seed(0)
        expected = Transformer(config, options.vocab)
        truth = _gradients(expected, batch, "cpu", False)
        for bf16 in (False, True):
            found = _gradients(Transformer(config, options.vocab), batch, options.device, bf16, expected.state_dict())
            errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, truth, strict=True)]
            limit = 0.05 if bf16 else 1e-3
            yield {
                "what": f"{name}, {'bfloat16' if bf16 else 'float32'}",
                "loss off by": errors[0],
                "gradient off by": errors[1],
                "good": max(errors) < limit,
            }


def _gradients(
    model: Transformer, batch: Batch, device: str, bf16: bool, weights: dict[str, Tensor] | None = None
) -> list[Tensor]:
    if weights:
        model.load_state_dict(weights)
    model.to(device).train()
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss = our_loss(model)(batch.to(torch.device(device))) / batch.n_tokens
    loss.backward()
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    return [loss.detach().float().cpu(), gradient.float().cpu()]


def sdpa(options: Any) -> Iterator[Row]:
    heads, d = (2, 8) if options.toy else (8, 64)
    backends = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION}
    backends |= {"cudnn": SDPBackend.CUDNN_ATTENTION} if options.device != "cpu" else {}
    for length in (8, 9) if options.toy else (16, 28, 29, 32, 64, 128, 256):
        count = max(1, options.tokens // length)
        q, k, v = (
            torch.randn(count, heads, length, d, dtype=torch.bfloat16, device=options.device, requires_grad=True)
            for _ in range(3)
        )
        mask = torch.rand(count, 1, 1, length, device=options.device) < 0.9
        mask[..., 0] = True
        for name, backend in backends.items():

            def work() -> None:
                with sdpa_kernel(backend):  # noqa: B023 (called at once)
                    out = F.scaled_dot_product_attention(q, k, v, attn_mask=additive_mask(mask, q.dtype))  # noqa: B023
                out.sum().backward()

            try:
                first, warm = once(work), seconds(work, options)
            except RuntimeError as error:
                yield {"length": length, "backend": name, "first ms": str(error)[:60], "warm ms": None}
                continue
            yield {"length": length, "backend": name, "first ms": first * 1e3, "warm ms": warm * 1e3}


def step(options: Any) -> Iterator[Row]:
    rate = matmul_rate(torch.device(options.device), "bf16-mixed", torch.get_num_threads())
    made = batches(options, options.shapes)
    for name in options.models:
        config = model_config(name, options)
        for compiled in (False,) if options.toy else (False, True):
            torch.manual_seed(0)
            model = Transformer(config, options.vocab)
            steps = training(model, our_loss(model, compiled), made, options.device, True)
            if options.device != "cpu":
                torch.cuda.reset_peak_memory_stats()
            first, again = once(steps), once(steps)
            tokens, needed = sum(b.n_tokens for b in made), sum(flops(config, options.vocab, b) for b in made)
            memory = torch.cuda.max_memory_allocated() / 1e9 if options.device != "cpu" else None
            yield {
                "step of": f"{name}{', compiled' * compiled}",
                "ms": again / len(made) * 1e3,
                "ms, first time": first / len(made) * 1e3,
                "target tokens/s": tokens / again,
                "share of matrix rate": needed / again / rate,
                "peak GB": memory,
            }


def loss(options: Any) -> Iterator[Row]:
    config = model_config("base", options)
    states = torch.randn(1, options.tokens, config.d_model, device=options.device, dtype=torch.bfloat16)
    weight = torch.randn(options.vocab, config.d_model, device=options.device, dtype=torch.bfloat16) * 0.02
    targets = torch.randint(PAD_ID + 1, options.vocab, (1, options.tokens), device=options.device)
    for each in (states, weight):
        each.requires_grad_()
    variants = {"plain": output_cross_entropy}
    if not options.toy:
        variants["compiled"] = torch.compile(output_cross_entropy, dynamic=True)
    for name, function in variants.items():
        work = lambda: function(states, weight, targets, 0.1).backward()  # noqa: B023, E731
        first = once(work)
        yield {"loss": name, "first ms": first * 1e3, "warm ms": seconds(work, options) * 1e3}


def save(options: Any) -> Iterator[Row]:
    for name in options.models:
        config = read_config("data=phrasebook", f"model={name}")
        model = Transformer(model_config(name, options), options.vocab).to(options.device)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step_1.ckpt"

            def write() -> None:
                weights = {key: value.cpu() for key, value in model.state_dict().items()}  # noqa: B023
                checkpoints.save(path, Checkpoint(1, config, weights, "{}", "", 1, []))  # noqa: B023

            written = once(write)
            size = path.stat().st_size
            yield {"model": name, "GB": size / 1e9, "writing s": written, "GB/s": size / 1e9 / written}


def decode(options: Any) -> Iterator[Row]:
    for precision in ("float32", "bfloat16"):
        model = Transformer(model_config("base", options), options.vocab).eval()
        model = convert_precision(model.to(options.device), precision, torch.device(options.device))
        engine = our_engine(model, options.device)
        for count in (2, 3) if options.toy else (16, 128, 512):
            length = 5 if options.toy else 28
            text = torch.randint(4, options.vocab, (count, length)).tolist()
            work = lambda: engine(text, 4, 0.0, length + 1, length + 1)  # noqa: B023, E731
            first = once(work)
            taken = statistics.median(once(work) for _ in range(max(1, options.rounds // 3)))
            yield {
                "precision": precision,
                "sentences": count,
                "first s": first,
                "tokens/s": count * (length + 1) / taken,
            }


def write_rows(options: Any, rows: list[Row]) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    atomic_write_text(options.out / f"gpu_{options.stage}.json", json.dumps({"rows": rows}, indent=1) + "\n")


STAGES = {each.__name__: each for each in (ceilings, correct, sdpa, step, loss, save, decode)}


def main(arguments: list[str] | None = None) -> None:
    defaults = {"device": "cuda", "models": ["base", "big"], "tokens": 25000, "shapes": 40, "rounds": 10}
    options = parse_options(__doc__, arguments, {"stage": None}, **defaults, vocab=37000, toy=False)
    if options.stage not in STAGES:
        sys.exit(f"error: {options.stage}: choose one of {', '.join(STAGES)}")
    if options.device != "cpu":
        if not torch.cuda.is_available():
            sys.exit("error: no GPU that torch can use; try the stages with --toy --device cpu")
        torch.backends.cuda.enable_cudnn_sdp(options.stage == "sdpa")  # off, as in a training
    if options.toy:
        options.tokens, options.shapes, options.rounds, options.vocab = 60, 3, 2, 50
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows: list[Row] = []
    try:
        for row in STAGES[options.stage](options):
            rows.append(row)
            print(row, flush=True)
            write_rows(options, rows)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    if rows:
        report(f"gpu_{options.stage}", rows, options.out)


if __name__ == "__main__":
    main()
