"""The W&B workspace, built by the real package; only saving it would need an account."""

import json

import pytest
from applications import run_application
from wandb_file import SPEED, TRAINING, VALIDATION

from aiayn.reports.wandb_workspace import definition

pytest.importorskip("wandb_workspaces", reason="the extra `dashboard` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own


@pytest.fixture(scope="module")
def sections():
    view = json.loads(definition("team", "aiayn"))
    assert (view["entity"], view["project"]) == ("team", "aiayn")
    return {
        found["name"]: found["panels"]
        for found in view["spec"]["section"]["panelBankConfig"]["sections"]
    }


def test_its_curves_are_series_that_a_run_logs_by_step_and_no_series_is_forgotten(sections):
    curves = [
        panel["config"]
        for panels in sections.values()
        for panel in panels
        if "Line Plot" in panel["viewType"]
    ]
    assert {curve["xAxis"] for curve in curves} == {"trainer/global_step"}
    drawn = {metric for curve in curves for metric in curve["metrics"]}
    assert drawn == TRAINING | SPEED | VALIDATION | {"perf/mfu", "train/skipped_steps"}


def test_the_command_prints_the_definition_where_there_is_no_key(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    outcome = run_application("aiayn", "dashboard", "--project", "mine")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["project"] == "mine"


@pytest.fixture
def key_that_works(monkeypatch):
    monkeypatch.setattr("aiayn.training.wandb_run.wandb_mode", lambda chosen: "online")


def test_with_a_key_the_command_saves_the_workspace_and_says_where_it_is(
    monkeypatch, key_that_works
):
    saved = []

    def save(workspace):
        saved.append(
            (workspace.entity, workspace.project, [section.name for section in workspace.sections])
        )

    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.save", save)
    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.url", "an address")
    outcome = run_application("aiayn", "dashboard", "--project", "mine", "--entity", "team")
    assert outcome == (0, "an address\n", "")
    assert saved == [("team", "mine", ["Training", "Translation quality", "Performance", "Sweep"])]


def test_what_the_server_refuses_is_one_line_and_exit_code_6(monkeypatch, key_that_works):
    def refuse(workspace):
        raise ValueError("no such\nproject")

    monkeypatch.setattr("wandb_workspaces.workspaces.Workspace.save", refuse)
    outcome = run_application("aiayn", "dashboard", "--project", "mine", "--entity", "team")
    assert (outcome.code, outcome.out) == (6, "")
    assert outcome.err.startswith(
        "error: --project mine: W&B did not take the workspace (no such project); check the"
    )


def test_the_missing_package_is_one_line_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb_workspaces.reports.v2.interface", None)
    outcome = run_application("aiayn", "dashboard", "--show")
    assert outcome.code == 2
    assert (
        outcome.err == "error: wandb-workspaces is not installed: pip install 'aiayn[dashboard]'\n"
    )
