"""From a run's folder and raw text to scores on disk, with real checkpoints of tiny models."""

import gzip
import hashlib
import json
import os
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sacrebleu
import torch
import yaml
from applications import composed, translator_of
from texts import write_lines

from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.schema import Config
from aiayn.config.search import SearchOverrides
from aiayn.config.stored import to_dict
from aiayn.data.batch import pad_sources, shift_right, source_mask
from aiayn.data.cleaning import normalise
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError, RefusedError, ResourceError
from aiayn.evaluation.evaluate import evaluate
from aiayn.evaluation.score_table import score_table
from aiayn.files import lines_sha256
from aiayn.model.transformer import Transformer
from aiayn.reports.runs import read_runs
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.results import read_evaluation
from aiayn.runs.run_folder import RunFolder, read_jsonl
from aiayn.token_ids import PAD_ID

# Some hold what any idea of a line but LF's would break in two. The tiny models learn TAUGHT by
# heart, which is not quite what the references say.
SOURCES = [
    "the old house is big",
    "two\u2028cats see a house\x85 today",
    "",
    "a man\x0b and a cat sleep",
    "the cat is \r small and old",
]
TAUGHT = [
    "das alte Haus ist klein",
    "zwei Katzen sehen heute ein Haus",
    "",
    "ein Mann und eine Katze schlafen",
    "die Katze ist klein und alt",
]
REFERENCES = [
    "das alte Haus ist groß",
    "zwei Katzen\u2028 sehen heute ein Haus",
    "ein Haus",
    "ein Mann und eine Katze schlafen",
    "die\x1cKatze ist klein und jung",
]
NO_OVERRIDES = dict.fromkeys(
    ("beam_size", "length_penalty", "penalty", "max_extra_tokens", "batch_tokens")
)


def make_run(folder: Path, seed: int = 0, tgt_lang: str = "de") -> Path:
    """A run with last.ckpt (step 7) and averaged.ckpt (other weights), and text to test on beside
    it.
    """
    (folder / "checkpoints").mkdir(parents=True)
    test = write_lines(folder.parent / f"text-{tgt_lang}", SOURCES, REFERENCES, tgt_lang)
    options = [
        f"data.tgt_lang={tgt_lang}", "data=files", "data.train=x", "data.val=/nowhere/val",
        "model.n_layers=1", "model.d_model=24", "model.d_ff=20", "model.n_heads=2", "model.dropout=0",
        "search.beam_size=3", "search.max_extra_tokens=4",
    ]  # fmt: skip
    config = composed(*options)
    config = replace(config, data=replace(config.data, test=str(test)))
    tokenizer = Tokenizer.train([[*SOURCES, *TAUGHT] * 3], 300)
    for name, steps, averaged in (("last", 25, []), ("averaged", 60, [5, 6, 7])):
        weights = learned(config, tokenizer, steps, seed)
        found = Checkpoint(7, config, weights, tokenizer.to_json(), "corpus", 1, averaged)
        checkpoints.save(folder / "checkpoints" / f"{name}.ckpt", found)
    return folder


LEARNED: dict[tuple[int, int], dict[str, torch.Tensor]] = {}


def learned(config: Config, tokenizer: Tokenizer, steps: int, seed: int) -> dict[str, torch.Tensor]:
    """Weights after some steps on the five pairs."""
    if (steps, seed) not in LEARNED:
        torch.manual_seed(seed)
        model = Transformer(config.model, tokenizer.vocab_size)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        src = pad_sources(tokenizer.encode([normalise(line) for line in SOURCES]))
        tgt_out = pad_sources(tokenizer.encode(TAUGHT))
        for _ in range(steps):
            logits = model(src, shift_right(tgt_out), source_mask(src))
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        LEARNED[steps, seed] = model.state_dict()
    return LEARNED[steps, seed]


