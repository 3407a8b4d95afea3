"""Table 4: parsers beside the paper's figures, on section 23 only."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from applications import composed, run_application

from aiayn.config.schema import Config
from aiayn.config.stored import to_plain
from aiayn.reports.differences import Sample
from aiayn.reports.paper_tables import paper_tables
from aiayn.reports.published import SECTION_23
from aiayn.reports.runs import read_runs


def store(folder: Path, config: Config, f1: float, test_set: str | None) -> None:
    """A parser's folder, scored on its test set."""
    metrics = {"sacrebleu": None, "f1": f1, "precision": f1 + 1, "recall": f1 - 1, "complete_match": 30.0}
    result = {"metrics": metrics, "step": 70, "lines": 2416, "averaged": [], "test_set": test_set}
    result |= {"text": "split=test", "brackets": {"malformed": 12}}
    (folder / "evaluation/test").mkdir(parents=True)
    (folder / "evaluation/test/evaluation.json").write_text(json.dumps(result))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/step_80.ckpt").write_bytes(b"")  # the table reads its name only
    (folder / "config.yaml").write_text(yaml.safe_dump(to_plain(config)))


def collect(folder: Path) -> dict[str, list[dict]]:
    return paper_tables(read_runs([folder])[0]).records


@pytest.fixture
def parsers(tmp_path) -> Path:
    """The paper's parser on section 23 and on another text, and a smaller one on section 23."""
    wsj = composed("experiment=table4_wsj")
    store(tmp_path / "wsj", wsj, 90.5, SECTION_23)
    store(tmp_path / "elsewhere", wsj, 95.0, None)
    store(tmp_path / "small", replace(wsj, model=replace(wsj.model, d_model=512)), 80.0, SECTION_23)
    return tmp_path


def test_only_the_papers_model_on_section_23_stands_beside_its_figure(parsers):
    records = collect(parsers)["table_4"]

    shown = [(record["training"], Path(record["run"] or "none").name, record["paper_f1"]) for record in records]
    assert shown == [
        ("WSJ only", "wsj", 91.3),
        ("semi-supervised", "none", 92.7),
        (None, "elsewhere", None),
        (None, "small", None),
    ]
    assert records[0]["f1_difference"] == pytest.approx(-0.8)
    assert records[0]["f1"] == Sample({0: 90.5})
    assert (records[0]["malformed"], records[0]["steps"], records[1]["f1"]) == (12, 70, None)


def test_parsers_stand_in_no_table_of_translations(parsers):
    tables = collect(parsers)

    assert not any(record["run"] for name in ("table_2", "table_3") for record in tables[name])


def test_the_table_prints_rows_that_were_not_run_as_such(parsers):
    done = run_application("aiayn", "table", str(parsers), "--all", "--format", "markdown")

    assert done.code == 0
    lines = done.out.partition("## Table 4")[2].split("\n")
    [wsj, semi] = [line for line in lines if line.startswith("| Transformer")]
    assert [cell.strip() for cell in wsj.split("|")[4:11]] == [
        *("90.50", "91.3", "-0.80", "91.50", "89.50", "30.00", "12")
    ]
    assert [cell.strip() for cell in semi.split("|")[4:6]] == ["not run", "92.7"]
    assert sum(line.startswith("| other") for line in lines) == 2
