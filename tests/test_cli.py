"""The console script: text in, text out, one line per error. Runs are real folders with tiny
models.
"""

import gzip
import io
import json
import os
import pty
import re
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
import torch
from applications import translator_of, write_run
from texts import DOCUMENTS
from typer.testing import CliRunner, Result

from aiayn import cli
from aiayn.apps.documents.document import parse_document
from aiayn.apps.documents.texts import translate_texts
from aiayn.apps.localisation.exchange import read_memory
from aiayn.cli import arguments, commands, texts
from aiayn.cli.translate import translate
from aiayn.config.search import SamplingConfig
from aiayn.errors import ConfigError, DataError, RefusedError, UserError
from aiayn.runs import checkpoints
from aiayn.search.force_decode import perplexity
from aiayn.search.line_translator import LineTranslator
from aiayn.search.translations import Translation
from aiayn.search.translator import Translator

LINES = ["the old house", "", "two\u2028cats see", "the man \x85 sees", "the cat\r", "é 猫"]
TEXT = "\n".join(LINES).encode()  # its last line has no LF
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
PROGRAM = [sys.executable, "-c", "from aiayn.cli import main; main()"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("outputs") / "tiny")


@pytest.fixture(scope="module")
def translator(run) -> Translator:
    return translator_of(run)


def invoke(*arguments: object, text: bytes = TEXT) -> Result:
    return CliRunner().invoke(commands.app, [str(argument) for argument in arguments], input=text)


def output(*arguments: object, text: bytes = TEXT) -> list[str]:
    result = invoke(*arguments, text=text)
    assert result.exception is None, result.exception
    *lines, rest = result.stdout_bytes.decode().split("\n")
    assert rest == ""
    return lines


def test_one_line_comes_out_for_every_line_in_order_and_blank_lines_stay_blank(run, translator):
    expected = translator.translate(LINES)
    assert output("translate", run) == expected
    assert [line == "" for line in expected] == [line == "" for line in LINES]
    assert len(set(expected)) > 4


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_file_a_compressed_file_and_standard_input_give_the_same(run, translator, tmp_path, end):
    (tmp_path / "text.en").write_bytes(TEXT + end)
    with gzip.open(tmp_path / "text.en.gz", "wb") as file:
        file.write(TEXT + end)
    expected = translator.translate(LINES)
    assert output("translate", run, tmp_path / "text.en", text=b"") == expected
    assert output("translate", run, tmp_path / "text.en.gz", text=b"") == expected
    assert output("translate", run, "-", text=TEXT + end) == expected


def test_a_byte_order_mark_and_windows_line_ends_are_dropped_from_files_and_standard_input(
    run, tmp_path, monkeypatch
):
    text = b"\xef\xbb\xbf" + b"the old house\r\n\r\ntwo \xef\xbb\xbfcats"
    (tmp_path / "text").write_bytes(text)
    for size in (4, 1 << 17):
        monkeypatch.setattr(texts, "STREAM_BYTES", size)
        for source, given in ((tmp_path / "text", b""), ("-", text)):
            objects = [
                json.loads(line)
                for line in output("translate", run, source, "--format", "jsonl", text=given)
            ]
            assert [one["source"] for one in objects] == ["the old house", "", "two \ufeffcats"]


def test_the_chunks_of_a_long_text_leave_no_trace(run, translator, tmp_path, monkeypatch):
    lines = [f"the cat sees {number} cats" for number in range(11)]
    text = "".join(f"{line}\n" for line in lines).encode()
    (tmp_path / "text").write_bytes(text)
    expected = translator.translate(lines)
    monkeypatch.setattr(texts, "FILE_LINES", 4)
    monkeypatch.setattr(texts, "STREAM_BYTES", 31)
    assert output("translate", run, text=text) == expected
    assert output("translate", run, tmp_path / "text") == expected
    objects = [
        json.loads(line) for line in output("translate", run, "--format", "jsonl", text=text)
    ]
    assert [(one["index"], one["source"]) for one in objects] == list(enumerate(lines))
    assert output("translate", run, "--n-best", 1, text=text) == [
        f"{number} ||| {best.text} ||| {best.score:.4f}"
        for number, [best] in enumerate(translator.n_best(lines, 1))
    ]


