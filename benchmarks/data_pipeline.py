"""What data costs: preparing a corpus, planning epochs, cutting batches; how much is padding, how random steps are.

The text is generated: sentences as long as WMT14's (25 words a side on average, log-normal), words by a Zipf law with
the tail of real corpora. Every stage runs in a process of its own, so that its peak of memory is its own.

python benchmarks/data_pipeline.py
python benchmarks/data_pipeline.py --pairs 4500000 --plan-pairs 36000000
python benchmarks/data_pipeline.py --pairs 100000 --real my/train --real-tokens 4096
"""

import argparse
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config import DataConfig
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedSplit
from aiayn.data.prepare import prepare

WORDS = 2_000_000  # that a language has
COMMON = 10_000  # words by Zipf's law; beyond them it falls faster
RARE = 0.1  # the share of rare words in running text
DEMAND = 36_000  # pairs a second that a base model takes on the fastest GPU


def write_corpus(prefix: Path, pairs: int, seed: int) -> None:
    """PREFIX.en and PREFIX.de, the same bytes for the same arguments."""
    rng = np.random.default_rng(seed)
    tables = {"en": _words("aeiou"), "de": _words("aeiouäöü")}
    with open(f"{prefix}.en", "w", encoding="utf-8") as en, open(f"{prefix}.de", "w", encoding="utf-8") as de:
        for start in range(0, pairs, 50_000):
            src = rng.lognormal(3.04, 0.6, min(50_000, pairs - start))
            tgt = src * rng.lognormal(-0.05, 0.2, len(src))
            for file, table, lengths in ((en, tables["en"], src), (de, tables["de"], tgt)):
                counts = np.clip(np.rint(lengths), 1, 200).astype(np.int64)
                drawn = table[_ranks(rng, counts.sum())].tolist()
                ends = np.cumsum(counts).tolist()
                file.writelines(" ".join(drawn[a:b]) + ".\n" for a, b in zip([0, *ends], ends, strict=False))


def _ranks(rng: np.random.Generator, count: int) -> np.ndarray:
    """Ranks of words: 1 / rank up to COMMON, then rank ** -1.6, so that new words go on to turn up as in real text."""
    common, rare = COMMON ** rng.random(count), COMMON * rng.random(count) ** (-1 / 0.6)
    return np.where(rng.random(count) < RARE, np.minimum(rare, WORDS), common).astype(np.int64) - 1


@functools.cache
def _words(vowels: str) -> np.ndarray:
    """WORDS spellings, (WORDS,) object: the rank in syllables, so that frequent words are short."""
    syllables = [c + v + end for end in ("", "n", "r", "s") for v in vowels for c in "bdfgklmnprstvwz"]
    spelled = []
    for rank in range(1, WORDS + 1):
        word = ""
        while rank:
            rank, digit = divmod(rank, len(syllables))
            word += syllables[digit]
        spelled.append(word)
    return np.array(spelled, object)


