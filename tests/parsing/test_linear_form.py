"""Trees as a model reads and writes them, and what becomes of text that is no tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.generated_grammar import generated_trees

from aiayn.errors import DataError
from aiayn.parsing.linear_form import linear_form, read_linear_form, repaired_tree, sentence
from aiayn.parsing.tree import TOP, Leaf, Tree, leaves, right_branching

CAT = Tree(
    TOP,
    (
        Tree(
            "S",
            (
                Tree("NP", (Leaf("DT", "The"), Leaf("NN", "cat"))),
                Tree("VP", (Leaf("VBZ", "sleeps"),)),
                Leaf(".", "."),
            ),
        ),
    ),
)

# Any characters that are neither white space nor brackets, and tags that look like other things.
SYMBOLS = st.text(
    st.characters(exclude_characters="()", exclude_categories=("Z", "C")), min_size=1, max_size=5
)
NAMES = st.sampled_from(["NP", "S", "VP", "TOP", "-LRB-", ",", "``", "PRP$"]) | SYMBOLS
TREES = st.recursive(
    st.builds(Leaf, NAMES, SYMBOLS),
    lambda inner: st.builds(Tree, NAMES, st.lists(inner, min_size=1, max_size=4).map(tuple)),
    max_leaves=25,
)
SENTENCES = st.builds(Tree, st.just(TOP), st.lists(TREES, min_size=1, max_size=3).map(tuple))


@given(SENTENCES)
def test_words_and_linear_form_give_every_tree_back(tree):
    assert repaired_tree(sentence(tree), linear_form(tree)) == (tree, False)


def test_words_and_linear_form_give_all_trees_of_a_grammar_back():
    trees = generated_trees(1000, seed=0)

    assert [read_linear_form(sentence(tree), linear_form(tree), "here") for tree in trees] == trees


@given(
    st.lists(SYMBOLS, max_size=6),
    st.lists(st.sampled_from(["(NP", ")NP", "(S", ")S", "(", ")", "NN"]), max_size=12),
)
def test_whatever_a_model_writes_becomes_a_tree_of_exactly_the_words(words, symbols):
    tree, malformed = repaired_tree(" ".join(words), " ".join(symbols))

    assert [leaf.word for leaf in leaves(tree)] == words
    # No empty constituent is left
    assert repaired_tree(sentence(tree), linear_form(tree)) == (
        tree,
        False,
    )
    assert malformed == (linear_form(tree) != " ".join(symbols))


@pytest.mark.parametrize(
    ("written", "repaired"),
    [
        ("(S (NP DT NN )NP (VP VBZ )VP .", "(S (NP DT NN )NP (VP VBZ )VP . )S"),
        ("(S (NP DT NN (VP VBZ )VP . )S", "(S (NP DT NN (VP VBZ )VP . )NP )S"),
        ("(S (NP DT NN )VP (VP VBZ )VP . )S", "(S (NP DT NN (VP VBZ )VP . )NP )S"),
        ("(S (NP DT (NP NN )NP (VP VBZ )S . )S", "(S (NP DT (NP NN )NP (VP VBZ )VP )NP )S ."),
        ("(S (NP DT NN )NP (PP )PP (VP VBZ )VP . )S", "(S (NP DT NN )NP (VP VBZ )VP . )S"),
        ("(S (NP DT NN )NP (VP VBZ IN NN NN )VP . )S", "(S (NP DT NN )NP (VP VBZ IN )VP )S"),
        ("(S (NP DT NN )NP )S", "(S (NP DT NN )NP XX XX )S"),
        ("(S (NP DT NN", "(S (NP DT NN )NP XX XX )S"),
        ("DT NN", "DT NN XX XX"),
        ("(S ( DT NN ) VBZ . )S", "(S DT NN VBZ . )S"),
        ("", "XX XX XX XX"),
    ],
)
def test_malformed_trees_are_repaired_by_the_stated_rule(written, repaired):
    tree, malformed = repaired_tree("The cat sleeps .", written)

    assert malformed
    assert linear_form(tree) == repaired


def test_a_reference_that_is_no_tree_is_refused_with_its_place():
    with pytest.raises(
        DataError,
        match=r"^line 3 is not the linear tree of its sentence; make it with `aiayn trees`: \(S",
    ):
        read_linear_form("two words", "(S NN )S", "line 3")


def test_the_baseline_branches_to_the_right_and_leaves_final_punctuation_outside():
    assert linear_form(right_branching(CAT)) == "(S DT (NP NN (NP VBZ )NP )NP . )S"
