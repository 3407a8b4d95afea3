"""What a GPU does with this program: stages for half an hour on one, each of which can be stopped at any time.

    python benchmarks/gpu.py STAGE [--device cuda] [--models base big] [--tokens 25000] [--shapes 40] [--rounds 10]
                             [--vocab 37000] [--toy]

    ceilings   versions, copy rate, matrix products cold and warm
    correct    loss, gradients and beams against the CPU, with windows and heads of unusual size
    run        whole trainings: with a step of NaN, stopped and continued, compiled, with a window, and the quickstart,
               evaluated and translated, in bfloat16, too
    sdpa       attention by backend and length, masked and not
    step       training steps, plain and compiled: a first pass over --shapes new shapes, and two more
    train      the steps of whole trainings, through Lightning and the loader, plain and compiled
    kernels    where the time of a step goes
    peers      training steps of other implementations, as far as their libraries are installed
    loss       the output layer and its loss
    save       a checkpoint with the optimizer's state: the copy, for which training stops, and the writing
    decode     beam search in float32 and bfloat16, by batch size

Every stage writes OUT/gpu_STAGE.json after each row, so that nothing measured is lost, and prints its table at the end.
Text is random subwords in the lengths of WMT14. --toy makes everything tiny, to try the stages without a GPU.
"""

import json
import operator
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from engines import our_engine
from gpu_checks import correct
from gpu_runs import run, train
from gpu_setup import Row, batches, first_and_warm, model_config, once, seconds
from measure import parse_options, report
from peers import PEERS
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from train_step import flops, implementation

import aiayn
from aiayn.config.model import ModelConfig
from aiayn.config.settle import settled
from aiayn.data.batch import Batch
from aiayn.errors import InterruptedRunError
from aiayn.files import atomic_write_text
from aiayn.hardware import matmul_rate
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.masks import GPUMasks
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints, tensor_files
from aiayn.runs.checkpoints import Checkpoint
from aiayn.token_ids import PAD_ID
from aiayn.training.background_writer import BackgroundWriter
from aiayn.training.loss import cross_entropy, output_cross_entropy


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


def sdpa(options: Any) -> Iterator[Row]:
    heads, d = (2, 8) if options.toy else (8, 64)
    backends = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION}
    backends |= {"cudnn": SDPBackend.CUDNN_ATTENTION}
    for length in (8, 9) if options.toy else (16, 28, 29, 32, 64, 128, 256):
        count = max(1, options.tokens // length)
        q, k, v = (
            torch.randn(count, heads, length, d, dtype=torch.bfloat16, device=options.device, requires_grad=True)
            for _ in range(3)
        )
        mask = torch.rand(count, 1, 1, length, device=options.device) < 0.9
        mask[..., 0] = True
        kinds = {f"{name}, masked": partial(_attend, q, k, v, backend, mask) for name, backend in backends.items()}
        for causal in (False, True):
            kinds[f"flash{', causal' * causal}"] = partial(_attend, q, k, v, SDPBackend.FLASH_ATTENTION, None, causal)
        for name, work in kinds.items():
            try:
                taken = first_and_warm(work, options)
            except (RuntimeError, ImportError, TypeError, ValueError, AttributeError) as error:  # another version's
                taken = {"first ms": f"{type(error).__name__}: {error}"[:80], "warm ms": None}
            yield {"length": length, "attention": name, **taken}


def _attend(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend, mask: Tensor | None, is_causal: bool = False) -> None:
    bias = None if mask is None else GPUMasks().bias(mask, q)
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal)
    torch.autograd.grad(out, (q, k, v), v.detach())  # a dense gradient, as in training; that of a sum is expanded


def step(options: Any) -> Iterator[Row]:
    rate = matmul_rate(torch.device(options.device), "bf16-mixed", torch.get_num_threads())
    made = batches(options, options.shapes)
    for name, config, steps in _our_steps(options, made):
        if options.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        first, again = once(steps), statistics.mean(once(steps) for _ in range(2))
        tokens, needed = sum(b.n_tokens for b in made), sum(flops(config, options.vocab, b) for b in made)
        memory = torch.cuda.max_memory_allocated() / 1e9 if options.device != "cpu" else None
        yield {
            "step of": name,
            "ms": again / len(made) * 1e3,
            "ms, first time": first / len(made) * 1e3,
            "target tokens/s": tokens / again,
            "share of matrix rate": needed / again / rate,
            "peak GB": memory,
        }


def _our_steps(options: Any, made: list[Batch]) -> Iterator[tuple[str, ModelConfig, Callable[[], None]]]:
    """Yields for each of --models, compiled or not: name, configuration, and a step on each of the batches."""
    for name in options.models:
        config = model_config(name, options)
        for kind in ("", ", compiled"):
            yield name + kind, config, implementation(f"aiayn{kind}", config, options.vocab, made, options.device, True)


