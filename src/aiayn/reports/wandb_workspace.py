"""The project's workspace at Weights & Biases, as code: the same panels for everyone, and a diff
when they change.
"""

from typing import TYPE_CHECKING, Any

from aiayn.errors import ConfigError, ResourceError

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

STEP = "trainer/global_step"  # Lightning's own x-axis
OPTIONS = {
    "heads": "model.n_heads",
    "d_k": "d_k",
    "d_v": "d_v",
    "layers": "model.n_layers",
    "d_model": "model.d_model",
    "d_ff": "model.d_ff",
    "dropout": "model.dropout",
}


def definition(entity: str, project: str) -> str:
    """What W&B would be sent, as JSON. Raises ConfigError if wandb-workspaces is not installed."""
    # Building one needs no network. The client has no public way to show it.
    return (
        _workspace(entity, project)
        ._to_model()
        .model_dump_json(by_alias=True, exclude_none=True, indent=2)
    )


def create(entity: str | None, project: str) -> str:
    """Creates the workspace and returns its address; raises ResourceError if W&B refuses or cannot
    be reached.
    """
    import wandb

    try:
        entity = entity or wandb.Api().default_entity
        if entity is None:
            raise ConfigError("the W&B key has no default entity: name one, --entity NAME")
        workspace = _workspace(entity, project)
        workspace.save()
        return workspace.url
    except ConfigError:
        raise
    except Exception as error:  # requests, wandb and GraphQL raise unrelated types
        raise ResourceError(
            f"--project {project}: W&B did not take the workspace "
            f"({' '.join(str(error).split())[:200]}); check the key, --entity and --project, or "
            "print it with --show"
        ) from error


def _workspace(entity: str, project: str) -> "Workspace":
    try:
        import wandb_workspaces.reports.v2.interface as panels
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ConfigError(
            "wandb-workspaces is not installed: pip install 'aiayn[dashboard]'"
        ) from error

    def curves(title: str, *keys: str, log_scale: bool = False) -> Any:
        return panels.LinePlot(title=title, x=STEP, y=list(keys), log_y=log_scale)

    training = [
        curves("loss per token (nats)", "train/loss", "val/loss"),
        curves("learning rate", "train/lr"),
        curves("norm of the gradient", "train/grad_norm", log_scale=True),
        curves("epoch", "train/epoch"),
        curves("steps skipped for a NaN or infinite gradient", "train/skipped_steps"),
    ]
    quality = [
        curves("validation perplexity, unsmoothed", "val/ppl", log_scale=True),
        curves("validation accuracy, per token", "val/accuracy"),
        curves("validation BLEU, greedy", "val/bleu"),
        curves("length of outputs to references", "val/length_ratio"),
        panels.MediaBrowser(title="attention of a validation sentence", media_keys=["attention"]),
        panels.WeavePanelSummaryTable(table_name="samples"),
    ]
    performance = [
        curves("target tokens per second", "perf/tokens_per_sec"),
        curves("model FLOPs utilisation", "perf/mfu"),
        curves("padding", "perf/padding"),
        curves("peak memory (GB)", "perf/memory_gb"),
    ]
    # A bare name would be looked for among the measurements.
    axes: dict[str, panels.Config | panels.SummaryMetric] = {
        name: panels.Config(key) for name, key in OPTIONS.items()
    }
    axes["perplexity"] = panels.SummaryMetric("val/ppl")
    axes["BLEU"] = panels.SummaryMetric("val/bleu")
    columns = [
        panels.ParallelCoordinatesPlotColumn(metric=axis, display_name=name)
        for name, axis in axes.items()
    ]
    wide = panels.Layout(w=24, h=10)
    sweep = [
        panels.ParallelCoordinatesPlot(
            title="what heads and sizes do", columns=columns, layout=wide
        ),
        panels.ScalarChart(title="best BLEU", metric=axes["BLEU"], groupby_aggfunc="max"),
        panels.RunComparer(diff_only=True),
    ]
    sections = {
        "Training": training,
        "Translation quality": quality,
        "Performance": performance,
        "Sweep": sweep,
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name="Attention Is All You Need",
        sections=[
            workspaces.Section(name=name, panels=shown, is_open=True)
            for name, shown in sections.items()
        ],
    )
