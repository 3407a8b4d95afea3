"""Tagged corpora, their weights, symbols, unigram and given tokenizers: from text to ids, and to a
score.
"""

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from applications import TWELVE_STEPS, run_application, write_pairs
from texts import write_lines

import aiayn
from aiayn import phrasebook
from aiayn.apps.documents.texts import Texts, translate_texts
from aiayn.data.batch_plan import BatchPlan, repetitions
from aiayn.data.cleaning import CleaningReport, clean, training_rules
from aiayn.data.sources import FileText, text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError, RefusedError
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder
from aiayn.search.translations import Translation
from aiayn.token_ids import EOS_ID

TEXT = [
    "one two three four",
    "five <b>six</b> seven",
    "Größe 12,5 – naïve 日本",
    "<2de> eight",
    "nine <2de> ten",
]
LEARNED = [*TEXT, *(line for pair in islice(phrasebook.pairs("train"), 300) for line in pair)]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, count) in enumerate({"train": 90, "val": 7, "test": 4}.items()):
        for number, language in enumerate(("de", "fr")):
            write_pairs(
                folder / f"{split}-{language}", count // (1 + 2 * number), 10 * seed + number
            )
    return folder


def options(text: Path, *more: str) -> list[str]:
    splits = [
        f"data.{split}=['<2de>{text}/{split}-de','<2fr>{text}/{split}-fr']"
        for split in ("train", "val", "test")
    ]
    where = [
        "data=files",
        *splits,
        "data.src_lang=en",
        "data.tgt_lang=de",
        f"data.folder={text}/prepared",
    ]
    return [*TWELVE_STEPS, *where, "trainer.max_steps=4", f"outputs={text}/outputs", *more]