def options(run: Path | str, **changes) -> EvaluateConfig:
    search = SearchOverrides(**NO_OVERRIDES | changes.pop("search", {}))
    plain = {
        "split": "test",
        "checkpoint": None,
        "test": None,
        "references": None,
        "ensemble": None,
        "baseline": None,
    }
    plain |= {"accelerator": "cpu", "debug": False, "trusted": True}
    return EvaluateConfig(**plain | {"run": str(run), "search": search} | changes)


def lines_of(path: Path) -> list[str]:
    *lines, rest = path.read_bytes().decode().split("\n")
    assert rest == ""
    return lines


@pytest.fixture
def run(tmp_path) -> Path:
    return make_run(tmp_path / "outputs" / "tiny")


def test_hypotheses_are_the_runs_translations_of_the_raw_source_and_scores_are_made_from_them(run):
    result = evaluate(options(run))
    folder = run / "evaluation" / "test"
    hypotheses = lines_of(folder / "hypotheses.txt")
    assert hypotheses == translator_of(run).translate(SOURCES)
    assert 20 < result.metrics["sacrebleu"] < 99
    assert result.metrics["sacrebleu"] == pytest.approx(
        sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    )
    assert result.metrics["chrf"] == pytest.approx(
        sacrebleu.corpus_chrf(hypotheses, [REFERENCES]).score
    )
    assert json.loads((folder / "evaluation.json").read_bytes()) == asdict(result)
    texts = ["hypotheses.txt", "reference.txt", "source.txt"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["evaluation.json", "samples.jsonl", *texts]
    )
    assert (lines_of(folder / "source.txt"), lines_of(folder / "reference.txt")) == (
        SOURCES,
        REFERENCES,
    )


def test_samples_to_read_are_spread_evenly_over_the_text_and_stand_on_the_runs_page(run, tmp_path):
    lines = [f"cat {number}" for number in range(50)]
    write_lines(tmp_path / "outputs" / "text-de", lines, lines)
    result = evaluate(options(run, checkpoint="last"))
    samples = read_jsonl(run / "evaluation" / "test" / "samples.jsonl")
    assert [sample["source"] for sample in samples] == lines[::3]
    assert [sample["hypothesis"] for sample in samples] == lines_of(
        run / "evaluation" / "test" / "hypotheses.txt"
    )[::3]
    assert result.lines == 50
    assert not (run / "report.html").exists()  # without a config.yaml there is no page, but scores
    RunFolder(run).write_config(checkpoints.load(run / "checkpoints" / "last.ckpt").config)
    evaluate(options(run, checkpoint="last"))
    assert "<h2>Samples of test</h2>" in (run / "report.html").read_text()


def test_the_json_says_what_was_scored_and_how(run):
    result = evaluate(
        options(run, search={"beam_size": 2, "length_penalty": 1.0, "penalty": "power"})
    )
    assert set(result.metrics) == {
        "sacrebleu", "bleu_tokenized", "bleu_tokenized_lc", "bleu_compound_split", "chrf", "ter"
    }  # fmt: skip
    assert None not in result.metrics.values()
    assert result.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert (result.lines, result.src_lang, result.tgt_lang) == (5, "en", "de")
    assert (result.checkpoint, result.step, result.averaged) == ("averaged.ckpt", 7, [5, 6, 7])
    assert (result.corpus, len(result.tokenizer_sha256)) == ("corpus", 64)
    stored = (run / "checkpoints/averaged.ckpt").read_bytes()
    assert result.checkpoint_sha256 == hashlib.sha256(stored).hexdigest()
    assert result.search == {
        "beam_size": 2, "length_penalty": 1.0, "penalty": "power", "patience": None, "max_extra_tokens": 4,
        "batch_tokens": None,
    }  # fmt: skip
    assert result.seconds >= 0