def test_a_file_need_not_fit_into_memory(tmp_path):
    line = "the old house " * 8
    (tmp_path / "text").write_text(f"{line}\n" * 60_000)
    tracemalloc.start()
    count, chunks = texts.file_chunks(tmp_path / "text")
    assert count == sum(len(chunk.lines) for chunk in chunks) == 60_000
    assert tracemalloc.get_traced_memory()[1] < 60_000 * len(line) / 4
    tracemalloc.stop()


def test_n_best_gives_index_text_and_score_best_first(run, translator):
    lines = output("translate", run, "--n-best", "2")
    assert lines == [
        f"{index} ||| {candidate.text} ||| {candidate.score:.4f}"
        for index, candidates in enumerate(translator.n_best(LINES, 2))
        for candidate in candidates
    ]
    assert "1 |||  ||| 0.0000" in lines
    assert len(lines) == 2 * (len(LINES) - 1) + 1


def test_scores_stand_after_the_last_tab(run, translator):
    expected = [f"{best.text}\t{best.score:.4f}" for best, *_ in translator.n_best(LINES, 1)]
    assert output("translate", run, "--scores") == expected


def test_a_line_without_letters_is_copied_in_every_format(run):
    lines = ["1984", "👍🏽 12:30 http://a.b/c"]
    text = "\n".join(lines).encode()
    assert output("translate", run, text=text) == lines
    assert output("translate", run, "--sample", text=text) == lines
    assert output("translate", run, "--scores", text=text) == [f"{line}\t0.0000" for line in lines]
    assert output("translate", run, "--n-best", "3", text=text) == [
        f"{number} ||| {line} ||| 0.0000" for number, line in enumerate(lines)
    ]
    objects = map(json.loads, output("translate", run, "--format", "jsonl", text=text))
    assert [(one["source"], one["translation"]) for one in objects] == [(a, a) for a in lines]


@pytest.mark.parametrize("n", [1, 3])
def test_jsonl_has_an_object_for_each_translation_with_scores_and_an_alignment_of_every_token(
    run, translator, n
):
    found = [
        json.loads(line) for line in output("translate", run, "--format", "jsonl", "--n-best", n)
    ]
    expected = [
        (index, best)
        for index, candidates in enumerate(translator.n_best(LINES, n))
        for best in candidates
    ]
    assert [(one["index"], one["source"], one["translation"]) for one in found] == [
        (index, LINES[index].removesuffix("\r"), best.text) for index, best in expected
    ]
    assert [one["tokens"] for one in found] == [
        translator.tokenizer.tokens(best.tokens) for _, best in expected
    ]
    for name in ("score", "log_prob"):
        assert [one[name] for one in found] == pytest.approx(
            [getattr(best, name) for _, best in expected], rel=1e-5
        )
    for one in found:
        assert set(one) == {
            *(
                "index",
                "source",
                "translation",
                "score",
                "log_prob",
                "source_tokens",
                "tokens",
                "alignment",
            )
        }
        assert len(one["alignment"]) == len(one["tokens"])
        assert all(0 <= place < len(one["source_tokens"]) for place in one["alignment"])
        assert one["source_tokens"] == translator.tokenizer.tokens(
            translator.source_ids([one["source"]])[0]
        )
    assert any(place > 0 for one in found for place in one["alignment"])


def test_one_column_is_translated_and_the_others_are_kept_to_the_byte(run, translator):
    rows = [["7", line, ' "x', "\x85\u2028"] for line in LINES if line] + [["", "", "", ""]]
    text = "\n".join(map("\t".join, rows)) + "\n\nz\tthe cat\n"
    found = translator.translate([row[1] for row in rows] + ["the cat"])
    expected = ["\t".join([row[0], new, *row[2:]]) for row, new in zip(rows, found, strict=False)]
    assert output("translate", run, "--tsv", 2, text=text.encode()) == [
        *expected,
        "",
        f"z\t{found[-1]}",
    ]


