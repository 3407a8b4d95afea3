"""What a finished training prints."""

import shlex
from pathlib import Path

from aiayn.config import program
from aiayn.config.tasks import VAL_METRICS
from aiayn.runs.results import best_and_last, last_step
from aiayn.runs.run_folder import RunFolder


def summary(run: Path) -> str:
    """Returns the last and best scores, where the files are, and what to type next."""
    folder = RunFolder(run)
    records = folder.read_metrics()
    lines = [f"done     {run}, step {last_step(records)}"]
    scores = []
    if perplexity := best_and_last(records, "val/ppl"):
        scores.append("val/ppl {2:.2f} (lowest {0:.2f} at step {1})".format(*perplexity))
    qualities = {name: best_and_last(records, name, max) for name in VAL_METRICS}
    scores += [
        "{3} {2:.1f} (highest {0:.1f} at step {1})".format(*quality, name)
        for name, quality in qualities.items()
        if quality
    ]
    if scores:
        lines.append(f"scores   {'  '.join(scores)}")
    files = (
        folder.report,
        folder.averaged,
        folder.attention_picture,
        folder.metrics,
        folder.samples,
        folder.config,
    )
    existing = ", ".join(str(path.relative_to(run)) for path in files if path.exists())
    evaluate = f"{program.typed('evaluate')} run={run}"
    translate = f"{program.typed('translate')} {run}"
    config = folder.read_config()
    if config.get("model", {}).get("parts"):
        # Without the files that brought its parts the model cannot be loaded.
        evaluate += " " + shlex.quote(f"extensions=[{','.join(config['extensions'])}]")
        translate += program.extension_flags(config["extensions"])
    lines += [f"files    {existing}", f"next     {evaluate}", f"         {translate}"]
    return "\n".join(lines)
