"""What a GPU does with this program, in nine minutes on a bare machine: rows, cheap and decisive first.

    python benchmarks/gpu.py [--out OUT] [--seconds 540] [--rows NAME ...] [--dry-run]

OUT/gpu.json is written after every row. A row that fails, or takes longer than its budget, says so there, and the next
one begins, in a new process where the GPU itself has failed or hangs. --rows takes the first words of names; --dry-run
makes everything tiny on a CPU, where rows that need a GPU say so. `make gpu-wheels` collects what to carry to a machine
that has torch and numpy only. Text and ids are random, in lengths like those of WMT14.
"""

import gc
import importlib.metadata
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from host_time import host_time
from measure import gpu_seconds, matrix_rate, parse_options, synchronize
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import aiayn
from aiayn import hardware
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import run_config
from aiayn.config.search import SearchOverrides
from aiayn.data.batch import Batch, PackedBatch, collate, pad_sources, shift_right, without_padding
from aiayn.data.batch_plan import MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.data.prepare import prepare
from aiayn.files import atomic_write_text
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.packed import Segments, packed_attention
from aiayn.model.attention import attention as equation_1
from aiayn.model.flops import training_flops
from aiayn.model.transformer import Transformer
from aiayn.runs.run_folder import RunFolder, find_checkpoint
from aiayn.search.engine import Choice, open_translator
from aiayn.training.loss import cross_entropy, output_cross_entropy
from aiayn.training.module import compile_layers, dropout_seed, seed_device
from aiayn.training.packed import packed_states

PLAIN, COMPILED, TRITON = "plain", "compiled", "triton"  # layers compiled, and with that Triton's loss
# Sentences of four lengths: with all of the above, with none, and padded length by length.
PACKED, PACKED_PLAIN, PADDED = "packed", "packed plain", "padded"
VARIANTS = (TRITON, COMPILED, PLAIN)
TINY = {"n_layers": 1, "d_model": 16, "d_ff": 32, "n_heads": 2, "d_k": 8, "d_v": 8}
HANGS = 15  # seconds beyond its budget after which a row is given up that no signal interrupts

Record = dict[str, Any]


class Bench(NamedTuple):
    """What the rows share."""

    device: torch.device
    dry: bool
    folder: Path
    records: list[Record]  # of the rows so far

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def vocab(self) -> int:
        return 290 if self.dry else 37_000

    def model(self, name: str, **changes: Any) -> ModelConfig:
        config = run_config(aiayn.compose("data=phrasebook", f"model={name}")).model
        return replace(config, **(TINY if self.dry else {}) | changes)


class LeftOut(Exception):  # noqa: N818 - no error
    """A row that is impossible here."""


class OverBudget(BaseException):  # not an Exception, which what runs in the row might catch
    pass


# The rows.


def machine(bench: Bench) -> Record:
    found: Record = {"CUDA": torch.version.cuda, "missing for compiling": hardware.missing_for_compiling()}
    found["allocator"] = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    for each in importlib.metadata.distributions():
        if each.name in ("triton", "numpy", "pytorch-lightning", "ctranslate2", "tokenizers"):
            found.setdefault(each.name, each.version)
    data = torch.empty(2**20 if bench.dry else 2**28, dtype=torch.bfloat16, device=bench.device)
    found["copy, bytes/s"] = 4 * data.numel() / seconds(bench, data.clone)
    return found | hardware.describe_machine(bench.device, "bf16-mixed", 1)


