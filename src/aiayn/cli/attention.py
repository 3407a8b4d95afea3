"""`aiayn attention`: where a trained model looks."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli.options import Accelerator, CheckpointName, Debug, RunFolder, load_translator


def attention(
    run: RunFolder,
    sentence: Annotated[str, typer.Argument(help="A sentence of the source language, in quotes.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to; else RUN/attention.")] = None,
    checkpoint: CheckpointName = None,
    accelerator: Accelerator = "auto",
    debug: Debug = False,
) -> None:
    """Draws where each layer looks: layer_1.png, ...

    The sentence is translated; every picture shows one layer's attention from the translation to the sentence, head by
    head, and within both.
    """
    from aiayn.evaluation.attention_maps import attention_maps
    from aiayn.evaluation.plots import draw_attention_maps

    maps = attention_maps(load_translator(run, checkpoint, None, None, accelerator), sentence)
    for layer in range(len(maps.cross)):
        path = (out or run / "attention") / f"layer_{layer + 1}.png"
        draw_attention_maps(maps, path, layer)
        print(path)