@pytest.mark.parametrize(
    ("arguments", "text", "error", "message"),
    [
        (
            ["--tsv", "2"],
            b"a\tb\nc\n",
            DataError,
            r"^line 2 has 1 column: --tsv 2 needs 2; correct it$",
        ),
        (
            ["--tsv", "2", "--scores"],
            b"a\tb",
            ConfigError,
            "leave out --n-best, --scores and --format",
        ),
        (
            ["--tsv", "2", "--n-best", "2"],
            b"a\tb",
            ConfigError,
            "leave out --n-best, --scores and --format",
        ),
        (
            ["--tsv", "2", "--format", "jsonl"],
            b"a\tb",
            ConfigError,
            "leave out --n-best, --scores and --format",
        ),
    ],
)
def test_a_row_without_the_column_is_named_and_other_forms_of_output_are_refused(
    run, arguments, text, error, message
):
    with pytest.raises(error, match=message):
        raise invoke("translate", run, *arguments, text=text).exception


def languages(translator) -> tuple[str, str]:
    assert translator.languages == ("en", "de")
    return translator.languages


def test_a_table_with_the_languages_over_its_columns_gets_the_targets_filled(
    run, translator, tmp_path, monkeypatch
):
    languages(translator)
    monkeypatch.setattr(sys.modules["aiayn.cli.translate"], "FILE_LINES", 2)
    rows = ["1\tthe old house\t", "", "2\ttwo cats\told", "3\tthe man\t"]
    (tmp_path / "x.tsv").write_text(
        "\n".join(["id\tEnglish (US)\tGerman (DE)", *rows]) + "\n", encoding="utf-8"
    )
    new = translator.translate(["the old house", "the man"])
    assert output("translate", run, tmp_path / "x.tsv") == [
        "id\tEnglish (US)\tGerman (DE)",
        f"1\tthe old house\t{new[0]}",
        "",
        "2\ttwo cats\told",
        f"3\tthe man\t{new[1]}",
    ]


