"""Translation beside CTranslate2 and Hugging Face's generate: the same weights, sentences and
beams.

    python benchmarks/translate.py RUN --text FILE --reference FILE [--beams 1 4] [--batches 16 64 256] [--alone]
    python benchmarks/translate.py [--lengths-of FILE] [--sentences 128] [--batch 32] [--beams 1 4]
    both: [--rounds 3] [--threads 1] [--minutes 8] [--engines NAME ...]; the second: [--device cuda]

With a RUN every engine translates a file of real sentences from text to text, as its user does:
`aiayn translate` without its start-up, and what it exports to. Batch sizes are searched (of
sentences; ours is of padded tokens times beams, 64 times as many), and the table has the best of
each. With --alone every line is a call of its own, as from one user of a server. Memory is what an
engine takes beyond its imports.

Without one it is the paper's base model with random weights. It does not end its sentences, so
every engine is told how many tokens to write: those of the source and one more. Sources are random
subwords with the lengths of the sentences in FILE (1.3 subwords a word; plain or .gz), or lengths
of a log-normal distribution with a mean of 27. A batch has at most --batch sentences of one length.

Every engine has its own process, and they take turns. Processor seconds are given too, because
other programs on the machine disturb them less. After --minutes no further round begins, and what
was measured so far is printed. An engine that is not installed is skipped.
"""

import itertools
import math
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import sacrebleu
import tokenizers
import torch
from engines import (
    Ids,
    ctranslate2_engine,
    ctranslate2_front_end,
    marian_engine,
    marian_front_end,
    our_engine,
    our_front_end,
)
from measure import Worker, interleaved, parse_options, report

import aiayn
from aiayn.config.resolve import run_config
from aiayn.data.text_files import read_lines
from aiayn.data.tokenizer import SPECIAL_IDS
from aiayn.doors import load_from
from aiayn.errors import ConfigError
from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint

VOCAB = 37000
ENGINES = {
    "ours float32": ("ours", "float32"),
    "ours int8": ("ours", "int8"),
    "ours in torch": ("torch", "float32"),
    "ours exact": ("exact", "float32"),  # as evaluate.py
    "CTranslate2 float32": ("ctranslate2", "float32"),
    "CTranslate2 int8": ("ctranslate2", "int8"),
    "Hugging Face float32": ("marian", "float32"),
    "Hugging Face bfloat16": ("marian", "bfloat16"),
}


def base_checkpoint() -> Checkpoint:
    """Returns the paper's base model with random weights and a vocabulary of made-up subwords."""
    config = run_config(aiayn.compose("data=phrasebook", "model=base"))
    torch.manual_seed(0)
    weights = Transformer(config.model, VOCAB).state_dict()
    vocabulary = SPECIAL_IDS | {f"w{number}": number for number in range(len(SPECIAL_IDS), VOCAB)}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    core.normalizer = tokenizers.normalizers.Prepend(" ")
    core.add_special_tokens(list(SPECIAL_IDS))
    return Checkpoint(0, config, weights, core.to_str(), "", 1, [])


def sources(lengths_of: str | None, count: int, batch_size: int) -> list[Ids]:
    """Returns batches of random subwords, longest first, all sources of a batch equally long."""
    dice = random.Random(0)
    if lengths_of:
        lines = [line for line in read_lines(Path(lengths_of)) if line.strip()]
        lengths = [round(1.3 * len(line.split())) for line in dice.sample(lines, count)]
    else:
        lengths = [
            max(1, min(100, round(dice.lognormvariate(math.log(27) - 0.18, 0.6))))
            for _ in range(count)
        ]
    lengths.sort(reverse=True)
    batches = []
    for length, alike in itertools.groupby(lengths):
        sentences = [dice.choices(range(len(SPECIAL_IDS), VOCAB), k=length) for _ in alike]
        batches += [
            sentences[start : start + batch_size] for start in range(0, len(sentences), batch_size)
        ]
    return batches


FRONT_ENDS = {
    "ours": partial(our_front_end, engine="auto"),
    "torch": partial(our_front_end, engine="torch"),
    "exact": partial(our_front_end, engine="torch", patience=None),
    "ctranslate2": ctranslate2_front_end,
    "marian": marian_front_end,
}


def file_translation(
    program: str,
    precision: str,
    run: Path,
    lines: list[str],
    beam_size: int,
    batch_sizes: list[int],
) -> Callable[[], tuple[list[str], int]]:
    """Returns a function that translates the lines with an engine that is built here, and says its
    batch size.

    The batch size is the one with which the engine translates every fourth line in the fewest
    processor seconds. Without batch sizes it is one: every line is translated alone.
    """
    engine, factor = (
        FRONT_ENDS[program](run, precision),
        64 if program in ("ours", "torch", "exact") else 1,
    )
    if not batch_sizes:
        return lambda: ([engine([line], beam_size, factor)[0] for line in lines], 1)
    seconds = {}
    for batch_size in batch_sizes:
        start = time.process_time()
        engine(lines[::4], beam_size, batch_size * factor)
        seconds[batch_size] = time.process_time() - start
    best = min(seconds, key=seconds.__getitem__)
    return lambda: (engine(lines, beam_size, best * factor), best)


