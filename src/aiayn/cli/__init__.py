"""The command `aiayn`, which uses trained runs. One module per command."""

import signal
import sys

import typer

from aiayn.cli.attention import attention
from aiayn.cli.dashboard import dashboard
from aiayn.cli.export import export
from aiayn.cli.report import report
from aiayn.cli.score import score
from aiayn.cli.table import table
from aiayn.cli.translate import translate
from aiayn.errors import ConfigError, UserError, exit_with_error

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (translate, score, export, attention, table, report, dashboard):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _no_command(context: typer.Context) -> None:
    """Uses a trained Transformer; all it needs is the run's folder. See `aiayn COMMAND --help`."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """The console script. Errors that a user can cause end it with one line and their exit code."""
    # If the reader closes the pipe (`aiayn translate ... | head`), end silently, like other filters.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    debug = "--debug" in sys.argv  # an option of every command
    try:
        code = app(prog_name="aiayn", standalone_mode=False)
    except UserError as error:
        exit_with_error(str(error), error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        exit_with_error("interrupted", 130, debug)
    except Exception as error:
        # Usage errors, such as a misspelt option: their base class has no public name in some versions of typer.
        if not hasattr(error, "format_message"):
            raise
        exit_with_error(f"{error.format_message()} (see --help)", ConfigError.exit_code, debug)
    sys.exit(code if isinstance(code, int) else 0)
