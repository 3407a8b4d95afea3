"""What a training step and an evaluation on a CPU take without each optimisation of this program.

    python benchmarks/optimisations.py [--rounds 5] [--threads 1] [--only NAME ...]

Training is one step, one micro-batch, of `model=tiny` with 4,096 tokens and of `model=base` with
2,048 on each side, in float32, on random sentences of 32 subwords. Evaluating is translating 16
random sentences of 20 subwords with base and four beams into 21 subwords each. Every variant has a
process of its own, and they take turns. Rows have the fewest processor seconds, the peak of memory
beyond that of the imports, and the time without the optimisation divided by that with all, round by
round: the geometric mean and its 95 % interval.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from engines import Ids, our_engine
from measure import Worker, interleaved, parse_options, report
from train_step import mean_ratio, training
from translate import VOCAB

import aiayn
from aiayn.config.resolve import run_config
from aiayn.data.batch import Batch, shift_right
from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.token_ids import EOS_ID
from aiayn.training.loss import cross_entropy, output_cross_entropy

TRAINING_TOKENS = {"tiny": 4096, "base": 2048}
LENGTH, TRAINING_VOCABULARY = 32, 10_000
SENTENCES, SOURCE_LENGTH, BEAMS = 16, 20, 4
CPU = torch.device("cpu")

# Variants of a step, and of an evaluation.
ALL = "all of these"
WITHOUT_LOSS = "without the loss a few rows at a time"
WITHOUT_DROPOUT = "without fast dropout"
WITHOUT_PREPACKING = "without prepacked weights"
VARIANTS = {
    "step of tiny": (ALL, WITHOUT_LOSS, WITHOUT_DROPOUT),
    "step of base": (ALL, WITHOUT_LOSS, WITHOUT_DROPOUT),
    "evaluating base": (ALL, WITHOUT_PREPACKING),
}


def training_step(model_name: str, variant: str) -> Callable[[], None]:
    """Returns a function that trains one step, with all optimisations but that of the variant."""
    config = run_config(aiayn.compose("data=phrasebook", f"model={model_name}"))
    torch.manual_seed(0)
    model = Transformer(config.model, TRAINING_VOCABULARY)
    if variant != WITHOUT_DROPOUT:
        accelerate(model, CPU)
    count = TRAINING_TOKENS[model_name] // LENGTH
    ids = torch.randint(4, TRAINING_VOCABULARY, (2, count, LENGTH))
    ids[..., -1] = EOS_ID
    src, tgt = ids
    lengths = np.full(count, LENGTH)
    batch = Batch(0, src, shift_right(tgt), tgt, (lengths, lengths), tgt.numel())

    def loss(batch: Batch) -> torch.Tensor:
        memory = model.encode(batch.src, batch.src_mask)
        states = model.decode(batch.tgt_in, memory, batch.src_mask)
        if variant == WITHOUT_LOSS:
            return cross_entropy(model.output(states), batch.tgt_out, 0.1)
        return output_cross_entropy(states, model.output, batch.tgt_out, 0.1)

    return training(model, loss, [[batch]], "cpu", bf16=False)


def evaluation(variant: str) -> Callable[[], Ids]:
    """Returns a function that translates with base, with or without prepacked weights."""
    config = run_config(aiayn.compose("data=phrasebook", "model=base"))
    torch.manual_seed(0)
    model = Transformer(config.model, VOCAB).eval()
    accelerate(model, CPU, translates=variant != WITHOUT_PREPACKING)
    engine = our_engine(model, "cpu")
    sources = torch.randint(4, VOCAB, (SENTENCES, SOURCE_LENGTH)).tolist()
    n_tokens = SOURCE_LENGTH + 1

    def translate() -> Ids:
        with torch.inference_mode():
            return engine(sources, BEAMS, 0.0, n_tokens, n_tokens)

    return translate


def rows_of(work: str, rounds: int) -> list[dict[str, Any]]:
    """Returns the rows of all variants of this work."""
    workers: dict[str, Worker] = {}
    for variant in VARIANTS[work]:
        if work == "evaluating base":
            workers[variant] = Worker(evaluation, variant)
        else:
            workers[variant] = Worker(training_step, work.rpartition(" ")[2], variant)
    interleaved(workers, rounds)
    with_all = workers[ALL].cpu[1:]
    rows = []
    for variant, worker in workers.items():
        ratio = mean_ratio(worker.cpu[1:], with_all)
        renamed = dict(zip(("times all", "times low", "times high"), ratio.values(), strict=True))
        seconds = {"processor seconds": min(worker.cpu[1:]), "MB": worker.peak_mb}
        rows.append({"variant": variant, **seconds, **renamed, "rounds": rounds})
        worker.close()
    return rows


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, rounds=5, threads=1, only=list(VARIANTS))
    for work in options.only:
        name = f"optimisations_{work.replace(' ', '_')}"
        report(name, rows_of(work, options.rounds), options.out)


if __name__ == "__main__":
    main()