def test_the_table_names_kind_score_and_signature_of_every_score_and_the_number_of_lines(
    run, capsys
):
    result = evaluate(options(run))
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line for line in printed.splitlines() if line}
    for kind, value in result.metrics.items():
        assert f"{value:.2f}" in rows[kind]
        assert rows[kind].endswith(result.signatures[kind])
    assert "5 lines" in rows["text"]
    assert "en -> de" in rows["text"]
    assert "averaged.ckpt, step 7, average of 3 checkpoints" in rows["model"]
    assert "beam_size 3, length_penalty 0.6 (gnmt)" in rows["search"]
    assert str(run / "evaluation" / "test") in printed


@pytest.mark.quick("39.5-0", "29.0-1")
@pytest.mark.parametrize(("cased", "said"), [(0.0, 1), (29.0, 1), (39.5, 0), (None, 0)])
def test_scores_of_lower_case_translations_say_which_of_them_to_read(run, cased, said):
    result = evaluate(options(run))
    lower = None if cased is None else 40.0
    result.metrics.update(bleu_tokenized=cased, bleu_tokenized_lc=lower)
    assert score_table(result).count("lower-case model, use bleu_tokenized_lc") == said


@pytest.mark.parametrize(("tokens", "said"), [(0, 1), (1, 0)])
def test_the_table_says_that_every_translation_is_empty(run, tokens, said):
    result = evaluate(options(run))
    result.details["sacrebleu"]["hypothesis_tokens"] = tokens
    assert score_table(result).count("every translation is empty") == said


def test_the_table_says_that_the_script_decided_on_tokens_of_a_code_that_is_not_known(run):
    result = evaluate(options(run))
    assert "was chosen by its script" not in score_table(result)
    signature = result.signature.replace("tok:13a", "tok:zh")
    chinese = replace(
        result, tgt_lang="zt", signatures=result.signatures | {"sacrebleu": signature}
    )
    assert "zt is not a known code; tok:zh was chosen by its script" in score_table(chinese)


def test_a_kind_that_does_not_apply_is_null(tmp_path, capsys):
    result = evaluate(options(make_run(tmp_path / "french", tgt_lang="fr")))
    assert [kind for kind, value in result.metrics.items() if value is None] == [
        "bleu_compound_split"
    ]
    assert "bleu_compound_split       -  does not apply" in capsys.readouterr().out


