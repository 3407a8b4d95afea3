"""`aiayn export`: converts a model for other engines."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.arguments import CheckpointName, Extensions, RunArgument
from aiayn.config.rules import require
from aiayn.runs.run_folder import RunFolder, find_checkpoint, folder_of


def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the model.")],
    target: Annotated[str, typer.Option("--format", help="ctranslate2, or marian for Hugging Face's transformers.")],
    licence: Annotated[
        str | None,
        typer.Option("--licence", "--license", help="For the model card, as hubs spell it: mit, ..."),
    ] = None,
    checkpoint: CheckpointName = None,
    extension: Extensions = None,
) -> None:
    """Writes model and tokenizer for another engine.

    Options that the other engine does not support are refused by name.

    With --format marian there is also a model card, README.md: data, licence, how to load it, and the scores that
    evaluate.py wrote for this checkpoint. The command that uploads the folder is printed, not run.
    """
    unused = licence is not None and target == "ctranslate2"
    require(not unused, "--licence is for the model card of --format marian; leave it out")
    path = find_checkpoint(run, checkpoint)
    from aiayn.export.export import export as write
    from aiayn.export.model_card import model_card
    from aiayn.files import sha256
    from aiayn.runs.checkpoints import load
    from aiayn.runs.extensions import name_extensions
    from aiayn.runs.results import read_evaluations

    name_extensions(extension or [])
    found, name, card = load(path), run.resolve().name.removesuffix(".ckpt"), None
    if target == "marian":
        digest = sha256(path)
        scored = {
            test: result
            for test, result in read_evaluations(RunFolder(folder_of(run))).items()
            if result.get("checkpoint_sha256") == digest and not result.get("ensemble")
        }
        card = model_card(found, name, scored, licence or "unknown")
    write(found, target, folder, card)
    print(folder)
    if card:
        print(f"upload   hf upload YOUR_NAME/{shlex.quote(name)} {shlex.quote(str(folder))}")