def correct(bench: Bench, variant: str) -> Record:
    """The relative errors of the loss, of all gradients together and of the worst, against float32 on the CPU."""
    config, is_packed = bench.model("base", n_layers=2, dropout=0.0), variant in (PACKED, PACKED_PLAIN)
    [padded] = mixed_batches(bench, 600, 1) if is_packed else batches(bench, 600, 1)
    batch = without_padding(padded) if is_packed else padded
    truth = gradients(bench._replace(device=torch.device("cpu")), config, padded, "float32")
    found = gradients(bench, config, batch, variant)
    errors = {name: float((found[name] - truth[name]).norm() / truth[name].norm()) for name in truth}
    loss, worst = errors.pop("loss"), max(errors, key=errors.__getitem__)
    a, b = (torch.cat([each[name].flatten() for name in errors]) for each in (found, truth))
    off = float((a - b).norm() / b.norm())
    good = max(loss, off) < (1e-3 if variant == "float32" else 0.05)  # False where one is NaN
    return {"loss off by": loss, "gradients off by": off, "worst": {worst: errors[worst]}, "good": good}


def gradients(bench: Bench, config: ModelConfig, batch: Batch, variant: str) -> dict[str, Tensor]:
    model, loss = loss_of(bench, config, variant)
    value = loss(batch.to(bench.device))
    value.backward()
    found = {"loss": value, **{name: weight.grad for name, weight in model.named_parameters()}}
    return {name: tensor.detach().float().cpu() for name, tensor in found.items()}


def skipped(bench: Bench) -> Record:
    """Whether fused Adam leaves weights alone where `found_inf` is 1, which is how steps of NaN are skipped."""
    weight = nn.Parameter(torch.ones(3, device=bench.device))
    adam = torch.optim.Adam([weight], fused=True)
    weight.grad, adam.found_inf = torch.full_like(weight, torch.nan), torch.ones((), device=bench.device)
    adam.step()
    return {"good": bool((weight == 1).all())}


def attention(bench: Bench, variant: str) -> Record:
    """Which kernels the 18 attentions of a step are, forward and back: calls and ms of the device."""
    if not bench.on_gpu:
        raise LeftOut("attention in one kernel needs a GPU")
    train, [batch] = training(bench, bench.model("base"), variant), made_for(bench, variant, 25_000, 1)
    found = [each for each in profiled(bench, train, batch) if re.search("dot_product|flash_attention", each.key)]
    return {each.key: [each.count, getattr(each, "device_time_total", 0) / 1e3] for each in found}


def widths(bench: Bench, d_k: int, d_v: int) -> Record:
    """The largest relative error of packed attention and its gradients in bfloat16, causal or not."""
    if not bench.on_gpu:
        raise LeftOut("packed attention needs a GPU")
    worst = max(error for causal in (False, True) for error in attention_errors(bench, d_k, d_v, causal))
    return {"off by": worst, "good": worst < 0.02}


def attention_errors(bench: Bench, d_k: int, d_v: int, causal: bool) -> list[float]:
    """Of the output and the gradients of q, k and v, 30 sentences of 1 to 39 tokens, to equation (1) in float32."""
    queries = torch.randint(1, 40, (30,))
    keys = queries if causal else torch.randint(1, 40, (30,))
    starts = (F.pad(each.cumsum(0), (1, 0)).int().to(bench.device) for each in (queries, keys))
    of_query, of_key = (torch.arange(30).repeat_interleave(each).to(bench.device) for each in (queries, keys))
    mask = of_query[:, None] == of_key  # of one sentence
    sizes = ((queries, d_k), (keys, d_k), (keys, d_v), (queries, d_v))  # of q, k, v and the gradient of the output
    packed = [torch.randn(1, 8, int(each.sum()), d, device=bench.device).bfloat16() for each, d in sizes]
    forms = (
        (packed, lambda q, k, v: packed_attention(q, k, v, Segments(*starts, 64, 64, causal))),
        ([each.float() for each in packed], lambda q, k, v: equation_1(q, k, v, mask.tril() if causal else mask)),
    )
    found = []
    for (*inputs, gradient), compute in forms:
        inputs = [each.requires_grad_() for each in inputs]
        output = compute(*inputs)
        found.append([output, *torch.autograd.grad(output, inputs, gradient)])
    return [float(((a.float() - b).norm() / b.norm()).detach()) for a, b in zip(*found, strict=True)]


