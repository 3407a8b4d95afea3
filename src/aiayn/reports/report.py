"""report.html: all that a run or a sweep measured on one page, from the files of its folder
alone.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from aiayn.config import program
from aiayn.config.tasks import VAL_METRICS
from aiayn.errors import ConfigError, writing
from aiayn.files import atomic_write
from aiayn.reports.run_page import run_page
from aiayn.reports.sweep_page import sweep_page
from aiayn.runs.results import best_and_last, last_step, runs_within
from aiayn.runs.run_folder import RunFolder, similar_run


def write_report(folder: Path) -> Path:
    """Write FOLDER/report.html for a run, finished or not, or for a folder of runs. Returns its
    path.

    Raises ConfigError for a folder that is neither, ResourceError where the page cannot be written.
    """
    run = RunFolder(folder)
    if run.config.is_file():
        page = run_page(run)
    elif any(runs_within(folder)):
        page = sweep_page(folder)
    else:
        raise ConfigError(
            f"{folder}: neither a run nor a folder of runs (no config.yaml){similar_run(folder)}"
        )
    with writing(run.report, "make room and run again"):
        # JSON and file names may hold a lone surrogate
        atomic_write(run.report, page.encode(errors="replace"))
    return run.report


def summary(run: Path) -> str:
    """Return what a finished training prints: the scores so far, where the files are, what to type
    next.
    """
    folder = RunFolder(run)
    records = folder.read_metrics()
    lines = [f"done     {run}, step {last_step(records)}"]
    if perplexity := best_and_last(records, "val/ppl"):
        lines.append("scores   val/ppl {2:.2f} (lowest {0:.2f} at step {1})".format(*perplexity))
    for name in VAL_METRICS:
        if quality := best_and_last(records, name, max):
            lines[-1] += "  {3} {2:.1f} (highest {0:.1f} at step {1})".format(*quality, name)
    files = (
        folder.report,
        folder.averaged,
        folder.attention_picture,
        folder.metrics,
        folder.samples,
        folder.config,
    )
    lines.append(
        "files    " + ", ".join(str(path.relative_to(run)) for path in files if path.exists())
    )
    best = folder.default_checkpoint() == "best"  # named, because by default the average is used
    config = folder.read_config()
    # Without the files that brought its parts the model cannot be loaded.
    files = config["extensions"] if config.get("model", {}).get("parts") else []
    named = " " + shlex.quote(f"extensions=[{','.join(files)}]") if files else ""
    lines.append(
        f"next     {program.typed('evaluate')} run={run}" + " checkpoint=best" * best + named
    )
    lines.append(
        f"         {program.typed('translate')} {run}"
        + " --checkpoint best" * best
        + extension_flags(files)
    )
    return "\n".join(lines)


def extension_flags(files: Sequence[str]) -> str:
    """Return the flags that name extensions to a command, each after a space."""
    return "".join(f" --extension {shlex.quote(file)}" for file in files)