def write_metrics(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(
        f"import math\n\n\ndef fails(*_):\n    raise KeyError('x')\n\n\n{text}\n"
    )
    return str(folder / "mine.py")


def test_metrics_of_an_extension_stand_beside_the_own_ones_and_what_is_no_number_costs_nothing(
    run, tmp_path, caplog
):
    values = (
        "'count': lambda h, r: len(h), 'nought': lambda h, r: 0, 'nan': lambda h, r: math.nan, "
        "'fails': fails"
    )
    result = evaluate(options(run, extensions=[write_metrics(tmp_path, f"METRICS = {{{values}}}")]))
    own = {name: result.metrics[name] for name in ("count", "nought", "nan", "fails")}
    assert own == {"count": 5, "nought": 0, "nan": None, "fails": None}
    assert read_evaluation(run / "evaluation/test/evaluation.json") == result
    assert [record.message for record in caplog.records if "metric" in record.message] == [
        "the extension's metric nan did not return a finite number: left out",
        "the extension's metric fails did not return a finite number (KeyError: 'x'): left out",
    ]


def test_scores_name_the_content_of_the_file_whose_metrics_they_are_of(run, tmp_path):
    path = Path(write_metrics(tmp_path, "METRICS = {}"))
    found = evaluate(options(run, extensions=[str(path)])).extensions_sha256
    assert found == [f"mine.py:{hashlib.sha256(path.read_bytes()).hexdigest()}"]


@pytest.mark.quick("sacrebleu")
@pytest.mark.parametrize("name", ["sacrebleu", "f1", "ppl", "length_ratio", "perplexity"])
def test_an_extension_cannot_replace_a_score_of_this_program(run, tmp_path, name):
    path = write_metrics(tmp_path, f"METRICS = {{'{name}': lambda h, r: 99}}")
    with pytest.raises(
        ConfigError, match=rf"mine\.py: METRICS: {name} is taken by this program; rename it"
    ):
        evaluate(options(run, extensions=[path]))
    assert not (run / "evaluation").exists()


def test_the_checkpoint_can_be_chosen_and_changes_the_translations(run):
    averaged = evaluate(options(run))
    last = evaluate(options(run, checkpoint="last"))
    assert (last.checkpoint, last.averaged) == ("last.ckpt", [])
    assert last.metrics != averaged.metrics
    same = evaluate(options(run, checkpoint=str(run / "checkpoints" / "last.ckpt")))
    assert same.metrics == last.metrics


def test_a_prefix_of_files_is_scored_instead_of_the_split_under_its_own_name(run, tmp_path):
    prefix = tmp_path / "corpora" / "news=2014"
    prefix.parent.mkdir()
    for lang, text in (("en", "the man\nthe cat"), ("de", "der Mann\ndie Katze\n")):
        with gzip.open(f"{prefix}.{lang}.gz", "wb") as file:
            file.write(text.encode())
    result = evaluate(options(run, test=str(prefix)))
    assert (result.lines, result.text) == (2, f"test={prefix}")
    assert len(lines_of(run / "evaluation" / "news-2014" / "hypotheses.txt")) == 2
    assert not (run / "evaluation" / "test").exists()


@pytest.mark.slow
def test_texts_and_runs_of_the_same_names_in_other_folders_and_further_references_have_results_of_their_own(
    tmp_path,
):
    run = make_run(tmp_path / "run")
    others = [
        make_run(tmp_path / folder / "other", seed=seed) for seed, folder in ((3, "a"), (4, "b"))
    ]
    for folder, english in (("a", "the man"), ("b", "two cats")):
        write_lines(tmp_path / folder / "news", [english], ["der Mann"])
    reference = tmp_path / "second.de"
    reference.write_text("ein Mann\n", encoding="utf-8")

    def written(**changes) -> str:
        before = {path: path.read_bytes() for path in run.glob("evaluation/*/evaluation.json")}
        evaluate(options(run, **changes))
        [changed] = [
            path for path in run.glob("evaluation/*/evaluation.json") if path not in before
        ]
        assert all(path.read_bytes() == content for path, content in before.items())
        return changed.parent.name

    text = str(tmp_path / "a" / "news")
    assert written(test=text) == "news"
    assert re.fullmatch("news-[0-9a-f]{8}", written(test=str(tmp_path / "b" / "news")))
    assert written(test=text, references=[str(reference)]) == "news-2-references"
    assert written(test=text, ensemble=[str(others[0])]) == "news-with-other"
    assert re.fullmatch(
        "news-with-other-[0-9a-f]{8}", written(test=text, ensemble=[str(others[1])])
    )
    evaluate(options(others[1], test=str(tmp_path / "a" / "news")))
    evaluate(options(others[1], test=str(tmp_path / "b" / "news")))
    compared = evaluate(
        options(run, test=str(tmp_path / "b" / "news"), baseline=str(others[1]))
    ).baseline
    assert compared["run"] == str(others[1])


def test_a_baseline_is_compared_line_by_line_with_a_p_value(tmp_path, capsys):
    run, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=5)
    score = evaluate(options(other, checkpoint="last")).metrics["sacrebleu"]
    result = evaluate(options(run, baseline=str(other)))
    compared = result.baseline
    assert compared["run"] == str(other)
    sacrebleu = compared["kinds"]["sacrebleu"]
    assert sacrebleu["baseline"]["score"] == pytest.approx(score)
    assert sacrebleu["system"]["score"] == pytest.approx(result.metrics["sacrebleu"])
    assert sacrebleu["delta"] > 1
    assert sacrebleu["delta"] == pytest.approx(result.metrics["sacrebleu"] - score)
    assert set(compared["kinds"]) == {
        kind for kind, value in result.metrics.items() if value is not None
    }
    printed = capsys.readouterr().out
    assert f"p = {sacrebleu['p_bootstrap']:.4f} (bootstrap)" in printed
    assert "paired bootstrap of 1000 samples, paired randomisation of 10000 trials" in printed