def lengths(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of both sides of `pairs` pairs, end marks included, distributed as above; (pairs,) int32 each."""
    rng = np.random.default_rng(0)
    src = rng.lognormal(3.2, 0.6, pairs).astype(np.float32)
    tgt = src * rng.lognormal(-0.05, 0.2, pairs).astype(np.float32)
    return tuple(np.clip(np.rint(side), 1, 255).astype(np.int32) + 1 for side in (src, tgt))


# Stages. Each returns figures, and runs in a process of its own.


@contextmanager
def clocked(figures: dict[str, Any], name: str) -> Iterator[None]:
    """Puts seconds by the clock and of the processor (all threads) into NAME_s and NAME_cpu_s."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    figures |= {f"{name}_s": time.perf_counter() - wall, f"{name}_cpu_s": time.process_time() - cpu}


def prepare_stage(folder: str, train: str, tokenizer_pairs: int | None, vocab_size: int, val: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with clocked(figures, "prepare"):
        prepared = prepare(data_config(folder, train, val, tokenizer_pairs, vocab_size))
    tokens = prepared.report["train"]["src_tokens"] + prepared.report["train"]["tgt_tokens"]
    return {"pairs": prepared.report["train"]["read"], **figures, "tokens": tokens, "folder": str(prepared.folder)}


def plan_stage(pairs: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"pairs": pairs}
    sides = lengths(pairs)
    with clocked(figures, "plan"):
        plan = BatchPlan(*sides, tokens_per_step=25_000, seed=0, max_tokens_per_device=16_384)
        plan.micro_batch(0)
    return figures | {"steps": plan.steps_per_epoch, "padding_percent": 100 * plan.padding}


def batch_stage(folder: str, tokens: int, batches: int) -> dict[str, Any]:
    """Cuts batches of a prepared corpus; measures its padding, and how much its steps change between epochs."""
    from aiayn.data.batch import collate

    split = PreparedSplit.open(Path(folder), "train")
    plan = BatchPlan(
        split.src_lengths + 1, split.tgt_lengths + 1, tokens_per_step=tokens, seed=0, max_tokens_per_device=tokens
    )
    numbers = range(min(batches, plan.steps_per_epoch * plan.micro_batches))
    collate(split, plan.micro_batch(0), 0)
    pairs, cpu = 0, time.process_time()
    for number in numbers:
        micro_batch = plan.micro_batch(number)
        collate(split, micro_batch, number)
        pairs += len(micro_batch.pairs)
    rate = pairs / (time.process_time() - cpu)
    return {
        "pairs": len(split),
        "tokens_per_step": tokens,
        "padding_percent": 100 * plan.padding,
        "cut_pairs_per_cpu_s": rate,
        "core_percent_at_36000": 100 * DEMAND / rate,
        **randomness(plan, len(split)),
    }


def randomness(plan: BatchPlan, pairs: int) -> dict[str, float]:
    """How often two pairs of a step meet again in the next epoch, and by chance; how alike neighbouring steps are."""

    def steps_of(epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The step of every pair (pairs,), and the target tokens a pair of every step (steps,)."""
        home, mean = np.empty(pairs, np.int64), np.empty(plan.steps_per_epoch)
        for step in range(plan.steps_per_epoch):
            first = (epoch * plan.steps_per_epoch + step) * plan.micro_batches
            of_step = [plan.micro_batch(first + i) for i in range(plan.micro_batches)]
            members = np.concatenate([micro_batch.pairs for micro_batch in of_step])
            home[members], mean[step] = step, of_step[0].step_tokens / len(members)
        return home, mean

    (first, mean), (second, _) = steps_of(0), steps_of(1)
    sizes = np.bincount(first)
    both = np.unique(first * plan.steps_per_epoch + second, return_counts=True)[1]
    couples = (sizes * (sizes - 1)).sum()
    return {
        "meet_again_percent": 100 * (both * (both - 1)).sum() / max(couples, 1),
        "by_chance_percent": 100 / plan.steps_per_epoch,
        "neighbours_correlation": float(np.corrcoef(mean[:-1], mean[1:])[0, 1]) if len(set(mean)) > 2 else 0.0,
    }


def data_config(folder: str, train: str, val: str, tokenizer_pairs: int | None, vocab_size: int) -> DataConfig:
    return DataConfig(
        task="translation",
        source="files",
        hub_path=None,
        hub_name=None,
        hub_revision=None,
        train=train,
        val=val,
        test=None,
        src_lang="en",
        tgt_lang="de",
        folder=folder,
        vocab_size=vocab_size,
        max_length=255,
        max_length_ratio=4.0,
        tokenizer_pairs=tokenizer_pairs,
        tokens_per_step=25_000,
        max_tokens_per_device=16_384,
        micro_batches=None,
        num_workers=0,
    )


STAGES = {"prepare": prepare_stage, "plan": plan_stage, "batch": batch_stage}


def in_a_process(stage: str, *arguments: Any) -> dict[str, Any]:
    """A stage's figures, with its peak of memory."""
    command = [sys.executable, __file__, "--stage", stage, json.dumps(arguments)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout.split("\n")[-2])


def peak_mb() -> float:
    """This process' own peak: that of `getrusage` begins with the peak of the process that started it."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").split("\n")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 300_000, 1_000_000], help="to prepare")
    parser.add_argument("--plan-pairs", type=int, nargs="+", default=[1_000_000, 4_500_000, 36_000_000])
    parser.add_argument("--tokenizer-pairs", type=int, default=500_000)
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--batches", type=int, default=300, help="to cut")
    parser.add_argument("--real", help="PREFIX of real text, to prepare and pad as well")
    parser.add_argument("--real-tokens", type=int, default=4096, help="its tokens per step")
    parser.add_argument("--real-vocab-size", type=int, default=10_000)
    parser.add_argument("--scratch", type=Path, help="where the text is generated; needs 700 bytes a pair")
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--stage", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.stage:
        stage, values = options.stage
        print(json.dumps(STAGES[stage](*json.loads(values)) | {"peak_mb": peak_mb()}))
        return
    from measure import draw, report

    planned = [in_a_process("plan", pairs) for pairs in options.plan_pairs]
    report("data_plan", planned, options.out)
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        write_corpus(Path(scratch, "val"), 2000, seed=1)
        prepared, cut = [], []
        val, limit, vocab = f"{scratch}/val", options.tokenizer_pairs, options.vocab_size
        for pairs in options.pairs:
            train = f"{scratch}/{pairs}"
            write_corpus(Path(train), pairs, seed=0)
            prepared.append(in_a_process("prepare", scratch, train, limit, vocab, val))
            cut.append(in_a_process("batch", prepared[-1].pop("folder"), 25_000, options.batches))
        if options.real:
            real = in_a_process("prepare", scratch, options.real, None, options.real_vocab_size, val)
            cut.append(in_a_process("batch", real["folder"], options.real_tokens, options.batches))
    report("data_prepare", prepared, options.out)
    report("data_batches", cut, options.out)
    curves = {
        "prepare": {"processor seconds": curve(prepared, "prepare_cpu_s"), "seconds": curve(prepared, "prepare_s")},
        "plan an epoch": {"processor seconds": curve(planned, "plan_cpu_s"), "seconds": curve(planned, "plan_s")},
    }
    draw(options.out / "data_pipeline.png", curves, "pairs", "seconds")


def curve(rows: list[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    return [row["pairs"] for row in rows], [row[key] for row in rows]


if __name__ == "__main__":
    main()
