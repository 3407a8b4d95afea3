"""Bracket scores against golden counts of EVALB itself."""

import os
import subprocess

import pytest

from aiayn.errors import DataError
from aiayn.parsing.bracket_f1 import bracket_scores, brackets, score_linear_forms
from aiayn.parsing.linear_form import linear_form, repaired_tree, sentence
from aiayn.parsing.penn_files import read_trees
from aiayn.parsing.tree import Tree, leaves, penn_brackets

DOG = "(S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT a) (NN bird))) (. .))"
# The gold tree; what a model wrote; then what EVALB (version of 2008, COLLINS.prm) counts for the
# repaired tree: matched brackets, brackets of the gold tree, brackets of the model's tree.
GOLDEN = {
    "right": (
        "(S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .))",
        "(S (NP DT NN )NP (VP VBZ )VP . )S",
        3,
        3,
        3,
    ),
    "full stop elsewhere": (
        "(S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .))",
        "(S (NP DT NN )NP (VP VBZ . )VP )S",
        *(3, 3, 3),
    ),
    "commas": (
        "(S (NP (NP (NN Bread)) (, ,) (NP (NN salt)) (, ,) (CC and) (NP (NN oil))) (VP (VBD is) "
        "(NP (JJ red))) (. .))",
        "(S (NP (NP NN , NN )NP , CC (NP NN )NP )NP (VP VBD (ADJP JJ )ADJP )VP . )S",
        *(4, 7, 6),
    ),
    "unary chain lost": (
        "(S (NP (NP (NN Rain))) (VP (VBD fell)))",
        "(S (NP NN )NP (VP VBD )VP )S",
        3,
        4,
        3,
    ),
    "unary chain right": (
        "(S (NP (NP (NN Rain))) (VP (VBD fell)))",
        "(S (NP (NP NN )NP )NP (VP VBD )VP )S",
        *(4, 4, 4),
    ),
    "unary chain too long": (
        "(S (NP (NN Rain)) (VP (VBD fell)))",
        "(S (NP (NP (NP NN )NP )NP )NP (VP (VP VBD )VP )VP )S",
        *(3, 3, 6),
    ),
    "ADVP for PRT": (
        "(S (VP (VB Stop) (PRT (RP it))))",
        "(S (VP VB (ADVP RB )ADVP )VP )S",
        3,
        3,
        3,
    ),
    "wrong label": (
        "(S (NP (PRP She)) (VP (VBD left) (ADVP (RB early))) (. .))",
        "(S (NP PRP )NP (VP VBD (ADJP RB )ADJP )VP . )S",
        *(3, 4, 4),
    ),
    "quotes": (
        "(S (`` ``) (NP (NNS Prices)) (VP (VBP rise)) ('' '') (: ;))",
        "(S `` (NP NNS )NP (VP VBP '' )VP (X : )X )S",
        *(3, 3, 3),
    ),
    "cut off": (DOG, "(S (NP DT NN )NP (VP VBD (NP DT NN", 4, 4, 4),
    "crossed brackets": (DOG, "(S (NP DT NN )NP (VP VBD (NP DT )VP )PP NN . )S", 2, 4, 4),
    "too many tags": (
        DOG,
        "(S (NP DT NN )NP (VP VBD (NP DT NN NN NN NN NN )NP (PP )PP )VP . )S",
        4,
        4,
        4,
    ),
    "nothing written": (DOG, "", 0, 4, 0),
    "punctuation only": ("(FRAG (. ...))", "(X . )X", 0, 0, 0),
    "no root": ("(S (NP (NNP Ann)) (VP (VBZ reads)))", "(NP NNP )NP (VP VBZ )VP", 2, 3, 2),
    "constituent too many": ("(NN Abstract)", "(NP NN )NP", 0, 0, 1),
}


def gold_tree(text: str, folder) -> Tree:
    (folder / "gold").write_text(text)
    [tree] = read_trees(folder / "gold")
    return tree


@pytest.mark.parametrize("case", GOLDEN)
def test_brackets_are_counted_as_evalb_counts_them(case, tmp_path):
    text, written, *expected = GOLDEN[case]
    gold = gold_tree(text, tmp_path)
    predicted, _ = repaired_tree(sentence(gold), written)
    tags = [leaf.tag for leaf in leaves(gold)]

    right, found = brackets(gold, tags), brackets(predicted, tags)

    assert [(right & found).total(), right.total(), found.total()] == expected


