"""Files made to run code, and secrets: whatever reads them, nothing runs, nothing leaves its folder
or gets into it.
"""

import copy
import json
import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
import wandb
import yaml
from applications import TEXT, TINY, run_application, slow_but, spare_the_pictures, write_text
from runs.test_checkpoints import Evil, sealed

TRAIN = ("train.py", *TEXT, *TINY, "name=run")
RUN = "outputs/run"
# Everything that reads what a run left.
READERS = [
    (*TRAIN, "trainer.max_steps=3"),
    ("evaluate.py", f"run={RUN}", "accelerator=cpu"),
    ("aiayn", "translate", RUN, "dev.en", "--accelerator", "cpu"),
    ("aiayn", "table", RUN),
    ("aiayn", "report", RUN),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A working directory with text and a finished run."""
    folder = tmp_path_factory.mktemp("trained")
    write_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ended = run_application(*TRAIN)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture
def place(trained, tmp_path, monkeypatch) -> Path:
    """A copy of it, two folders deep, in which attacks may be laid."""
    folder = tmp_path / "inner" / "place"
    shutil.copytree(trained, folder)
    monkeypatch.chdir(folder)
    spare_the_pictures(monkeypatch)
    return folder


def payload(path: Path) -> dict:
    return torch.load(path, weights_only=True)


def archive(content: dict) -> bytes:
    buffer = BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def with_members(stored: bytes, names: list[str]) -> bytes:
    """The archive with further members of those names."""
    buffer = BytesIO(stored)
    with zipfile.ZipFile(buffer, "a") as file:
        for name in names:
            file.writestr(name, "out of place")
    return buffer.getvalue()


def with_config(content: dict, path: str, value: object) -> dict:
    changed = copy.deepcopy(content)
    *sections, name = path.split(".")
    section = changed["config"]
    for key in sections:
        section = section[key]
    section[name] = value
    return changed


CALL = {"_target_": "builtins.exec", "_args_": ["open('sentinel', 'w').close()"]}
OUTSIDE = ["../../sentinel", "archive/../../../sentinel", "/tmp/sentinel-of-aiayn", "..\\sentinel"]

# A checkpoint's content as it was, and where the sentinel would be: what its file holds instead.
CHECKPOINTS = {
    "a pickle instead of tensors": lambda content, sentinel: archive(
        content | {"step": Evil(sentinel)}
    ),
    "a pickle among the weights": lambda content, sentinel: archive(
        content | {"weights": content["weights"] | {"x": Evil(sentinel)}}
    ),
    "a pickle in the configuration": lambda content, sentinel: archive(
        with_config(content, "model.d_ff", Evil(sentinel))
    ),
    "a bare pickle": lambda content, sentinel: pickle.dumps(Evil(sentinel)),
    "members outside the archive": lambda content, sentinel: with_members(
        archive(content), OUTSIDE
    ),
    "an object to instantiate as a section": lambda content, sentinel: archive(
        with_config(content, "model", CALL)
    ),
    "an object to instantiate as a value": lambda content, sentinel: archive(
        with_config(content, "data.train", CALL)
    ),
    "one more key to instantiate": lambda content, sentinel: archive(
        with_config(content, "model._target_", "builtins.exec")
    ),
    "a name that leaves the folder": lambda content, sentinel: archive(
        with_config(content, "name", "../../sentinel")
    ),
    "an interpolation": lambda content, sentinel: archive(
        with_config(content, "data.folder", "${oc.env:HOME}")
    ),
}


def ends_in_one_line_or_well(command: tuple[str, ...]) -> None:
    outcome = run_application(*command)
    assert outcome.code in (0, 3, 4), outcome.err
    assert "Traceback" not in outcome.err
    errors = [line for line in outcome.err.split("\n") if line.startswith("error: ")]
    assert len(errors) == (outcome.code != 0), outcome.err


def nothing_ran(place: Path, elsewhere: set[Path]) -> None:
    assert {path for path in place.parents[1].rglob("*") if "sentinel" in path.name} == set()
    assert not Path("/tmp/sentinel-of-aiayn").exists()
    assert {path for path in place.parents[1].rglob("*") if place not in path.parents} == elsewhere


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")  # torch's, of the bare pickle
@pytest.mark.parametrize("attack", slow_but([*CHECKPOINTS][:1], CHECKPOINTS))
def test_a_manipulated_checkpoint_runs_nothing_and_writes_nothing_elsewhere_whoever_reads_it(
    place, attack
):
    elsewhere = {path for path in place.parents[1].rglob("*") if place not in path.parents}
    for path in (place / RUN / "checkpoints").glob("*.ckpt"):
        content = CHECKPOINTS[attack](payload(path), place / "sentinel")
        path.unlink()
        path.write_bytes(sealed(content))
    for command in READERS:
        ends_in_one_line_or_well(command)
    nothing_ran(place, elsewhere)


def test_manipulated_optimizer_states_run_nothing(place):
    elsewhere = {path for path in place.parents[1].rglob("*") if place not in path.parents}
    for path in (place / RUN / "checkpoints").glob("*.optim"):
        path.write_bytes(sealed(archive(payload(path) | {"loops": Evil(place / "sentinel")})))
    outcome = run_application(*TRAIN, "trainer.max_steps=3")
    assert outcome.code == 4, outcome.err
    assert "more than tensors and values" in outcome.err
    nothing_ran(place, elsewhere)


YAML = {
    "tag": "model: !!python/object/apply:os.system ['touch sentinel']\n",
    "name": "model: !!python/name:os.system\n",
    "target": yaml.safe_dump({"model": CALL}),
    "nested target": yaml.safe_dump({"trainer": {"max_steps": CALL}}),
    "list": "[1, 2]\n",
    "bomb": "a: &a [x, x]\n"
    + "".join(f"{n}: &{n} [*{m}, *{m}]\n" for m, n in zip("abcdefg", "bcdefgh", strict=True)),
}


@pytest.mark.parametrize("attack", slow_but([*YAML][:1], YAML))
def test_a_manipulated_configuration_of_a_run_is_data_whoever_reads_it(place, attack):
    elsewhere = {path for path in place.parents[1].rglob("*") if place not in path.parents}
    (place / RUN / "config.yaml").write_text(YAML[attack])
    for command in READERS:
        ends_in_one_line_or_well(command)
    nothing_ran(place, elsewhere)


def test_pickled_arrays_in_a_prepared_corpus_run_nothing_even_if_the_manifest_names_them(place):
    elsewhere = {path for path in place.parents[1].rglob("*") if place not in path.parents}
    [manifest] = (place / "data").glob("*/manifest.json")
    path = manifest.with_name("train.src.npy")
    np.save(path, np.array([Evil(place / "sentinel")] * 3, dtype=object), allow_pickle=True)
    noted = json.loads(manifest.read_text())
    from aiayn.files import sha256

    noted["files"][path.name] = {"size": path.stat().st_size, "sha256": sha256(path)}
    manifest.write_text(json.dumps(noted))
    outcome = run_application(*TRAIN[:-1], "name=other")
    assert outcome.code == 0, outcome.err
    assert "is damaged" in outcome.err  # numpy's own refusal, after which the corpus is built again
    nothing_ran(place, elsewhere)


def test_a_data_set_that_brings_a_script_is_read_without_it(place):
    elsewhere = {path for path in place.parents[1].rglob("*") if place not in path.parents}
    (place / "hub").mkdir()
    (place / "hub" / "hub.py").write_text(f"open({str(place / 'sentinel')!r}, 'w').close()\n")
    outcome = run_application("train.py", "data.hub_path=hub", "data.hub_name=null", *TINY)
    assert outcome.code == 3, outcome.err
    nothing_ran(place, elsewhere)


# Secrets.

SECRETS = {
    "WANDB_API_KEY": "canary" + "0123456789" * 4,
    "HF_TOKEN": "hf_canary-of-the-hub",
    "HUGGING_FACE_HUB_TOKEN": "hf_canary-of-the-old-hub",
    "AWS_SECRET_ACCESS_KEY": "canary-of-the-cloud",
    "GITHUB_TOKEN": "ghp_canary-of-the-code",
    "DATABASE_URL": "postgres://user:canary-of-the-base@host/db",
    "PASSWORD": "canary-of-the-user",
}
REMOTE = "canary-of-the-remote"


@pytest.fixture
def secretive(place, tmp_path, monkeypatch) -> Iterator[Path]:
    """A git repository with secrets in its environment, its remote's address and its user's
    home.
    """
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(home))
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    (home / ".netrc").write_text("machine api.wandb.ai login user password canary-of-the-netrc\n")
    subprocess.run(["git", "init", "-q", place], check=True)
    address = f"https://user:{REMOTE}@example.org/repository.git"
    subprocess.run(["git", "-C", place, "remote", "add", "origin", address], check=True)
    wandb.teardown()  # its service knows the environment and the folder that it was started in
    yield place
    wandb.teardown()


def canaries(folder: Path) -> list[tuple[str, str]]:
    """Every file below a folder, archives' members included, that holds a part of a secret."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            contents = [path.read_bytes()]
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as members:
                    contents += [members.read(name) for name in members.namelist()]
            found += [(str(path), "canary") for content in contents if b"canary" in content]
    return found


@pytest.mark.slow
def test_no_secret_of_the_environment_gets_into_a_run_its_logs_or_the_files_of_wandb(
    secretive, monkeypatch
):
    logged = ("logger=wandb", "logger.mode=offline", "logger.upload=true", "debug=true")
    train = (*(option for option in TRAIN if option not in ("logger=none", "name=run")), *logged)
    outcomes = [run_application(*train, "name=logged")]
    assert outcomes[0].code == 0, outcomes[0].err
    assert list((secretive / "outputs" / "logged").glob("wandb/offline-run-*/*.wandb"))
    outcomes += [
        run_application(*(word.replace(RUN, "outputs/logged") for word in command))
        for command in READERS[1:]
    ]
    # A run that fails while it logs leaves a traceback, and W&B's own account of it.
    monkeypatch.setattr("aiayn.training.module.scaled_loss", None)
    with pytest.raises(TypeError, match="not callable"):
        run_application(*train, "name=failed")
    assert list((secretive / "outputs" / "failed").glob("wandb/offline-run-*/*.wandb"))

    assert (
        len([path for path in secretive.rglob("*") if path.is_file() and "wandb" in path.parts])
        > 10
    )
    assert canaries(secretive) == []
    for outcome in outcomes:
        assert "canary" not in outcome.out + outcome.err


@pytest.mark.quick("++wandb.key=canary", "token=canary(")
@pytest.mark.parametrize(
    "override",
    [
        "api_key=canary",
        "+logger.api_key=canary",
        "++wandb.key=canary",
        "logger.password=canary",
        "+logger={token: canary}",
        "+env.WANDB_API_KEY=canary",
        "token=canary(",
        "token=[canary",
        "token=a=canary",
    ],
)
def test_a_secret_under_an_option_that_does_not_exist_is_refused_and_not_repeated(place, override):
    outcome = run_application(*TRAIN[:-1], "name=other", override)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert override.lstrip("+").partition("=")[0].split(".")[0] in outcome.err
    assert "canary" not in outcome.out + outcome.err
    assert not (place / "outputs" / "other").exists()
    assert canaries(place) == []
