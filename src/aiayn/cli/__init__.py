"""The command `aiayn`: trains, and uses trained runs. One module per command."""

import os
import re
import signal
import sys

from aiayn.errors import ConfigError, one_line_errors
from aiayn.signals import handle_signals, interrupt

# A thread that waits for its next product spins: by default for milliseconds, which takes the
# processor from others, and on a busy machine from the product's own threads. Read when torch is
# loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# --out=~/x, which shells leave as it is
HOME_IN_OPTION = re.compile(r"(?<==)~(?=/|$).*", re.DOTALL)


def main() -> None:
    """Runs the console script, which ends with one line and an exit code on errors of the user."""
    # If the reader closes the pipe (`aiayn translate ... | head`), end silently, like other
    # filters. A server would end by the same signal whenever a client closes its connection too
    # early.
    sys.argv[1:] = [
        HOME_IN_OPTION.sub(lambda home: os.path.expanduser(home[0]), argument)
        for argument in sys.argv[1:]
    ]
    command = sys.argv[1:2]
    is_filter = command not in (["train"], ["evaluate"], ["serve"])
    if is_filter and hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    closed = sys.stdout is None or sys.stdin is None
    with one_line_errors(), handle_signals(interrupt):
        if closed and command in (["translate"], ["score"]):
            raise ConfigError("standard input or output is closed; connect it to /dev/null")
        code = run_command(command)
    sys.exit(code if isinstance(code, int) else 0)


def run_command(command: list[str]) -> object:
    """Runs the command that the arguments name; train, evaluate and translate without typer, which
    loads slowly.
    """
    if command == ["translate"]:
        from aiayn.cli.arguments import run_without_typer
        from aiayn.cli.translate import translate

        if run_without_typer(translate, sys.argv[2:]):
            return 0
    elif command in (["train"], ["evaluate"]):
        from aiayn.cli import hydra_commands

        del sys.argv[1]  # Hydra reads the rest
        return hydra_commands.train() if command == ["train"] else hydra_commands.evaluate()
    from aiayn.cli.commands import run

    return run()
