"""`aiayn export`: a model in one small file, or for other engines."""

import shlex
from pathlib import Path
from typing import Annotated

from aiayn.cli.arguments import CheckpointName, Extensions, Option, Positional, RunArgument
from aiayn.config.rules import one_of, require
from aiayn.doors import load_from, names_behind
from aiayn.runs.run_folder import RunFolder, find_checkpoint, folder_of, with_stored


def export(
    run: RunArgument,
    folder: Annotated[
        Path,
        Positional("A new folder; with --format aiayn a new file.", metavar="DIR"),
    ],
    target: Annotated[
        str,
        Option(
            "aiayn, ctranslate2, marian for Hugging Face's transformers, or one that an "
            "installed package adds.",
            "--format",
        ),
    ],
    licence: Annotated[
        str | None,
        Option(
            "Licence for the model card, as hubs write it, such as mit.", "--licence", "--license"
        ),
    ] = None,
    precision: Annotated[
        str | None,
        Option("Precision of the weights with --format aiayn: bfloat16 (default) or float32."),
    ] = None,
    checkpoint: CheckpointName = None,
    extension: Extensions = None,
) -> None:
    """Writes model and tokenizer for another machine or engine.

    --format aiayn writes one file with weights, tokenizer and options, which `aiayn translate FILE`
    reads. bfloat16 makes the file half as large and changes a few translations.

    The other formats refuse models that their engine does not support.

    --format marian also writes a model card, README.md: data, licence, how to load the model, and
    the scores that evaluate.py wrote for this checkpoint. It prints the command that uploads the
    folder, but does not run it.
    """
    require(
        licence is None or target == "marian",
        "--licence is for the model card of --format marian; leave it out",
    )
    require(
        precision is None or target == "aiayn",
        f"--precision: --format {target} supports float32 only",
    )
    one_of("--precision", precision or "bfloat16", ("bfloat16", "float32"))
    require(
        target != "aiayn" or not folder.exists(), f"{folder}: already exists; choose another file"
    )
    one_of("--format", target, ("aiayn", *names_behind("aiayn.exporters")))
    path = find_checkpoint(run, checkpoint)
    from aiayn.config.extensions import register_extensions
    from aiayn.runs import checkpoints

    model = checkpoints.load(path)
    if target == "aiayn":
        is_exact = precision == "float32"
        checkpoints.save(folder, model if is_exact else checkpoints.in_bfloat16(model))
        print(f"{folder}  {folder.stat().st_size / 1e6:.1f} MB")
        return
    register_extensions(with_stored(extension, run))
    write = load_from("aiayn.exporters", target)
    if target != "marian":
        write(model, folder)
        print(folder)
        return
    from aiayn.apps.export.model_card import model_card
    from aiayn.files import sha256
    from aiayn.runs.results import read_evaluations

    digest = sha256(path)
    scores_of_checkpoint = {
        test: scores
        for test, scores in read_evaluations(RunFolder(folder_of(run))).items()
        if scores.checkpoint_sha256 == digest and not scores.ensemble
    }
    name = run.resolve().name.removesuffix(".ckpt")
    write(model, folder, model_card(model, name, scores_of_checkpoint, licence or "unknown"))
    print(folder)
    print(f"upload   hf upload YOUR_NAME/{shlex.quote(name)} {shlex.quote(str(folder))}")
