"""`aiayn table`: runs grouped by the options that differ, and the paper's tables beside them."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.config.rules import one_of, require

FORMATS = ("text", "markdown", "latex", "csv", "json")


def table(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUNS", help="Runs, or folders of runs: outputs/sweeps/NAME."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTIONS", help="Options to group by, such as model.n_heads,optim.lr_scale."
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Baseline of the differences: a run's folder, or KEY=VALUE,..."
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Scores and logged series, such as val/ppl,sacrebleu,perplexity,accuracy.",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Scores of val or test only; by default of both.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "text",
    only: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="One table: groups, table_2, table_3, table_4, ..."
        ),
    ] = None,
    every_row: Annotated[
        bool, typer.Option("--all", help="Also show the paper's tables without a run.")
    ] = False,
    parameters: Annotated[
        bool,
        typer.Option(
            "--parameters", help="Only the parameter counts of Table 3, which need no run."
        ),
    ] = False,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --parameters: the vocabulary size to count with; default 37000."
        ),
    ] = None,
) -> None:
    """Prints means and differences of runs, and the paper's tables.

    Each group has its mean and standard deviation; Tables 2, 3 and 4 of the paper follow. Groups
    with the same seeds are compared seed by seed. Differences from the baseline come with 95 %
    intervals of Student's t. p-values are corrected for the whole table (Holm), and only
    differences that stay significant are marked. Missing and damaged files are listed below the
    tables. CSV holds one table: the first, or that of --table.
    """
    one_of("--format", form, FORMATS)
    one_of("--split", split or "val", ("val", "test"))
    require(
        parameters != bool(runs),
        "name runs, such as outputs/sweeps/NAME, or use --parameters, which needs none",
    )
    of_runs = {"by": by, "baseline": baseline, "metrics": metrics, "split": split, "all": every_row}
    refused = [f"--{name}" for name, value in of_runs.items() if value]
    require(
        not (parameters and refused),
        f"--parameters reads no run: leave out {', '.join(refused)}",
    )
    require(
        parameters or not vocab_size,
        "--vocab-size only works with --parameters; runs have their own vocabulary",
    )
    from aiayn.reports import tables as writers
    from aiayn.reports.comparison import comparisons
    from aiayn.reports.paper_tables import paper_tables, parameter_table
    from aiayn.reports.published import STATED_VOCABULARY
    from aiayn.reports.runs import SPLITS, read_runs

    notes: list[str] | None = None
    if parameters:
        tables = [parameter_table(vocab_size or STATED_VOCABULARY)]
    else:
        measured, notes = read_runs(runs or [])
        splits = (split,) if split else SPLITS
        groups = comparisons(
            measured, _comma_separated(by), baseline, _comma_separated(metrics), splits
        )
        tables = [*groups, *paper_tables(measured, every_row)]
    shown_tables = [shown for shown in tables if shown.shown]
    if only:
        names = [shown.name for shown in shown_tables]
        require(
            only in names,
            f"--table {only}: no run belongs to this table; choose one of {', '.join(names)}",
        )
        tables = shown_tables = [shown for shown in tables if shown.name == only]
    if form == "json":
        text = writers.json_text(tables, None if only else notes)
    elif form == "csv":  # one table
        text = writers.csv_text(tables[0])
    else:
        write = {"text": writers.text, "markdown": writers.markdown, "latex": writers.latex}[form]
        text = write([*shown_tables, *writers.notes_table(notes or [])])
    print(text, end="")


def _comma_separated(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for text in texts or () for name in text.split(",") if name.strip())
