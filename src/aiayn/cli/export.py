"""`aiayn export`: converts a model for other engines."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.arguments import CheckpointName, Debug, RunArgument


def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the model.")],
    target: Annotated[str, typer.Option("--format", help="ctranslate2, or marian for Hugging Face's transformers.")],
    checkpoint: CheckpointName = None,
    debug: Debug = False,
) -> None:
    """Writes the model and its tokenizer in the format of another engine.

    Options that the other engine does not support are refused by name.
    """
    from aiayn.checkpoints import find_checkpoint, load
    from aiayn.inference.export import export as write

    write(load(find_checkpoint(run, checkpoint)), target, folder)
    print(folder)
