"""Arguments and options that several commands share, and the model that they load."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiayn.config.schema import PRECISIONS, SearchOverrides, one_of
from aiayn.runs.run_folder import find_checkpoint

if TYPE_CHECKING:
    from aiayn.inference.translator import Translator

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, such as outputs/quickstart, or a checkpoint file.")
]
CheckpointName = Annotated[
    str | None,
    typer.Option(help="averaged, best, last or a file; by default averaged (best if that is better), else last."),
]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
BeamSize = Annotated[int | None, typer.Option(help="Hypotheses kept per sentence; 1 is greedy search.")]
Alpha = Annotated[float | None, typer.Option(help="alpha; 0: no correction, which favours short translations.")]
Precision = Annotated[
    str,
    typer.Option(help="float32; faster, less exact: bfloat16, int8 (CPUs only); auto: the fastest here."),
]
With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="RUN", help="A run that translates together with it; may be repeated."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def load_translator(
    run: Path,
    checkpoint: str | None,
    beam_size: int | None,
    length_penalty: float | None,
    accelerator: str,
    precision: str = "float32",
    ensemble: list[Path] | None = None,
) -> "Translator":
    """Loads the model of a run. Checks options and files before torch is imported."""
    search = SearchOverrides(beam_size=beam_size, length_penalty=length_penalty)
    one_of("--accelerator", accelerator, ("auto", "cpu", "gpu"))
    one_of("--precision", precision, PRECISIONS)
    for one in (run, *(ensemble or ())):
        find_checkpoint(one, checkpoint)
    from aiayn.inference.translator import Translator

    return Translator.from_run(run, checkpoint, search, accelerator, precision, ensemble or ())
