"""`aiayn`: what a trained run can do on the command line. One module per command."""

import signal
import sys
import traceback
from typing import NoReturn

import typer

from aiayn.cli.attention import attention
from aiayn.cli.dashboard import dashboard
from aiayn.cli.export import export
from aiayn.cli.report import report
from aiayn.cli.table import table
from aiayn.cli.translate import translate
from aiayn.errors import ConfigError, UserError

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (translate, export, attention, table, report, dashboard):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _no_command(context: typer.Context) -> None:
    """Uses a trained Transformer; all it needs is the run's folder. `aiayn COMMAND --help` says more."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """The console script. What a user can cause ends it with one line and its exit code."""
    # Whoever reads may leave early (`aiayn translate ... | head`): end like any other filter, without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = app(prog_name="aiayn", standalone_mode=False)
    except UserError as error:
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    except Exception as error:
        # typer's own, for a misspelt option and the like; its base class has no public name in every version.
        if not hasattr(error, "format_message"):
            raise
        _fail(f"{error.format_message()} (--help lists what there is)", ConfigError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, exit_code: int) -> NoReturn:
    """Ends the program with one line; --debug, an option of every command, adds a traceback."""
    if "--debug" in sys.argv:
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
