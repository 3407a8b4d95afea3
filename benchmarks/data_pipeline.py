"""What data costs: preparing a corpus, planning epochs, cutting batches; how much is padding.

    python benchmarks/data_pipeline.py [--pairs 100000 300000 1000000] [--plan-pairs 4500000 36000000]
                                       [--tokenizer-pairs 500000] [--vocab-size 37000] [--batches 300] [--processes 1]
                                       [--real PREFIX --real-tokens 4096 --real-vocab-size 10000] [--scratch FOLDER]

The text is generated: sentences as long as WMT14's (25 words a side on average, log-normal), words
by a Zipf law with the tail of real corpora; it needs 700 bytes a pair in --scratch. --real names
text to prepare and pad as well. Every stage runs in a process of its own, and its memory is what it
takes beyond the libraries. Of --processes that prepare, processor seconds count all, helper_cpu_s
those of the others; peak_mb is that of the one that starts them, helper_mb that of the largest
other, and total_mb is of all at a time, libraries included and shared pages once (Linux only).
"""

import functools
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import Worker, parse_options, report
from memory import PeakOfAll

import aiayn
from aiayn.config.resolve import run_config
from aiayn.data.batch import collate
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedSplit
from aiayn.data.preparation import prepare_corpus

WORDS = 2_000_000  # that a language has
COMMON = 10_000  # words by Zipf's law; beyond them it falls faster
RARE = 0.1  # the share of rare words in running text

Row = dict[str, Any]


def write_corpus(prefix: Path, pairs: int, seed: int) -> None:
    """PREFIX.en and PREFIX.de, the same bytes for the same arguments."""
    rng = np.random.default_rng(seed)
    tables = {"en": _words("aeiou"), "de": _words("aeiouäöü")}
    with (
        open(f"{prefix}.en", "w", encoding="utf-8") as en,
        open(f"{prefix}.de", "w", encoding="utf-8") as de,
    ):
        for start in range(0, pairs, 50_000):
            src = rng.lognormal(3.04, 0.6, min(50_000, pairs - start))
            tgt = src * rng.lognormal(-0.05, 0.2, len(src))
            for file, table, lengths in ((en, tables["en"], src), (de, tables["de"], tgt)):
                counts = np.clip(np.rint(lengths), 1, 200).astype(np.int64)
                words = table[_ranks(rng, counts.sum())].tolist()
                ends = np.cumsum(counts).tolist()
                file.writelines(
                    " ".join(words[a:b]) + ".\n" for a, b in zip([0, *ends], ends, strict=False)
                )


def _ranks(rng: np.random.Generator, count: int) -> np.ndarray:
    """Ranks of words: 1 / rank up to COMMON, then rank ** -1.6, so that new words go on to turn up
    as in real text.
    """
    common, rare = COMMON ** rng.random(count), COMMON * rng.random(count) ** (-1 / 0.6)
    return np.where(rng.random(count) < RARE, np.minimum(rare, WORDS), common).astype(np.int64) - 1


@functools.cache
def _words(vowels: str) -> np.ndarray:
    """WORDS spellings, (WORDS,) object: the rank in syllables, so that frequent words are short."""
    syllables = [
        c + v + end for end in ("", "n", "r", "s") for v in vowels for c in "bdfgklmnprstvwz"
    ]
    spelled = []
    for rank in range(1, WORDS + 1):
        word = ""
        while rank:
            rank, digit = divmod(rank, len(syllables))
            word += syllables[digit]
        spelled.append(word)
    return np.array(spelled, object)