def test_json_objects_get_the_translation_as_a_field_and_keep_all_else_as_it_came(
    run, translator, tmp_path
):
    languages(translator)
    lines = [
        r'{"id": 1e400, "en":"two cats", "x":"\ud83d"}',
        "",
        '{"n": 1.10, "n": 2,"en": "the man"}',
    ]
    with gzip.open(tmp_path / "x.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    first, second = (
        json.dumps(text, ensure_ascii=False)
        for text in translator.translate(["two cats", "the man"])
    )
    assert output("translate", run, tmp_path / "x.jsonl.gz") == [
        f'{lines[0][:-1]}, "de": {first}}}',
        "",
        f'{lines[2][:-1]}, "de": {second}}}',
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_keeps_all_but_its_texts_and_its_mark_up_is_counted(
    run, translator, tmp_path, name
):
    (tmp_path / name).write_bytes(DOCUMENTS[name])
    document = parse_document(
        tmp_path / name, (tmp_path / name).read_bytes(), languages(translator)
    )
    kept = [one for one in document.pieces if isinstance(one, str)]

    result = invoke("translate", run, tmp_path / name)

    [expected], _ = translate_texts(
        translator, [document.pieces], document.markup, paragraphs=document.is_prose
    )
    assert result.stdout_bytes == expected.encode() != DOCUMENTS[name]
    assert re.search(".*".join(map(re.escape, kept)), result.stdout_bytes.decode(), re.DOTALL)
    assert ("mark-up: " in result.stderr) == any(
        part.tags or "%" in part.text for part in document.parts
    )


def test_a_document_in_which_no_text_is_found_comes_back_and_the_user_is_told(run, tmp_path):
    content = b"1\nat the beginning\nthe cat\n"
    (tmp_path / "x.srt").write_bytes(content)
    result = invoke("translate", run, tmp_path / "x.srt")
    assert (result.stdout_bytes, f"{tmp_path}/x.srt: " in result.stderr) == (content, True)


def test_an_unknown_suffix_asks_for_format_text_which_reads_any_file_as_lines(
    run, translator, tmp_path
):
    for name in ("x.rst", "x.md", "x.docx"):
        (tmp_path / name).write_text("the cat\n", encoding="utf-8")
        assert output(
            "translate", run, tmp_path / name, "--format", "text"
        ) == translator.translate(["the cat"])
    with pytest.raises(DataError, match=r"x\.rst: .*add --format text"):
        raise invoke("translate", run, tmp_path / "x.rst").exception


def test_a_translation_memory_becomes_one_of_both_languages(run, translator, tmp_path):
    languages(translator)
    units = (
        '<tu tuid="a&amp;1"><tuv xml:lang="en-US"><seg>the <b>old</b> house &lt; 5</seg></tuv>'
        '<tuv xml:lang="de"><seg>alt</seg></tuv></tu><tu><tuv '
        'xml:lang="fr"><seg>chat</seg></tuv></tu><tu><tuv xml:lang="en"><seg>two '
        "cats</seg></tuv></tu>"
    )
    (tmp_path / "x.tmx").write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")
    result = invoke("translate", run, tmp_path / "x.tmx")
    assert result.exception is None
    found = list(read_memory(tmp_path / "new.tmx", io.BytesIO(result.stdout_bytes), ("en", "de")))
    assert [(unit.texts["en"], unit.texts["de"], unit.name) for unit in found] == [
        ("the old house < 5", "alt", "a&1"),
        ("two cats", translator.translate(["two cats"])[0], None),
    ]
    assert (
        f"{tmp_path}/x.tmx: 1 unit left out, without exactly one text in en: line " in result.stderr
    )


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        (
            "x.tsv",
            [],
            DataError,
            r"x\.tsv: the columns are not named en and de; add --tsv N to translate column N",
        ),
        ("x.csv", [], DataError, r"x\.csv: the columns are not named en and de"),
        ("x.docx", [], DataError, r"x\.docx: office documents are not supported"),
        (
            "x.tmx",
            ["--n-best", "2"],
            ConfigError,
            r"a \.tmx file allows only the best translation of",
        ),
        ("x.jsonl", ["--sample"], ConfigError, r"a \.jsonl file allows only .* leave out --sample"),
        (
            "x.en",
            ["--markup", "--scores"],
            ConfigError,
            r"--markup allows only .* leave out --n-best, --scores",
        ),
        (
            "x.en",
            ["--paragraphs", "--sample"],
            ConfigError,
            r"--paragraphs allows only .* leave out --sample",
        ),
    ],
)
def test_files_of_known_endings_are_never_translated_as_lines(
    run, tmp_path, name, options, error, message
):
    (tmp_path / name).write_text("the\tcat\n", encoding="utf-8")
    with pytest.raises(error, match=message):
        raise invoke("translate", run, tmp_path / name, *options).exception


def test_mark_up_is_kept_and_counted_and_sentences_are_translated_one_by_one(
    run, translator, tmp_path
):
    lines = ["<b>the old</b> house", "", "two {x} cats. The man sees!"]
    text = "\n".join(lines).encode()
    result = invoke("translate", run, "--markup", "--paragraphs", text=text)
    expected, _ = translate_texts(translator, lines, paragraphs=True)
    assert result.stdout.split("\n")[:-1] == expected
    assert re.search(
        r"^mark-up: 2 tags and placeholders \(\d kept by the model", result.stderr, re.MULTILINE
    )
    new = translator.translate(["two {x} cats.", "The man sees!"])
    assert output("translate", run, "--paragraphs", text=text)[2] == " ".join(new)
    (tmp_path / "x.tsv").write_bytes(b"a\ttwo cats. The man\n")
    [row] = output("translate", run, tmp_path / "x.tsv", "--tsv", 2, "--paragraphs")
    assert row == "a\t" + " ".join(translator.translate(["two cats.", "The man"]))


def test_tags_that_the_model_invents_are_removed_and_counted(run, monkeypatch):
    def n_best(self, lines, n, on_batch=None, first_line=1):
        return [
            [Translation(f"<b>{line}</b> {{x}}", 0.0, 0.0, self.source_ids([line])[0])]
            for line in lines
        ]

    monkeypatch.setattr(LineTranslator, "n_best", n_best)
    result = invoke("translate", run, "--markup", text=b"the <i>old</i> house\n")
    assert result.stdout.replace("<i>", "").replace("</i>", "").split() == ["the", "old", "house"]
    assert result.stdout.count("<i>") == result.stdout.count("</i>") == 1
    assert result.stderr.endswith("; removed because the source lacks them: 3\n")


