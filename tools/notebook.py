"""Execute examples/tour.ipynb and store its outputs, about five processor minutes.

    python tools/notebook.py

It needs the packages of the tests. The notebook's metadata names the commit that made the outputs.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from aiayn.files import atomic_write

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples/tour.ipynb"


def executed() -> nbformat.NotebookNode:
    """Return the notebook as it runs in an empty folder, so that it trains anew."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # As in an active environment, in which printed commands name no path.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=3600, coalesce_streams=True, resources={"metadata": {"path": folder}}
        ).execute()
    return notebook


def main() -> None:
    """Run the notebook and write it back."""
    notebook = executed()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day, which differ each time
    notebook.metadata["language_info"] = {"name": "python"}
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    notebook.metadata["commit"] = subprocess.check_output(commit, text=True).strip()
    atomic_write(NOTEBOOK, nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    main()