@pytest.mark.slow
def test_a_run_does_not_differ_from_itself(run):
    itself = evaluate(options(run, baseline=str(run))).baseline
    of_itself = itself["kinds"]["sacrebleu"]
    assert (of_itself["delta"], of_itself["p_bootstrap"], itself["differs"]) == (0, 1, {})


@pytest.mark.slow
def test_the_table_says_where_checkpoint_or_search_of_a_baseline_differ(tmp_path, capsys):
    run, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=5)
    evaluate(options(other, checkpoint="last", search={"beam_size": 2, "batch_tokens": 50}))
    result = evaluate(options(run, baseline=str(other), search={"batch_tokens": 60}))
    used, beams = result.checkpoint, result.search["beam_size"]
    assert result.baseline["differs"] == {"checkpoint": "last.ckpt", "search.beam_size": 2}
    printed = capsys.readouterr().out
    assert f"        checkpoint=last.ckpt there, {used} here\n" in printed
    assert f"        search.beam_size=2 there, {beams} here\n" in printed


def test_a_baseline_whose_hypotheses_are_of_another_evaluation_is_refused(tmp_path):
    run, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=5)
    evaluate(options(other))
    path = other / "evaluation" / "test" / "hypotheses.txt"
    path.write_text(path.read_text().replace("Haus", "Hof"))
    with pytest.raises(RefusedError, match="no scored translations"):
        evaluate(options(run, baseline=str(other)))
    with pytest.raises(
        ConfigError, match=rf"baseline={other}x: no such run; did you mean {other}\?"
    ):
        evaluate(options(run, baseline=f"{other}x"))


def test_missing_or_misaligned_text_is_refused_with_the_remedy_and_nothing_is_written(
    run, tmp_path
):
    with pytest.raises(
        DataError,
        match=r"data\.val=/nowhere/val: no file .* or name other text: test=PREFIX",
    ):
        evaluate(options(run, split="val"))
    with pytest.raises(DataError, match=r"test=/no/where: no file /no/where\.en or"):
        evaluate(options(run, test="/no/where"))
    prefix = write_lines(tmp_path / "shifted", ["a", "b"], ["a\nb", "c"])
    with pytest.raises(
        DataError, match=rf"test={prefix}: .*shifted\.en has 2 lines and .*shifted\.de has 3"
    ):
        evaluate(options(run, test=prefix))
    with pytest.raises(DataError, match=r"test: no text in .*nothing\.en, .*nothing\.de"):
        evaluate(options(run, test=write_lines(tmp_path / "nothing", [], [])))
    assert not (run / "evaluation").exists()