def test_the_scores_of_a_file_are_those_of_evalb(tmp_path):
    golds = [gold_tree(text, tmp_path) for text, *_ in GOLDEN.values()]
    written = [text for _, text, *_ in GOLDEN.values()]

    scores = score_linear_forms(
        [sentence(tree) for tree in golds], [linear_form(tree) for tree in golds], written
    )

    # Bracketing FMeasure, Precision, Recall, Complete match and Number of Valid sentence, as EVALB
    # prints them.
    assert {kind: round(value, 2) for kind, value in scores.metrics.items()} == {
        "f1": 79.61,
        "precision": 82.0,
        "recall": 77.36,
        "complete_match": 46.67,
    }
    assert scores.sentences == 15
    assert scores.malformed == 4
    assert 0 < scores.right_branching["f1"] < scores.metrics["f1"]


def test_labels_count(tmp_path):
    gold = gold_tree("(S (NP (NN Rain)) (VP (VBD fell)))", tmp_path)
    other, _ = repaired_tree("Rain fell", "(X (Y NN )Y (Z VBD )Z )X")

    assert bracket_scores([gold], [other])[0] == {
        "f1": 0,
        "precision": 0,
        "recall": 0,
        "complete_match": 0,
    }


def test_punctuation_does_not_move_brackets_whatever_tag_the_model_gave_it(tmp_path):
    gold = gold_tree("(S (NP (NN Rain) (, ,)) (VP (VBD fell)))", tmp_path)
    other, _ = repaired_tree("Rain , fell", "(S (NP NN )NP NN (VP , )VP )S")

    assert bracket_scores([gold], [other])[0]["f1"] == 100


def test_a_reference_that_is_no_tree_is_refused_with_its_line():
    with pytest.raises(DataError, match="line 2 of the reference is not the linear tree"):
        score_linear_forms(["a", "b"], ["(S NN )S", "(S NN )NP"], ["", ""])


@pytest.mark.skipif(
    not os.environ.get("AIAYN_EVALB"),
    reason="AIAYN_EVALB names no folder with evalb and COLLINS.prm",
)
def test_evalb_itself_prints_the_same_scores_for_damaged_trees(tmp_path):
    import random

    from parsing.generated_grammar import generated_trees

    rng = random.Random(0)
    golds, predicted = generated_trees(300, seed=1), []
    for gold in golds:
        symbols = linear_form(gold).split(" ")
        for _ in range(rng.choice([0, 1, 3])):
            place = rng.randrange(len(symbols))
            symbols[place : place + rng.choice([0, 1, 1])] = rng.choices(
                ["(NP", ")NP", "(PRT", ")PRT", ")VP"], k=1
            )
        tree, _ = repaired_tree(sentence(gold), " ".join(symbols))
        # EVALB itself decides by each tree's own tags what punctuation is.
        tags = iter([leaf.tag for leaf in leaves(gold)])
        tagged = " ".join(
            symbol if symbol[0] in "()" else next(tags) for symbol in linear_form(tree).split(" ")
        )
        predicted.append(repaired_tree(sentence(gold), tagged)[0])
    for name, trees in (("gold", golds), ("predicted", predicted)):
        (tmp_path / name).write_text("".join(penn_brackets(tree) + "\n" for tree in trees))
    folder = os.environ["AIAYN_EVALB"]

    command = [
        f"{folder}/evalb",
        "-p",
        f"{folder}/COLLINS.prm",
        tmp_path / "gold",
        tmp_path / "predicted",
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    metrics, _ = bracket_scores(golds, predicted)
    summary = printed.partition("-- All --")[2].partition("-- len")[0]
    names = {
        "f1": "FMeasure",
        "precision": "Precision",
        "recall": "Recall",
        "complete_match": "Complete match",
    }
    for kind, name in names.items():
        assert float(summary.partition(name)[2].split("\n")[0].strip(" =")) == round(
            metrics[kind], 2
        )
    assert 50 < metrics["f1"] < 99
