"""report.html: all that a run or a sweep measured on one page, from the files of its folder alone."""

from pathlib import Path

from aiayn import program
from aiayn.errors import RefusedError, writing
from aiayn.files import atomic_write
from aiayn.report.run_page import run_page
from aiayn.report.sweep_page import sweep_page
from aiayn.run_folder import RunFolder, best_and_last, runs_within


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
    lines.append(f"next     {program.typed('evaluate')} run={run}")
    lines.append(f"         aiayn translate {run}")
    return "\n".join(lines)


def sweep_summary(folder: Path) -> str:
    """Returns one line for each run of a sweep: its scores on the development set, as far as there are any."""
    runs = list(runs_within(folder))
    width = max((len(run.path.name) for run in runs), default=0)
    lines = []
    for run in runs:
        perplexity = best_and_last(run.read_metrics(), "val/ppl")
        bleu = run.read_evaluations().get("val", {}).get("metrics", {}).get("sacrebleu")
        scores = [f"val/ppl {perplexity[2]:.2f}"] if perplexity else []
        scores += [] if bleu is None else [f"val sacrebleu {bleu:.2f}"]
        lines.append(f"scores   {run.path.name:<{width}}  {'  '.join(scores) or 'none yet'}")
    return "\n".join(lines)