def loss(options: Any) -> Iterator[Row]:
    config = model_config("base", options)
    states = torch.randn(1, options.tokens, config.d_model, device=options.device, dtype=torch.bfloat16)
    output = nn.Linear(config.d_model, options.vocab, bias=False, device=options.device, dtype=torch.bfloat16)
    targets = torch.randint(PAD_ID + 1, options.vocab, (1, options.tokens), device=options.device)
    states.requires_grad_()
    variants = {"by rows": output_cross_entropy}
    if options.device != "cpu":
        variants["by rows, fused"] = partial(output_cross_entropy, fused=True)
    variants["all logits at once"] = lambda x, layer, *rest: cross_entropy(layer(x), *rest)
    for name, function in variants.items():
        work = lambda: function(states, output, targets, 0.1).backward()  # noqa: B023, E731
        yield {"loss": name, **first_and_warm(work, options)}


def kernels(options: Any) -> Iterator[Row]:
    """The 15 operations of most time in a step, in ms of the device; what the host does meanwhile is not counted."""
    activity = ProfilerActivity.CPU if options.device == "cpu" else ProfilerActivity.CUDA
    time_of = operator.attrgetter(f"self_{'cpu' if options.device == 'cpu' else 'device'}_time_total")
    for name, _, steps in _our_steps(options, batches(options, 1)):
        for _ in range(3):
            steps()
        with profile(activities=[activity]) as measured:
            once(steps)
        spent = {each: taken for each in measured.key_averages() if (taken := time_of(each))}
        for each in sorted(spent, key=spent.get, reverse=True)[:15]:
            row = {"kernel": each.key[:80], "calls": each.count, "ms": spent[each] / 1e3}
            yield {"step of": name, **row, "share": spent[each] / sum(spent.values())}


def peers(options: Any) -> Iterator[Row]:
    made = batches(options, options.shapes)
    for name in PEERS:
        try:
            steps = implementation(name, model_config("base", options), options.vocab, made, options.device, True)
        except ImportError as error:
            print(f"without {name}: {error}")
            continue
        first, again = once(steps), statistics.mean(once(steps) for _ in range(2))
        rate = sum(batch.n_tokens for batch in made) / again
        yield {"base step of": name, "ms, first time": first / len(made) * 1e3, "target tokens/s": rate}


def save(options: Any) -> Iterator[Row]:
    for name in options.models:
        config = settled(aiayn.compose("data=phrasebook", f"model={name}"))
        model = Transformer(model_config(name, options), options.vocab).to(options.device)
        adam = torch.optim.Adam(model.parameters(), fused=True)
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        adam.step()
        copies, writer, state = {}, BackgroundWriter(), {"adam": adam.state_dict(), "weights": model.state_dict()}
        first = once(lambda: writer.copied(state))  # noqa: B023 (called at once)
        clock = [time.process_time()]
        copy = once(lambda: copies.update(writer.copied(state)))  # noqa: B023
        clock.append(time.process_time())
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"step_1.{kind}" for kind in ("optim", "ckpt")]

            def write() -> None:
                tensor_files.write_tensors(paths[0], {"adam": copies["adam"]})  # noqa: B023
                checkpoints.save(paths[1], Checkpoint(1, config, copies["weights"], "{}", "", 1, []))  # noqa: B023

            written = once(write)
            clock.append(time.process_time())
            size = sum(path.stat().st_size for path in paths) / 1e9
        processor = {"copy, processor s": clock[1] - clock[0], "writing, processor s": clock[2] - clock[1]}
        yield {"model": name, "GB": size, "first copy s": first, "copy s": copy, "writing s": written, **processor}


def decode(options: Any) -> Iterator[Row]:
    for precision in ("float32", "bfloat16"):
        model = Transformer(model_config("base", options), options.vocab).eval()
        model = model.to(options.device, getattr(torch, precision))
        model = accelerate(model, torch.device(options.device), translates=True)
        engine = our_engine(model, options.device)
        for count in (2, 3) if options.toy else (16, 128, 512):
            length = 5 if options.toy else 28
            text = torch.randint(4, options.vocab, (count, length)).tolist()
            work = lambda: engine(text, 4, 0.0, length + 1, length + 1)  # noqa: B023, E731
            first = once(work)
            taken = statistics.median(once(work) for _ in range(max(1, options.rounds // 3)))
            rates = {"first s": first, "tokens/s": count * (length + 1) / taken}
            yield {"precision": precision, "sentences": count, **rates}


STAGES = {
    each.__name__: each for each in (ceilings, correct, run, sdpa, step, train, kernels, peers, loss, save, decode)
}


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
    options.out.mkdir(parents=True, exist_ok=True)
    # In --toy all but the last step of compiling, which needs a C compiler and minutes.
    backend = "aot_eager" if options.toy else "inductor"
    try:
        with mock.patch.object(torch, "compile", partial(torch.compile, backend=backend)):
            for row in STAGES[options.stage](options):
                rows.append(row)
                print(row, flush=True)
                so_far = json.dumps({"rows": rows}, indent=1)
                atomic_write_text(options.out / f"gpu_{options.stage}.json", so_far + "\n")
    except (KeyboardInterrupt, InterruptedRunError):  # a training of `run` or `train` takes the signal
        print("stopped", flush=True)
    if rows:
        columns = dict.fromkeys(key for row in rows for key in row)
        report(f"gpu_{options.stage}", [{key: row.get(key, "") for key in columns} for row in rows], options.out)


if __name__ == "__main__":
    main()
