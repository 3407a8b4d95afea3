"""Train and score, on one GPU, the studies that need its minutes.

    nvidia-cuda-mps-control -d    # lets the trainings of a sweep share the GPU
    python benchmarks/gpu_studies.py multi30k_wu2021 --jobs 10 --out OUT
    python benchmarks/gpu_studies.py --dry-run --jobs 2 --out OUT

Multi30k has to be in the working directory (docs/results/multi30k.md). A command that was stopped
continues when it is repeated. OUT/STUDY receives the runs without their checkpoints, which
`benchmarks/collect_results.py OUT/STUDY results/STUDY.jsonl` publishes with their translations, and
OUT/STUDY.json the seconds of every command. `--dry-run` trains three steps of every study on a CPU,
on made-up text. JoeyNMT on the same GPU: `benchmarks/cross_check.py --device cuda`.
"""

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu import with_source, write_text
from measure import parse_options
from pages import ROOT

from aiayn.files import write_json
from aiayn.runs.results import runs_within
from aiayn.runs.run_folder import RunFolder

TEXT = Path("multi30k/data/task1/raw")  # in the working directory
OTHER_TESTS = ("test_2017_flickr", "test_2017_mscoco")
# Sizes of fairseq's configurations; the peak is 0.0007 as there, since Tiny's 0.005 is for 128.
LARGER = ["experiment=multi30k_wu2021", "model=base", "model.dropout=0.3", "optim.lr_scale=0.7"]
SMALL = ["model.d_ff=1024", "model.n_heads=4"]
STUDIES: dict[str, list[str]] = {
    "multi30k_wu2021": ["experiment=multi30k_wu2021", "seed=0,1,2,3,4"],
    "multi30k_wu2021_en_fr": ["experiment=multi30k_wu2021_en_fr", "seed=0,1,2,3,4"],
    "multi30k_wu2021_base": [*LARGER, "seed=0,1,2"],
    "multi30k_wu2021_small": [*LARGER, *SMALL, "seed=0,1,2"],
    "multi30k_quarter": [
        "experiment=multi30k_quarter",
        "ablation=glob(multi30k_quarter/*)",
        "seed=0,1,2",
    ],
}
ALL = ["logger=none", "+hydra.launcher.score=[test]"]
DRY = [
    "trainer.accelerator=cpu",
    "trainer.max_steps=3",
    "trainer.val_every=3",
    "trainer.checkpoint_every=1",
    "data.vocab_size=300",
    "data.tokens_per_step=400",
    "search.max_extra_tokens=5",
]


def train(name: str, jobs: int, *, dry_run: bool) -> list[RunFolder]:
    """Train and score the rows of a study. Return their runs."""
    options = [*STUDIES[name], f"sweep={name}", f"hydra.launcher.jobs={jobs}", *ALL]
    if dry_run:
        options = [option for option in options if not option.startswith("seed=")] + DRY
    run("train.py", "-m", *options)
    return list(runs_within(Path("outputs/sweeps") / name))


def score_other_tests(runs: list[RunFolder], jobs: int) -> None:
    """Score runs on the test sets that their sweep does not score."""

    def score(trained: RunFolder, test: str) -> None:
        if not any(trained.path.glob(f"evaluation/*{test}*/evaluation.json")):
            run("evaluate.py", f"run={trained.path}", f"test={TEXT / test}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(score, *zip(*product(runs, OTHER_TESTS), strict=True)))


def run(program: str, *options: str) -> None:
    """Run a program of this checkout in the working directory. Raises CalledProcessError."""
    command = [sys.executable, str(ROOT / program), *options]
    subprocess.run(command, env=with_source(), check=True)


def write_made_up_text() -> None:
    """Write text under the names of Multi30k's files."""
    TEXT.mkdir(parents=True)
    write_text(TEXT, 300)
    for lang, written in (("en", "en"), ("de", "de"), ("fr", "de")):
        for test in ("test_2016_flickr", *OTHER_TESTS):
            shutil.copy(TEXT / f"val.{written}", TEXT / f"{test}.{lang}")
    for split in ("train", "val"):
        shutil.copy(TEXT / f"{split}.de", TEXT / f"{split}.fr")


def keep_study(name: str, jobs: int, out: Path, *, dry_run: bool) -> None:
    """Train and score a study. Keep its runs without checkpoints in a folder, and its times."""
    start = time.perf_counter()
    runs = train(name, jobs, dry_run=dry_run)
    seconds = {"train and score": round(time.perf_counter() - start, 1)}
    if "wu2021" in name:
        start = time.perf_counter()
        score_other_tests(runs, jobs)
        seconds["score the other test sets"] = round(time.perf_counter() - start, 1)
    without = shutil.ignore_patterns("checkpoints")
    shutil.copytree(f"outputs/sweeps/{name}", out / name, ignore=without, dirs_exist_ok=True)
    write_json(out / f"{name}.json", {"runs": len(runs), "seconds": seconds})


def main(arguments: list[str] | None = None) -> None:
    chosen = parse_options(__doc__, arguments, {"studies": "*"}, jobs=10, dry_run=False)
    if unknown := [name for name in chosen.studies if name not in STUDIES]:
        sys.exit(f"error: {', '.join(unknown)}: no study; choose of {', '.join(STUDIES)}")
    out = chosen.out.resolve()
    with TemporaryDirectory() as folder, chdir(folder if chosen.dry_run else "."):
        if chosen.dry_run:
            write_made_up_text()
        for name in chosen.studies or STUDIES:
            keep_study(name, chosen.jobs, out, dry_run=chosen.dry_run)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the program has said what is wrong
