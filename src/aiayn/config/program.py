"""How this process was started, `python train.py` or `aiayn train`, and so what starts its other processes."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiayn.errors import ConfigError

_script: Path | None = None  # train.py or evaluate.py, if one of these was started
_subcommand: str | None = None  # train or evaluate, after `aiayn`


@contextmanager
def started_as(script: str | None, subcommand: str | None) -> Iterator[None]:
    """Within the context the process is known to be `python SCRIPT ...` or `aiayn SUBCOMMAND ...`."""
    global _script, _subcommand
    before = _script, _subcommand
    _script, _subcommand = Path(script).resolve() if script else None, subcommand
    try:
        yield
    finally:
        _script, _subcommand = before


def conf_folder() -> Path:
    """Returns conf/ beside the script that was started, or in the installed package, or in this file's checkout."""
    here = Path(__file__).resolve()
    folders = [_script.with_name("conf")] if _script else []
    folders += [here.parents[1] / "conf", here.parents[3] / "conf"]
    return next((folder for folder in folders if (folder / "train.yaml").is_file()), folders[-1])


def process(command: str) -> list[str]:
    """Returns the beginning of the command that starts `train` or `evaluate` in a process of its own."""
    if _script:
        return [sys.executable, str(_script.with_name(f"{command}.py"))]
    return [sys.executable, "-m", "aiayn", command]


def same_again() -> list[str]:
    """Returns the command that starts this program with the same arguments, for another rank.

    Raises ConfigError in a notebook, which cannot be started again.
    """
    if _subcommand:
        return [sys.executable, "-m", "aiayn", _subcommand, *sys.argv[1:]]
    if _in_notebook() or not os.path.isfile(sys.argv[0]):
        raise ConfigError(
            "trainer.devices: a notebook trains on one device; for more use aiayn train trainer.devices=N"
        )
    return [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel; other programs may have imported ipykernel, too."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and kernel.IPKernelApp.initialized()


def typed(command: str) -> str:
    """Returns the beginning of a command as people type it here: `python evaluate.py` or `aiayn evaluate`."""
    if _script is None:
        return f"aiayn {command}"
    return f"python {shlex.quote(str(Path(sys.argv[0]).with_name(f'{command}.py')))}"


def typed_again() -> str:
    """Returns the command line of this process as people type it."""
    program = ["aiayn", _subcommand] if _subcommand else [Path(sys.executable).name, sys.argv[0]]
    return shlex.join([*program, *sys.argv[1:]])
