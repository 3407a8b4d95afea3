"""`aiayn dashboard`: the project's workspace at Weights & Biases."""

from typing import Annotated

import typer

from aiayn.cli.options import Debug


def dashboard(
    project: Annotated[str, typer.Option(help="The project, as in logger.project.")] = "aiayn",
    entity: Annotated[
        str | None, typer.Option(help="The user or team that it belongs to; else the one that the key is of.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the definition as JSON; nothing is sent.")] = False,
    debug: Debug = False,
) -> None:
    """Creates a workspace of panels for training, translation quality, performance and sweeps.

    Needs the extra `dashboard`. Without a W&B key, or off line, the definition is printed as with --show.
    """
    from aiayn.report.wandb_workspace import create, definition
    from aiayn.training.loggers import wandb_mode

    if show or wandb_mode("auto") != "online":
        print(definition(entity or "", project))
    else:
        print(create(entity, project))
