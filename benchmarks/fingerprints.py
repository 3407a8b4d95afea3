"""The first losses of the published recipes: whether today's code still takes the same training
steps.

    python benchmarks/fingerprints.py            # compares with results/fingerprints.json
    python benchmarks/fingerprints.py quickstart # compares this recipe alone
    python benchmarks/fingerprints.py --write    # replaces it, in a commit that changes training and says so

A published row is current while the fingerprint of its recipe reproduces. Every recipe trains on
the built-in phrasebook, because its own text may be absent: 50 steps, seed 0, one thread of a CPU.
It computes in float64: the loss of the quickstart jumps after 40 steps, and in float32 what
processors round differently has by then grown to 3 %. It takes about ten processor minutes.
"""

import argparse
import json
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from pages import ROOT

import aiayn
from aiayn.errors import RefusedError
from aiayn.files import source_commit, write_json
from aiayn.phrasebook import pairs
from aiayn.runs.run_folder import RunFolder, read_json, series

FINGERPRINTS = ROOT / "results/fingerprints.json"
RECIPES = ("quickstart", "captions", "multi30k_wu2021", "table3_quarter")
STEPS = 50
TOLERANCE = 1e-6  # relative; another order of summation changes 1e-14 after so many steps


def losses_of(recipe: str, folder: Path) -> list[float]:
    """Train the first steps of a recipe in a folder. Return the loss of each."""
    text = _write_text(folder / "text")
    run = aiayn.train(
        f"experiment={recipe}",
        *(
            "data.source=files",
            "data.vocab_size=2000",
            "data.hub_path=null",
            "data.src_lang=en",
            "data.tgt_lang=de",
        ),
        *(
            f"data.train={text}/train",
            f"data.val={text}/val",
            "data.test=null",
            f"data.folder={folder}/prepared",
        ),
        *(
            "trainer.accelerator=cpu",
            "trainer.precision=64-true",
            f"trainer.max_steps={STEPS}",
            "trainer.log_every=1",
        ),
        *(f"trainer.val_every={STEPS}", "trainer.val_bleu_sentences=0", "trainer.patience=null"),
        *(f"trainer.checkpoint_every={STEPS}", "trainer.average_last=1"),
        *("logger=none", "seed=0", f"outputs={folder}/runs"),
    )
    return [loss for _, loss in series(RunFolder(run).read_metrics(), "train/loss")]


def _write_text(folder: Path) -> Path:
    """Write the phrasebook as files, its sentences of validation cut to a few."""
    folder.mkdir(exist_ok=True)
    for split, count in (("train", None), ("val", 50)):
        for number, lang in enumerate(("en", "de")):
            lines = [pair[number] for pair in pairs(split)[:count]]
            (folder / f"{split}.{lang}").write_text(
                "".join(f"{line}\n" for line in lines), encoding="utf-8"
            )
    return folder


def first_difference(stored: list[float], losses: list[float]) -> int | None:
    """Return the first step whose losses differ by more than TOLERANCE; None if there is none."""
    if len(stored) != len(losses):
        return min(len(stored), len(losses)) + 1
    pairs_of_losses = enumerate(zip(stored, losses, strict=True), start=1)
    return next(
        (step for step, pair in pairs_of_losses if not math.isclose(*pair, rel_tol=TOLERANCE)), None
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", help=f"of {', '.join(RECIPES)}; none: all")
    parser.add_argument("--write", action="store_true", help="replace the stored losses")
    options = parser.parse_args()
    if unknown := {*options.recipes} - {*RECIPES}:
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(RECIPES)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    commit = str(source_commit())
    if options.write and commit.endswith("-dirty"):
        raise RefusedError(f"{commit} has uncommitted changes; commit them and run again")
    stored, recomputed = read_json(FINGERPRINTS), {}
    for recipe in options.recipes or RECIPES:
        with TemporaryDirectory() as folder:
            losses = [float(f"{loss:.7g}") for loss in losses_of(recipe, Path(folder))]
        recomputed[recipe] = {"commit": commit, "torch": torch.__version__, "losses": losses}
        step = first_difference(stored.get(recipe, {}).get("losses", []), losses)
        print(
            f"{recipe}: {'reproduces' if step is None else f'differs from step {step} on'}",
            flush=True,
        )
    if options.write:
        # What reproduces keeps the commit that it was computed at.
        kept = {
            recipe: stored[recipe]
            for recipe, fingerprint in recomputed.items()
            if recipe in stored
            and first_difference(stored[recipe]["losses"], fingerprint["losses"]) is None
        }
        write_json(FINGERPRINTS, stored | recomputed | kept)
        print(
            json.dumps(
                {recipe: fingerprint["losses"][-1] for recipe, fingerprint in recomputed.items()}
            )
        )


if __name__ == "__main__":
    main()