def compare_on_file(options: Any) -> None:
    """Measures every engine with every number of beams."""
    lines, references = read_lines(Path(options.text)), read_lines(Path(options.reference))
    end, rows = time.monotonic() + 60 * options.minutes, []
    for beam_size in options.beams:
        workers: dict[str, Worker] = {}
        for name in options.engines:
            try:
                batches = [] if options.alone else options.batches
                work = (*ENGINES[name], Path(options.run), lines, beam_size, batches)
                workers[name] = Worker(file_translation, *work)
            except (ImportError, ConfigError) as error:
                print(f"{name} skipped: {error}", flush=True)
        rows += file_rows(workers, beam_size, references, options.rounds, end)
    report(f"translate_{Path(options.run).stem}{'_alone' * options.alone}", rows, options.out)


def file_rows(
    workers: dict[str, Worker], beam_size: int, references: list[str], rounds: int, end: float
) -> list[dict[str, Any]]:
    """Runs the workers in turns and returns a row for each; the fewest seconds are those that
    others disturb least.
    """
    outputs: dict[str, tuple[list[str], int]] = {}
    runs = {name: lambda name=name: outputs.update({name: workers[name]()}) for name in workers}
    seconds = interleaved(runs, rounds, end=end)
    rows = [
        {
            "engine": name,
            "beam": beam_size,
            "processor seconds": min(workers[name].cpu),
            "seconds": min(of_rounds),
            "ms a line": 1000 * min(workers[name].cpu) / len(references),
            "BLEU": sacrebleu.corpus_bleu(outputs[name][0], [references]).score,
            "as exact": sum(map(eq, outputs[name][0], outputs.get("ours exact", ([], 0))[0])),
            "MB": workers[name].peak_mb,
            "batch": outputs[name][1],
            "rounds": len(of_rounds),
        }
        for name, of_rounds in seconds.items()
    ]
    for worker in workers.values():
        worker.close()
    return rows


def translation(
    program: str, precision: str, device: str, folder: Path, batches: list[Ids], beam_size: int
) -> Callable[[], Ids]:
    """Returns a function that translates all batches with an engine that is built here."""
    if program == "torch":
        checkpoint = base_checkpoint()
        model = Transformer(checkpoint.config.model, VOCAB)
        model.load_state_dict(checkpoint.weights)
        engine = our_engine(accelerate(model.eval(), torch.device(device), translates=True), device)
    else:
        engine = {"ctranslate2": ctranslate2_engine, "marian": marian_engine}[program](
            folder / program, precision, device
        )
    lengths = [len(batch[0]) + 1 for batch in batches]
    return lambda: [
        ids
        for batch, length in zip(batches, lengths, strict=True)
        for ids in engine(batch, beam_size, 0.0, length, length)
    ]


def main(arguments: list[str] | None = None) -> None:
    work = {"lengths_of": None, "sentences": 128, "batch": 32, "engines": list(ENGINES)}
    text = {
        "text": None,
        "reference": None,
        "beams": [1, 4],
        "batches": [16, 64, 256],
        "alone": False,
    }
    options = parse_options(
        __doc__,
        arguments,
        {"run": "?"},
        **text,
        **work,
        rounds=3,
        threads=1,
        device="cpu",
        minutes=8.0,
    )
    if options.run:
        compare_on_file(options)
        return
    end = time.monotonic() + 60 * options.minutes
    batches, rows = sources(options.lengths_of, options.sentences, options.batch), []
    for beam_size in options.beams:
        rows += prescribed_rows(options, batches, beam_size, end)
    report("translate", rows, options.out)


def prescribed_rows(
    options: Any, batches: list[Ids], beam_size: int, end: float
) -> list[dict[str, Any]]:
    """Runs the engines in turns on prescribed lengths and returns a row for each."""
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.engines:
            program, precision = ENGINES[name]
            if program in ("ours", "exact") or (precision == "int8" and options.device != "cpu"):
                continue  # lengths cannot be prescribed to a command
            try:
                if program != "torch" and not (Path(folder) / program).exists():
                    load_from("aiayn.exporters", program)(base_checkpoint(), Path(folder) / program)
                work = (program, precision, options.device, Path(folder), batches, beam_size)
                workers[name] = Worker(translation, *work)
            except (ImportError, ConfigError) as error:
                print(f"{name} skipped: {error}", flush=True)
    outputs: dict[str, Ids] = {}
    runs = {name: lambda name=name: outputs.update({name: workers[name]()}) for name in workers}
    seconds = interleaved(runs, options.rounds, end=end)

    rows, first = [], next(iter(seconds))
    tokens = sum(len(ids) + 1 for batch in batches for ids in batch)
    for name, of_rounds in seconds.items():
        # Not every engine writes the last token, which is forced.
        same = sum(
            a[: len(b) - 1] == b[:-1] for a, b in zip(outputs[first], outputs[name], strict=True)
        )
        rows.append(
            {
                "engine": name,
                "beam": beam_size,
                "tokens/s": tokens / min(of_rounds),
                "tokens/processor second": tokens / min(workers[name].cpu),
                "MB": workers[name].peak_mb,
                "rounds": len(of_rounds),
                f"outputs as {first}": f"{same} of {options.sentences}",
            }
        )
    for worker in workers.values():
        worker.close()
    return rows


if __name__ == "__main__":
    main()
