"""A reader, a document, an exporter and a command of another package, as docs/apps.md has them."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from applications import ROOT, composed, run_application

from aiayn.data.sources import FileText
from aiayn.data.tokenizer import Tokenizer
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint, save

PAGE = (ROOT / "docs/apps.md").read_text(encoding="utf-8")
SIZES = ("model.n_layers=1", "model.d_model=12", "model.d_ff=20", "model.n_heads=2")


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """The package of the page, installed in a folder that is on the path."""
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [project] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    folder = tmp_path / "site"
    (folder / "my_app-1.0.dist-info").mkdir(parents=True)
    (folder / "my_app.py").write_text(code)
    (folder / "my_app-1.0.dist-info/METADATA").write_text("Name: my-app\nVersion: 1.0\n")
    groups = tomllib.loads(project)["project"]["entry-points"]
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in names.items()))
    ]
    (folder / "my_app-1.0.dist-info/entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "my_app", raising=False)
    return folder


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    config = composed("data=files", "data.train=x", "data.val=x", *SIZES)
    tokenizer = Tokenizer.train([["the old house", "das alte Haus"]], 270)
    weights = Transformer(config.model, tokenizer.vocab_size).state_dict()
    path = tmp_path / "last.ckpt"
    save(path, Checkpoint(37, config, weights, tokenizer.to_json(), "corpus", 1, []))
    return path


def test_another_package_reads_training_text_of_its_suffix(installed, tmp_path):
    (tmp_path / "x.pipes").write_text("the house | das Haus\na cat | eine Katze\n")

    sources, targets = FileText("data.train", [str(tmp_path / "x.pipes")], ("en", "de")).read()

    assert (sources, targets) == (["the house", "a cat"], ["das Haus", "eine Katze"])


def test_another_package_divides_documents_of_its_suffix(installed, checkpoint, tmp_path):
    (tmp_path / "play.script").write_text("ANNA: the house\n(1984)\n")

    outcome = run_application(
        "aiayn", "translate", str(checkpoint), str(tmp_path / "play.script"), "--engine", "torch"
    )

    assert outcome.code == 0, outcome.err
    assert re.fullmatch(r"ANNA: .*\n\(1984\)\n", outcome.out)


@pytest.mark.slow
def test_another_package_exports_and_has_a_command(installed, checkpoint, tmp_path):
    folder = tmp_path / "folder"
    arguments = ("export", str(checkpoint), str(folder), "--format", "tokenizer")
    assert run_application("aiayn", *arguments).code == 0
    assert Tokenizer.from_json((folder / "tokenizer.json").read_text()).encode(["house"])

    paths = os.pathsep.join([str(installed), str(ROOT / "src")])
    command = subprocess.run(
        [sys.executable, "-m", "aiayn", "age", str(checkpoint)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )

    assert command.stdout == "37\n", command.stderr
