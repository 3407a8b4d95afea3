"""What an installation costs: packages, megabytes and seconds of `make install` and `make test`.

    python benchmarks/install.py COMMIT [--other COMMIT]

Clones this repository into a temporary folder for each commit, and has its Makefile make the
environments of both targets there, for CPUs; no test is run. Packages are counted without pip,
setuptools and this program, megabytes without bytecode. Seconds are those from nothing, downloads
included, which depend on the network; processor seconds do not.
"""

import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import parse_options, report

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = {"make install": ".venv/.installed", "make test": ".venv/.installed-dev"}
NOT_COUNTED = ("pip-", "setuptools-", "aiayn-", "__editable__")


def clone(commit: str, folder: Path) -> str:
    """Clones this repository at a commit and returns the commit's hash."""
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, folder], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--detach", commit], cwd=folder, check=True)
    return subprocess.check_output(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=folder, text=True
    ).strip()


def make(folder: Path, target: str) -> tuple[float, float]:
    """Makes a target of the clone's Makefile. Returns seconds and processor seconds."""
    # Neither the environment of this script nor modules that it finds elsewhere.
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = ["make", "--silent", "TORCH=cpu", target]
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def megabytes(folder: Path) -> float:
    """Returns the size of a folder's files, without links and bytecode."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc") / 1e6


def environment_of(folder: Path) -> dict[str, Any]:
    """Returns what the clone's environment holds, with torch and without it."""
    [packages] = folder.glob(".venv/lib/python*/site-packages")
    names = [path.name for path in packages.glob("*.dist-info")]
    size = megabytes(packages)
    return {
        "packages": sum(not name.startswith(NOT_COUNTED) for name in names),
        "mb": size,
        "mb_without_torch": size - megabytes(packages / "torch"),
    }


def measured(commit: str) -> list[dict[str, Any]]:
    """Returns a row for each target. The second one's environment extends that of the first."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "clone")
        commit, seconds, cpu_seconds = clone(commit, folder), 0.0, 0.0
        makefile = (folder / "Makefile").read_text(encoding="utf-8")
        for target, installed in INSTALLED.items():
            # Older Makefiles have one environment for both.
            if installed in makefile:
                further, further_cpu = make(folder, installed)
                seconds, cpu_seconds = seconds + further, cpu_seconds + further_cpu
            row = {"at": commit, "target": target, **environment_of(folder)}
            rows.append(row | {"seconds": seconds, "cpu_s": cpu_seconds})
    return rows


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, {"commit": None}, other=None)
    commits = [commit for commit in (options.other, options.commit) if commit]
    report("install", [row for commit in commits for row in measured(commit)], options.out)


if __name__ == "__main__":
    main()
