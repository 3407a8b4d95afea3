"""`data.src_vocab_size`: a vocabulary for each language, and every command that reads a source
reads it with its own.

The alphabets have no letter in common, and the source has more subwords: its ids are beyond the
target's vocabulary.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from applications import TWELVE_STEPS, reversed_digits, run_application, stopped_in, text_in
from starlette.testclient import TestClient
from texts import write_lines

import aiayn
from aiayn.apps.documents.texts import translate_texts
from aiayn.apps.export import export as exports
from aiayn.apps.server.app import make_app
from aiayn.apps.server.metrics import Metrics
from aiayn.apps.server.options import ServeOptions
from aiayn.apps.server.service import Served, Service
from aiayn.config.stored import changed_options
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.preparation import prepare_corpus
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError, DivergedError, RefusedError
from aiayn.reports.runs import read_run
from aiayn.runs import checkpoints
from aiayn.runs.continuation import read_options
from aiayn.runs.run_folder import RunFolder
from aiayn.sweep.jobs import is_from_source
from aiayn.token_ids import BOS_ID, EOS_ID
from aiayn.training.module import TranslationModule
from aiayn.visualize.maps import attention_maps

GREEK = ["μηδέν", "ένα", "δύο", "τρία", "τέσσερα", "πέντε", "έξι", "επτά", "οκτώ", "εννέα"]
LINES = ["seven three eight", "one", "three zero nine seven seven"]
SIZES = ("data.src_vocab_size=290", "data.vocab_size=270")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, count) in enumerate({"train": 120, "val": 13, "test": 5}.items()):
        english, digits = reversed_digits(count, seed, 1, 4)
        greek = [" ".join(GREEK[int(digit)] for digit in line.split()) for line in digits]
        write_lines(folder / split, english, greek, "el")
    return folder


def options(text: Path, outputs: Path, *more: str) -> list[str]:
    typed = [
        *TWELVE_STEPS,
        *text_in(text, "el"),
        *SIZES,
        "model.tie_embeddings=decoder",
        f"outputs={outputs}",
        "trainer.max_steps=8",
        "data.max_length=60",
        "data.max_length_ratio=9",
        *more,
    ]
    # Of a key that comes twice, the last value
    return list({option.partition("=")[0]: option for option in typed}.values())


@pytest.fixture(scope="module")
def run(text, tmp_path_factory) -> Path:
    return aiayn.train(*options(text, tmp_path_factory.mktemp("runs"), "name=whole"))


@pytest.fixture(scope="module")
def translator(run):
    return aiayn.load(run, accelerator="cpu", beam_size=2, engine="torch")


def log_prob_by_hand(translator, source: str, target: str) -> float:
    [src], [tgt] = (
        translator.tokenizer.source.encode([source]),
        translator.tokenizer.encode([target]),
    )
    mask = torch.ones(1, 1, 1, len(src) + 1, dtype=torch.bool)
    with torch.no_grad():
        logits = translator.model.eval()(
            torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]), mask
        )[0]
    log_probs = logits.double().log_softmax(-1)
    return math.fsum(float(log_probs[place, token]) for place, token in enumerate([*tgt, EOS_ID]))


def test_each_side_is_learnt_and_stored_in_its_own_subwords(run, text):
    options_ = checkpoints.load(RunFolder(run).last).config.data
    corpus = prepare_corpus(options_)
    tokenizer = corpus.tokenizer
    assert (tokenizer.source.vocab_size, tokenizer.vocab_size) == (290, 270)
    for side, own in (("en", tokenizer.source), ("el", tokenizer)):
        tokens = "".join(own.tokens(list(range(260, own.vocab_size)))).replace("▁", "")
        learned = re.sub(r"\\x[0-9a-f]{2}", "", tokens)  # without parts of characters
        assert set(learned) <= set((text / f"train.{side}").read_text("utf-8"))
    for side, own, ids in (
        ("en", tokenizer.source, corpus.train.src),
        ("el", tokenizer, corpus.train.tgt),
    ):
        lines = (text / f"train.{side}").read_text("utf-8").splitlines()
        assert [ids[number].tolist() for number in range(len(ids))] == own.encode(lines)
    data = TranslationDataModule(options_)
    data.setup("test")
    [batch] = data.test_dataloader()
    lines = (text / "test.en").read_text("utf-8").splitlines()
    rows = [row[: row.index(EOS_ID)] for row in batch.src.tolist()]
    assert sorted(rows) == sorted(tokenizer.source.encode(lines))


def test_a_stopped_run_continues_to_the_bit_and_each_matrix_has_the_rows_of_its_vocabulary(
    run, text, tmp_path
):
    with stopped_in(5):
        aiayn.train(*options(text, tmp_path, "name=stopped"))
    stopped = aiayn.train(*options(text, tmp_path, "name=stopped"))
    for name in ("last", "averaged"):
        mine, theirs = (
            checkpoints.load(getattr(RunFolder(folder), name)) for folder in (stopped, run)
        )
        assert [
            key for key in theirs.weights if not torch.equal(mine.weights[key], theirs.weights[key])
        ] == []
        assert mine.tokenizer == theirs.tokenizer
    assert (len(mine.weights["src_embedding.weight"]), len(mine.weights["embedding.weight"])) == (
        290,
        270,
    )
    with pytest.raises(RefusedError, match=r"data\.src_vocab_size: 290 -> 280"):
        aiayn.train(*options(text, tmp_path, "name=stopped", "data.src_vocab_size=280"))


def test_torch_and_ctranslate2_translate_to_the_same_text_alone_and_together(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("text.en").write_text("".join(f"{line}\n" for line in LINES))
    command = (
        "aiayn",
        "translate",
        str(run),
        "text.en",
        "--accelerator",
        "cpu",
        "--beam-size",
        "1",
    )
    slow, fast, both = (
        run_application(*command, *more)
        for more in (("--engine", "torch"), ("--engine", "ctranslate2"), ("--with", str(run)))
    )
    assert slow.out == fast.out == both.out != "", fast.err
    found = [
        json.loads(line) for line in run_application(*command, "--format", "jsonl").out.splitlines()
    ]
    assert ["".join(each["source_tokens"]) for each in found] == [
        "▁" + line.replace(" ", "▁") for line in LINES
    ]
    assert [each["translation"] for each in found] == slow.out.splitlines()


def test_given_pairs_are_scored_by_both_vocabularies(run, translator, tmp_path):
    targets = [" ".join(GREEK[3:6]), GREEK[9], "mixed ένα"]
    write_lines(tmp_path / "pairs", LINES, targets, "el")
    command = (
        "aiayn",
        "score",
        str(run),
        f"{tmp_path}/pairs.en",
        f"{tmp_path}/pairs.el",
        "--accelerator",
        "cpu",
    )
    expected = [log_prob_by_hand(translator, *pair) for pair in zip(LINES, targets, strict=True)]
    assert [float(line) for line in run_application(*command).out.split()] == pytest.approx(
        expected, abs=1e-3
    )


def test_words_and_pictures_of_attention_and_mark_up_are_of_both_vocabularies(translator):
    maps = attention_maps(translator, LINES[0])
    assert "".join(maps.src) == "▁seven▁three▁eight</s>"
    [translated], _ = translate_texts(translator, [f"<b>{LINES[0]}</b> {LINES[1]}"])
    assert translated.count("<b>") == translated.count("</b>") == 1
    service = Service(lambda: Served(translator, []))
    app = make_app(service, "two", ServeOptions(), Metrics())
    with TestClient(app, base_url="http://localhost:8000") as http:
        answer = http.post("/attention", json={"q": LINES[0], "translation": "ένα seven"}).json()
    assert (answer["source"], answer["translation"]) == (LINES[0].split(), ["ένα", "seven"])


def test_an_export_has_both_tokenizers_and_marian_is_refused(
    run, translator, tmp_path, monkeypatch
):
    monkeypatch.setattr(exports, "find_spec", lambda name: name)
    with pytest.raises(
        RefusedError, match=r"--format marian does not support .*model\.tie_embeddings"
    ):
        exports.export_marian(checkpoints.load(RunFolder(run).last), tmp_path / "model")

    ctranslate2 = pytest.importorskip(
        "ctranslate2", reason="ctranslate2 is not installed (extra: export)"
    )
    assert (
        run_application(
            "aiayn", "export", str(run), f"{tmp_path}/model", "--format", "ctranslate2"
        ).code
        == 0
    )
    src, tgt = (
        tokenizers.Tokenizer.from_file(f"{tmp_path}/model/{side}_tokenizer.json")
        for side in ("source", "target")
    )
    assert not (tmp_path / "model/tokenizer.json").exists(), (
        "it would encode or decode what is not its own"
    )
    engine = ctranslate2.Translator(f"{tmp_path}/model", compute_type="float32", intra_threads=1)
    [scored] = engine.score_batch([src.encode(LINES[0]).tokens], [tgt.encode(GREEK[4]).tokens])
    assert math.fsum(scored.log_probs) == pytest.approx(
        log_prob_by_hand(translator, LINES[0], GREEK[4]), abs=1e-3
    )


def test_parameters_of_a_table_and_scores_of_an_evaluation_are_those_of_the_model(run):
    weights = checkpoints.load(RunFolder(run).last).weights
    assert read_run(RunFolder(run)).parameters == sum(weight.numel() for weight in weights.values())
    assert "sacrebleu" in aiayn.evaluate(f"run={run}", "accelerator=cpu", "trusted=true")["metrics"]


@pytest.mark.slow
def test_a_run_that_starts_from_it_takes_both_vocabularies_over(run, text, tmp_path):
    child = options(text, tmp_path, "name=child", f"init_from={run}", "trainer.max_steps=1")
    left_out = [
        one for one in child if not one.startswith(("data.src_vocab", "data.vocab", "model."))
    ]
    started = aiayn.train(*left_out)
    assert (
        checkpoints.load(RunFolder(started).last).tokenizer
        == checkpoints.load(RunFolder(run).last).tokenizer
    )
    changed = changed_options(read_options(RunFolder(started)), aiayn.compose(*left_out))
    assert "data.src_vocab_size" in changed
    assert [key for key in changed if not is_from_source(key)] == [], (
        "a sweep takes it for the same run"
    )
    with pytest.raises(RefusedError, match=r"data\.src_vocab_size: 290 -> 280"):
        aiayn.train(*child, "data.src_vocab_size=280", "name=other")


@pytest.mark.quick("tie_embeddings=all", "src_vocab_size=9000")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("model.tie_embeddings=all", ConfigError, r"set model\.tie_embeddings=decoder"),
        ("data.src_vocab_size=259", ConfigError, r"data\.src_vocab_size=259"),
        (
            "data.src_vocab_size=9000",
            DataError,
            r"data\.src_vocab_size=9000: .* at most (\d+); set data\.src_vocab_size",
        ),
        (
            "data.vocab_size=9000",
            DataError,
            r"data\.vocab_size=9000: .* at most (\d+); set data\.vocab_size",
        ),
    ],
)
def test_sizes_that_cannot_be_are_refused_by_the_name_of_the_side(
    text, tmp_path, change, error, message
):
    with pytest.raises(error, match=message):
        aiayn.train(*options(text, tmp_path, "name=refused", change))


def test_the_tokenizer_of_another_corpus_is_given_whole(run, text, tmp_path):
    given = tmp_path / "tokenizer.json"
    stored = checkpoints.load(RunFolder(run).last).tokenizer
    given.write_text(stored, "utf-8")
    data = aiayn.compose(*options(text, tmp_path, "name=given", f"data.tokenizer={given}")).data
    assert prepare_corpus(data).tokenizer.to_json() == stored
    for size in (None, 280):
        with pytest.raises(DataError, match="set 290, as in the tokenizer of"):
            prepare_corpus(replace(data, src_vocab_size=size))
    given.write_text(Tokenizer.from_json(stored).source.to_json(), "utf-8")
    with pytest.raises(DataError, match="set null, as in the tokenizer of"):
        prepare_corpus(replace(data, vocab_size=290))


def test_a_validation_line_that_is_too_long_is_measured_in_the_subwords_of_its_side(text, tmp_path):
    val = write_lines(tmp_path / "long", ["seven " * 14 + "one"], ["abc " * 30 + "μηδέν"], "el")
    learned = ("model.positions=learned", "model.max_positions=64", f"data.val={val}")
    with pytest.raises(DataError, match=r"line 1 \(el\) has \d+ subwords"):
        aiayn.train(*options(text, tmp_path, "name=long", *learned))


class Broken(TranslationModule):
    def training_loss(self, batch):
        return super().training_loss(batch) * math.nan


def test_sentences_that_break_a_step_are_named_in_words_of_both_languages(text, tmp_path):
    with pytest.raises(DivergedError):
        aiayn.train(aiayn.compose(*options(text, tmp_path, "name=broken")), module=Broken)
    rows = (tmp_path / "broken/not_finite_at_step_1.tsv").read_text("utf-8").splitlines()
    pairs = zip(
        *((text / f"train.{side}").read_text("utf-8").splitlines() for side in ("en", "el")),
        strict=True,
    )
    assert {tuple(row.split("\t")[1:]) for row in rows} <= set(pairs)
