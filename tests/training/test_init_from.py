"""Fine-tuning: what a run that starts from another one takes from it, what it refuses, and how it
continues.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from applications import run_application, stopped_in

from aiayn.config.compose import chosen_options, compose_training
from aiayn.config.schema import Config
from aiayn.config.stored import changed_options
from aiayn.data.preparation import prepare_corpus
from aiayn.data.text_files import read_lines
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.run_folder import RunFolder, read_jsonl
from aiayn.search.translator import load_translator
from aiayn.sweep.jobs import is_from_source
from aiayn.token_ids import BOS_ID, EOS_ID
from aiayn.training.init_from import resolve_init_from, weights_sha256
from aiayn.training.log_start import log_source
from aiayn.training.resume import run_lock
from aiayn.training.run import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def parent(config, trained, tmp_path) -> Path:
    """A finished run, trained once for all tests; a copy, since some of them damage it."""
    if not (trained / "parent").exists():
        train(
            replace(
                config, name="parent", trainer=replace(config.trainer, max_steps=6, val_every=6)
            ),
            trained,
        )
        (trained / "parent" / "averaged.json").unlink(missing_ok=True)
    return shutil.copytree(trained / "parent", tmp_path / "parent")


@pytest.fixture
def child(config, parent, tmp_path, write_pairs) -> Config:
    """Other text than the parent's, six steps."""
    write_pairs(tmp_path / "new", 90, seed=11)
    write_pairs(tmp_path / "new_val", 9, seed=12)
    text = {
        "train": str(tmp_path / "new"),
        "val": str(tmp_path / "new_val"),
        "folder": str(tmp_path / "prepared"),
    }
    return replace(
        config,
        name="child",
        init_from=str(parent),
        data=replace(config.data, **text),
        trainer=replace(config.trainer, max_steps=6, val_every=1),
    )


def averaged(run: Path) -> checkpoints.Checkpoint:
    return checkpoints.load(run / "checkpoints" / "averaged.ckpt")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def series(run: Path, name: str) -> dict[int, float]:
    return {
        record["step"]: record[name]
        for record in read_jsonl(run / "metrics.jsonl")
        if name in record
    }


@torch.no_grad()
def loss_on_text(checkpoint: checkpoints.Checkpoint, prefix: str) -> float:
    """Smoothed loss per target token, pair by pair."""
    model, tokenizer = (
        load_translator(checkpoint, accelerator="cpu").model,
        Tokenizer.from_json(checkpoint.tokenizer),
    )
    total, count = 0.0, 0
    for src, tgt in zip(
        *(read_lines(Path(f"{prefix}.{lang}.gz")) for lang in ("en", "xx")), strict=True
    ):
        src_ids, tgt_ids = tokenizer.encode([src, tgt])
        mask = torch.ones(1, 1, 1, len(src_ids) + 1, dtype=torch.bool)
        logits = model(torch.tensor([[*src_ids, EOS_ID]]), torch.tensor([[BOS_ID, *tgt_ids]]), mask)
        wanted = torch.tensor([*tgt_ids, EOS_ID])
        total += float(
            torch.nn.functional.cross_entropy(
                logits[0], wanted, reduction="sum", label_smoothing=0.1
            )
        )
        count += len(wanted)
    return total / count


def test_a_run_starts_from_exactly_the_weights_that_it_is_given(child, parent, tmp_path):
    # A rate so small that no weight moves shows the weights of the beginning.
    still = replace(
        child,
        optim=replace(child.optim, lr_scale=1e-30),
        trainer=replace(child.trainer, max_steps=1, average_last=1),
    )
    run = train(still, tmp_path)
    source, started = averaged(parent), averaged(run)
    assert same(started.weights, source.weights)
    assert started.tokenizer == source.tokenizer
    assert list(series(run, "val/loss")) == [0, 1]
    assert series(run, "val/loss")[0] == pytest.approx(
        loss_on_text(source, child.data.val), rel=1e-5
    )
    assert series(run, "val/loss")[1] == series(run, "val/loss")[0]