def loss(bench: Bench, vocab: int, kind: str) -> Record:
    """The output layer and its loss with gradients, 25,000 tokens of base."""
    like: Any = {"device": bench.device, "dtype": torch.bfloat16}
    states = torch.randn(1, *((60, 16) if bench.dry else (25_000, 512)), **like, requires_grad=True)
    output = nn.Linear(states.size(2), vocab // (100 if bench.dry else 1), bias=False, **like)
    targets = torch.randint(4, output.out_features, states.shape[:2], device=bench.device)
    forms: dict[str, Callable[[], Tensor]] = {
        "all at once": lambda: cross_entropy(output(states), targets, 0.1),
        "by rows": lambda: output_cross_entropy(states, output, targets, 0.1),
        TRITON: lambda: output_cross_entropy(states, output, targets, 0.1, fused=True),
    }
    first = once(lambda: forms[kind]().backward())
    return {"first ms": first * 1e3, "ms": seconds(bench, lambda: forms[kind]().backward()) * 1e3}


def step(bench: Bench, model: str, tokens: int, variant: str) -> Record:
    """Training steps on 20 shapes: the first pass, in which kernels are compiled, and two more."""
    config, made = bench.model(model), [each.to(bench.device) for each in made_for(bench, variant, tokens, 20)]
    train = training(bench, config, variant)
    firsts = [once(lambda batch=batch: train(batch)) for batch in made]
    processor, start = time.process_time(), time.perf_counter()
    for batch in made * 2:
        train(batch)
    host = time.process_time() - processor  # before the wait, in which the processor may spin
    synchronize()
    taken = (time.perf_counter() - start) / 2
    useful = sum(float(training_flops(config, bench.vocab, *map(np.float64, each.lengths)).sum()) for each in made)
    rate = matrix_rate(bench.device)
    return {
        "ms": taken / len(made) * 1e3,
        "host ms": host / 2 / len(made) * 1e3,
        "first ms": [round(each * 1e3, 1) for each in firsts],
        "target tokens/s": sum(each.n_tokens for each in made) / taken,
        "share of matrix rate": useful / taken / rate,
    }


def big(bench: Bench, place: int) -> Record:
    """Steps of big with the variant that is best for base, or second best."""
    variant = by_speed(bench)[place - 1]
    return {"variant": variant, **step(bench, "big", 25_000, variant)}


def by_speed(bench: Bench) -> list[str]:
    """The variants, the fastest for base at 25,000 tokens first; those that were not measured last."""
    taken = {each["row"]: each["ms"] for each in bench.records if "ms" in each}
    return sorted(VARIANTS, key=lambda variant: taken.get(f"step base 25000 {variant}", math.inf))


def kernels(bench: Bench) -> Record:
    """The 15 operations of most time in a packed step, on the GPU and on its host: ms, calls and name; and of all."""
    variant = PACKED if bench.on_gpu else PLAIN
    train, [batch] = training(bench, bench.model("base"), variant), made_for(bench, variant, 25_000, 1)
    measured, record = profiled(bench, train, batch), {}
    for where in ("device", "cpu"):
        spent = [(getattr(each, f"self_{where}_time_total") / 1e3, each.count, each.key[:60]) for each in measured]
        record |= {f"{where}, all ms": sum(ms for ms, *_ in spent), f"{where}, most": sorted(spent)[:-16:-1]}
    return record


def host(bench: Bench) -> Record:
    return host_time(bench.device.type, *((8, 1) if bench.dry else (60, 3)))


def options(bench: Bench, name: str, *more: str) -> list[str]:
    """Options of a training of base on the text of the row before."""
    chosen = ["data=files", "data.src_lang=en", "data.tgt_lang=de", f"data.vocab_size={bench.vocab}", "logger=none"]
    chosen += [f"data.{split}={bench.folder}/{split}" for split in ("train", "val")]
    chosen += [f"outputs={bench.folder}/outputs", f"data.folder={bench.folder}/data", "model=base", "optim=adam"]
    chosen += [
        "trainer=default",
        "trainer.max_steps=60",
        "trainer.checkpoint_every=30",
        "trainer.log_every=10",
        "trainer.val_every=60",
    ]
    chosen += ["trainer.val_bleu_sentences=20", "trainer.average_last=1", f"name={name}"]
    chosen += [f"data.tokens_per_step={300 if bench.dry else 25_000}"]
    if bench.dry:
        chosen += ["trainer.accelerator=cpu", "trainer.precision=32-true"]
        chosen += [f"model.{option}={value}" for option, value in TINY.items()]
    return [*chosen, *more]


def text(bench: Bench) -> Record:
    """Writes and prepares a corpus: words by Zipf's law, sentences of log-normal lengths."""
    rng, words = np.random.default_rng(0), 300 if bench.dry else 60_000
    spelled = np.array([np.base_repr(word, 26).translate(LETTERS) for word in range(words)])
    for split, pairs in {"train": 300 if bench.dry else 30_000, "val": 40 if bench.dry else 300}.items():
        lengths = np.clip(np.rint(rng.lognormal(3.04, 0.6, pairs)), 1, 100).astype(int)
        for language in ("en", "de"):
            lines = [" ".join(spelled[(words ** rng.random(n)).astype(int) - 1]) for n in lengths]
            (bench.folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    prepared = prepare(run_config(aiayn.compose(*options(bench, "none"))).data)
    return {"vocabulary": prepared.tokenizer.vocab_size}


LETTERS = str.maketrans("0123456789", "qrstuvwxyz")  # for the digits of numbers, whose others are letters


def train(bench: Bench, way: str) -> Record:
    """60 steps of base as users train it: speed by the run's own clock, and whether the losses fall."""
    run = RunFolder(aiayn.train(*options(bench, way, *AS_WAY[way])))
    [*_, last] = [record for record in run.read_metrics() if "perf/tokens_per_sec" in record]
    found = losses(run)
    return {"losses": found, "good": found[60] < found[10], **{key: last[key] for key in last if "perf/" in key}}


def continued(bench: Bench) -> Record:
    """The same training, stopped after 30 steps and continued: how far its losses are from those of the whole one."""
    whole = trained(bench)
    for steps in (30, 60):
        parts = RunFolder(aiayn.train(*options(bench, "parts", *AS_WAY[whole.path.name], f"trainer.max_steps={steps}")))
    found = losses(parts)
    off = max(abs(found[step] - loss) for step, loss in losses(whole).items())
    return {"losses off by": off, "good": off < 1e-2}


AS_WAY = {PACKED: [], PADDED: ["trainer.packed=false"]}


def trained(bench: Bench) -> RunFolder:
    """The first run of `train` that there is."""
    folders = [bench.folder / "outputs" / way for way in AS_WAY]
    return RunFolder(next(folder for folder in folders if (folder / "checkpoints").exists()))


def losses(run: RunFolder) -> dict[int, float]:
    return {record["step"]: record["train/loss"] for record in run.read_metrics() if "train/loss" in record}


RANK = """
import runpy, sys
from pytorch_lightning.strategies import ddp
ddp._get_default_process_group_backend_for_device = lambda device: "gloo"  # NCCL refuses two ranks on one GPU
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def lost(bench: Bench) -> Record:
    """Two processes on one device, one of them killed: how the other one ends, and after how many seconds."""
    small = [f"model.{option}={value}" for option, value in TINY.items()]
    small += [
        "data.tokens_per_step=600",
        "data.micro_batches=2",
        "trainer.compile=false",
        "trainer.max_steps=100000",
        "trainer.log_every=1",
    ]
    chosen = options(bench, "ranks", *small, "trainer.timeout=20", "trainer.devices=2")
    command = [sys.executable, "-c", RANK, str(Path(__file__).parent.parent / "train.py"), *dict.fromkeys(chosen)]
    task = {"JOB_ID": 7, "JOB_NAME": "ranks", "NODELIST": "localhost", "NODEID": 0, "NTASKS": 2, "NTASKS_PER_NODE": 2}
    logs = [bench.folder / f"rank{rank}.log" for rank in range(2)]
    ranks = []
    for rank, log in enumerate(logs):
        slurm = {f"SLURM_{name}": str(value) for name, value in (task | {"PROCID": rank, "LOCALID": rank}).items()}
        with open(log, "wb") as file:
            ranks.append(subprocess.Popen(command, env=os.environ | slurm, stderr=file, stdout=file))
    said = lambda log: log.read_text(encoding="utf-8").strip()[-300:]  # noqa: E731
    try:
        metrics = bench.folder / "outputs/ranks/metrics.jsonl"
        while not (metrics.exists() and metrics.read_bytes().count(b"train/loss") > 2):
            if any(rank.poll() is not None for rank in ranks):
                raise RuntimeError(f"a rank ended early: {' / '.join(map(said, logs))}")
            time.sleep(0.1)
        ranks[1].kill()
        taken, code = once(ranks[0].wait), ranks[0].returncode
        return {"ended after s": taken, "exit code": code, "says": said(logs[0]), "good": code == 6}
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def translate(bench: Bench, engine: str, precision: str) -> Record:
    """256 lines by the model of `train`, beam 4, and in how many of eight lines float32 differs from the CPU's."""
    if find_spec(engine) is None:
        raise LeftOut(f"{engine} is not among what came to the GPU")
    run, count = trained(bench).path, 8 if bench.dry else 256
    lines = (bench.folder / "val.en").read_text(encoding="utf-8").split("\n")[:count]
    where: Any = {"engine": engine, "accelerator": "cpu" if bench.dry else "auto", "precision": precision}
    chosen = Choice(
        checkpoints=[find_checkpoint(run, None)], search=SearchOverrides(beam_size=4, patience=2.0), **where
    )
    found: list[str] = []
    with open_translator(chosen) as (translator, about):
        first = once(lambda: translator.translate(lines[:8]))
        taken = once(lambda: found.extend(translator.translate(lines)))
    record = {"engine": about, "first s": first, "lines/s": count / taken}
    if precision == "float32":
        expected = aiayn.load(run, accelerator="cpu", beam_size=4, patience=2.0, engine="torch").translate(lines[:8])
        record["different lines of 8"] = sum(a != b for a, b in zip(found[:8], expected, strict=True))
    return record


# Seconds that a row may take, its function and its arguments; the last two are its name.
ROWS: list[tuple[Any, ...]] = [(20, machine), (20, correct, "float32")]
ROWS += [(45, correct, variant) for variant in (PACKED_PLAIN, PACKED)] + [(5, skipped)]
ROWS += [(10, widths, *each) for each in ((16, 16), (4, 16), (8, 16), (4, 4), (20, 32), (64, 64), (16, 64), (200, 40))]
ROWS += [(60, text), (90, train, PACKED), (60, continued), (60, lost)]
ROWS += [(30, translate, *kind) for kind in (("torch", "float32"), ("torch", "bfloat16"), ("ctranslate2", "float32"))]
ROWS += [(60, step, model, 25_000, PACKED) for model in ("base", "big")] + [(30, kernels), (90, train, PADDED)]
ROWS += [(60, step, "base", 25_000, PACKED_PLAIN), (60, host), (45, attention, PACKED), (45, attention, PLAIN)]
ROWS += [(10, loss, vocab, kind) for vocab in (37_000, 37_008) for kind in (TRITON, "by rows", "all at once")]
ROWS += [(45, correct, variant) for variant in VARIANTS]
ROWS += [(60, step, "base", tokens, variant) for tokens in (3_125, 25_000) for variant in (PACKED, *VARIANTS)]
ROWS = [*dict.fromkeys(ROWS), (60, big, 1), (60, big, 2)]


def name_of(row: tuple[Any, ...]) -> str:
    return " ".join([row[1].__name__, *map(str, row[2:])])


# What they are made of.


def batches(bench: Bench, tokens: int, count: int) -> list[Batch]:
    """Returns batches of about so many target tokens, each in another shape, with a little padding."""
    rng, made = np.random.default_rng(0), []
    for number in range(count):
        width = int(np.clip(np.rint(rng.lognormal(3.1, 0.5)), 5, 10 if bench.dry else 120))
        rows = max(2, (60 if bench.dry else tokens) // (width + 1 + number % 3))
        lengths = [width + more - rng.integers(0, 3, rows) for more in (0, number % 3)]
        src, tgt_out = (pad_sources([rng.integers(4, bench.vocab, n).tolist() for n in each]) for each in lengths)
        real = lengths[0] + 1, lengths[1] + 1  # with end marks
        made.append(Batch(number, src, shift_right(tgt_out), tgt_out, real, int(real[1].sum())))
    return made


def made_for(bench: Bench, variant: str, tokens: int, count: int) -> list[Batch]:
    if variant in (PACKED, PACKED_PLAIN):
        return [without_padding(batch) for batch in mixed_batches(bench, tokens, count)]
    return batches(bench, tokens, count)


def mixed_batches(bench: Bench, tokens: int, count: int) -> list[Batch]:
    """Returns batches of about so many target tokens, each of four lengths, as a step has them; padded."""
    rng, made = np.random.default_rng(1), []
    for number in range(count):
        lengths = []
        for width in np.clip(np.rint(rng.lognormal(3.1, 0.5, 4)), 5, 10 if bench.dry else 120).astype(int):
            rows = max(1, (60 if bench.dry else tokens) // 4 // int(width + 1))
            lengths += (width - rng.integers(0, 3, (2, rows))).T.tolist()
        sides = ([rng.integers(4, bench.vocab, pair[side]).tolist() for pair in lengths] for side in (0, 1))
        split = PreparedSplit(Path(), "train", *map(Sentences.of, sides))
        n_tokens = sum(length for _, length in lengths) + len(lengths)
        made.append(collate(split, MicroBatch(np.arange(len(lengths)), n_tokens, 1), number))
    return made


def loss_of(bench: Bench, config: ModelConfig, variant: str) -> tuple[Transformer, Callable[[Batch], Tensor]]:
    """Returns a model with the same weights every time, and the mean loss of a batch as a training computes it."""
    torch.manual_seed(0)
    model = accelerate(Transformer(config, bench.vocab).to(bench.device), bench.device).train()
    if variant in (COMPILED, TRITON, PACKED):
        compile_layers(model, "eager" if bench.dry else "inductor")

    def loss(batch: Batch) -> Tensor:
        seed_device(dropout_seed(0, batch.number), bench.device)
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=variant != "float32"):
            if isinstance(batch, PackedBatch):
                states = packed_states(model, batch)
            else:
                states = model.decode(batch.tgt_in, model.encode(batch.src, batch.src_mask), batch.src_mask)
            fused = variant in (TRITON, PACKED)
            return output_cross_entropy(states, model.output, batch.tgt_out, 0.1, fused) / batch.n_tokens

    return model, loss


def training(bench: Bench, config: ModelConfig, variant: str) -> Callable[[Batch], None]:
    """Returns a training step."""
    model, loss = loss_of(bench, config, variant)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def train(batch: Batch) -> None:
        loss(batch).backward()
        adam.step()
        adam.zero_grad()

    return train


def profiled(bench: Bench, train: Callable[[Batch], None], batch: Batch) -> Any:
    """Returns what torch's profiler says of a step after the first two, by operation."""
    batch = batch.to(bench.device)
    for _ in range(2):
        once(lambda: train(batch))
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * bench.on_gpu]) as measured:
        once(lambda: train(batch))
    return measured.key_averages()


def once(work: Callable[[], Any]) -> float:
    """Returns the seconds of `work`, that of the host included."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def seconds(bench: Bench, work: Callable[[], Any]) -> float:
    """Returns the median seconds of `work`, by the device's own clock on a GPU."""
    return gpu_seconds(work) if bench.on_gpu else once(work)


# The runner.


def run_rows(
    rows: Iterable[tuple[Any, ...]], bench: Bench, out: Path, end: float, start_again: Callable[[], Any]
) -> None:
    """Works off the rows that have no record yet until `end`, by `time.time`; writes all records after each.

    `start_again` is called where this process is of no more use: a GPU's error stays for good.
    """
    done = {record["row"] for record in bench.records}
    for row in rows:
        name, (budget, work, *arguments) = name_of(row), row
        if name in done:
            continue
        start = time.time()
        limit = min(budget * (10 if bench.dry else 1), end - start)
        record: Record = {"row": name}
        try:
            with time_limit(limit, lambda record=record: (keep(bench, record, out, failed="hangs"), start_again())):
                if {TRITON, PACKED, PACKED_PLAIN} & {*arguments} and work is not train and not bench.on_gpu:
                    raise LeftOut("the kernel needs a GPU")
                if bench.on_gpu:
                    torch.cuda.reset_peak_memory_stats()
                record |= work(bench, *arguments)
                if bench.on_gpu:
                    record["peak GB"] = torch.cuda.max_memory_allocated() / 1e9
        except LeftOut as reason:
            record["left out"] = str(reason)
        except OverBudget:
            record["failed"] = f"took longer than {limit:.0f} s"
        except (Exception, SystemExit) as error:
            record["failed"] = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        keep(bench, record, out, seconds=round(time.time() - start, 1))
        if "failed" in record and is_broken():
            start_again()
        torch.compiler.reset()  # a model of another row is no recompilation of this one's
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def time_limit(limit: float, given_up: Callable[[], Any]) -> Iterator[None]:
    """Raises OverBudget in the context after `limit` seconds, and calls `given_up` if that does not end it."""
    if limit <= 0:
        raise LeftOut("no time was left")

    def ring(number: int, frame: FrameType | None) -> None:
        raise OverBudget

    hung = threading.Timer(limit + HANGS, given_up)
    hung.daemon = True
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit)
    hung.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        hung.cancel()


