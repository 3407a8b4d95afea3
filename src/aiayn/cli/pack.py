"""`aiayn pack`: a model in one small file."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.arguments import CheckpointName, RunArgument
from aiayn.config.rules import one_of
from aiayn.errors import ConfigError
from aiayn.runs.run_folder import find_checkpoint


def pack(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, such as model.ckpt.")],
    precision: Annotated[str, typer.Option(help="Of the stored weights: bfloat16, or float32.")] = "bfloat16",
    checkpoint: CheckpointName = None,
) -> None:
    """Writes a model as one small file.

    It holds weights, tokenizer and options, all that `aiayn translate FILE` needs. bfloat16 halves it; a few
    translations differ, as with `translate --precision bfloat16`.
    """
    one_of("--precision", precision, ("bfloat16", "float32"))
    if file.exists():
        raise ConfigError(f"{file}: already exists; choose another file")
    path = find_checkpoint(run, checkpoint)
    from aiayn.runs.checkpoints import in_bfloat16, load, save

    found = load(path)
    save(file, in_bfloat16(found) if precision == "bfloat16" else found)
    print(f"{file}  {file.stat().st_size / 1e6:.1f} MB")
