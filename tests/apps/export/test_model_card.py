"""The card beside a Marian export: a header that parses, and the scores of evaluation.json of this
checkpoint only.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from applications import composed, run_application

from aiayn.apps.export import export as module
from aiayn.apps.export.model_card import model_card
from aiayn.data.tokenizer import Tokenizer
from aiayn.files import sha256
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
KINDS = ("sacrebleu", "bleu_tokenized", "bleu_tokenized_lc", "bleu_compound_split", "chrf", "ter")


@pytest.fixture
def run(tmp_path):
    options = [
        "data=files",
        "data.train=/secret/place/train",
        "data.val=x",
        "data.src_lang=en",
        "data.tgt_lang=no",
    ]
    config = composed(
        *options, "model.n_layers=1", "model.d_model=12", "model.d_ff=20", "model.n_heads=2"
    )
    tokenizer = Tokenizer.train([["the old house"]], 262)
    torch.manual_seed(0)
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    weights = Transformer(config.model, tokenizer.vocab_size).state_dict()
    found = Checkpoint(1200, config, weights, tokenizer.to_json(), "corpus", 1, [])
    checkpoints.save(tmp_path / "run/checkpoints/last.ckpt", found)
    return tmp_path / "run"


def evaluated(run, test: str, **changes) -> dict:
    """Writes an evaluation.json of the run's last checkpoint."""
    result = {
        "metrics": dict.fromkeys(KINDS, 12.25) | {"sacrebleu": 34.5678, "ter": None},
        "signature": SIGNATURE,
        "signatures": dict.fromkeys(KINDS, SIGNATURE),
        "lines": 1000,
        "step": 1200,
        "test_set": None,
        "ensemble": [],
        "checkpoint_sha256": sha256(run / "checkpoints/last.ckpt"),
    } | changes
    (run / "evaluation" / test).mkdir(parents=True)
    (run / "evaluation" / test / "evaluation.json").write_text(json.dumps(result), encoding="utf-8")
    return result


def exported(run, monkeypatch, *options: str) -> tuple[str, dict, str]:
    """Returns what was printed, the card's header and the card's text."""
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    monkeypatch.setattr(module, "_write_marian", lambda *given: None)
    target = run.parent / "my model"
    outcome = run_application(
        "aiayn", "export", str(run), str(target), "--format", "marian", *options
    )
    assert outcome.code == 0, outcome.err
    _, header, text = (target / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return outcome.out, yaml.safe_load(header), text


def test_the_card_has_a_header_that_parses_and_the_scores_of_this_checkpoint(run, monkeypatch):
    result = evaluated(run, "test")
    evaluated(run, "other-checkpoint", checkpoint_sha256="0" * 64)
    evaluated(run, "test-with-b", ensemble=[{"run": "b"}])
    out, header, text = exported(run, monkeypatch, "--licence", "cc-by-4.0")
    assert header["language"] == ["en", "no"]  # not False
    assert (header["license"], header["library_name"]) == ("cc-by-4.0", "transformers")
    [index] = header["model-index"]
    [scored] = index["results"]
    assert scored["dataset"]["name"] == "test"
    found = {
        metric["name"]: (metric["value"], metric["args"]["signature"])
        for metric in scored["metrics"]
    }
    assert found == {
        kind: (result["metrics"][kind], result["signatures"][kind])
        for kind in KINDS
        if result["metrics"][kind]
    }
    assert {metric["name"]: metric["type"] for metric in scored["metrics"]}["chrf"] == "chrf"
    rows = [" ".join(line.split()) for line in text.split("\n") if line.startswith("| test ")]
    rows.remove("| test set | lines | kind | score | signature |")
    assert (
        rows[0] == f"| test | 1,000 | sacrebleu | 34.57 | {SIGNATURE.replace('|', chr(92) + '|')} |"
    )
    assert len(rows) == 5
    assert out.split("\n")[1] == f"upload   hf upload YOUR_NAME/run '{run.parent}/my model'"
    assert "MarianMTModel.from_pretrained" in text
    assert "/secret" not in text
    assert "(train)" in text


def test_a_card_names_every_target_and_its_tag(run):
    [found] = [checkpoints.load(path) for path in (run / "checkpoints").glob("*.ckpt")]
    data = replace(found.config.data, train=["<2no>a/train", "<2sv>train", "<news>c"])
    card = model_card(replace(found, config=replace(found.config, data=data)), "several", {}, "mit")
    assert yaml.safe_load(card.split("---\n")[1])["language"] == ["en", "no", "sv"]
    assert "Translates en to no, sv" in card
    assert "<2no>, <2sv>" in card
    assert "(train, train, c)" in card


def test_scores_of_text_in_another_target_language_name_that_pair(run, monkeypatch):
    evaluated(run, "flickr", tgt_lang="sv")
    evaluated(run, "test")
    _, header, _ = exported(run, monkeypatch)
    [index] = header["model-index"]
    assert [scored["dataset"]["args"] for scored in index["results"]] == ["en-no", "en-sv"]


def test_a_card_of_a_fine_tuned_model_says_that_its_training_began_elsewhere(run):
    found = checkpoints.load(run / "checkpoints/last.ckpt")
    assert "another model" not in model_card(found, "general", {}, "mit")
    card = model_card(
        replace(found, config=replace(found.config, init_from="outputs/general")), "own", {}, "mit"
    )
    assert "1,200 steps from the weights of another model; one checkpoint" in card
    assert "were left out. The training data of that model is not listed here." in card


def test_a_licence_without_a_card_is_refused(run):
    outcome = run_application(
        "aiayn", "export", str(run), "new", "--format", "ctranslate2", "--licence", "mit"
    )
    assert (outcome.code, "--licence is for the model card of --format marian" in outcome.err) == (
        2,
        True,
    )
    assert not Path("new").exists()


def test_a_model_without_scores_and_licence_says_so(run, monkeypatch):
    _, header, text = exported(run, monkeypatch)
    assert header["license"] == "unknown"
    assert "model-index" not in header
    assert "This checkpoint has not been scored: run evaluate.py and export again." in text
