"""Writes the table and the answers of docs/results/table3-quarter.md from
results/table3_quarter.jsonl.

To be run again when there are more seeds; it changes nothing outside the marked blocks of the page.

    python benchmarks/collect_results.py outputs/sweeps/table3_quarter results/table3_quarter.jsonl --command "..."
    python benchmarks/table3_quarter.py
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean

from pages import ROOT, publish, wrapped
from scipy import stats
from studies import published

from aiayn.reports.differences import Difference, Sample
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.paper_tables import paper_tables
from aiayn.reports.runs import Metric
from aiayn.reports.tables import Column, Table, markdown
from aiayn.runs.run_folder import Record

PAGE = ROOT / "docs/results/table3-quarter.md"
STUDIES = ("table3_quarter", "table3_quarter_cpu")
NAMES = {
    **{"a_h1": "(A) 1 head of 128", "a_h4": "(A) 4 heads of 32", "a_h16": "(A) 16 heads of 8"},
    **{"a_h32": "(A) 32 heads of 4", "b_dk16": "(B) `d_k` 4", "b_dk32": "(B) `d_k` 8"},
    **{"c_n2": "(C) 2 layers", "c_n4": "(C) 4 layers", "c_n8": "(C) 8 layers"},
    **{"c_dmodel256": "(C) `d_model` 64", "c_dmodel1024": "(C) `d_model` 256"},
    **{"c_dff1024": "(C) `d_ff` 256", "c_dff4096": "(C) `d_ff` 1024"},
    **{"d_drop00": "(D) no dropout", "d_drop02": "(D) dropout `0.2`"},
    **{
        "d_ls00": "(D) no label smoothing",
        "d_ls02": "(D) label smoothing `0.2`",
        "e_learned": "(E) learned positions",
    },
}
QUESTIONS = {
    "Do one or four heads cost anything?": ("a_h1", "a_h4"),
    "Do 16 or 32 heads cost anything?": ("a_h16", "a_h32"),
    "Does a smaller `d_k` cost?": ("b_dk16", "b_dk32"),
    "Is bigger better?": (
        "c_n2",
        "c_n4",
        "c_n8",
        "c_dmodel256",
        "c_dmodel1024",
        "c_dff1024",
        "c_dff4096",
    ),
    "Does dropout help?": ("d_drop00", "d_drop02"),
    "Does label smoothing cost perplexity and gain BLEU?": ("d_ls00", "d_ls02"),
    "Are learned positions as good as sinusoids?": ("e_learned",),
}


def tables_of_study() -> tuple[Table, Table]:
    """Returns the rows of the study, and their changes against base."""
    tables = {table.name: table for table in paper_tables(published("table3_quarter"))}
    return tables["table_3_quarter"], tables["table_3_quarter_changes"]


def blocks() -> dict[str, str]:
    """Returns the generated blocks of the page by name."""
    rows, table_of_changes = tables_of_study()
    changes = {record["row"]: record for record in table_of_changes.records}
    means = {record["row"]: record for record in rows.records}
    names = {row: name[4:] for row, name in NAMES.items()}
    base = means["base"]
    figures = [
        f"{name} {base[key].mean:.{decimals}f} ± {base[key].sd:.{decimals}f}"
        for name, key, decimals in BASE
    ]
    about = (
        f"Base has {', '.join(figures)} (mean and standard deviation of {base['n']} seeds). The "
        f"mean BLEU has a 95 % interval of ± {half_width(base['bleu']):.2f}."
    )
    return {
        "base": wrapped(" ".join([about, *table_of_changes.after])),
        "rows": markdown([_table(means, changes)]).strip(),
        "answers": "\n".join(
            answer(question, rows, changes, names) for question, rows in QUESTIONS.items()
        ),
        "cpu": wrapped(_from_cpu_to_gpu()),
    }


def half_width(sample: Sample) -> float:
    """Return half of the mean's 95 % interval, by Student's t."""
    return stats.t.isf(0.025, sample.n - 1) * sample.sd / math.sqrt(sample.n)


def _from_cpu_to_gpu() -> str:
    """Returns how the same row and seed differ between a CPU and the GPU."""
    on_gpu, on_cpu = ({run.folder.path.name: run for run in published(study)} for study in STUDIES)
    names = sorted(on_gpu.keys() & on_cpu.keys())
    sentences, largest_changes = [], []
    for title, metric in (
        ("perplexity", Metric("val/ppl")),
        ("BLEU", Metric("bleu_compound_split", "val")),
    ):
        pairs = [(metric.of(on_gpu[name]), metric.of(on_cpu[name])) for name in names]
        test = stats.ttest_rel(*zip(*pairs, strict=True))
        low, high = test.confidence_interval()
        change = mean(gpu - cpu for gpu, cpu in pairs)
        largest = max(abs(gpu - cpu) for gpu, cpu in pairs)
        sentences.append(
            f"in {title} by {change:+.2f} [{low:+.2f}, {high:+.2f}] (p {test.pvalue:.3f})"
        )
        largest_changes.append(f"{largest:.2f} in {title}")
    return (
        "Two seeds of base and 13 rows also ran on one CPU core each. With the same row and seed, "
        f"the GPU differs {' and '.join(sentences)}. These are means of {len(names)} pairs with "
        "95 % intervals and p of a paired t-test. The largest difference of a single pair is "
        f"{' and '.join(largest_changes)}."
    )


BASE = (("perplexity", "ppl", 2), ("BLEU", "bleu", 2), ("length ratio", "length_ratio", 3))


def _table(means: Mapping[str, Record], changes: Mapping[str, Record]) -> Table:
    records = []
    for row, change in changes.items():
        record = {"name": NAMES[row], "n": change["n"], "ratio": means[row]["length_ratio"].mean}
        for key in ("ppl", "bleu"):
            record[f"{key}_mean"] = means[row][key].mean
            record[key] = cell(change[key])
            record[f"paper_{key}"] = change[f"paper_{key}"]
        records.append(record)
    columns = [
        Column("name", "row"),
        Column("n", "seeds"),
        Column("ppl_mean", "perplexity", 2),
        Column("ppl", "change"),
        Column("paper_ppl", "in the paper", spec="+,.2f"),
        Column("bleu_mean", "BLEU", 2),
        Column("ratio", "length ratio", 3),
        Column("bleu", "change"),
        Column("paper_bleu", "in the paper", spec="+,.1f"),
    ]
    return Table("", columns, records)


def cell(change: Difference) -> str:
    """Returns a difference with its interval, bold where it is significant after correction."""
    if change.low is None or change.high is None:
        return f"{change.delta:+.2f}"
    text = f"{change.delta:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
    return f"**{text}**" if change.is_significant else text


def answer(
    question: str, rows: Iterable[str], changes: Mapping[str, Record], names: Mapping[str, str]
) -> str:
    """Returns what the changes of these rows say to a question: better or worse where
    significant.
    """
    answers: dict[str, list[str]] = {}
    for key, metric in (("ppl", "perplexity"), ("bleu", "BLEU")):
        verdicts: dict[str, list[str]] = {}
        for row in rows:
            verdicts.setdefault(verdict(changes[row][key], key), []).append(names[row])
        phrases = [f"{verdict} with {_listed(alike)}" for verdict, alike in verdicts.items()]
        if len(verdicts) == 1:
            phrases = [*verdicts]
        answers.setdefault("; ".join(phrases), []).append(metric)
    parts = [f"{' and '.join(metrics)}: {text}" for text, metrics in answers.items()]
    return wrapped(
        f"- **{question}** " + ". ".join(part[0].upper() + part[1:] for part in parts) + ".", "  "
    )


def verdict(change: Difference, key: str) -> str:
    if not change.is_significant:
        return "undecided"
    return "worse" if (change.delta > 0) == (key == "ppl") else "better"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def draw_differences(table: Table, path: Path) -> None:
    """Draws what each row changes against the baseline, a panel for each metric.

    Discs with their 95 % intervals are measured, red where significant after correction; a row of
    the paper's has its change there as a ring. Writes a PNG.
    """
    has_change = {
        column: [isinstance(record.get(column.key), Difference) for record in table.records]
        for column in table.columns
    }
    columns = [column for column, flags in has_change.items() if any(flags)]
    rows = [
        record
        for position, record in enumerate(table.records)
        if any(has_change[column][position] for column in columns)
    ]
    figure = new_figure(5 * len(columns), 1.4 + 0.27 * len(rows), layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    signs = {}
    for axis, column in zip(panels, columns, strict=True):
        axis.axvline(0, color="0.8", linewidth=1)
        axis.set_title(column.title if column.title != "difference" else column.key)
        axis.grid(axis="x", alpha=0.3)
        for position, record in enumerate(rows):
            if not isinstance(change := record.get(column.key), Difference):
                continue
            colour, meaning = "#2f6fb3", "measured (95 % interval)"
            if change.is_significant:
                colour, meaning = "#c43d45", "measured, significant"
            if change.low is not None and change.high is not None:
                axis.plot(
                    [change.low, change.high], [position, position], color=colour, linewidth=1
                )
            [signs[meaning]] = axis.plot(change.delta, position, "o", color=colour, markersize=5)
            if (published := record.get(f"paper_{column.key}")) is not None:
                ring = {"color": "0.45", "markerfacecolor": "none", "markersize": 6}
                [signs["in the paper"]] = axis.plot(published, position, "o", **ring)
    names = [str(record[table.columns[0].key]) for record in rows]
    panels[0].set_yticks(
        range(len(rows)), [NAMES.get(name, name).replace("`", "") for name in names]
    )
    panels[0].invert_yaxis()
    names = sorted(signs, reverse=True)
    handles = [signs[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def main() -> None:
    publish(PAGE, blocks())


if __name__ == "__main__":
    main()