def lengths(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Subwords of both sides of `pairs` pairs with end marks, distributed as above."""
    rng = np.random.default_rng(0)
    src = rng.lognormal(3.2, 0.6, pairs)
    sides = (src, src * rng.lognormal(-0.05, 0.2, pairs))
    src, tgt = (np.clip(np.rint(side), 1, 255).astype(np.int32) + 1 for side in sides)
    return src, tgt


# Stages. Each sets up and returns the work that is measured, which returns figures.


def preparation(
    folder: str, train: str, tokenizer_pairs: int, vocab_size: int, processes: int
) -> Callable[[], Row]:
    text = [
        "data=files",
        f"data.train={train}",
        f"data.val={folder}/val",
        "data.src_lang=en",
        "data.tgt_lang=de",
    ]
    text += [
        f"data.folder={folder}",
        f"data.vocab_size={vocab_size}",
        f"data.tokenizer_pairs={tokenizer_pairs}",
    ]
    options = [
        *text,
        "model=base",
        "optim=adam",
        "trainer=default",
        "data.max_length=255",
        "data.tokens_per_step=25000",
    ]
    config = run_config(aiayn.compose(*options, f"data.prepare_processes={processes}"))

    def work() -> Row:
        prepared = prepare_corpus(config.data)
        counts = prepared.report["train"]
        tokens = counts["src_tokens"] + counts["tgt_tokens"]
        helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = {
            "helper_cpu_s": helpers.ru_utime + helpers.ru_stime,
            "helper_mb": helpers.ru_maxrss / 1024,
        }
        sizes = {"pairs": counts["read"], "tokens": tokens, "processes": processes}
        return sizes | used | {"folder": str(prepared.folder)}

    return work


def planning(pairs: int) -> Callable[[], Row]:
    src, tgt = lengths(pairs)

    def work() -> Row:
        plan = BatchPlan(
            src, tgt, tokens_per_step=25_000, parts=4, seed=0, max_tokens_per_device=16_384
        )
        plan.micro_batch(0)
        return {
            "pairs": pairs,
            "steps": plan.steps_per_epoch,
            "padding_percent": 100 * plan.padding.mean(),
        }

    return work


def batching(folder: str, tokens: int, batches: int) -> Callable[[], Row]:
    split = PreparedSplit.open(Path(folder), "train")
    plan = BatchPlan(
        split.src.lengths,
        split.tgt.lengths,
        tokens_per_step=tokens,
        parts=4,
        seed=0,
        max_tokens_per_device=tokens,
    )
    numbers = range(min(batches, plan.steps_per_epoch * plan.micro_batches))
    collate(split, plan.micro_batch(0), 0)  # the first one reads the corpus

    def work() -> Row:
        micro_batches = [plan.micro_batch(number) for number in numbers]
        for number, micro_batch in enumerate(micro_batches):
            collate(split, micro_batch, number)
        pairs_cut = sum(len(micro_batch.pairs) for micro_batch in micro_batches)
        sizes = {
            "pairs": len(split),
            "tokens_per_step": tokens,
            "padding_percent": 100 * plan.padding.mean(),
        }
        return sizes | {"pairs_cut": pairs_cut}

    return work


def measured(stage: Callable[..., Callable[[], Row]], *arguments: Any) -> Row:
    """Returns a stage's figures, with its seconds by the clock and of the processor (all threads)
    and its memory.
    """
    worker = Worker(stage, *arguments)
    with PeakOfAll() as peak:
        start = time.perf_counter()
        figures = worker()
        seconds = time.perf_counter() - start
    worker.close()
    memory = {"peak_mb": worker.peak_mb, "total_mb": peak.mb}
    return figures | {"seconds": seconds, "cpu_s": worker.cpu[0]} | memory


def main(arguments: list[str] | None = None) -> None:
    counts = {"pairs": [100_000, 300_000, 1_000_000], "plan_pairs": [4_500_000, 36_000_000]}
    real = {"real": None, "real_tokens": 4096, "real_vocab_size": 10_000}
    sizes = {"tokenizer_pairs": 500_000, "vocab_size": 37_000, "batches": 300, "processes": 1}
    options = parse_options(__doc__, arguments, **counts, **sizes, **real, scratch=None)
    report("data_plan", [measured(planning, pairs) for pairs in options.plan_pairs], options.out)
    prepared, cut = [], []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        write_corpus(Path(scratch, "val"), 2000, seed=1)
        for pairs in options.pairs:
            train = f"{scratch}/{pairs}"
            write_corpus(Path(train), pairs, seed=0)
            prepared.append(
                measured(
                    preparation,
                    scratch,
                    train,
                    options.tokenizer_pairs,
                    options.vocab_size,
                    options.processes,
                )
            )
            cut.append(measured(batching, prepared[-1].pop("folder"), 25_000, options.batches))
        if options.real:
            figures = measured(
                preparation,
                scratch,
                options.real,
                options.tokenizer_pairs,
                options.real_vocab_size,
                1,
            )
            cut.append(measured(batching, figures["folder"], options.real_tokens, options.batches))
    for row in cut:
        row["cut_pairs_per_cpu_s"] = row.pop("pairs_cut") / row["cpu_s"]
    report("data_prepare", prepared, options.out)
    report("data_batches", cut, options.out)


if __name__ == "__main__":
    main()
