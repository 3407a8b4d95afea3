"""A CPU's training step packed into one pass, beside the same step in micro-batches.

    python benchmarks/packed_on_cpu.py PREFIX [--src en --tgt de] [--rounds 3] [--float32]
                                       [--sizes NAME ...] [--out DIR]

PREFIX names raw text, as for `train.py data=files`. Packed (`trainer.packed=true`), everything but
attention is computed once over all tokens of a step, without padding. The benchmark measures
processor seconds of one step, in bfloat16 autocast unless --float32 is given, the fewest of some
steps.
"""

import itertools
import time
from collections.abc import Callable

import torch
from measure import parse_options, report

import aiayn
from aiayn.config.resolve import run_config
from aiayn.config.schema import Config
from aiayn.data.batch import collate, pack
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedCorpus
from aiayn.data.preparation import prepare_corpus
from aiayn.kernels.accelerate import accelerate
from aiayn.training.loss import output_cross_entropy
from aiayn.training.module import TranslationModule

PARTS = 4  # of a step, the default
FORMS = {"4 micro-batches": 4, "2": 2, "1": 1, "packed": 0}
# Models and tokens of a step; `quickstart` has text of its own.
SIZES = {
    "quickstart": ["experiment=quickstart"],
    "captions": [
        "model=tiny",
        "model.n_layers=2",
        "model.d_model=192",
        "model.d_ff=384",
        "model.dropout=0.1",
        "data.vocab_size=4000",
        "data.tokens_per_step=2048",
    ],
    "tiny, 1,024 tokens": ["model=tiny", "data.tokens_per_step=1024"],
    "tiny, 2,048 tokens": ["model=tiny", "data.tokens_per_step=2048"],
    "base, 1,024 tokens": ["model=base", "data.tokens_per_step=1024"],
    "base, 4,096 tokens": ["model=base", "data.tokens_per_step=4096"],
}


def training(
    config: Config, corpus: PreparedCorpus, micro_batches: int, bf16: bool
) -> Callable[[], None]:
    """Returns a function that trains a step in so many micro-batches; 0: packed."""
    split, smoothing = corpus.train, config.optim.label_smoothing
    torch.manual_seed(0)
    module = TranslationModule(config, corpus.tokenizer.vocab_size).train()
    accelerate(module.model, torch.device("cpu"))
    adam = torch.optim.Adam(module.parameters(), fused=True)
    plan = BatchPlan(
        split.src.lengths,
        split.tgt.lengths,
        tokens_per_step=config.data.tokens_per_step,
        parts=PARTS,
        seed=0,
        micro_batches=micro_batches or 1,
        packed=not micro_batches,
    )
    numbers = itertools.count()

    def train() -> None:
        for number in itertools.islice(numbers, plan.micro_batches):
            micro_batch = plan.micro_batch(number)
            if plan.packed:
                batch = pack(split, micro_batch, number, None, config.data.max_length + 1)
            else:
                batch = collate(split, micro_batch, number)
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                states, output = module.states(batch), module.model.output
                loss = output_cross_entropy(states, output, batch.tgt_out, smoothing)
            (loss / batch.step_tokens).backward()
        adam.step()
        adam.zero_grad()

    return train


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(
        __doc__,
        arguments,
        {"prefix": None},
        src="en",
        tgt="de",
        rounds=3,
        threads=1,
        float32=False,
        sizes=list(SIZES),
    )
    text = ["data=files", *(f"data.{split}={options.prefix}" for split in ("train", "val", "test"))]
    text += [f"data.src_lang={options.src}", f"data.tgt_lang={options.tgt}"]
    text += ["data.vocab_size=10000", "optim=adam", "trainer=default"]
    rows = []
    for name in options.sizes:
        usual = [] if name == "quickstart" else text
        config = run_config(aiayn.compose(*usual, *SIZES[name]))
        corpus = prepare_corpus(config.data)
        forms = {
            form: training(config, corpus, micro_batches, not options.float32)
            for form, micro_batches in FORMS.items()
        }
        seconds: dict[str, list[float]] = {form: [] for form in forms}
        for _ in range(1 + options.rounds):
            for form, train in forms.items():
                start = time.process_time()
                train()
                seconds[form].append(time.process_time() - start)
        rows.append(
            {"step of": name} | {form: min(of_rounds[1:]) for form, of_rounds in seconds.items()}
        )
        print(rows[-1], flush=True)
    bf16 = not options.float32
    name, precision = f"packed_on_cpu{'_bfloat16' * bf16}", "bf16-mixed" if bf16 else "32-true"
    report(name, rows, options.out, precision)


if __name__ == "__main__":
    main()
