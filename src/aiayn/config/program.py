"""How this process was started, `python train.py` or `aiayn train`, and so what starts its other
processes.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiayn.errors import ConfigError

_script: Path | None = None  # train.py or evaluate.py, if one of these was started
_subcommand: str | None = None  # train or evaluate, after `aiayn`


@contextmanager
def started_as(script: str | None, subcommand: str | None) -> Iterator[None]:
    """Names this process `python SCRIPT ...` or `aiayn SUBCOMMAND ...` within the context."""
    global _script, _subcommand
    previous = _script, _subcommand
    _script, _subcommand = Path(script).resolve() if script else None, subcommand
    try:
        yield
    finally:
        _script, _subcommand = previous


def conf_folder() -> Path:
    """Returns conf/ beside the script that was started, or in the installed package, or in this
    file's checkout.
    """
    this_file = Path(__file__).resolve()
    folders = [_script.with_name("conf")] if _script else []
    folders += [this_file.parents[1] / "conf", this_file.parents[3] / "conf"]
    return next((folder for folder in folders if (folder / "train.yaml").is_file()), folders[-1])


def process(command: str) -> list[str]:
    """Returns the beginning of the command that starts `train` or `evaluate` in a process of its
    own.
    """
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
            "trainer.devices: a notebook trains on one device; for more use aiayn train "
            "trainer.devices=N"
        )
    return [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]


def _in_notebook() -> bool:
    """Returns whether this process is a notebook's kernel; other programs may have imported
    ipykernel, too.
    """
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and kernel.IPKernelApp.initialized()


def typed(command: str) -> str:
    """Returns the beginning of a command as people type it here: `python evaluate.py` or `aiayn
    translate`.
    """
    if _script is None or command not in ("train", "evaluate"):
        return f"{_in_environment('aiayn')} {command}"
    script = Path(sys.argv[0]).with_name(f"{command}.py")
    return f"{_in_environment('python')} {shlex.quote(str(script))}"


def typed_again() -> str:
    """Returns the command line of this process as people type it."""
    program, script = ("aiayn", _subcommand) if _subcommand else ("python", sys.argv[0])
    return shlex.join([_in_environment(program), script, *sys.argv[1:]])


def _in_environment(name: str) -> str:
    """Returns a program's name, with its folder if this environment is not active in the shell, as
    under `make`.
    """
    folder = Path(sys.executable).parent
    on_path = str(folder) in os.environ.get("PATH", "").split(os.pathsep)
    if on_path or sys.prefix == sys.base_prefix or not (folder / name).exists():
        return name
    return str(folder / name).removeprefix(f"{Path.cwd()}{os.sep}")


def extension_flags(files: Sequence[str]) -> str:
    """Returns the flags that name extensions to a command, each after a space."""
    return "".join(f" --extension {shlex.quote(file)}" for file in files)
