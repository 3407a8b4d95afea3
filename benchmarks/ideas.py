"""Trains every example in examples/extensions, and some options, with two seeds each, and reports
their scores.

    python benchmarks/ideas.py --train   # 11 processor minutes; runs of outputs/ideas that are scored are kept
    python benchmarks/ideas.py           # only measures the runs of outputs/ideas again

A small text, few steps, nothing tuned: signs of life.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from measure import parse_options, report

import aiayn
from aiayn.files import atomic_write
from aiayn.phrasebook import pairs
from aiayn.runs.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
RESULTS, RUNS = ROOT / "benchmarks/results", Path("outputs/ideas")
OPTIONS = (
    "model.tie_embeddings=none",
    "data.src_vocab_size=580",
    "model.n_decoder_layers=1",
    "data.tokenizer=unigram",
    "data.weights",  # see `both_ways`
)
SMALL = f"""
    data=phrasebook data.vocab_size=900 data.tokens_per_step=1000 data.micro_batches=1 optim.warmup_steps=100
    model=tiny model.n_layers=2 model.d_model=64 model.d_ff=128 model.dropout=0.1
    trainer.max_steps=250 trainer.val_every=250 trainer.val_bleu_sentences=50 trainer.checkpoint_every=25
    trainer.average_last=4 trainer.accelerator=cpu trainer.precision=32-true outputs={RUNS} logger=none
""".split()
MORE = {
    "data.src_vocab_size=580": ["data.vocab_size=580", "model.tie_embeddings=none"],
    "lion.py": ["extension.lion.scale=0.03"],
    "ema.py": ["extension.ema.decay=0.9"],
    "cosine.py": ["extension.cosine.peak=0.0125"],
    "distillation.py": [f"extension.distillation.teacher={RUNS}/base_seed-1"],
    "lora.py": [f"init_from={RUNS}/base_seed-SEED"],  # 250 steps more
    "minimum_risk.py": [f"init_from={RUNS}/base_seed-SEED", "optim.lr_scale=0.1"],
    "chrf_pp.py": ["trainer.best_metric=val/chrf_pp", "trainer.val_every=50"],
}


def ideas() -> list[str]:
    """Returns the options and files that are trained; of base nothing."""
    return ["", *OPTIONS, *sorted(path.name for path in ROOT.glob("examples/extensions/*.py"))]


def name_of(how: str) -> str:
    return re.sub(r"\W+", "_", how.removesuffix(".py")) or "base"


def train(how: str, seed: int) -> None:
    run, extensions = RunFolder(RUNS / f"{name_of(how)}_seed-{seed}"), []
    if run.evaluation("test").scores.exists():
        return
    if how.endswith(".py"):
        extensions = [f"extensions=[examples/extensions/{how}]"]
    more = [option.replace("SEED", str(seed)) for option in MORE.get(how, [])]
    changed = both_ways() if how == "data.weights" else extensions or [how] * bool(how)
    options = [*changed, *more]
    aiayn.train(*SMALL, *options, f"name={run.path.name}", f"seed={seed}")
    checkpoint = "best" if how == "chrf_pp.py" else "averaged"
    aiayn.evaluate(f"run={run.path}", f"checkpoint={checkpoint}", "accelerator=cpu", *extensions)


def both_ways() -> list[str]:
    """Writes the phrasebook as two corpora, one for each direction, and returns the options that
    mix them.
    """
    text = Path("outputs/ideas_text")
    text.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val", "test"):
        en, de = (list(side) for side in zip(*pairs(split), strict=True))
        for name, src, tgt in (("there", en, de), ("back", de, en)):
            atomic_write(text / f"{split}-{name}.en", "\n".join(src) + "\n")
            atomic_write(text / f"{split}-{name}.de", "\n".join(tgt) + "\n")
    train = f"data.train=['<2de>{text}/train-there','<2en>{text}/train-back']"
    held_out = [f"data.{split}='<2de>{text}/{split}-there'" for split in ("val", "test")]
    return [
        "data=files",
        "data.src_lang=en",
        "data.tgt_lang=de",
        train,
        *held_out,
        "data.weights=[1.0,1.0]",
    ]


def measured() -> list[dict[str, str | int | float]]:
    """Returns what `aiayn table` says of every row; it takes apart the seeds of a row that began
    with other weights.
    """
    command = [
        sys.executable,
        "-m",
        "aiayn",
        "table",
        str(RUNS),
        "--baseline",
        "base",
        "--format",
        "json",
    ]
    table = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    keys = {
        "seeds": "n",
        "sacrebleu": "test/sacrebleu",
        "sd": "test/sacrebleu_sd",
        "ppl": "val/ppl",
    }
    by_idea: dict[str, list[dict[str, float]]] = defaultdict(list)
    for group in table["groups"] + table.get("groups_2", []):  # of the text in both directions
        by_idea[Path(group["runs"][0]).name.rpartition("_seed-")[0]].append(
            {key: group[keys[key]] for key in keys}
        )
    return [
        {"idea": idea} | (groups[0] if len(groups) == 1 else together(groups))
        for idea, groups in by_idea.items()
    ]


def together(seeds: list[dict[str, float]]) -> dict[str, float]:
    """Returns the row of seeds that are groups of their own."""
    scores, losses = ([seed[key] for seed in seeds] for key in ("sacrebleu", "ppl"))
    return {
        "seeds": len(seeds),
        "sacrebleu": mean(scores),
        "sd": stdev(scores),
        "ppl": mean(losses),
    }


def main() -> None:
    if parse_options(__doc__ or "", None, train=False).train:
        for how in ideas():
            for seed in (1, 2):
                train(how, seed)
    report("ideas", measured(), RESULTS)


if __name__ == "__main__":
    main()