def test_a_server_keeps_few_kernels_in_memory(run, monkeypatch):
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    served = []
    monkeypatch.setattr(
        "aiayn.apps.server.serve.serve", lambda *arguments: served.append(os.environ[name])
    )
    assert invoke("serve", run, "--engine", "torch").exit_code == 0
    assert served == ["128"]


def test_an_exported_checkpoint_is_half_as_large_translates_alone_and_is_never_written_over(
    run, tmp_path
):
    packed, exact = tmp_path / "model.ckpt", tmp_path / "exact.ckpt"

    [line] = output("export", run, packed, "--format", "aiayn")
    output(
        "export", run, exact, "--format", "aiayn", "--precision", "float32", "--checkpoint", "last"
    )

    assert line == f"{packed}  {packed.stat().st_size / 1e6:.1f} MB"
    weights, halved = (
        checkpoints.load(path).weights for path in (run / "checkpoints/averaged.ckpt", packed)
    )
    assert all(torch.equal(halved[name], weights[name].bfloat16().float()) for name in weights)
    assert packed.stat().st_size < exact.stat().st_size
    assert output("translate", exact) == output("translate", run, "--checkpoint", "last")
    assert len(output("translate", packed)) == len(LINES)
    assert "already exists" in str(invoke("export", run, packed, "--format", "aiayn").exception)


