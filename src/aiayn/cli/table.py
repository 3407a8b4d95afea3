"""`aiayn table`: the paper's tables, with measured beside published values."""

import json
from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.arguments import Debug
from aiayn.errors import ConfigError, writing


def table(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUNS", help="Runs, or folders of runs: outputs/sweeps/NAME.")
    ] = None,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Only the parameter counts of Table 3, which need no run.")
    ] = False,
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="With --parameters: the vocabulary size to count with; default 37000.")
    ] = None,
    every_row: Annotated[bool, typer.Option("--all", help="Also the paper's rows without a run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of Markdown: Table 3 only.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write table.md, .json, .csv and .png there.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Tables 2, 3 and 4 of the paper: measured values beside published ones.

    A run is shown in the row that its configuration matches, or among the other runs. Rows without a run are shown with
    --all, and in JSON and CSV. Missing and damaged files are listed below the table.
    """
    if parameters == bool(runs):
        raise ConfigError("name runs, such as outputs/sweeps/NAME, or use --parameters, which needs none")
    if vocab_size and not parameters:
        raise ConfigError("--vocab-size only works with --parameters; runs have their own vocabulary")
    if as_json and as_csv:
        raise ConfigError("--json and --csv: choose one")
    from aiayn.reports import table_text
    from aiayn.reports.parameters import parameter_table
    from aiayn.reports.published import STATED_VOCABULARY
    from aiayn.reports.tables import changes_against_base, collect, mean_of_base, noise_of_base

    drawn: list[dict] = []
    if parameters:
        records = parameter_table(vocab_size or STATED_VOCABULARY)
        plain: dict = {"parameters": records}
        text = table_text.parameters_markdown(records)
    else:
        plain = collect(runs or [])
        quarter = [record for record in plain["table_3_quarter"] if record["run"]]
        drawn = quarter if quarter and not any(record["run"] for record in plain["table_3"]) else plain["table_3"]
        plain["base"], plain["noise"] = mean_of_base(drawn), noise_of_base(drawn)
        plain["changes"] = changes_against_base(drawn)
        records = plain["table_3"] + quarter + plain["other_runs"]
        text = table_text.markdown(plain, every_row)
    forms = {
        "md": text,
        "json": json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "csv": table_text.as_csv(records),
    }
    print(forms["json" if as_json else "csv" if as_csv else "md"], end="")
    if out:
        _write(out, forms, drawn)


def _write(folder: Path, forms: dict[str, str], table_3: list[dict]) -> None:
    """Writes table.md, table.json, table.csv and, for Table 3, table.png."""
    from aiayn.files import atomic_write_text
    from aiayn.reports.table_plot import draw_table_3

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for ending, text in forms.items():
            atomic_write_text(folder / f"table.{ending}", text)
        if table_3:
            draw_table_3(table_3, folder / "table.png")
    names = [*forms, "png"] if table_3 else list(forms)
    typer.echo(f"written: {', '.join(str(folder / f'table.{name}') for name in names)}", err=True)
