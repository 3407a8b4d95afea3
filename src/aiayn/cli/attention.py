"""`aiayn attention`: draws what a trained model attends to."""

from pathlib import Path
from typing import Annotated

from aiayn.cli.arguments import (
    Accelerator,
    CheckpointName,
    Extensions,
    ModelChoice,
    Option,
    Positional,
    RunArgument,
)


def attention(
    run: RunArgument,
    sentence: Annotated[str, Positional("A sentence of the source language, in quotes.")],
    out: Annotated[
        Path | None, Option("Output folder; default RUN/attention.", metavar="FOLDER")
    ] = None,
    word: Annotated[
        str | None, Option("The word to show in Figures 3 and 4; chosen if not given.")
    ] = None,
    checkpoint: CheckpointName = None,
    accelerator: Accelerator = "auto",
    extension: Extensions = None,
) -> None:
    """Draws where the heads look in a sentence and its translation.

    Writes index.html, a page to explore the attention of every head, and the paper's Figures 3 to 5
    for this model (figure_3, figure_4, figure_5; .png and .svg).
    """
    from aiayn.runs.run_folder import RunFolder, folder_of, refuse_link

    if out is None:
        refuse_link(RunFolder(folder_of(run)).attention)
    model = ModelChoice(checkpoint=checkpoint, accelerator=accelerator, extension=extension)
    from aiayn.evaluation.translation_task import task_of
    from aiayn.visualize.explorer import position_tables, write_explorer
    from aiayn.visualize.figures import draw_paper_figures, find_word
    from aiayn.visualize.maps import attention_maps

    with model.open(run, only_torch="attention is drawn in torch") as (translator, _):
        maps = attention_maps(translator, task_of(translator.task).source_line(sentence))
        chosen = None if word is None else find_word(maps.src, word)
        transformer = translator.in_torch().models[0]
    folder = out or RunFolder(folder_of(run)).attention
    page = folder / "index.html"
    tables = position_tables(transformer)
    write_explorer(page, maps, tables, transformer.config, run.resolve().name)
    print(page)
    for path in draw_paper_figures(maps, folder, chosen):
        print(path)