def complete(words: str, monkeypatch, capsys) -> list[str]:
    """What the shell would offer for the last of these words."""
    monkeypatch.setattr(sys, "argv", ["aiayn"])
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setenv("_AIAYN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    return capsys.readouterr().out.split()


def test_a_shell_completes_commands_and_options(monkeypatch, capsys):
    assert complete("aiayn ta", monkeypatch, capsys) == ["table"]
    assert complete("aiayn translate --n", monkeypatch, capsys) == ["--n-best"]


def test_score_prints_log_p_line_for_line_and_the_perplexity_on_standard_error(
    run, translator, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys.modules["aiayn.cli.score"], "FILE_LINES", 4)
    translations = translator.translate(LINES)
    (tmp_path / "src").write_bytes(TEXT)
    with gzip.open(tmp_path / "tgt.gz", "wb") as file:
        file.write("".join(f"{line}\n" for line in translations).encode())
    pairs = translator.score(LINES, translations)
    arguments = ("score", run, tmp_path / "src", tmp_path / "tgt.gz")
    result = invoke(*arguments)
    printed = [float(line) for line in result.stdout.split("\n")[:-1]]
    assert printed == pytest.approx([pair.log_prob for pair in pairs], abs=2e-5)
    tokens = sum(len(pair.tokens) for pair in pairs)
    word, value, rest = result.stderr.split(" ", 2)
    assert (word, rest) == ("perplexity", f"(6 lines, {tokens} subwords with end marks)\n")
    assert float(value) == pytest.approx(
        perplexity(sum(pair.log_prob for pair in pairs), tokens), rel=1e-4
    )
    objects = [
        json.loads(line) for line in invoke(*arguments, "--format", "jsonl").stdout.split("\n")[:-1]
    ]
    assert [(one["index"], one["translation"]) for one in objects] == list(enumerate(translations))
    assert [one["token_log_probs"] for one in objects] == [
        pytest.approx(pair.token_log_probs, abs=2e-5) for pair in pairs
    ]
    assert [one["tokens"] for one in objects] == [
        translator.tokenizer.tokens(pair.tokens) for pair in pairs
    ]
    assert objects[0]["tokens"][-1] == "</s>"
    # Shorter by a line: exit code 3 with both counts.
    (tmp_path / "tgt").write_text("a\nb\n", encoding="utf-8")
    refused = invoke("score", run, tmp_path / "src", tmp_path / "tgt").exception
    assert type(refused) is DataError
    counts = f"TGT={tmp_path}/tgt: it has 2 lines and the source has 6: line N"
    assert counts in str(refused)


def test_scores_per_token_and_of_a_file_of_pairs(run, translator, tmp_path):
    pairs = [("the old house", "das alte Haus"), ("two cats", "zwei Katzen"), ("", "")]
    (tmp_path / "x.tsv").write_text(
        "".join(f"{src}\t{tgt}\n" for src, tgt in pairs[:2]) + "\n", encoding="utf-8"
    )
    sources, targets = zip(*pairs, strict=True)
    means = [
        pair.log_prob / max(len(pair.tokens), 1)
        for pair in translator.score([*sources], [*targets])
    ]

    printed = [
        float(line) for line in output("score", run, tmp_path / "x.tsv", "--per-token", text=b"")
    ]
    assert printed == pytest.approx(means, abs=2e-5)
    with pytest.raises(
        ConfigError, match="--per-token prints one number for each pair; leave out --format"
    ):
        raise invoke("score", run, tmp_path / "x.tsv", "--per-token", "--format", "jsonl").exception
    with pytest.raises(ConfigError, match=r"x\.en: name the file with its translations as well"):
        raise invoke("score", run, tmp_path / "x.en").exception


def test_samples_are_those_of_the_seed_whatever_the_chunks(run, translator, monkeypatch):
    sampling = SamplingConfig(seed=5, temperature=0.9, top_k=40)
    options = ("--sample", "--seed", 5, "--temperature", 0.9, "--top-k", 40)
    expected = [drawn.text for drawn in translator.sample(LINES, sampling)]
    assert output("translate", run, *options) == expected
    monkeypatch.setattr(texts, "STREAM_BYTES", 20)
    assert output("translate", run, *options) == expected
    objects = [json.loads(line) for line in output("translate", run, *options, "--format", "jsonl")]
    assert [one["translation"] for one in objects] == expected
    assert [len(one["alignment"]) for one in objects] == [len(one["tokens"]) for one in objects]


def test_search_options_and_checkpoint_reach_the_search(run):
    from aiayn.config.search import SearchOverrides

    search = SearchOverrides(beam_size=5, length_penalty=2.5)
    expected = [
        c.text for cs in translator_of(run, "last", search=search).n_best(LINES, 5) for c in cs
    ]
    options = (
        "--beam-size",
        5,
        "--length-penalty",
        2.5,
        "--checkpoint",
        "last",
        "--n-best",
        5,
        "--engine",
        "torch",
    )
    assert [line.split(" ||| ")[1] for line in output("translate", run, *options)] == expected


@pytest.mark.parametrize(
    ("arguments", "text", "error", "message"),
    [
        (["{run}", "--n-best", "4"], b"", ConfigError, r"--n-best 4: the search keeps 3 .*; add --beam-size 4 or more"),
        (["{run}", "--accelerator", "tpu"], b"", ConfigError, "accelerator=tpu: choose one of auto, cpu, gpu"),
        (["{run}", "--checkpoint", "nope"], b"", RefusedError, "nope: no such checkpoint"),
        (["{run}", "{run}/nope.txt"], b"", DataError, r"nope\.txt: no such file"),
        (["{run}", "--top-k", "4"], b"", ConfigError, "--top-k is an option of --sample; add --sample or leave it out"),
        (["{run}", "--sample", "--n-best", "2"], b"", ConfigError, "one translation per line, .* leave out --n-best"),
        (["{run}", "--scores", "--format", "tree"], b"", ConfigError, "--scores: not supported with --format tree"),
        (["{run}", "--sample", "--top-p", "2"], b"", ConfigError, "--top-p 2.0: must be above 0 and at most 1"),
        (["{run}"], b"good\nbad \xff\n", DataError, "standard input: line 2 is not UTF-8"),
        (["{run}"], b"good\nbad \xff", DataError, "standard input: line 2 is not UTF-8"),
    ],
)  # fmt: skip
def test_what_a_user_gets_wrong_is_named(run, arguments, text, error, message):
    result = invoke("translate", *(argument.format(run=run) for argument in arguments), text=text)
    assert type(result.exception) is error
    with pytest.raises(UserError, match=message):
        raise result.exception


def test_attention_writes_a_page_and_the_papers_figures(run, tmp_path):
    drawn = [
        f"{name}.{kind}" for name in ("figure_3", "figure_4", "figure_5") for kind in ("png", "svg")
    ]
    names = ["index.html", *drawn]
    assert output("attention", run, "the old house", "--out", tmp_path / "new") == [
        str(tmp_path / "new" / n) for n in names
    ]
    starts = {".html": b"<!doctype html>", ".png": b"\x89PNG", ".svg": b"<?xml"}
    for name in names:
        path = tmp_path / "new" / name
        assert path.read_bytes().startswith(starts[path.suffix])


def test_attention_for_a_sentence_or_a_word_that_is_refused_writes_nothing(run, tmp_path):
    for sentence, word in (("the old house", "new"), (" ", "old")):
        refused = invoke("attention", run, sentence, "--word", word, "--out", tmp_path / "new")
        assert type(refused.exception) is DataError
    assert not (tmp_path / "new").exists()


def test_attention_is_not_drawn_into_a_folder_that_a_link_inside_the_run_leads_to(run, tmp_path):
    foreign, link = tmp_path / "foreign", run / "attention"
    foreign.mkdir()
    link.symlink_to(foreign)
    try:
        refused = invoke("attention", run, "the old house")
    finally:
        link.unlink()
    assert "attention: is a symbolic link, which is not supported" in str(refused.exception)
    assert not any(foreign.iterdir())


def test_attention_reads_the_words_of_a_parser_as_translate_does(run, tmp_path, monkeypatch):
    def look(translator, sentence):
        raise DataError(sentence)

    found = checkpoints.load(run / "checkpoints" / "last.ckpt")
    config = replace(found.config, data=replace(found.config.data, task="parsing"))
    checkpoints.save(tmp_path / "parser.ckpt", replace(found, config=config))
    monkeypatch.setattr("aiayn.visualize.maps.attention_maps", look)
    refused = invoke("attention", tmp_path / "parser.ckpt", "It ( barely ) rained .")
    assert str(refused.exception) == "It -LRB- barely -RRB- rained ."


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            ["translate", "{run}/nope"],
            2,
            "error: {run}/nope: neither a run (no checkpoints/) nor a checkpoint; name a run's "
            "folder, such as outputs/quickstart\n",
        ),
        (["translate", "{run}", "{run}/checkpoints"], 3, None),
        (["translate"], 2, "error: Missing argument 'RUN'. (see --help)\n"),
        (["translate", "{run}", "--beam", "3"], 2, None),
        (["trnslate"], 2, None),
        (["translate", "{run}", "--n-best", "0"], 2, None),
        (["translate", "n" * 300], 2, None),
        (["table", "{run}/" + "n" * 300], 2, None),
    ],
)
def test_an_error_is_one_line_and_the_exit_code_of_the_contract(
    run, monkeypatch, capsys, arguments, code, line
):
    monkeypatch.setattr(
        sys, "argv", ["aiayn", *(argument.format(run=run) for argument in arguments)]
    )
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    assert ended.value.code == code
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert line is None or captured.err == line.format(run=run)


