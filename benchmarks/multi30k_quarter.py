"""Writes what docs/results/table3-quarter.md says of thirty epochs, from
results/multi30k_quarter.jsonl.

To be run again when there are more rows or seeds; it changes nothing outside the marked blocks of
the page. Its figures are means over the seeds of a row, whose runs after the first are named
ROW_seed-N.

    python benchmarks/collect_results.py outputs/sweeps/multi30k_quarter results/multi30k_quarter.jsonl --command "..."
    python benchmarks/multi30k_quarter.py
"""

from pathlib import Path
from statistics import mean

from pages import publish, wrapped
from studies import published
from table3_quarter import PAGE, answer, cell

from aiayn.reports.comparison import compare_groups
from aiayn.reports.differences import corrected, explained
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.groups import Group, group_runs
from aiayn.reports.runs import MeasuredRun, Metric
from aiayn.reports.tables import Column, Table, markdown
from aiayn.runs.run_folder import Record, series

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
    "Is the model better without label smoothing?": ("d_ls00",),
    "Is bigger better?": ("c_n2", "c_dmodel64", "c_dmodel256"),
}
BLEU = Metric("sacrebleu", "test")
METRICS = {"ppl": Metric("val/ppl"), "bleu": BLEU}  # what is compared with base
TITLES = {"ppl": "dev perplexity", "bleu": "sacreBLEU of test 2016"}
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


def groups() -> dict[str, Group]:
    """Returns the published runs of every row that was trained, one for each seed."""
    by_name = {group.name: group for group in group_runs(published("multi30k_quarter"))}
    return {row: by_name[row] for row in NAMES if row in by_name}


def curve(run: MeasuredRun) -> tuple[list[float], list[float]]:
    """Returns the epochs at which a run was validated, and its perplexities."""
    points = series(run.records, "val/ppl")
    return [EPOCHS * step / run.options["trainer.max_steps"] for step, _ in points], [
        ppl for _, ppl in points
    ]


def facts() -> Record:
    """Returns the means of every row that was trained, and its differences from base."""
    trained = groups()
    rows = {
        row: {"row": row, "n": len(group.seeds), **_means(group)} for row, group in trained.items()
    }
    family = corrected(compare_groups([*trained.values()], list(METRICS.values()), trained["base"]))
    for name, metric in METRICS.items():
        for row, group in trained.items():
            rows[row] |= {name: family[metric][group.path]} if row != "base" else {}
    basis = explained(f"base ({rows['base']['n']} seeds)", family)
    return {"explained": basis, "rows": [*rows.values()]}


def _means(group: Group) -> dict[str, float]:
    curves = [curve(run) for run in group.runs]
    lowest = [min(perplexities) for _, perplexities in curves]
    epochs = [epochs[perplexities.index(min(perplexities))] for epochs, perplexities in curves]
    metrics = {
        "last": METRICS["ppl"],
        "dev_bleu": Metric("sacrebleu", "val"),
        "test_bleu": BLEU,
        "ratio": BLEU.ratio,
        "test_accuracy": Metric("token_accuracy", "test"),
    }
    means = {name: group.sample(metric).mean for name, metric in metrics.items()}
    return means | {"lowest": mean(lowest), "epoch": mean(epochs)}


def blocks() -> dict[str, str]:
    """Returns the generated blocks of the page by name."""
    study_facts = facts()
    rows = {record["row"]: record for record in study_facts["rows"]}
    records = [record | {"name": NAMES[row]} | _changes(record) for row, record in rows.items()]
    questions = {
        question: [row for row in asked_rows if row in rows]
        for question, asked_rows in QUESTIONS.items()
    }
    answers = [
        answer(question, asked_rows, rows, NAMES)
        for question, asked_rows in questions.items()
        if asked_rows
    ]
    return {
        "rates": _rates(),
        "thirty": markdown([Table("", COLUMNS, records)]).strip(),
        "thirty-basis": wrapped(" ".join(study_facts["explained"])),
        "thirty-answers": "\n".join(answers),
    }


def _rates() -> str:
    """Returns the dev perplexities by which the learning rate of each size was chosen."""
    perplexities = {
        run.folder.path.name: METRICS["ppl"].of(run) for run in published("multi30k_quarter_rates")
    }
    rates = sorted({name.rpartition("-")[2] for name in perplexities})
    rows = dict.fromkeys(name.partition("_lr_scale")[0] for name in sorted(perplexities))
    records = [
        {"name": NAMES[row], **{rate: perplexities.get(f"{row}_lr_scale-{rate}") for rate in rates}}
        for row in rows
    ]
    columns = [Column("name", "row"), *(Column(rate, f"`{rate}`", 2) for rate in rates)]
    return markdown([Table("", columns, records)]).strip()


def _changes(record: Record) -> Record:
    return {name: cell(record[name]) if name in record else "" for name in METRICS}


def draw(path: Path) -> None:
    figure = new_figure(7, 4, layout="constrained")
    axis = figure.subplots()
    for number, (row, group) in enumerate(groups().items()):
        for position, run in enumerate(group.runs):
            name = None if position else NAMES[row].replace("`", "")
            axis.plot(*curve(run), ".-", color=f"C{number}", linewidth=1.2, label=name)
    axis.set(xlabel="epoch", ylabel="dev perplexity", ylim=(5.5, 20), xlim=(0, EPOCHS + 0.5))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save_figure(figure, path)


def main() -> None:
    publish(PAGE, blocks())


if __name__ == "__main__":
    main()
