"""The command `aiayn`: trains, and uses trained runs. One module per command."""

import os
import re
import signal
import sys
from typing import Annotated

import typer

from aiayn import __version__
from aiayn.cli.arguments import with_options
from aiayn.cli.attention import attention
from aiayn.cli.dashboard import dashboard
from aiayn.cli.export import export
from aiayn.cli.pack import pack
from aiayn.cli.prepare import prepare
from aiayn.cli.report import report
from aiayn.cli.score import score
from aiayn.cli.serve import serve
from aiayn.cli.split import split
from aiayn.cli.table import table
from aiayn.cli.train import evaluate, train
from aiayn.cli.translate import translate
from aiayn.cli.trees import trees
from aiayn.errors import ConfigError, one_line_errors
from aiayn.signals import handle_signals, interrupt

# A thread that waits for its next product spins: by default for milliseconds, which takes the processor from others,
# and on a busy machine from the product's own threads. Read when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

HOME_IN_OPTION = re.compile(r"(?<==)~(?=/|$).*", re.DOTALL)  # --out=~/x, which shells leave as it is

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# Hydra reads the arguments of these itself.
for command in (train, evaluate):
    app.command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )(command)
for command in (translate, score, serve, pack, export, attention, table, report, dashboard, trees, split, prepare):
    app.command()(with_options(command))


@app.callback(invoke_without_command=True)
def _no_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Trains a Transformer, and uses a trained one by its run's folder. See `aiayn COMMAND --help`."""
    if version:
        print(f"aiayn {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """The console script. Errors that a user can cause end it with one line and their exit code."""
    # If the reader closes the pipe (`aiayn translate ... | head`), end silently, like other filters. A server would end
    # by the same signal whenever a client closes its connection too early.
    sys.argv[1:] = [HOME_IN_OPTION.sub(lambda found: os.path.expanduser(found[0]), each) for each in sys.argv[1:]]
    command = sys.argv[1:2]
    if command not in (["train"], ["evaluate"], ["serve"]) and hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    closed = sys.stdout is None or sys.stdin is None
    with one_line_errors(), handle_signals(interrupt):
        if closed and command in (["translate"], ["score"]):
            raise ConfigError("standard input or output is closed; use /dev/null to leave it out")
        try:
            code = app(prog_name="aiayn", standalone_mode=False)
        except typer.Abort as abort:
            raise KeyboardInterrupt from abort
        except Exception as error:
            # Usage errors, such as a misspelt option: their base class has no public name in some versions of typer.
            format_message = getattr(error, "format_message", None)
            if format_message is None:
                raise
            raise ConfigError(f"{format_message()} (see --help)") from error
    sys.exit(code if isinstance(code, int) else 0)
