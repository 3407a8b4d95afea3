"""`aiayn report`: one page about a run, or about all runs of a sweep."""

from pathlib import Path
from typing import Annotated

from aiayn.cli.arguments import Positional


def report(
    folder: Annotated[
        Path,
        Positional("A run such as outputs/quickstart, or a folder of runs.", metavar="FOLDER"),
    ],
) -> None:
    """Writes FOLDER/report.html: curves, scores, samples, options.

    The page is one file and needs no network; it also describes corpus and machine. For a folder of
    runs it compares scores, curves and options; curves are means over seeds, in a band from the
    lowest run to the highest.
    """
    from aiayn.reports.report import write_report

    print(write_report(folder))
