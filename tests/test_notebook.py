"""examples/tour.ipynb: it runs from top to bottom, and shows the package rather than a copy of
it.
"""

import ast
import re

import nbformat
import pytest
from applications import ROOT, TEXT, TINY, write_text
from nbclient import NotebookClient

NOTEBOOK = nbformat.read(ROOT / "examples/tour.ipynb", as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_the_tour_runs_and_ends_with_a_translation_and_its_attention(tmp_path):
    write_text(tmp_path)
    tour = nbformat.from_dict(NOTEBOOK)
    [chosen] = [cell for cell in tour.cells if "options = [" in cell.source]
    chosen.source += f"\noptions = {[*TEXT, *TINY, 'model.dropout=0.1', 'name=tour']}"

    NotebookClient(tour, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()

    *_, train, translation, attention = (cell for cell in tour.cells if cell.cell_type == "code")
    assert (tmp_path / "outputs/tour/checkpoints/averaged.ckpt").exists()
    assert "step 2/2" in "".join(output.get("text", "") for output in train.outputs)
    assert translation.outputs[0].text.startswith("The young teacher")
    assert "image/png" in attention.outputs[0].data


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