def keep(bench: Bench, record: Record, out: Path, **more: Any) -> None:
    record |= more
    bench.records.append(record)
    print(json.dumps(record), flush=True)
    atomic_write_text(out / "gpu.json", json.dumps({"rows": bench.records}, indent=1) + "\n")


def is_broken() -> bool:
    try:
        synchronize()
    except RuntimeError:
        return True
    return False


def main(arguments: list[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    defaults = {"seconds": 540.0, "rows": [""], "dry_run": False, "going_on": ""}
    chosen = parse_options(__doc__, given, **defaults)
    if not (chosen.dry_run or torch.cuda.is_available()):
        sys.exit("error: no GPU that torch can use; try the rows with --dry-run")
    chosen.out.mkdir(parents=True, exist_ok=True)
    hardware.choose_device("auto")  # sets the allocator and which attention is allowed, as a training does
    folder, end, records = tempfile.mkdtemp(prefix="aiayn-gpu-"), time.time() + chosen.seconds, []
    if chosen.going_on:
        folder, end = json.loads(chosen.going_on)
        records = json.loads((chosen.out / "gpu.json").read_text(encoding="utf-8"))["rows"]
    bench = Bench(torch.device("cpu" if chosen.dry_run else "cuda"), chosen.dry_run, Path(folder), records)

    def start_again() -> None:
        os.execv(sys.executable, [sys.executable, __file__, *given, "--going-on", json.dumps([folder, end])])

    plan = [row for row in ROWS if name_of(row).startswith(tuple(chosen.rows))]
    run_rows(plan, bench, chosen.out, end, start_again)


if __name__ == "__main__":
    main()
