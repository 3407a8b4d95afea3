"""report.html: all that a run or a sweep measured on one page, from the files of its folder alone."""

from contextlib import suppress
from pathlib import Path

from aiayn.config import program
from aiayn.config.options import flatten
from aiayn.errors import RefusedError, writing
from aiayn.files import atomic_write
from aiayn.reports.run_page import run_page
from aiayn.reports.seeds import mean_and_spread, seed_groups
from aiayn.reports.sweep_page import NOT_COMPARED, sweep_page
from aiayn.runs.run_folder import RunFolder, best_and_last, runs_within


def write_report(folder: Path) -> Path:
    """Writes FOLDER/report.html for a run, finished or not, or for a folder of runs. Returns its path.

    Raises RefusedError for a folder that is neither, ResourceError where the page cannot be written.
    """
    run = RunFolder(folder)
    if run.config.is_file():
        page = run_page(run)
    elif runs := list(runs_within(folder)):
        page = sweep_page(folder, runs)
    else:
        raise RefusedError(f"{folder}: neither a run nor a folder of runs (no config.yaml)")
    with writing(run.report, "make room and run again"):
        atomic_write(run.report, page.encode(errors="replace"))  # JSON and file names may hold half of a character
    return run.report


def summary(run: Path) -> str:
    """Returns what a finished training prints: the scores so far, where the files are, what to type next."""
    folder = RunFolder(run)
    records = folder.read_metrics()
    lines = [f"done     {run}, step {max((record['step'] for record in records), default=0)}"]
    if perplexity := best_and_last(records, "val/ppl"):
        lines.append("scores   val/ppl {2:.2f} (lowest {0:.2f} at step {1})".format(*perplexity))
    for name in ("val/bleu", "val/f1"):
        if quality := best_and_last(records, name, max):
            lines[-1] += "  {3} {2:.1f} (highest {0:.1f} at step {1})".format(*quality, name)
    files = (folder.report, folder.averaged, folder.learning_curve, folder.attention_picture, folder.corpus_picture)
    files += (folder.metrics, folder.samples, folder.config)
    lines.append("files    " + ", ".join(str(path.relative_to(run)) for path in files if path.exists()))
    best = folder.default_checkpoint() == "best"  # is said: without a word the average would be expected
    lines.append(f"next     {program.typed('evaluate')} run={run}" + " checkpoint=best" * best)
    lines.append(f"         aiayn translate {run}" + " --checkpoint best" * best)
    return "\n".join(lines)


def sweep_summary(folder: Path) -> str:
    """Returns one line for each run of a sweep: its scores on the development set, as far as there are any.

    A sweep over seeds alone ends with their mean and standard deviation.
    """
    runs = list(runs_within(folder))
    width = max((len(run.path.name) for run in runs), default=0)
    lines, measured = [], []
    for run in runs:
        perplexity = best_and_last(run.read_metrics(), "val/ppl")
        bleu = run.read_evaluations().get("val", {}).get("metrics", {}).get("sacrebleu")
        measured.append((perplexity and perplexity[2], bleu))
        lines.append(f"scores   {run.path.name:<{width}}  {_scores(*measured[-1])}")
    options = {}
    with suppress(RefusedError):
        for run in runs:
            options[run.path.name] = {k: v for k, v in flatten(run.read_config()).items() if k not in NOT_COMPARED}
    if [len(group) for group in seed_groups(options)] == [len(runs)]:
        summed = [mean_and_spread(column) for column in zip(*measured, strict=True)]
        shown = [f"{name} {value}" for name, value in zip(("val/ppl", "val sacrebleu"), summed, strict=True) if value]
        lines.append(f"mean     {len(runs)} seeds, with standard deviation  {'  '.join(shown)}")
    return "\n".join(lines)


def _scores(perplexity: float | None, bleu: float | None) -> str:
    scores = [] if perplexity is None else [f"val/ppl {perplexity:.2f}"]
    scores += [] if bleu is None else [f"val sacrebleu {bleu:.2f}"]
    return "  ".join(scores) or "none yet"
