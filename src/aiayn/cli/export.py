"""`aiayn export`: the model for other engines."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.options import CheckpointName, Debug, RunFolder


def export(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder to write into.")],
    target: Annotated[str, typer.Option("--format", help="ctranslate2, or marian for Hugging Face's transformers.")],
    checkpoint: CheckpointName = None,
    debug: Debug = False,
) -> None:
    """Writes the model, with its tokenizer, for another engine.

    What the other engine cannot express is refused by name.
    """
    from aiayn.checkpoints import find_checkpoint, load
    from aiayn.inference.export import export as write

    write(load(find_checkpoint(run, checkpoint)), target, folder)
    print(folder)