def test_debug_adds_the_traceback(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["aiayn", "translate", "--debug", f"{run}/nope"])
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        cli.main()
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert error.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("users", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_waiting_threads_spin_briefly_unless_the_user_says_otherwise(monkeypatch, users, spins):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    code = "import os, aiayn.cli; print(os.environ.get('GOMP_SPINCOUNT'))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | users
    )
    assert shown.stdout == f"{spins}\n"


def test_lines_are_answered_one_by_one_and_a_closed_pipe_ends_it_silently(run, translator):
    with subprocess.Popen(
        [*PROGRAM, "translate", str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        limit = Timer(600, process.kill)
        limit.start()
        for line in ("the cat", "", "two cats"):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == translator.translate([line])[0] + "\n"
        process.stdout.close()
        process.stdin.write(b"the cat\n")
        process.stdin.close()
        assert process.stderr.read() == b"engine   CTranslate2, float32, cpu\n"
    limit.cancel()
    assert process.returncode == -13  # SIGPIPE; 141 in a shell


def test_on_a_terminal_there_is_a_prompt_until_the_end_of_input(run, translator):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "translate", str(run)], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        limit = Timer(600, process.kill)
        limit.start()
        seen = b""

        def until(expected: bytes) -> None:
            nonlocal seen
            while expected not in seen:
                seen += os.read(ours, 1000)

        until(b"> ")
        os.write(ours, b"the old cat\n")
        translation = translator.translate(["the old cat"])[0]
        until(f"{translation}\r\n".encode())
        seen = seen.partition(translation.encode())[2]
        until(b"> ")
        os.write(ours, b"\x04")
        assert f"{run}: a line to translate" in process.stderr.read().decode()
        assert process.wait() == 0
    limit.cancel()
    os.close(ours)


def test_from_file_to_file_a_terminal_shows_how_far_it_is_and_is_left_clean(
    run, translator, tmp_path
):
    (tmp_path / "text").write_bytes(TEXT)

    def shown(out: int) -> bytes:
        """What comes to the terminal meanwhile."""
        ours, theirs = pty.openpty()
        command = [*PROGRAM, "translate", str(run), str(tmp_path / "text")]
        environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "100"}
        with subprocess.Popen(command, stdout=out, stderr=theirs, env=environment) as process:
            os.close(theirs)
            seen = b""
            with suppress(OSError):  # its end
                while True:
                    seen += os.read(ours, 1000)
        os.close(ours)
        assert process.returncode == 0
        return seen

    with open(tmp_path / "out", "wb") as file:
        terminal = re.sub(rb"\x1b\[[0-9;]*m", b"", shown(file.fileno()))
    assert b"6/6" in terminal
    assert terminal.endswith(b"\x1b[2K")
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1] == translator.translate(
        LINES
    )
    # What reads a pipe may write to the same terminal.
    assert shown(subprocess.PIPE) == b"engine   CTranslate2, float32, cpu\r\n"


