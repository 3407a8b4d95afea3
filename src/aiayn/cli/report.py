"""`aiayn report`: a run, or all runs of a sweep, on one page."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.options import Debug


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A run such as outputs/quickstart, or a folder of runs.")
    ],
    debug: Debug = False,
) -> None:
    """Writes FOLDER/report.html: curves, scores, samples, configuration, corpus and machine.

    The page is one file that needs no network. Of a folder of runs it compares scores, curves and options.
    """
    from aiayn.report.report import write_report

    print(write_report(folder))
