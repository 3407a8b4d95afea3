"""Held-out text: drawn evenly, and nothing of it in the training text."""

import shlex
from pathlib import Path

import pytest
from applications import run_application
from texts import data_config, write_bytes, write_lines

from aiayn.cli.texts import file_chunks
from aiayn.config.compose import compose_training
from aiayn.data import held_out
from aiayn.data.cleaning import folded
from aiayn.data.preparation import prepare_corpus
from aiayn.data.text_files import read_lines
from aiayn.errors import DataError


def split_options(folder: Path) -> list[str]:
    languages = ["--src-lang", "en", "--tgt-lang", "de"]
    return [*languages, "--val", "5", "--test", "7", "--out", f"{folder}/parts"]


def test_no_side_of_a_held_out_pair_is_left_for_training(tmp_path):
    pairs = [(f"house {n}", f"Ha\u00adus\u00a0{n}\x85") for n in range(40)]  # written as they came
    pairs += [(f"HOUSE {n}!", f"Heim {n}") for n in range(40)] + [
        (f"home {n}", f"haus, {n}.") for n in range(40)
    ]
    prefix = write_lines(
        tmp_path / "all", *([pair[side] for pair in [*pairs, ("", "leer")]] for side in (0, 1))
    )
    (tmp_path / "more.tsv").write_text("a cat\teine Katze\n", encoding="utf-8")
    options = split_options(tmp_path)

    done = run_application("aiayn", "split", prefix, f"{tmp_path}/more.tsv", *options)

    assert (done.code, done.err) == (0, "")
    parts = {
        name: list(
            zip(
                *(read_lines(tmp_path / "parts" / f"{name}.{lang}") for lang in ("en", "de")),
                strict=True,
            )
        )
        for name in ("train", "val", "test")
    }
    assert (len(parts["val"]), len(parts["test"])) == (5, 7)
    everything = [pair for part in parts.values() for pair in part]
    assert len(everything) == len(set(everything))
    assert set(everything) <= {*pairs, ("a cat", "eine Katze")}
    for name in ("train", "val"):
        for other in ("val", "test"):
            for side in (0, 1):
                mine, theirs = (
                    {folded(pair[side]) for pair in parts[part]} for part in (name, other)
                )
                assert name == other or not mine & theirs
    leaking = 121 - len(everything)
    assert 0 < leaking <= 2 * 12
    assert f"{len(parts['train'])} pairs for training" in done.out
    assert f"{leaking} that share a side with held-out pairs, 1 unusable" in done.out
    again = run_application("aiayn", "split", prefix, *options)
    assert again.code == 4
    assert "already exists" in again.err


def test_the_printed_training_learns_the_tags_of_the_text_as_one_subword_each(tmp_path):
    tagged = [f"<2{lang}> a {n}" for n in range(40) for lang in ("de", "fr")]
    mixed = write_lines(tmp_path / "mixed", [*tagged, "<b> x"], [f"b {n}" for n in range(81)])
    back = write_lines(
        tmp_path / "back", [f"c {n}" for n in range(40)], [f"d {n}" for n in range(40)]
    )
    options = split_options(tmp_path)
    done = run_application("aiayn", "split", mixed, f"<bt>{back}", *options)
    assert done.code == 0
    command = shlex.split(done.out.partition("aiayn train ")[2].replace("\\\n", " "))
    assert compose_training(command).data.symbols == ["<2de>", "<2fr>", "<bt>"]


def test_where_one_file_cannot_be_written_there_is_none(tmp_path, monkeypatch):
    def write(path, text, write=held_out.atomic_write):
        if path.name == "val.de":
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(held_out, "atomic_write", write)
    prefix = write_lines(
        tmp_path / "all", [f"a {n}" for n in range(40)], [f"b {n}" for n in range(40)]
    )
    options = split_options(tmp_path)
    done = run_application("aiayn", "split", prefix, *options)
    assert (done.code, "No space left on device" in done.err) == (6, True)
    assert list((tmp_path / "parts").iterdir()) == []


@pytest.mark.parametrize("count", [3, 20])
def test_too_little_text_is_refused_and_nothing_is_written(tmp_path, count):
    prefix = write_lines(
        tmp_path / "all", [f"a {n}" for n in range(count)], [f"b {n}" for n in range(count)]
    )
    options = split_options(tmp_path)
    done = run_application("aiayn", "split", prefix, *options)
    assert done.code == 3
    assert f"{count} usable pairs are too few to hold 12 out" in done.err
    assert not (tmp_path / "parts").exists()


def test_text_in_another_encoding_is_refused_because_its_lines_with_accents_would_be_lost(tmp_path):
    english = "".join(f"house {n}\n" for n in range(80))
    german = "".join(f"Haus {n} ist {'größer' if n % 2 else 'klein'}\n" for n in range(80))
    prefix = write_bytes(tmp_path / "all", english.encode(), german.encode("latin-1"))
    with pytest.raises(DataError, match="40 of 80 pairs read are not UTF-8"):
        held_out.hold_out([prefix], ("en", "de"), (5, 5), 0, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize(
    ("size", "bad", "is_refused"),
    [(400, 20, False), (400, 21, True), (30, 19, False), (30, 20, True)],
)
def test_a_file_in_another_encoding_is_found_among_larger_ones(tmp_path, size, bad, is_refused):
    lines = [f"Haus {n} {'groß' if n < bad else 'klein'}\n".encode("latin-1") for n in range(size)]
    small = write_bytes(tmp_path / "small", b"".join(lines), b"".join(lines))
    others = [
        write_lines(
            tmp_path / name,
            *([f"{name} {side} {n}" for n in range(2000)] for side in ("src", "tgt")),
        )
        for name in ("one", "two")
    ]
    options = split_options(tmp_path)
    done = run_application("aiayn", "split", *others, small, *options)

    assert done.code == (3 if is_refused else 0)
    assert (
        f"{bad} of {size} pairs read are not UTF-8 (the first: {small}" in done.err
    ) == is_refused
    assert (f"{bad} not_utf8 ({small}" in done.out) != is_refused


def test_split_training_and_translation_count_the_same_lines_and_drop_the_same_pairs(tmp_path):
    usable = [(f"house\u2028 {n}", f"Haus\x85 {n}\r") for n in range(60)]
    odd = [("", "x"), ("x", "\u200b"), ("y\x00", "y"), ("z" * 40_000, "z")]
    for number, pair in enumerate(odd):
        usable.insert(7 * number, pair)
    src, tgt = ("\n".join(side).encode() for side in zip(*usable, strict=True))
    prefix = write_bytes(tmp_path / "all", src, tgt + b"\n")  # one without a last line end
    _, _, report = held_out.hold_out([prefix], ("en", "de"), (5, 5), 0, tmp_path / "parts")
    config = data_config(train=prefix, val=prefix, folder=str(tmp_path / "data"), max_length=99)
    trained = prepare_corpus(config).report["train"]
    assert report.read == trained["read"] == file_chunks(Path(f"{prefix}.de"))[0] == 64
    assert dict(report.dropped) == trained["dropped"]
    assert report.dropped == {"empty": 2, "control_characters": 1, "too_many_bytes": 1}
    assert report.first_dropped == trained["first_dropped"]


def test_one_language_twice_is_refused_before_its_files_overwrite_each_other(tmp_path):
    options = ("--src-lang", "en", "--tgt-lang", "en", "--out", str(tmp_path / "out"))
    done = run_application("aiayn", "split", str(tmp_path / "all.tsv"), *options)
    assert (done.code, "both en: name two languages" in done.err) == (2, True)
