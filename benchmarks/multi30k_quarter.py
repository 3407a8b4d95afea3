"""Writes what docs/results/table3-quarter.md says of thirty epochs, from results/multi30k_quarter.

To be run again when there are more rows or seeds; it changes nothing outside the marked blocks of the page. Its figures
are means over the seeds of a row, whose runs after the first are named ROW_seed-N.

    python benchmarks/collect_results.py outputs/sweeps/multi30k_quarter results/multi30k_quarter --command "..."
    python benchmarks/multi30k_quarter.py
"""

from pathlib import Path
from statistics import mean

from table3_quarter import PAGE, answer, cell, publish, reach, wrapped

from aiayn.reports.differences import Sample, compare, corrected, explained
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.metrics import Metric
from aiayn.reports.runs import read_run
from aiayn.reports.tables import Column, Table, markdown
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
QUESTIONS = {
    "Does dropout help?": ("d_drop00", "d_drop03"),
    "What does going without label smoothing do?": ("d_ls00",),
    "Is bigger better?": ("c_n2", "c_dmodel64", "c_dmodel256"),
}
METRICS = {"ppl": "last", "bleu": "test_bleu"}  # what is compared with base
TITLES = {"ppl": "dev perplexity", "bleu": "sacreBLEU of test 2016"}
RATIO = Metric("sacrebleu", "test").ratio
COLUMNS = [
    Column("name", "row"),
    Column("n", "seeds"),
    Column("last", "dev perplexity at the end", 2),
    Column("ppl", "change"),
    Column("lowest", "lowest", 2),
    Column("epoch", "at epoch", 1),
    Column("test_bleu", "test BLEU", 2),
    Column("ratio", "length ratio", 3),
    Column("bleu", "change"),
    Column("dev_bleu", "dev BLEU", 2),
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


def facts() -> Record:
    """Returns what table.json holds: the means of every row that was trained, and its differences from base."""
    measured = {row: {_seed(run): _measured(run) for run in runs_of(row)} for row in NAMES if runs_of(row)}
    rows = {row: {"row": row, "n": len(found), **_means([*found.values()])} for row, found in measured.items()}
    compared = {
        name: compare(
            {row: Sample({seed: one[key] for seed, one in of.items()}) for row, of in measured.items()}, "base"
        )
        for name, key in METRICS.items()
    }
    family = corrected(compared)
    for name, differences in family.items():
        for row, difference in differences.items():
            rows[row][name] = difference
    changed = [row for name, row in rows.items() if name != "base"]
    said = explained(f"base ({rows['base']['n']} seeds)", {TITLES[name]: one for name, one in compared.items()}, family)
    return {"explained": [*said, reach(changed)], "rows": list(rows.values())}


def _seed(run: Path) -> int:
    return RunFolder(run).read_config()["seed"]


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: mean(each[key] for each in found) for key in found[0]}


def _measured(run: Path) -> dict[str, float]:
    epochs, perplexities = curve(run)
    lowest = min(perplexities)
    dev, test = (read_json(RunFolder(run).evaluation(split).scores) for split in ("val", "test"))
    return {
        "last": perplexities[-1],
        "lowest": lowest,
        "epoch": epochs[perplexities.index(lowest)],
        "dev_bleu": dev["metrics"]["sacrebleu"],
        "test_bleu": test["metrics"]["sacrebleu"],
        "ratio": RATIO.of(read_run(RunFolder(run))),
        "test_accuracy": test["forced"]["accuracy"],
    }


def page_blocks(found: Record) -> dict[str, str]:
    """Returns the generated blocks of the page by name, from what `facts` returns."""
    rows = {record["row"]: record for record in found["rows"]}
    shown = [record | {"name": NAMES[row]} | _changes(record) for row, record in rows.items()]
    questions = {question: [row for row in asked if row in rows] for question, asked in QUESTIONS.items()}
    answers = [answer(question, asked, rows, NAMES) for question, asked in questions.items() if asked]
    return {
        "thirty": markdown([Table("", COLUMNS, shown)]).strip(),
        "thirty-basis": wrapped(" ".join(found["explained"])),
        "thirty-answers": "\n".join(answers),
    }


def _changes(record: Record) -> Record:
    return {name: cell(record[name]) if name in record else "" for name in METRICS}


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
    found = facts()
    publish(found, RESULTS, PAGE, page_blocks(found))
    draw()


if __name__ == "__main__":
    main()
