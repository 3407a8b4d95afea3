"""`aiayn trees`: bracketed files to aligned text."""

import pytest
from applications import run_application

from aiayn.config.tasks import BRACKET_KINDS
from aiayn.data.text_files import read_lines
from aiayn.parsing.bracket_f1 import bracket_scores, gold_trees
from aiayn.parsing.linear_form import linear_form
from aiayn.parsing.penn_files import read_trees


def test_trees_become_aligned_sentences_and_linear_forms(tmp_path):
    (tmp_path / "one.mrg").write_text(
        "( (S (NP-SBJ (NN Rain)) (VP (VBD fell)) (. .)) )\n( (NP (-NONE- *)) )\n"
    )
    (tmp_path / "two.mrg").write_text("( (NP\n  (NN Sün)) )\n", encoding="utf-8")

    done = run_application(
        "aiayn",
        "trees",
        f"{tmp_path}/one.mrg",
        f"{tmp_path}/two.mrg",
        "--out",
        f"{tmp_path}/new/train",
    )

    assert (done.code, done.err) == (0, "")
    assert "2 trees with 4 words and 4 constituents from 2 files" in done.out
    assert "1 tree left out: only traces" in done.out
    assert (tmp_path / "new/train.words").read_text(encoding="utf-8") == "Rain fell .\nSün\n"
    assert (
        tmp_path / "new/train.trees"
    ).read_text() == "(S (NP NN )NP (VP VBD )VP . )S\n(NP NN )NP\n"


def test_what_is_written_is_read_again_labels_with_odd_spaces_and_overlong_trees_included(tmp_path):
    long = f"( (S {'(NN aaaa) ' * 9000}) )"
    (tmp_path / "odd.mrg").write_text(
        f"( (N\u2028P (N\x85N a\u2028b)) )\n{long}\n".replace(") (", ")\n("), "utf-8"
    )

    done = run_application("aiayn", "trees", f"{tmp_path}/odd.mrg", "--out", f"{tmp_path}/new")

    assert (done.code, done.err) == (0, "")
    assert "1 tree left out: line too long" in done.out
    words, trees = (read_lines(tmp_path / f"new.{ending}") for ending in ("words", "trees"))
    assert [words, trees] == [["a_b"], ["(N_P N_N )N_P"]]
    assert gold_trees(words, trees) == list(read_trees(tmp_path / "odd.mrg"))[:1]


def test_outer_labels_inside_each_other_are_one_and_a_tree_without_brackets_matches_itself(
    tmp_path,
):
    (tmp_path / "x.mrg").write_text("(TOP (TOP (NN a)))\n( (ROOT (NP (NN a))) )")
    first, second = read_trees(tmp_path / "x.mrg")
    assert (linear_form(first), linear_form(second)) == ("NN", "(NP NN )NP")
    assert bracket_scores([first], [first]) == (dict.fromkeys(BRACKET_KINDS, 100.0), 1)
    assert bracket_scores([first], [second])[0]["f1"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"( (NN a) )\n( (NN b c) )", "bad.mrg: line 2: (NN b c) mixes words"),
        (b"( (NN a) )\n( (NN \xe9) )", "bad.mrg: line 2 is not UTF-8"),
        (b"", "bad.mrg: no trees"),
        (None, "bad.mrg: cannot be read"),
    ],
)
def test_bad_files_end_in_one_line_with_exit_code_3(tmp_path, content, message):
    if content is not None:
        (tmp_path / "bad.mrg").write_bytes(content)

    done = run_application("aiayn", "trees", f"{tmp_path}/bad.mrg", "--out", f"{tmp_path}/out")

    assert done.code == 3
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.glob("out*"))


def test_a_place_that_cannot_be_written_ends_in_one_line_with_exit_code_6(tmp_path):
    (tmp_path / "good.mrg").write_text("( (NN a) )")

    done = run_application(
        "aiayn", "trees", f"{tmp_path}/good.mrg", "--out", f"{tmp_path}/good.mrg/out"
    )

    assert (done.code, done.err.count("\n")) == (6, 1)
    assert "cannot be written" in done.err


def test_where_one_side_cannot_be_written_the_other_stays_as_it_was(tmp_path):
    (tmp_path / "good.mrg").write_text("( (NN a) )")
    (tmp_path / "out.words").write_text("old\n")
    (tmp_path / "out.trees").mkdir()

    done = run_application("aiayn", "trees", f"{tmp_path}/good.mrg", "--out", f"{tmp_path}/out")

    assert (done.code, (tmp_path / "out.words").read_text()) == (6, "old\n")
    assert {path.name for path in tmp_path.iterdir()} == {"good.mrg", "out.words", "out.trees"}