@pytest.mark.slow
def test_optimizer_and_schedule_start_afresh(child, parent, tmp_path):
    run = train(child, tmp_path)
    assert not same(averaged(run).weights, averaged(parent).weights)
    assert series(run, "train/lr") == series(parent, "train/lr")
    states = checkpoints.read_tensors(
        checkpoint_folder.optimizer_path(run / "checkpoints" / "step_6.ckpt")
    )["lightning"]["optimizer_states"]
    assert {int(state["step"]) for state in states[0]["state"].values()} == {6}


@pytest.mark.slow
def test_the_source_is_the_default_checkpoint_of_a_run_or_the_file_named(child, parent, tmp_path):
    place = parent / "checkpoints"

    def started_from(init_from: Path, name: str) -> str:
        once = replace(
            child, name=name, init_from=str(init_from), trainer=replace(child.trainer, max_steps=1)
        )
        return averaged(train(once, tmp_path)).config.init_fingerprint

    averages, last = (
        weights_sha256(checkpoints.load(place / f"{name}.ckpt").weights)
        for name in ("averaged", "last")
    )
    third = weights_sha256(checkpoints.load(place / "step_3.ckpt").weights)
    assert len({averages, last, third}) == 3
    assert started_from(parent, "a") == averages
    assert started_from(place / "step_3.ckpt", "b") == third
    (place / "best.ckpt").unlink(missing_ok=True)
    shutil.copy(place / "step_3.ckpt", place / "best.ckpt")
    for worse, source in ((False, averages), (True, third)):
        (parent / "averaged.json").write_text(json.dumps({"worse": worse}))
        assert started_from(parent, f"worse_{worse}") == source
    (place / "averaged.ckpt").unlink()
    assert started_from(parent, "c") == last


@pytest.mark.slow
def test_what_the_user_did_not_set_follows_the_source_and_is_recorded(child, parent, tmp_path):
    source = averaged(parent)
    model = replace(child.model, n_layers=6, d_model=512, d_k=64, d_v=64, n_heads=8, dropout=0.05)
    other = replace(
        child, model=model, data=replace(child.data, vocab_size=8000, tokenizer_pairs=70)
    )
    for name, chosen, dropout in (("a", (), 0.2), ("b", ("model.dropout", "data.train"), 0.05)):
        run = train(
            replace(other, name=name, trainer=replace(child.trainer, max_steps=1)), tmp_path, chosen
        )
        stored = yaml.safe_load((run / "config.yaml").read_text())
        assert stored["model"] == vars(source.config.model) | {"dropout": dropout}
        assert (stored["data"]["vocab_size"], stored["data"]["tokenizer_pairs"]) == (290, None)
        assert (stored["init_from"], stored["init_fingerprint"]) == (
            str(parent),
            weights_sha256(source.weights),
        )
        assert averaged(run).tokenizer == source.tokenizer


@pytest.mark.parametrize(
    ("section", "option", "value", "message"),
    [
        ("model", "n_layers", 3, r"model\.n_layers: 2 -> 3"),
        ("model", "d_k", 6, r"model\.d_k: 5 -> 6"),
        ("model", "attention_window", 4, r"model\.attention_window: null -> 4"),
        ("data", "vocab_size", 300, r"data\.vocab_size: 290 -> 300"),
        ("data", "tokenizer_pairs", 50, r"data\.tokenizer_pairs: null -> 50"),
    ],
)
def test_options_that_contradict_the_source_are_refused_and_nothing_is_written(
    child, tmp_path, section, option, value, message
):
    wrong = replace(child, **{section: replace(getattr(child, section), **{option: value})})
    for chosen in (None, [f"{section}.{option}"]):
        with pytest.raises(
            RefusedError,
            match=rf"determines model and tokenizer \({message}\); leave these options out",
        ):
            train(wrong, tmp_path, chosen)
    assert not (tmp_path / "child").exists()
    assert not (tmp_path / "prepared").exists()


