"""`aiayn table`: runs grouped by what differs, and the paper's tables with measured beside published values."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aiayn.cli.arguments import Debug, with_options
from aiayn.config.rules import one_of
from aiayn.errors import ConfigError

if TYPE_CHECKING:
    from aiayn.reports.comparison import Question
    from aiayn.reports.tables import Table

FORMATS = ("text", "markdown", "latex", "csv", "json")


@dataclass(kw_only=True, frozen=True)
class QuestionOptions:
    """What is compared, and with which statistics."""

    by: Annotated[
        str, typer.Option(metavar="OPTIONS", help="Options to group by, such as model.n_heads,optim.lr_scale.")
    ] = ""
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="A run's folder, or KEY=VALUE,...: what others differ from.")
    ] = None
    metrics: Annotated[
        str, typer.Option(help="Scores and logged series, such as val/ppl,sacrebleu,perplexity,accuracy.")
    ] = ""
    split: Annotated[str | None, typer.Option(help="Scores of val or test only; by default of both.")] = None

    def question(self) -> "Question":
        from aiayn.reports.comparison import Question
        from aiayn.reports.runs import SPLITS

        splits = (self.split,) if self.split else SPLITS
        return Question(_comma_separated(self.by), self.baseline, _comma_separated(self.metrics), splits)


@dataclass(kw_only=True, frozen=True)
class FormOptions:
    """Which tables are written, in which form."""

    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "text"
    only: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="One table: groups, table_2, table_3, table_4, ...")
    ] = None
    every_row: Annotated[bool, typer.Option("--all", help="Also the paper's tables without a run.")] = False


@with_options
def table(
    asked: QuestionOptions,
    to: FormOptions,
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUNS", help="Runs, or folders of runs: outputs/sweeps/NAME.")
    ] = None,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Only the parameter counts of Table 3, which need no run.")
    ] = False,
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="With --parameters: the vocabulary size to count with; default 37000.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Runs grouped by what differs, with mean and standard deviation over seeds; then Tables 2, 3 and 4 of the paper.

    Groups with the same seeds are compared seed by seed. Differences from the baseline come with 95 % intervals of
    Student's t; p-values are corrected for the whole table (Holm), and only what survives is marked. Missing and
    damaged files are listed below the tables. CSV holds one table: the first, or that of --table.
    """
    one_of("--format", to.form, FORMATS)
    one_of("--split", asked.split or "val", ("val", "test"))
    if parameters == bool(runs):
        raise ConfigError("name runs, such as outputs/sweeps/NAME, or use --parameters, which needs none")
    if vocab_size and not parameters:
        raise ConfigError("--vocab-size only works with --parameters; runs have their own vocabulary")
    from aiayn.reports.paper_tables import parameter_table
    from aiayn.reports.published import STATED_VOCABULARY

    if parameters:
        tables, records = [parameter_table(vocab_size or STATED_VOCABULARY)], {}
    else:
        tables, records = _all_tables(runs or [], asked, to.every_row)
    if to.only:
        names = [one.name for one in tables if one.records]
        if to.only not in names:
            raise ConfigError(f"--table {to.only}: there is none of these runs; choose one of {', '.join(names)}")
        tables = [one for one in tables if one.name == to.only]
        records = {}
    print(_written(to.form, tables, records), end="")


def _comma_separated(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _all_tables(folders: list[Path], asked: QuestionOptions, every_row: bool) -> tuple[list["Table"], dict[str, Any]]:
    """Returns all tables with their notes, and the records of the paper's, rows without a run included."""
    from aiayn.reports.comparison import comparisons
    from aiayn.reports.paper_tables import paper_tables
    from aiayn.reports.runs import read_runs
    from aiayn.reports.tables import Table

    question = asked.question()
    runs, left_out = read_runs(folders)
    tables = comparisons(runs, question)
    paper = paper_tables(runs, every_row)
    notes = [*(f"{run.name}: {note}" for run in runs for note in run.notes), *left_out]
    noted = [Table("Notes", [], [], ["\n".join(f"- {note}" for note in notes)])] if notes else []
    return [*tables, *paper.tables, *noted], paper.records | {"notes": notes}


def _written(form: str, tables: list["Table"], records: dict[str, Any]) -> str:
    """Returns the tables in one form; JSON has `records`, too, and CSV the first table only."""
    from aiayn.reports import tables as writers

    if form == "json":
        return writers.json_text({one.name: one.records for one in tables if one.records} | records)
    if form == "csv":
        return writers.csv_text(tables[0])
    return {"text": writers.text, "markdown": writers.markdown, "latex": writers.latex}[form](tables)
