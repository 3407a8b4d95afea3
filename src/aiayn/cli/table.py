"""`aiayn table`: runs grouped by the options that differ, and the paper's tables beside them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from aiayn.cli.arguments import Positional
from aiayn.config.rules import flag, one_of, require

FORMATS = ("text", "markdown", "latex", "csv", "json")


@dataclass(kw_only=True, frozen=True)
class TableOptions:
    """Which tables are printed, of what, and in which form."""

    by: list[str] | None = flag(
        None, "Options to group by, such as model.n_heads,optim.lr_scale.", metavar="OPTIONS"
    )
    baseline: str | None = flag(
        None, "Baseline of the differences: a run's folder, or KEY=VALUE,...", metavar="NAME"
    )
    metrics: list[str] | None = flag(
        None,
        "Scores and logged series, such as val/ppl,sacrebleu,perplexity,accuracy.",
        metavar="NAMES",
    )
    split: str | None = flag(None, "Scores of val or test only; by default of both.")
    form: str = flag("text", f"{', '.join(FORMATS)}.", "--format")
    only: str | None = flag(
        None, "One table: groups, table_2, table_3, table_4, ...", "--table", metavar="NAME"
    )
    every_row: bool = flag(False, "Show every row of the paper's tables; needs no RUNS.", "--all")
    parameters: bool = flag(False, "Only the parameter counts of Table 3, which need no run.")
    vocab_size: int | None = flag(
        None, "With --parameters: the vocabulary size to count with; default 37000.", min=1
    )

    def __post_init__(self) -> None:
        one_of("--format", self.form, FORMATS)
        one_of("--split", self.split or "val", ("val", "test"))
        of_runs = ("by", "baseline", "metrics", "split", "every_row")
        refused = [
            f"--{name.replace('every_row', 'all')}" for name in of_runs if getattr(self, name)
        ]
        require(
            not (self.parameters and refused),
            f"--parameters reads no run: leave out {', '.join(refused)}",
        )
        require(
            self.parameters or not self.vocab_size,
            "--vocab-size only works with --parameters; runs have their own vocabulary",
        )


def table(
    options: TableOptions,
    runs: Annotated[
        list[Path] | None,
        Positional("Runs, or folders of runs: outputs/sweeps/NAME.", metavar="RUNS"),
    ] = None,
) -> None:
    """Prints means and differences of runs, and the paper's tables.

    Each group has its mean and standard deviation; Tables 2, 3 and 4 of the paper follow. Groups
    with the same seeds are compared seed by seed. Differences from the baseline come with 95 %
    intervals of Student's t. p-values are corrected for the whole table (Holm), and only
    differences that stay significant are marked. Missing and damaged files are listed below the
    tables. CSV holds one table: the first, or that of --table.
    """
    require(
        options.parameters != bool(runs or options.every_row),
        "name runs, such as outputs/sweeps/NAME, or use --all, or --parameters without runs",
    )
    from aiayn.reports import tables as writers
    from aiayn.reports.comparison import comparisons
    from aiayn.reports.paper_tables import paper_tables, parameter_table
    from aiayn.reports.published import STATED_VOCABULARY
    from aiayn.reports.runs import SPLITS, read_runs

    notes: list[str] | None = None
    if options.parameters:
        tables = [parameter_table(options.vocab_size or STATED_VOCABULARY)]
    else:
        measured, notes = read_runs(runs or [])
        require(
            not options.split or any(options.split in run.evaluations for run in measured),
            f"--split {options.split}: none of these runs was scored on it; use python evaluate.py",
        )
        by, metrics = _comma_separated(options.by), _comma_separated(options.metrics)
        splits = (options.split,) if options.split else SPLITS
        groups = comparisons(measured, by, options.baseline, metrics, splits)
        tables = [*groups, *paper_tables(measured, options.every_row)]
    shown_tables = [shown for shown in tables if shown.shown]
    if only := options.only:
        names = [shown.name for shown in shown_tables]
        require(
            only in names,
            f"--table {only}: not among these tables; choose one of {', '.join(names)}",
        )
        tables = shown_tables = [shown for shown in tables if shown.name == only]
    if options.form == "json":
        text = writers.json_text(tables, None if only else notes)
    elif options.form == "csv":  # one table
        text = writers.csv_text(tables[0])
    else:
        write = {"text": writers.text, "markdown": writers.markdown, "latex": writers.latex}
        text = write[options.form]([*shown_tables, *writers.notes_table(notes or [])])
    print(text, end="")


def _comma_separated(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for text in texts or () for name in text.split(",") if name.strip())
