"""A model that must learn, through the command line: digits in words become the same digits
reversed.
"""

import json
from pathlib import Path

import pytest
from applications import reversed_digits, run_application


def write(prefix, count, seed):
    for lang, lines in zip(("en", "xx"), reversed_digits(count, seed, 2, 6), strict=True):
        Path(f"{prefix}.{lang}").write_text("\n".join(lines) + "\n")


def call(folder, script, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run_application(script, *arguments)
    assert done.code == 0, done.err
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    for seed, (split, count) in enumerate({"train": 4000, "val": 40, "test": 120}.items()):
        write(folder / split, count, seed)
    call(
        folder,
        "train.py",
        "data=files",
        "data.train=train",
        "data.val=val",
        "data.test=test",
        "data.src_lang=en",
        "data.tgt_lang=xx",
        "data.vocab_size=300",
        "data.tokens_per_step=500",
        "data.max_length=40",
        "data.parts_per_step=1",
        "model=tiny",
        "model.n_layers=2",
        "model.d_model=64",
        "model.d_ff=128",
        "model.n_heads=2",
        "model.dropout=0.0",
        "optim.warmup_steps=100",
        "optim.lr_scale=0.3",
        "trainer.max_steps=1000",
        "trainer.val_every=1000",
        "trainer.checkpoint_every=100",
        "trainer.precision=32-true",
        "logger=none",
        "name=reverse",
    )
    return folder


@pytest.mark.slow
def test_a_small_model_learns_to_reverse_digits_it_has_never_seen_together(trained):
    done = call(trained, "evaluate.py", "run=outputs/reverse")
    results = trained / "outputs/reverse/evaluation/test"
    hypotheses = (results / "hypotheses.txt").read_text().split("\n")[:-1]
    references = (trained / "test.xx").read_text().split("\n")[:-1]
    right = sum(
        hypothesis == reference
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    assert right >= 0.95 * len(references), f"{right} of {len(references)} right"
    scores = json.loads((results / "evaluation.json").read_text())
    assert scores["metrics"]["sacrebleu"] > 95
    assert scores["lines"] == len(references) == 120
    assert "sacrebleu" in done.out


@pytest.mark.slow
def test_validation_perplexity_approaches_one(trained):
    lines = (trained / "outputs/reverse/metrics.jsonl").read_text().split("\n")[:-1]
    perplexity = [json.loads(line)["val/ppl"] for line in lines if "val/ppl" in line][-1]
    assert 1 <= perplexity < 1.3
