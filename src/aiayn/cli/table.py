"""`aiayn table`: runs grouped by what differs, and the paper's tables with measured beside published values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aiayn.cli.arguments import Debug, with_options
from aiayn.config.rules import one_of
from aiayn.errors import ConfigError, writing

if TYPE_CHECKING:
    from aiayn.reports.comparison import Question
    from aiayn.reports.table import Table

FORMATS = ("text", "markdown", "latex", "csv", "json")
ENDINGS = {"markdown": "md", "json": "json", "csv": "csv", "latex": "tex"}  # file name extensions for --out


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
    pooled: Annotated[
        bool, typer.Option("--pooled", help="One standard deviation for all groups, instead of Welch's test.")
    ] = False
    lines: Annotated[
        bool, typer.Option("--lines", help="Also resample the translated text: paired tests, over seeds and lines.")
    ] = False

    def question(self) -> "Question":
        from aiayn.reports.comparison import Question
        from aiayn.reports.runs import SPLITS

        splits = (self.split,) if self.split else SPLITS
        return Question(_names(self.by), self.baseline, _names(self.metrics), splits, self.pooled)


@dataclass(kw_only=True, frozen=True)
class FormOptions:
    """Which tables are written, in which form, and where."""

    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.")] = "text"
    every_row: Annotated[bool, typer.Option("--all", help="Also the paper's tables without a run.")] = False
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write table.md, .tex, .csv, .json and .png there.")
    ] = None


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

    Differences from the baseline come with 95 % intervals of Student's t; p-values are corrected for the whole table
    (Holm), and only what survives is marked. Missing and damaged files are listed below the tables.
    """
    one_of("--format", to.form, FORMATS)
    one_of("--split", asked.split or "val", ("val", "test"))
    if parameters == bool(runs):
        raise ConfigError("name runs, such as outputs/sweeps/NAME, or use --parameters, which needs none")
    if vocab_size and not parameters:
        raise ConfigError("--vocab-size only works with --parameters; runs have their own vocabulary")
    from aiayn.reports.parameters import parameter_table
    from aiayn.reports.published import STATED_VOCABULARY

    if parameters:
        counted = parameter_table(vocab_size or STATED_VOCABULARY)
        drawn, tables, records = [], [counted], {"parameters": counted.records}
    else:
        question = asked.question()
        drawn, tables, records = _collect(runs or [], question, to.every_row)
        if asked.lines:
            compared = _resampled(runs or [], question)
            tables.insert(1, compared)
            records["systems"] = compared.records
    forms = {name: _written(name, tables, records) for name in FORMATS}
    print(forms[to.form], end="")
    if to.out:
        _write(to.out, forms, drawn)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _collect(
    folders: list[Path], question: "Question", every_row: bool
) -> tuple[list["Table"], list["Table"], dict[str, Any]]:
    """Returns the tables with differences, all tables with their notes, and all records."""
    from aiayn.reports.comparison import comparisons
    from aiayn.reports.paper_tables import paper_tables
    from aiayn.reports.runs import read_runs
    from aiayn.reports.table import Table

    runs, left_out = read_runs(folders)
    compared = comparisons(runs, question)
    paper = paper_tables(runs, question.is_pooled, every_row)
    notes = [*(f"{run.name}: {note}" for run in runs for note in run.notes), *left_out]
    noted = [Table("Notes", [], [], ["\n".join(f"- {note}" for note in notes)])] if notes else []
    groups = [record for one in compared for record in one.records]
    return (
        [*paper.changes, *compared],
        [*compared, *paper.tables, *noted],
        {"groups": groups, **paper.records, "notes": notes},
    )


def _resampled(folders: list[Path], question: "Question") -> "Table":
    from aiayn.evaluation.table_significance import significance_table
    from aiayn.reports.runs import read_runs

    if question.baseline is None or len(question.splits) != 1:
        raise ConfigError(
            "--lines compares translations of one split with those of a baseline: --baseline NAME --split test"
        )
    return significance_table(read_runs(folders)[0], question.baseline, question.splits[0], question.metrics)


def _written(form: str, tables: Sequence["Table"], records: dict[str, Any]) -> str:
    from aiayn.reports import writers

    if form == "json":
        return writers.as_json(records)
    if form == "csv":
        return writers.as_csv({name: found for name, found in records.items() if name != "notes"})
    return {"text": writers.text, "markdown": writers.markdown, "latex": writers.latex}[form](tables)


def _write(folder: Path, forms: dict[str, str], drawn: list["Table"]) -> None:
    """Writes table.md, table.tex, table.csv, table.json and, where runs differ from a baseline, table.png."""
    from aiayn.files import atomic_write_text
    from aiayn.reports.table_plot import draw_differences

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, ending in ENDINGS.items():
            atomic_write_text(folder / f"table.{ending}", forms[name])
        is_drawn = any(draw_differences(one, folder / "table.png") for one in drawn)  # the first that has any
    names = [*ENDINGS.values(), *(["png"] if is_drawn else [])]
    typer.echo(f"written: {', '.join(str(folder / f'table.{name}') for name in names)}", err=True)
