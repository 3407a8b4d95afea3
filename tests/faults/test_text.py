"""Text as it comes: what is dropped, what is refused, and that no pair is ever shifted. From the
command to the end.
"""

import json
from pathlib import Path

import pytest
from applications import TEXT, TINY, run_application, write_pairs
from texts import SEPARATORS, data_config, write_bytes

from aiayn.data.preparation import prepare_corpus

OPTIONS = (*TEXT, *TINY, "name=run")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A working directory with good text: train (80 pairs) and dev (4)."""
    write_pairs(tmp_path / "train", 80, seed=1)
    write_pairs(tmp_path / "dev", 4, seed=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def good(lang: str) -> list[bytes]:
    return Path(f"train.{lang}").read_bytes().removesuffix(b"\n").split(b"\n")


def report() -> dict:
    [path] = Path("data").glob("*/report.json")
    return json.loads(path.read_text(encoding="utf-8"))


def assert_refused(*said: str, options: tuple[str, ...] = OPTIONS) -> None:
    """Exit code 3, one line that says all that, and no run."""
    outcome = run_application("train.py", *options)
    lines = [line for line in outcome.err.split("\n") if line]
    assert outcome.code == 3, outcome.err
    assert lines[-1].startswith("error: ")
    assert sum(line.startswith("error") for line in lines) == 1
    for part in said:
        assert part in lines[-1]
    assert not Path("outputs").exists()
    assert not list(Path().glob("data/en-de-*"))


INNER = [separator for separator in SEPARATORS if "\n" not in separator]

# In every pair: what stands on the source side, on the target side, and the reason why the pair is
# dropped, if it is.
ODD = [
    *[(f"one{separator}two", "eins zwei", None) for separator in INNER],
    *[("one two", f"eins{separator}zwei", None) for separator in INNER],
    ("one\u2028two", "eins\u2028zwei", None),
    ("one\r", "eins", None),
    ("Ω 文", "eins", None),
    ("", "eins", "empty"),
    ("one", " \t\u3000", "empty"),
    (b"\xff\xfeone", "eins", "not_utf8"),
    ("one", b"f\xfcnf", "not_utf8"),
    ("one", b"\xed\xa0\x80", "not_utf8"),
    ("one\x00two", "eins", "control_characters"),
    ("one", "ei\x07ns", "control_characters"),
    ("one " * 100_000, "eins", "too_many_bytes"),
    ("one", "x" * 1_000_000, "too_many_bytes"),
    ("".join(map(str, range(6000))), "eins", "too_long"),
    ("one", "eins " * 300, "too_long"),
    ("one two three four five six seven eight " * 4, "eins", "length_ratio"),
]


def test_odd_lines_are_cleaned_or_dropped_on_both_sides_and_counted():
    def to_bytes(text):
        return text if isinstance(text, bytes) else text.encode()

    # A byte order mark and CR LF on one side only, no line feed at the end of the other.
    src = b"\xef\xbb\xbf" + b"".join(
        line + b"\r\n" for line in good("en") + [to_bytes(s) for s, _, _ in ODD]
    )
    tgt = b"\n".join(good("de") + [to_bytes(t) for _, t, _ in ODD])
    write_bytes("train", src, tgt)

    outcome = run_application("train.py", *OPTIONS)

    assert outcome.code == 0, outcome.err
    found = report()["train"]
    reasons = [reason for _, _, reason in ODD if reason]
    assert found["read"] == 80 + len(ODD) == found["kept"] + sum(found["dropped"].values())
    assert found["dropped"] == {reason: reasons.count(reason) for reason in reasons}
    assert found["first_dropped"] == {
        reason: [
            f"train.en and train.de: line {81 + i}"
            for i, (_, _, other) in enumerate(ODD)
            if other == reason
        ]
        for reason in reasons
    }
    # Nine separators on either side, and one pair with both; the CR before a line feed ends the
    # line.
    assert found["normalised"] == 19
    assert Path("outputs/run/checkpoints/averaged.ckpt").exists()


@pytest.mark.parametrize("separator", INNER, ids=ascii)
def test_a_separator_on_one_side_shifts_no_pair(separator):
    """Every pair carries its number on both sides; what comes out of the prepared corpus must
    agree.
    """
    numbers = range(40)
    src = "".join(f"{i}{separator}{i}\n" if i % 3 else f"{i} {i}\n" for i in numbers)
    tgt = "".join(f"{i}{separator * 2}{i}\n" if i % 2 else f"{i} {i}\n" for i in numbers)
    write_bytes("numbered", src.encode(), tgt.encode())

    prepared = prepare_corpus(
        data_config(train="numbered", val="numbered", vocab_size=261, max_length_ratio=9.0)
    )

    seen = set()
    for i in numbers:
        src, tgt = (
            text.split()
            for text in prepared.tokenizer.decode([ids.tolist() for ids in prepared.train.pair(i)])
        )
        assert src == tgt == [src[0]] * 2
        seen.add(int(src[0]))
    assert seen == set(numbers)


def test_1000_lines_against_999_are_refused_before_any_work():
    write_bytes("train", b"one\n" * 1000, b"eins\n" * 999)
    assert_refused("train.en has 1,000 lines", "train.de has 999", "line N")
    assert not Path("data").exists()


@pytest.mark.quick("Latin-1", "one side empty")
@pytest.mark.parametrize(
    ("src", "tgt", "said"),
    [
        (b"", b"eins\n" * 7, "has 0 lines"),
        (b"", b"", "no text"),
        (b"\n" * 9, b"\n" * 9, "none of 9 pairs is usable: 9 empty ("),
        ("one\n".encode("utf-16"), "eins\n".encode("utf-16"), "UTF-16"),
        (b"f\xfcnf\n" * 60, b"f\xfcnf\n" * 60, "iconv"),
    ],
    ids=["one side empty", "both empty", "blank", "UTF-16", "Latin-1"],
)
def test_text_that_is_none_is_refused_by_name(src, tgt, said):
    write_bytes("train", src, tgt)
    assert_refused("train", said)


def test_a_vocabulary_larger_than_the_text_supports_is_refused_with_the_size_that_works():
    too_large = (
        *(option for option in OPTIONS if "vocab_size" not in option),
        "data.vocab_size=9000",
    )
    assert_refused("data.vocab_size=9000", "supports at most", options=too_large)
    message = run_application("train.py", *too_large).err
    supported = message.split("set data.vocab_size=")[1].split(" ")[0]
    assert run_application("train.py", *too_large, f"data.vocab_size={supported}").code == 0


@pytest.mark.slow
def test_a_corpus_of_one_word_trains_at_the_size_that_the_message_names():
    write_bytes("train", b"one\n" * 30, b"eins\n" * 30)
    write_bytes("dev", b"one\n", b"eins\n")
    message = run_application("train.py", *OPTIONS).err
    supported = message.split("set data.vocab_size=")[1].split(" ")[0]
    assert run_application("train.py", *OPTIONS, f"data.vocab_size={supported}").code == 0


@pytest.mark.slow
def test_characters_that_training_never_saw_are_translated_line_by_line_to_an_end():
    assert run_application("train.py", *OPTIONS).code == 0
    lines = [
        "文字化け",
        "\U0001d11e\u200d\ufeff",
        "",
        "a\u2028b\x85c\x0cd",
        "\x00",
        "x" * 600,
        "one two",
    ]
    Path("odd.txt").write_bytes("".join(line + "\n" for line in lines).encode())

    outcome = run_application("aiayn", "translate", "outputs/run", "odd.txt")

    assert outcome.code == 0, outcome.err
    assert outcome.out.endswith("\n")
    assert len(outcome.out.split("\n")) == len(lines) + 1
    assert len(outcome.out.splitlines()) == len(lines)


@pytest.mark.quick("en-60-0")
@pytest.mark.parametrize(
    ("lang", "words", "sentences"), [("en", 60, 0), ("de", 60, 0), ("en", 52, 2)]
)
def test_a_dev_sentence_longer_than_the_learned_positions_is_found_before_training(
    lang, words, sentences
):
    """Row E. With two sentences translated for val/bleu, their translations must fit as well."""
    lines = Path(f"dev.{lang}").read_text(encoding="utf-8").split("\n")
    # A byte the text does not have: one subword each, and one of the line's beginning
    lines[1] = "q" * (words - 1)
    Path(f"dev.{lang}").write_text("\n".join(lines), encoding="utf-8")
    row_e = ("model.positions=learned", "model.max_positions=54", "data.max_length=50")
    translated = "trainer.val_bleu_sentences"
    others = [option for option in OPTIONS if not option.startswith(translated)]
    options = (*others, *row_e, f"{translated}={sentences}")
    outcome = run_application("train.py", *options)
    assert outcome.code == 3, outcome.err
    said = f"error: data.val=dev: line 2 ({lang}) has {words} subwords, model.max_positions=54"
    assert outcome.err.rstrip("\n").split("\n")[-1].startswith(said)
    assert not Path("outputs/run").exists()
    if words == 52:
        assert (
            run_application("train.py", *OPTIONS, *row_e, "trainer.val_bleu_sentences=0").code == 0
        )
