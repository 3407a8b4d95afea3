"""Translation speed beside CTranslate2 and Hugging Face's generate: the same weights, sentences and beams.

    python benchmarks/translate.py [--lengths-of FILE] [--sentences 128] [--batch 32] [--rounds 3] [--threads 1]
                                   [--device cuda] [--minutes 8] [--engines NAME ...]

The paper's base model with random weights does not end its sentences, so every engine is told how many tokens to write:
those of the source and one more. Sources are random subwords with the lengths of the sentences in FILE (1.3 subwords a
word; plain or .gz), or lengths of a log-normal distribution with a mean of 27; the sources of a batch of --batch
sentences are cut to equal length. Every engine has its own process, and they take turns. Processor seconds are given
too, because other programs on the machine disturb them less. After --minutes no further round begins, and what was
measured so far is printed. An engine that is not installed is skipped.
"""

import math
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers
import torch
from engines import Ids, ctranslate2_engine, marian_engine, our_engine
from measure import Worker, draw_bars, interleaved, parse_options, report, spread

import aiayn
from aiayn.config.settle import settled
from aiayn.data.text_files import read_lines
from aiayn.data.tokenizer import SPECIAL_IDS
from aiayn.errors import ConfigError
from aiayn.export.export import export
from aiayn.inference.precision import convert_precision
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint

VOCAB = 37000
ENGINES = {
    "ours float32": ("ours", "float32"),
    "ours bfloat16": ("ours", "bfloat16"),
    "ours int8": ("ours", "int8"),
    "CTranslate2 float32": ("ctranslate2", "float32"),
    "CTranslate2 int8": ("ctranslate2", "int8"),
    "Hugging Face float32": ("marian", "float32"),
    "Hugging Face bfloat16": ("marian", "bfloat16"),
}


def base_checkpoint() -> Checkpoint:
    """Returns the paper's base model with random weights and a vocabulary of made-up subwords."""
    config = settled(aiayn.compose("data=phrasebook", "model=base"))
    torch.manual_seed(0)
    weights = Transformer(config.model, VOCAB).state_dict()
    vocabulary = SPECIAL_IDS | {f"w{number}": number for number in range(len(SPECIAL_IDS), VOCAB)}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    core.normalizer = tokenizers.normalizers.Prepend(" ")
    core.add_special_tokens(list(SPECIAL_IDS))
    return Checkpoint(0, config, weights, core.to_str(), "", 1, [])


def sources(lengths_of: str | None, count: int, batch_size: int) -> list[Ids]:
    """Returns batches of random subwords, longest first, all sources of a batch as long as its shortest."""
    dice = random.Random(0)
    if lengths_of:
        lines = [line for line in read_lines(Path(lengths_of)) if line.strip()]
        lengths = [round(1.3 * len(line.split())) for line in dice.sample(lines, count)]
    else:
        lengths = [max(1, min(100, round(dice.lognormvariate(math.log(27) - 0.18, 0.6)))) for _ in range(count)]
    lengths.sort(reverse=True)
    groups = [lengths[start : start + batch_size] for start in range(0, count, batch_size)]
    return [[dice.choices(range(len(SPECIAL_IDS), VOCAB), k=min(group)) for _ in group] for group in groups]


def translation(kind: str, precision: str, device: str, folder: Path, batches: list[Ids]) -> Callable[[], Ids]:
    """Returns a function that translates all batches with an engine that is built here."""
    if kind == "ours":
        checkpoint = base_checkpoint()
        model = Transformer(checkpoint.config.model, VOCAB)
        model.load_state_dict(checkpoint.weights)
        engine = our_engine(convert_precision(model, precision, torch.device(device)), device)
    else:
        engine = {"ctranslate2": ctranslate2_engine, "marian": marian_engine}[kind](folder / kind, precision, device)
    lengths = [len(batch[0]) + 1 for batch in batches]
    return lambda: [
        ids for batch, length in zip(batches, lengths, strict=True) for ids in engine(batch, 4, 0.0, length, length)
    ]


def main(arguments: list[str] | None = None) -> None:
    work = {"lengths_of": None, "sentences": 128, "batch": 32, "engines": list(ENGINES)}
    options = parse_options(__doc__, arguments, **work, rounds=3, threads=1, device="cpu", minutes=8.0)
    end = time.monotonic() + 60 * options.minutes
    batches = sources(options.lengths_of, options.sentences, options.batch)
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.engines:
            kind, precision = ENGINES[name]
            if precision == "int8" and options.device != "cpu":
                continue
            try:
                if kind != "ours" and not (Path(folder) / kind).exists():
                    export(base_checkpoint(), kind, Path(folder) / kind)
                workers[name] = Worker(translation, kind, precision, options.device, Path(folder), batches)
            except (ImportError, ConfigError) as error:
                print(f"{name} skipped: {error}", flush=True)
    outputs: dict[str, Ids] = {}
    runs = {name: lambda name=name: outputs.update({name: workers[name]()}) for name in workers}
    seconds = interleaved(runs, options.rounds, end=end)

    rows, first = [], next(iter(seconds))
    tokens = sum(len(ids) + 1 for batch in batches for ids in batch)
    for name in seconds:
        clock, cpu = spread(seconds[name]), workers[name].cpu
        # Not every engine writes the last token, which is forced.
        same = sum(a[: len(b) - 1] == b[:-1] for a, b in zip(outputs[first], outputs[name], strict=True))
        rows.append(
            {
                "engine": name,
                "tokens/s": tokens / clock["median"],
                "low": tokens / clock["high"],
                "high": tokens / clock["low"],
                "tokens/processor second": tokens / spread(cpu[1:] or cpu)["median"],
                "rounds": len(seconds[name]),
                f"outputs as {first}": f"{same} of {options.sentences}",
            }
        )
    report("translate", rows, options.out)
    draw_bars(options.out / "translate.png", rows, "engine", "tokens/s")


if __name__ == "__main__":
    main()
