"""`aiayn dashboard`: creates a workspace in Weights & Biases."""

from typing import Annotated

import typer


def dashboard(
    project: Annotated[str, typer.Option(help="The W&B project, as in logger.project.")] = "aiayn",
    entity: Annotated[
        str | None,
        typer.Option(help="Its user or team; by default the one that the W&B key belongs to."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the definition as JSON and send nothing.")
    ] = False,
) -> None:
    """Creates a workspace of panels in Weights & Biases.

    They show training, translation quality, performance and sweeps. Needs the extra `dashboard`.
    Without a W&B key, or offline, the definition is printed as with --show.
    """
    from aiayn.reports.wandb_workspace import create, definition
    from aiayn.training.wandb_run import wandb_mode

    if show or wandb_mode("auto") != "online":
        print(definition(entity or "", project))
    else:
        print(create(entity, project))
