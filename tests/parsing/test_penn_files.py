"""Bracketed files of the Penn Treebank: what is stripped, and what is refused with file and
line.
"""

import gzip

import pytest

from aiayn.errors import DataError
from aiayn.parsing.linear_form import linear_form, sentence
from aiayn.parsing.penn_files import read_trees
from aiayn.parsing.tree import TOP, Leaf, Tree, penn_brackets


def read(folder, text):
    path = folder / "file.mrg"
    path.write_text(text, encoding="utf-8")
    return list(read_trees(path))


@pytest.mark.parametrize(
    ("text", "words", "linear"),
    [
        (
            "( (S (NP-SBJ (NN Rain)) (VP (VBD fell)) (. .)) )",
            "Rain fell .",
            "(S (NP NN )NP (VP VBD )VP . )S",
        ),
        ("(TOP (S (VP (VB Stop))))", "Stop", "(S (VP VB )VP )S"),
        ("(S (VP (VB Stop)))", "Stop", "(S (VP VB )VP )S"),
        ("( (NN Abstract) )", "Abstract", "NN"),
        ("(NN Abstract)", "Abstract", "NN"),
        (
            "( (S (NP-SBJ-1=2 (-NONE- *PRO*)) (VP (TO to) (VP (VB go)))) )",
            "to go",
            "(S (VP TO (VP VB )VP )VP )S",
        ),
        ("( (NP (NP (-NONE- *)) (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (NN x)) )", "x", "(NP NN )NP"),
        (
            "( (S (ADVP|PRT (RB|RP up)) (-LRB- -LRB-) (PRP$ my)) )",
            "up -LRB- my",
            "(S (ADVP RB )ADVP -LRB- PRP$ )S",
        ),
        ("( (S (NN a)) (S (NN b)) )", "a b", "(S NN )S (S NN )S"),
        ("(\t(S\r\n   (NN\n a)))", "a", "(S NN )S"),
        ("( (S (NN 5\u200ag) (NN ü)) )", "5_g ü", "(S NN NN )S"),
    ],
)
def test_traces_function_tags_and_the_outer_label_are_removed(tmp_path, text, words, linear):
    [tree] = read(tmp_path, text)

    assert (sentence(tree), linear_form(tree)) == (words, linear)
    assert tree.label == TOP


def test_a_tree_of_traces_only_is_none(tmp_path):
    assert read(tmp_path, "( (S (NP (-NONE- *))) )\n( (NN a) )\n( (-NONE- *) )") == [
        None,
        Tree(TOP, (Leaf("NN", "a"),)),
        None,
    ]


def test_compressed_files_are_read(tmp_path):
    (tmp_path / "x.mrg.gz").write_bytes(gzip.compress(b"( (NN a) )\n"))

    assert [penn_brackets(tree) for tree in read_trees(tmp_path / "x.mrg.gz")] == ["(TOP (NN a))"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("( (NN a) )\n(S (NN b)))", r"line 2: \) is outside of brackets"),
        ("( (NN a) )\nWSJ_0001", "line 2: WSJ_0001 is outside of brackets"),
        (
            "\n( (S (NN a)\n  (NN b) )\n",
            "line 3: the file ends inside the tree that begins in line 2",
        ),
        ("( (S (NP the (NN cat))) )", r"line 1: \(NP the\) mixes words and constituents"),
        ("( (NN two words) )", r"line 1: \(NN two words\) mixes words and constituents"),
        ("( (S (NP (NN a)) (VP)) )", r"line 1: \(VP\) is empty"),
        ("\n()", r"line 2: \(\) is empty"),
        (
            "( (S ((NN a))) )",
            "line 1: a bracket inside the tree that begins in line 1 has no label",
        ),
        (
            "\n( (NN a)\n( (NN b) )",
            "line 3: a bracket inside the tree that begins in line 2 has no label",
        ),
    ],
)
def test_what_is_no_tree_is_refused_with_file_and_line(tmp_path, text, message):
    with pytest.raises(DataError, match=rf"file\.mrg: {message}"):
        read(tmp_path, text)
