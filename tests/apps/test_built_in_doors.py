"""Doors for apps: what is built in stays, and a broken package costs no other. What another package
can add
is in tests/apps/test_doors.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT

from aiayn.apps.documents.document import READERS
from aiayn.data.languages import LANGUAGE_CODES
from aiayn.doors import APPS, load_from

SHEETS = """
from typing import Annotated
from aiayn.cli.arguments import Positional
from aiayn.data.raw_text import RawPair

def read_pairs(path, src_lang, tgt_lang):
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        src, tgt = line.split(b" = ")
        yield RawPair(str(path), number, src, tgt)

def count(file: Annotated[str, Positional(metavar="FILE", help="Lines.")]) -> None:
    "Counts lines."
    print(len(open(file).readlines()))
"""
ENTRY_POINTS = """
[aiayn.readers]
tmx = sheets:read_pairs
[aiayn.commands]
count = sheets:count
broken = sheets_gone:count
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """The folder of an installed package that has an app for each door."""
    folder = tmp_path / "site-packages"
    about = folder / "sheets-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "sheets.py").write_text(SHEETS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sheets\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "sheets", raising=False)
    return folder


def test_what_is_built_in_is_replaced_by_no_other_package(package):
    assert load_from("aiayn.readers", "tmx").__module__ == "aiayn.apps.localisation.readers"


def test_a_command_of_another_package_runs_and_a_broken_one_costs_no_other(package, tmp_path):
    (tmp_path / "x").write_text("1\n2\n3\n")

    ended = subprocess.run(
        [sys.executable, "-m", "aiayn", "count", str(tmp_path / "x")],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{package}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr
    assert "aiayn broken: cannot be loaded" in ended.stderr


@pytest.mark.parametrize("door", APPS)
def test_every_built_in_app_can_be_loaded(door):
    assert all(callable(load_from(door, name)) for name in APPS[door])


def test_no_suffix_of_a_document_is_a_languages_code():
    """A file x.de is lines of German, whatever apps are installed."""
    assert {*READERS} & {*LANGUAGE_CODES.values()} == set()
