"""All commands of `aiayn`, as typer lists, explains and runs them."""

import sys
from typing import Annotated

import typer

from aiayn import __version__
from aiayn.cli.arguments import with_options
from aiayn.doors import load_from, names_behind
from aiayn.errors import ConfigError

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


# Only listed here: `run_command` starts these two without typer, because Hydra reads the arguments.
@app.command("train")
def _list_train() -> None:
    """Trains a model, or resumes a run (options: key=value)."""


@app.command("evaluate")
def _list_evaluate() -> None:
    """Scores a run on a test set (options: key=value)."""


for name in names_behind("aiayn.commands"):
    try:
        app.command(name)(with_options(load_from("aiayn.commands", name)))
    except Exception as error:  # another package's code must not cost the commands of this one
        print(f"aiayn {name}: cannot be loaded ({type(error).__name__}: {error})", file=sys.stderr)


@app.callback(invoke_without_command=True)
def _no_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Trains Transformers, evaluates them, and translates with them. Each training has a folder,
    its run. See `aiayn COMMAND --help`.
    """
    if version:
        print(f"aiayn {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def run() -> object:
    """Runs the command that the arguments name. Raises ConfigError for a misspelt command or
    option.
    """
    try:
        return app(prog_name="aiayn", standalone_mode=False)
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    except Exception as error:
        # Usage errors, such as a misspelt option: their base class has no public name in some
        # versions of typer.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        raise ConfigError(f"{format_message()} (see --help)") from error