def test_sources_that_are_missing_damaged_or_other_than_said_are_refused(child, parent, tmp_path):
    with pytest.raises(
        ConfigError, match="nowhere: no such run or checkpoint; name the folder of a run"
    ):
        train(replace(child, init_from=str(tmp_path / "nowhere")), tmp_path)
    with pytest.raises(ConfigError, match=rf"no such run or checkpoint; did you mean {parent}\?"):
        train(replace(child, init_from=f"{parent}s"), tmp_path)
    with pytest.raises(ConfigError, match="neither a run"):
        train(replace(child, init_from=str(tmp_path)), tmp_path)
    with pytest.raises(
        RefusedError,
        match=rf"^init_fingerprint=0123: the weights of init_from=\S+ have the SHA-256 "
        rf"{averaged_fingerprint(parent)}; .* leave out init_fingerprint",
    ):
        train(replace(child, init_fingerprint="0123"), tmp_path)
    with open(parent / "checkpoints" / "averaged.ckpt", "r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    with pytest.raises(RefusedError, match=r"init_from=.*averaged\.ckpt: damaged"):
        train(child, tmp_path)
    assert not (tmp_path / "child").exists()


def averaged_fingerprint(run: Path) -> str:
    return weights_sha256(averaged(run).weights)


def test_a_run_cannot_start_from_itself(child, parent, tmp_path):
    with pytest.raises(
        RefusedError, match=r"started with other options \(init_from: null -> .*name="
    ):
        train(replace(child, name="parent"), tmp_path)


@pytest.mark.slow
def test_a_fine_tuned_run_continues_to_the_bit_when_its_source_is_gone(child, parent, tmp_path):
    whole = train(child, tmp_path)
    with stopped_in(3):
        train(replace(child, name="stopped"), tmp_path)
    shutil.rmtree(parent)
    stopped = train(replace(child, name="stopped"), tmp_path)
    for name in ("train/loss", "val/loss"):
        assert series(stopped, name) == series(whole, name)
    assert same(averaged(stopped).weights, averaged(whole).weights)
    assert averaged(stopped).config.init_fingerprint == averaged(whole).config.init_fingerprint


def test_a_tokenizer_that_is_asked_for_and_would_be_ignored_is_refused(child, tmp_path):
    other = replace(child, data=replace(child.data, tokenizer="unigram"))
    with pytest.raises(
        RefusedError, match=r"\(data\.tokenizer: bpe -> unigram\); leave these options out"
    ):
        train(other, tmp_path, chosen=["data.tokenizer"])


def test_the_kind_of_tokenizer_follows_the_source_and_several_machines_need_not_learn_it(
    child, parent, tmp_path
):
    source = averaged(parent)
    unigram = replace(
        source, config=replace(source.config, data=replace(source.config.data, tokenizer="unigram"))
    )
    checkpoints.save(tmp_path / "unigram.ckpt", unigram)
    found, _ = resolve_init_from(
        child, str(tmp_path / "unigram.ckpt"), RunFolder(tmp_path / "child"), ()
    )
    assert found.data.tokenizer == "unigram"
    changed = changed_options(found, child)
    assert "data.tokenizer" in changed
    assert all(map(is_from_source, changed)), "a sweep takes it for the same run"
    assert replace(found, trainer=replace(found.trainer, num_nodes=2)).data == found.data


def test_text_without_the_tags_that_the_source_had_is_warned_of(config, caplog):
    def with_train(*names: str) -> Config:
        return replace(config, init_from="multi", data=replace(config.data, train=list(names)))

    source = SimpleNamespace(config=with_train("<2de>a", "<2fr>b"), step=6, averaged=[])
    log_source(with_train("c", "<2de>d"), source)
    log_source(
        with_train("c"), SimpleNamespace(config=with_train("a", "<2fr>b"), step=6, averaged=[])
    )
    assert "tag" not in caplog.text
    log_source(with_train("c"), source)
    assert "its source sentences began with <2de>, <2fr>; write a tag" in caplog.text


def test_a_source_that_is_not_finished_is_said_to_be(config, tmp_path, caplog):
    config = replace(config, init_from=str(tmp_path))
    source = SimpleNamespace(config=config, step=4, averaged=[])
    log_source(config, source)
    steps = f"after step 4 of {config.trainer.max_steps}"
    assert f"that run is not finished: these are its weights {steps}" in caplog.text
    source.step = config.trainer.max_steps
    log_source(config, source)
    assert "that run is not averaged yet" in caplog.text
    caplog.clear()
    RunFolder(tmp_path).checkpoints.mkdir()
    RunFolder(tmp_path).averaged.touch()
    log_source(config, source)
    assert "that run is" not in caplog.text


@pytest.mark.parametrize("step", [4, "last"])
def test_a_source_that_still_runs_is_said_to_run(config, tmp_path, caplog, step):
    config = replace(config, init_from=str(tmp_path / "source"))
    step = config.trainer.max_steps if step == "last" else step
    with run_lock(RunFolder(tmp_path / "source")):
        log_source(config, SimpleNamespace(config=config, step=step, averaged=[]))
    assert (
        f"that run is still running: these are its weights after step {step} of "
        f"{config.trainer.max_steps}"
    ) in caplog.text


def test_continuing_with_another_source_is_refused(child, parent, tmp_path):
    train(replace(child, trainer=replace(child.trainer, max_steps=1)), tmp_path)
    last = str(parent / "checkpoints" / "last.ckpt")
    for other, shown in ((last, last), (None, "null")):
        with pytest.raises(RefusedError, match=f"init_from: {parent} -> {shown}"):
            train(replace(child, init_from=other), tmp_path)


def test_before_the_first_checkpoint_a_source_that_has_changed_is_refused(child, parent, tmp_path):
    run = train(replace(child, trainer=replace(child.trainer, max_steps=1)), tmp_path)
    before = averaged_fingerprint(parent)
    shutil.rmtree(run / "checkpoints")
    shutil.copy(parent / "checkpoints" / "step_3.ckpt", parent / "checkpoints" / "averaged.ckpt")
    with pytest.raises(
        RefusedError, match=f"init_fingerprint: {before} -> {averaged_fingerprint(parent)}"
    ):
        train(child, tmp_path)


def test_a_corpus_is_prepared_anew_for_another_tokenizer_of_equal_size(child, parent):
    ours = Tokenizer.from_json(averaged(parent).tokenizer)
    other = Tokenizer.train(
        [["completely other words", "ganz andere Wörter, viele verschiedene"]], 290
    )
    learnt, first, second = (
        prepare_corpus(child.data, tokenizer) for tokenizer in (None, ours, other)
    )
    assert len({found.fingerprint for found in (learnt, first, second)}) == 3
    assert [found.tokenizer.to_json() for found in (first, second)] == [
        ours.to_json(),
        other.to_json(),
    ]
    lines = read_lines(Path(f"{child.data.val}.en.gz"))
    assert sorted(first.val.pair(number)[0].tolist() for number in range(len(lines))) == sorted(
        ours.encode(lines)
    )
    assert prepare_corpus(child.data, ours).folder == first.folder


def chosen(*overrides: str) -> set[str]:
    return chosen_options(overrides, compose_training(overrides))


@pytest.mark.slow
def test_the_command_line_says_which_options_were_set():
    model = {f"model.{name}" for name in ("n_layers", "n_heads", "positions", "dropout")}
    text = ("data=files", "data.train=t", "data.val=v")
    assert chosen(*text, "++model.n_layers=3") == {
        "data",
        "data.train",
        "data.val",
        "model.n_layers",
    }
    assert model < chosen("model=tiny")
    # As in base, which nobody chose
    assert model - {"model.positions"} < chosen("experiment=multi30k")
    assert chosen("ablation=base") == {"ablation"}
    assert chosen("ablation=a_h4") == {"ablation", "model.n_heads"}
    assert chosen("experiment=quickstart") >= {"experiment"}


@pytest.mark.slow
def test_from_the_command_line_the_model_follows_and_a_contradiction_is_one_line(
    child, parent, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.move(parent, tmp_path / "outputs" / "parent")
    text = [
        "data=files",
        "data.train=new",
        "data.val=new_val",
        "data.tgt_lang=xx",
        "init_from=outputs/parent/",
    ]
    small = [
        "trainer.max_steps=1",
        "trainer.accelerator=cpu",
        "data.tokens_per_step=400",
        "logger=none",
    ]

    refused = run_application("train.py", *text, *small, "model=base")
    assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1)
    assert "model.n_layers: 2 -> 6; model.d_model: 24 -> 512" in refused.err
    assert not (tmp_path / "data").exists()

    tuned = run_application("train.py", *text, *small, "data.max_tokens_per_device=400")
    assert tuned.code == 0, tuned.err
    assert "from     outputs/parent, step 6, averaged" in tuned.err
    assert averaged(tmp_path / "outputs" / "files-from-parent").config.init_from == "outputs/parent"