def test_results_that_cannot_be_written_leave_the_old_ones_and_no_debris(run, monkeypatch):
    evaluate(options(run))
    folder = run / "evaluation" / "test"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aiayn.files.os.fsync", full)
    with pytest.raises(
        ResourceError, match=r"evaluation/test: cannot be written \(No space left on device\)"
    ):
        evaluate(options(run, checkpoint="last"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("inner", ["evaluation", "evaluation/test"])
def test_results_are_not_written_through_a_link_inside_the_run_but_where_out_leads(
    run, tmp_path, inner
):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (run / inner).parent.mkdir(exist_ok=True)
    (run / inner).symlink_to(foreign)
    with pytest.raises(RefusedError, match=f"{inner}: is a symbolic link, which is not supported"):
        evaluate(options(run))
    assert not any(foreign.iterdir())

    (tmp_path / "link").symlink_to(foreign)
    evaluate(options(run, out=str(tmp_path / "link")))
    assert (foreign / "evaluation.json").is_file()


def test_a_baseline_not_scored_on_this_text_is_refused_with_the_command_to_type(tmp_path):
    run, other = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=5)
    with pytest.raises(
        RefusedError, match=rf"no scored .*; type: aiayn evaluate run={other} split=test"
    ):
        evaluate(options(run, baseline=str(other)))
    evaluate(options(other))
    for changed in (SOURCES[:4], [*SOURCES[:4], "two cats"]):
        write_lines(tmp_path / "text-de", changed, REFERENCES[: len(changed)])
        with pytest.raises(
            RefusedError,
            match=rf"another text \(5 lines, here {len(changed)}\); score both .*test=PREFIX$",
        ):
            evaluate(options(run, baseline=str(other)))
    assert not (run / "evaluation").exists()


def test_translations_of_another_decoder_are_scored_and_recorded_in_place_of_a_search(
    run, tmp_path, capsys
):
    searched = evaluate(options(run))
    (tmp_path / "mbr.de").write_text("".join(f"{line}\n" for line in REFERENCES))

    given = evaluate(options(run, hypotheses=str(tmp_path / "mbr.de")))

    folder = run / "evaluation" / "test"
    assert read_evaluation(folder / "evaluation.json") == given
    assert lines_of(folder / "hypotheses.txt") == REFERENCES
    assert given.metrics["sacrebleu"] == pytest.approx(100)
    assert (given.search, given.hypotheses_sha256) == (
        {"hypotheses": "mbr.de"},
        lines_sha256(REFERENCES),
    )
    assert (given.forced, given.text_sha256) == (searched.forced, searched.text_sha256)
    assert "search               none; translations in mbr.de\n" in capsys.readouterr().out
    config = checkpoints.load(run / "checkpoints/averaged.ckpt").config
    (run / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
    _, notes = read_runs([run])
    assert "the scores of test are those of the translations in mbr.de" in str(notes)


@pytest.mark.parametrize("lines", [REFERENCES[:-1], [*REFERENCES, ""]])
def test_translations_that_are_not_one_for_each_source_are_refused_with_both_numbers(
    lines, run, tmp_path
):
    (tmp_path / "mbr.de").write_text("".join(f"{line}\n" for line in lines))
    counts = f"it has {len(lines)} lines and the source has {len(SOURCES)}"
    with pytest.raises(DataError, match=rf"^hypotheses=.*mbr\.de: {counts}"):
        evaluate(options(run, hypotheses=str(tmp_path / "mbr.de")))
    assert not (run / "evaluation").exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"search": {"beam_size": 3}}, "search.beam_size=3"),
        ({"search": {"length_penalty": 0.0}}, "search.length_penalty=0.0"),
        ({"ensemble": ["outputs/b"]}, r"ensemble=\['outputs/b'\]"),
    ],
)
def test_what_would_be_searched_for_is_refused_beside_translations_of_a_file(changes, named):
    with pytest.raises(ConfigError, match=f"^{named}: has no effect on translations from a file"):
        options("outputs/a", hypotheses="mbr.de", **changes)


def test_results_go_to_another_folder_where_the_run_cannot_be_written(run, tmp_path, monkeypatch):
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_relative_to(run) and access(path, mode)
    )
    before = sorted(run.rglob("*"))
    with pytest.raises(ResourceError, match=r"is read-only\); name another folder .*, out=FOLDER"):
        evaluate(options(run))
    with pytest.raises(ResourceError, match=r"is a file\); name another folder"):
        evaluate(options(run, out=__file__))

    evaluate(options(run, out=str(tmp_path / "scores")))

    assert sorted(run.rglob("*")) == before
    assert (tmp_path / "scores/evaluation.json").exists()
    assert len(lines_of(tmp_path / "scores/hypotheses.txt")) == len(SOURCES)
