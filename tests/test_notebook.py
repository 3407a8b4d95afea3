"""examples/tour.ipynb: it runs from top to bottom, and shows the package rather than a copy of
it.
"""

import ast
import base64
import io
import os
import re
import runpy

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from applications import ROOT

NOTEBOOK = nbformat.read(ROOT / "examples/tour.ipynb", as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]


def said(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell prints, but for what depends on the machine: times, and sums of floats that were
    rounded on their way.
    """
    text = "".join(output.get("text", "") for output in cell.outputs)
    of_training = (
        r"(?<=loss )\d+\.\d+|(?<=[a-z] )\d+\.\d+|[\d,]+ tokens/s|\d+:\d\d:\d\d|at step \d+|"
        r"^ -\d\.\d{3}  .*"  # a translation with its score
    )
    return [
        re.sub(of_training, "#", line) if line.startswith(("step ", "scores ", " -")) else line
        for line in text.split("\n")
        if not line.startswith(("device ", "best ", "  hypothesis ", " " * 9))
    ]


def pictures(cell: nbformat.NotebookNode) -> list[np.ndarray]:
    encoded = [output.data["image/png"] for output in cell.outputs if "data" in output]
    return [plt.imread(io.BytesIO(base64.b64decode(png))) for png in encoded]


@pytest.mark.slow
def test_the_tour_shows_what_is_stored(monkeypatch):
    """It trains as quickstart does, in minutes; tools/notebook.py stores what it shows now."""
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which `executed` changes
    executed = runpy.run_path(str(ROOT / "tools/notebook.py"))["executed"]

    shown = [cell for cell in executed().cells if cell.cell_type == "code"]

    assert [said(cell) for cell in shown] == [said(cell) for cell in CODE]
    for now, stored in zip(shown, CODE, strict=True):
        before, after = pictures(stored), pictures(now)
        assert [picture.shape for picture in after] == [picture.shape for picture in before]
        # The last one shows what a model has learned, which differs a little between machines.
        assert all(np.abs(a - b).mean() < 0.02 for a, b in zip(after, before, strict=True))
    assert "Der junge Lehrer" in shown[-2].outputs[0].text


def test_the_tour_is_stored_with_what_it_shows_and_names_no_path_of_this_machine():
    shown = [output for cell in CODE for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in shown) >= 3
    assert not re.search(
        r"(?<![\w.])/(work|root|home|tmp)/", "".join(output.get("text", "") for output in shown)
    )
    assert not [output for output in shown if output.output_type == "error"]


def test_the_tour_defines_nothing_that_the_package_has():
    for cell in CODE:
        assert not [
            node
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