def test_a_full_disk_is_one_line_and_exit_code_6(run):
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*PROGRAM, "translate", str(run)],
            input=b"a\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
    assert ended.returncode == 6
    assert ended.stderr.endswith(
        b"\nerror: standard output cannot be written (No space left on device); make room and run again\n"
    )


def test_a_line_without_end_on_standard_input_is_named_and_not_collected(monkeypatch):
    class Endless(io.BufferedIOBase):
        given = 0

        def read1(self, size: int) -> bytes:
            self.given += size
            assert self.given < 1 << 20
            return b"x" * size

    stream = Endless()
    monkeypatch.setattr(sys, "stdin", type("Input", (), {"buffer": stream}))
    with pytest.raises(
        DataError, match="standard input: line 1 is longer than 32,768 bytes; split it"
    ):
        list(texts.stream_chunks())


@pytest.mark.parametrize(
    ("typed", "is_plain"),
    [
        ("outputs/x", True),
        ("outputs/x - --n-best 3 --beam-size=7 --length-penalty -0.5", True),
        ("--scores outputs/x my/test.en --precision int8 --debug", True),
        ("outputs/x --with a --with b --extension c.py --tag <2de> --format jsonl", True),
        ("outputs/x --sample --seed 3 --temperature 0.7 --top-p .9", True),
        ("outputs/x --n-best 0", False),
        ("outputs/x --devices two", False),
        ("outputs/x --n 2", False),
        ("outputs/x one two", False),
        ("outputs/x --no-such", False),
        ("--scores", False),
        ("--help", False),
    ],
)
def test_what_is_read_without_typer_is_what_typer_reads(monkeypatch, typed, is_plain):
    reached = []
    monkeypatch.setattr(arguments, "_call", lambda command, values: reached.append(dict(values)))

    assert arguments.run_without_typer(translate, typed.split()) == is_plain
    by_typer = CliRunner().invoke(commands.app, ["translate", *typed.split()])

    assert (by_typer.exit_code == 0) == (is_plain or "--help" in typed), by_typer.output
    assert len(reached) == 2 * is_plain
    assert reached[:1] == reached[1:]