@pytest.mark.slow
def test_tagged_corpora_train_evaluate_and_translate_with_both_engines(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = aiayn.train(*options(text, "name=run", "data.weights=[3,0.5]", "trainer.max_steps=2"))
    aiayn.train(*options(text, "name=run", "data.weights=[3,0.5]"))
    weights = [
        checkpoints.load(RunFolder(each).last).weights
        for each in (run, aiayn.train(*options(text, "name=whole", "data.weights=[3,0.5]")))
    ]
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())
    translator = aiayn.load(run, accelerator="cpu", beam_size=1)
    tags = [ids[0] for ids in translator.tokenizer.encode(["<2de> one", "<2fr> one"])]
    batch = checkpoints.load(RunFolder(run).last)
    assert tags == [batch.vocab_size - 2, batch.vocab_size - 1]
    scores = aiayn.evaluate(f"run={run}", "accelerator=cpu")
    assert (scores["lines"], scores["tgt_lang"]) == (4 + 4 // 3, "mul")
    assert scores["metrics"]["bleu_tokenized"] is None, "no language's tokens fit both"
    french = aiayn.evaluate(f"run={run}", "accelerator=cpu", f'test="<2fr>{text}/test-fr"')
    assert (french["tgt_lang"], french["metrics"]["bleu_compound_split"]) == ("fr", None)
    assert "tok:moses-fr" in french["signatures"]["bleu_tokenized"]
    (run / ".owner").unlink()
    with pytest.raises(RefusedError, match="is outside its folder and this one"):
        aiayn.evaluate(f"run={run}", "accelerator=cpu")
    with pytest.raises(ConfigError, match=r"test=<2it>.*: <2it> is not a tag"):
        aiayn.evaluate(f"run={run}", "accelerator=cpu", f'test="<2it>{text}/test-fr"')
    with pytest.raises(ConfigError, match=r"data\.val: <2it> is not a tag"):
        aiayn.train(
            *(
                each.replace("<2fr>", "<2it>") if "data.val" in each else each
                for each in options(text)
            )
        )
    lines = ["<2de> one two three", "<2fr> seven"]
    Path("lines.en").write_text("\n".join([*lines, "<2fr> 1984"]) + "\n")
    command = (
        "aiayn",
        "translate",
        str(run),
        "lines.en",
        "--accelerator",
        "cpu",
        "--beam-size",
        "1",
    )
    outputs = [run_application(*command, "--engine", engine) for engine in ("torch", "ctranslate2")]
    expected = [*translator.translate(lines), "1984"]
    assert outputs[0].out.splitlines() == outputs[1].out.splitlines() == expected
    Path("page.html").write_text("<p>seven</p><p>one two three</p>")
    Path("plain.po").write_text('msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "seven"\nmsgstr ""\n')
    Path("plain.csv").write_text("en,fr,de\nseven,,\n")
    Path("plain.en").write_text("seven\n\n")
    [seven, first] = translator.translate(["<2fr> seven", "<2fr> one two three"])
    for name, expected in {
        "page.html": f"<p>{seven}</p><p>{first}</p>",
        "plain.po": Path("plain.po")
        .read_text()
        .replace('msgid "seven"\nmsgstr ""', f'#, fuzzy\nmsgid "seven"\nmsgstr "{seven}"'),
        "plain.csv": f"en,fr,de\nseven,{seven},\n",
        "plain.en": f"{seven}\n\n",
    }.items():
        assert run_application(*command[:3], name, *command[4:], "--tag", "<2fr>").out == expected
    assert "<2de>, <2fr>; choose one of these" in run_application(*command, "--tag", "<2it>").err
    sentences = ["<2fr> Take it.", "<2fr> Now go home."]
    [found], _ = translate_texts(translator, ["<2fr> Take it. Now go home."], paragraphs=True)
    assert found == " ".join(translator.translate(sentences))
    read = Texts(["<2de> one <b>two</b>"], "en", True, False, symbols=["<2de>"]).sentences
    [(_, lengths, attention)] = read.attend(translator, [Translation(tokens=tags)], read.marked)
    assert (sum(lengths), attention.shape) == (len(" one two"), (2, len(lengths)))
    with pytest.raises(RefusedError, match=r"data\.weights: \[3\.0, 0\.5\] -> null"):
        aiayn.train(*options(text, "name=run"))


def test_the_tag_of_a_corpus_begins_its_sources_in_batches_and_a_blank_line_has_none(text):
    from aiayn.data.datamodule import TranslationDataModule

    data = TranslationDataModule(
        aiayn.compose(*options(text, "data.vocab_size=280", "data.tokens_per_step=300")).data
    )
    data.prepare_data()
    first = {int(data.corpus.train.src[pair][0]): pair for pair in range(len(data.corpus.train))}
    assert sorted(first) == [278, 279]
    assert first[278] < first[279], "in the order of the names"
    assert EOS_ID not in data.corpus.train.src[0]
    assert data.corpus.report["train"]["corpora"] == [90, 30]


def test_a_source_of_invisible_characters_is_blank_with_a_tag_as_without(tmp_path):
    write_lines(
        tmp_path / "train", ["one", "\u200b", "\u00ad \ufeff", ""], ["eins", "zwei", "drei", "vier"]
    )
    for tag in ("", "<2de>"):
        text = FileText("data.train", [f"{tag}{tmp_path}/train"], ("en", "de"))
        assert [pair.tgt for pair in clean(text.pairs(), CleaningReport())] == ["eins"]


@pytest.mark.parametrize("markup", [False, True])
@pytest.mark.parametrize("tag", ["<de>", "<2de>"])
def test_the_tag_of_a_text_begins_all_of_its_sentences_and_is_no_mark_up(tag, markup):
    texts = [f"{tag} Take it. Now go.", "<b>one</b>", "", f"{tag} "]
    read = Texts(texts, "en", markup, paragraphs=True, symbols=[tag])
    assert read.sentences.lines == [
        f"{tag} Take it.",
        f"{tag} Now go.",
        "one" if markup else "<b>one</b>",
    ]
    assert Texts(texts, "en", markup, paragraphs=False, symbols=[tag]).sentences.lines[-1:] != [
        f"{tag} "
    ]


def test_filters_compare_sides_without_the_tag(tmp_path):
    for language, lines in {
        "en": ["take 3 <b>", "Berlin", "take <i>"],
        "de": ["nimm 3 <b>", "Berlin", "nimm <b>"],
    }.items():
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n")
    filters = {"drop_equal": True, "drop_placeholder_mismatch": True}
    config = replace(
        aiayn.compose("data=phrasebook").data,
        source="files",
        train=f"<2de1>{tmp_path}/train",
        **filters,
    )
    report = CleaningReport()
    kept = list(clean(text_of(config, "train").pairs(), report, training_rules(config)))
    assert [pair.src for pair in kept] == ["<2de1> take 3 <b>"]
    assert (report.kept, report.dropped) == (1, {"equal_sides": 1, "placeholders": 1})


@pytest.mark.parametrize(
    ("mixture", "large", "small"),
    [
        ((1, None), 90, 30),
        ((2, None), 90, 30 * 3**0.5),
        ((1e9, None), 90, 90),
        ((1, [3.0, 0.5]), 270, 15),
        ((1, [1.0, 0.0]), 90, 0),
    ],
)
def test_a_temperature_and_weights_say_how_often_an_epoch_has_the_pairs_of_a_corpus(
    mixture, large, small
):
    from aiayn.data.corpus import PreparedCorpus

    report = {"train": {"corpora": [90, 30]}}
    corpus = PreparedCorpus(Path(), "", None, None, None, report)  # pyright: ignore[reportArgumentType]
    lengths = np.random.default_rng(0).integers(2, 9, 120)
    often = repetitions(corpus, *mixture)
    sizes = {"tokens_per_step": 50, "parts": 2, "seed": 3, "repetitions": often}
    plan, other = (BatchPlan(lengths, lengths, micro_batches=count, **sizes) for count in (2, 4))
    steps, epochs = plan.steps_per_epoch, 40
    seen = np.zeros(120)
    for step in range(steps * epochs):
        parts = [plan.micro_batch(2 * step + part).pairs for part in range(2)]
        assert sorted(np.concatenate(parts)) == sorted(
            np.concatenate([other.micro_batch(4 * step + part).pairs for part in range(4)])
        )
        np.add.at(seen, np.concatenate(parts), 1)
    assert (seen[:90] == epochs * large / 90).all(), "whole numbers are no matter of chance"
    assert seen[90:].sum() / epochs == pytest.approx(small, rel=0.05)


@pytest.mark.parametrize("option", ["data.temperature=5", "data.weights=[2]"])
def test_a_mixture_of_one_corpus_is_refused(text, option):
    with pytest.raises(DataError, match=rf"{re.escape(option[:-1])}.*: mixes several files"):
        aiayn.train(
            *options(
                text, "name=one", option, f"data.train={text}/train-de", f"data.val={text}/val-de"
            )
        )


@pytest.mark.quick("[0.5,0]", "1,2,3")
@pytest.mark.parametrize(
    "value",
    ["[3]", "[1,2,3]", "[1,-1]", "[1,nan]", "[0.5,0]", "[1,word]", "[1,2] data.temperature=2"],
)
def test_weights_that_do_not_fit_are_refused(text, value):
    with pytest.raises(ConfigError, match=r"data\.weights"):
        aiayn.compose(*options(text, *f"data.weights={value}".split()))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_is_the_same_after_encoding_and_symbols_are_one_subword_each(kind):
    tokenizer = Tokenizer.train([LEARNED], 300, algorithm=kind, symbols=["<2de>", "<sep>"])
    assert tokenizer.vocab_size == 300
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert [row.count(298) for row in ids] == [0, 0, 0, 1, 1]
    assert ids[3][1:] == tokenizer.encode(["eight"])[0]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode(TEXT) == ids
    assert again.symbols == ["<2de>", "<sep>"]
    assert sum(tokenizer.byte_lengths(ids[4])) == len(" nine <2de> ten")


@pytest.mark.parametrize(
    ("old", "new"),
    [('["<pad>",0.0]', '["",0.0]'), ('["<s>",0.0]', '["<s>",NaN]'), ('"unk_id":3', '"unk_id":4')],
)
def test_a_unigram_file_that_was_tampered_with_is_refused(old, new):
    stored = Tokenizer.train([LEARNED], 280, algorithm="unigram").to_json()
    assert old in stored
    with pytest.raises(DataError, match="not a tokenizer of this program"):
        Tokenizer.from_json(stored.replace(old, new))


@pytest.mark.slow
def test_a_given_tokenizer_is_used_and_refused_where_it_does_not_fit(text, tmp_path):
    given = tmp_path / "tokenizer.json"
    given.write_text(
        Tokenizer.train([LEARNED], 290, algorithm="unigram", symbols=["<2de>", "<2fr>"]).to_json(),
        "utf-8",
    )
    run = aiayn.train(
        *options(text, "name=given", f"data.tokenizer={given}", "data.vocab_size=290")
    )
    assert checkpoints.load(RunFolder(run).last).tokenizer == given.read_text("utf-8")
    for more, error, message in (
        ("data.vocab_size=300", DataError, r"set data\.vocab_size=290"),
        ("data.lowercase=true", DataError, r"set data\.lowercase=false"),
        ("data.symbols=[<sep>]", DataError, "the tokenizer splits <sep>"),
        ("data.symbols=[sep]", ConfigError, "write another word in angle brackets"),
        ("data.tokenizer=spm", ConfigError, "choose one of bpe, unigram"),
        ("data.tokenizer=none.json", DataError, r"data\.tokenizer=none\.json: .*No such file"),
    ):
        key = more.partition("=")[0]
        usual = [f"data.tokenizer={given}", "data.vocab_size=290", "name=other"]
        more = more.replace("[<sep>]", "['<sep>']")
        with pytest.raises(error, match=message):
            aiayn.train(*options(text, *(each for each in usual if not each.startswith(key)), more))


def test_machines_that_prepare_for_themselves_do_not_learn_unigrams(text):
    with pytest.raises(ConfigError, match=r"data\.prepare_per_node=false"):
        aiayn.compose(*options(text, "data.tokenizer=unigram", "trainer.num_nodes=2"))
