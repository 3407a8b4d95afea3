"""What several commands share: their arguments and options, and the model that they load."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiayn.config import PRECISIONS, SearchOverrides, one_of

if TYPE_CHECKING:
    from aiayn.inference.translator import Translator

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, such as outputs/quickstart.")]
CheckpointName = Annotated[
    str | None, typer.Option(help="averaged, last or a file; else averaged where there is one, and last.")
]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
BeamSize = Annotated[int | None, typer.Option(help="Hypotheses kept per sentence; 1 is greedy search.")]
Alpha = Annotated[float | None, typer.Option(help="alpha: 0 favours short translations.")]
Precision = Annotated[str, typer.Option(help="float32; bfloat16: faster, less exact; int8: more so, on CPUs only.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


def load_translator(
    run: Path,
    checkpoint: str | None,
    beam_size: int | None,
    length_penalty: float | None,
    accelerator: str,
    precision: str = "float32",
) -> "Translator":
    """The model of a run's folder; torch comes in only now."""
    search = SearchOverrides(
        beam_size=beam_size, length_penalty=length_penalty, penalty=None, max_extra_tokens=None, batch_tokens=None
    )
    one_of("--accelerator", accelerator, ("auto", "cpu", "gpu"))
    one_of("--precision", precision, PRECISIONS)
    from aiayn.inference.translator import Translator

    return Translator.from_run(run, checkpoint, search, accelerator, precision)
