"""LaTeX compiles with booktabs alone, whatever the cells say."""

import re
import shutil
import subprocess

import pytest

from aiayn.reports.differences import Difference, Sample
from aiayn.reports.paper_tables import paper_tables
from aiayn.reports.tables import Column, Table, csv_text, json_text, latex, markdown, text

NASTY = r'a & b % $x$ #1 _u_ {b} \cmd ~ ^ < > | " – ± § é ü “q” … · [x] *'
# Commands of LaTeX itself and of booktabs; \text, for instance, would need amsmath.
KNOWN = {
    "usepackage",
    "begin",
    "end",
    "centering",
    "caption",
    "toprule",
    "midrule",
    "bottomrule",
    "boldmath",
    "mathrm",
}
KNOWN |= {
    "ensuremath",
    "epsilon",
    "pm",
    "cdot",
    "textbackslash",
    "textasciitilde",
    "textasciicircum",
    "textbar",
}


@pytest.fixture
def tables() -> list[Table]:
    columns = [
        Column("a", NASTY),
        Column("b", "b", 2),
        Column("c", "FLOPs", spec=".2g"),
        Column("d", "difference", 1),
    ]
    records = [
        {
            "a": NASTY,
            "b": Sample({0: 1.5, 1: 2.5}),
            "c": 1.2e19,
            "d": Difference(1234.5, 1, 2, 0.03, 0.04),
        },
        {"a": "[x]", "b": 1.0, "c": None, "d": Difference(-3)},
        {"a": "* star", "b": None, "c": 2.5e9, "d": None},
    ]
    return [
        *(table for table in paper_tables([], every_row=True) if table.shown),
        Table(NASTY, columns, records, [NASTY], [f"{NASTY}\n{NASTY}"]),
    ]


def test_latex_has_a_cell_for_every_column_and_only_commands_of_booktabs(tables):
    whole = latex(tables)
    lines = [line for line in whole.split("\n") if not line.startswith("%")]
    assert set(re.findall(r"\\([a-zA-Z]+)", re.sub(r"\\\\", "", "\n".join(lines)))) <= KNOWN
    parts = re.findall(r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", whole, re.DOTALL)
    assert len(parts) == len(tables)
    for (places, body), table in zip(parts, tables, strict=True):
        rows = [line for line in body.split("\n") if line and not line.startswith("\\")]
        assert len(rows) == len(table.shown) + 1
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(places) - 1}
        assert all(row.endswith(r" \\") and not row.startswith(("[", "*")) for row in rows)


def test_text_of_cells_is_escaped():
    table = Table("", [Column("a", "a")], [{"a": "x_1 & y|z"}])
    assert r"x\_1 \& y\textbar{}z \\" in latex([table])
    assert r"x_1 & y\|z" in markdown([table])


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex and booktabs")
def test_pdflatex_sets_it_without_an_error(tables, tmp_path):
    page = "\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(page.format(latex(tables)))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_run_of_somebody_elses_controls_the_terminal():
    records = [{"name": "\x1b[2J\ud800"}]
    table = Table("Runs", [Column("name")], records, before=["\x1b[2J"], after=["\x9b2J"])
    for written in (
        text([table]),
        markdown([table]),
        latex([table]),
        csv_text(table),
        json_text([table], ["\x9b"]),
    ):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", written)
        written.encode()
