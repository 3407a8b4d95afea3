"""Writes the table of thirty epochs in docs/table3-quarter.md, a picture and table.json from results/multi30k_quarter.

To be run again when there are more rows or seeds; it changes nothing outside the marked block of the page. Its figures
are means over the seeds of a row, whose runs after the first are named ROW_seed-N.

    python benchmarks/collect_results.py outputs/sweeps/multi30k_quarter results/multi30k_quarter --command "..."
    python benchmarks/multi30k_quarter.py
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from table3_quarter import PAGE, replaced

from aiayn.files import atomic_write_text
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.table import Column, Table
from aiayn.reports.writers import markdown
from aiayn.runs.run_folder import Record, RunFolder, read_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PICTURE = ROOT / "results/multi30k_quarter", ROOT / "docs/images/multi30k_quarter.png"
EPOCHS = 30
NAMES = {
    "base": "base",
    "d_drop00": "no dropout",
    "d_drop03": "dropout `0.3`",
    "d_ls00": "no label smoothing",
    "c_n2": "2 layers",
    "c_dmodel64": "`d_model` 64",
    "c_dmodel256": "`d_model` 256",
}
COLUMNS = [
    Column("name", "row"),
    Column("n", "seeds"),
    Column("last", "dev perplexity at the end", 2),
    Column("lowest", "lowest", 2),
    Column("epoch", "at epoch", 1),
    Column("dev_bleu", "dev BLEU", 2),
    Column("test_bleu", "test BLEU", 2),
    Column("test_accuracy", "test token accuracy (%)", 1),
]


def runs_of(row: str) -> list[Path]:
    """Returns the published runs of a row, one for each seed."""
    return [path for path in sorted(RESULTS.glob(f"{row}*")) if path.name == row or path.name.startswith(f"{row}_seed")]


def curve(run: Path) -> tuple[list[float], list[float]]:
    """Returns the epochs at which a run was validated, and its perplexities."""
    steps = RunFolder(run).read_config()["trainer"]["max_steps"]
    records = [record for record in RunFolder(run).read_metrics() if "val/ppl" in record]
    return [EPOCHS * record["step"] / steps for record in records], [record["val/ppl"] for record in records]


def facts() -> list[Record]:
    """Returns what table.json holds: the means of every row that was trained."""
    return [_means(row, runs) for row in NAMES if (runs := runs_of(row))]


def _means(row: str, runs: list[Path]) -> Record:
    found = [_measured(run) for run in runs]
    return {"row": row, "n": len(runs), **{key: mean(each[key] for each in found) for key in found[0]}}


def _measured(run: Path) -> dict[str, float]:
    epochs, perplexities = curve(run)
    lowest = min(perplexities)
    dev, test = (_evaluation(run, split) for split in ("val", "test"))
    return {
        "last": perplexities[-1],
        "lowest": lowest,
        "epoch": epochs[perplexities.index(lowest)],
        "dev_bleu": dev["metrics"]["sacrebleu"],
        "test_bleu": test["metrics"]["sacrebleu"],
        "test_accuracy": test["forced"]["accuracy"],
    }


def _evaluation(run: Path, split: str) -> dict[str, Any]:
    return read_json(RunFolder(run).path / "evaluation" / split / "evaluation.json")


def page_block(rows: list[Record]) -> dict[str, str]:
    table = Table("", COLUMNS, [record | {"name": NAMES[record["row"]]} for record in rows])
    return {"thirty": markdown([table]).strip()}


def draw() -> None:
    figure = new_figure(7, 4, layout="constrained")
    axis = figure.subplots()
    trained = [row for row in NAMES if runs_of(row)]
    for number, row in enumerate(trained):
        for place, run in enumerate(runs_of(row)):
            name = None if place else NAMES[row].replace("`", "")
            axis.plot(*curve(run), ".-", color=f"C{number}", linewidth=1.2, label=name)
    axis.set(xlabel="epoch", ylabel="dev perplexity", ylim=(5.5, 20), xlim=(0, EPOCHS + 0.5))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save_figure(figure, PICTURE)


def main() -> None:
    rows = facts()
    atomic_write_text(RESULTS / "table.json", json.dumps({"rows": rows}, indent=1) + "\n")
    atomic_write_text(PAGE, replaced(PAGE.read_text(encoding="utf-8"), page_block(rows)))
    draw()
    print(f"written: {PAGE}, {PICTURE}, {RESULTS / 'table.json'}")


if __name__ == "__main__":
    main()
