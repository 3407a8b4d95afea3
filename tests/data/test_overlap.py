"""What is said of development and test text that is training text, too."""

import logging
import re
import unicodedata
from dataclasses import replace

from texts import data_config, write_lines

from aiayn.data.preparation import prepare_corpus

OF_HELD_OUT = re.compile("leakage|listed twice")
TRAIN = [f"line {number} of many" for number in range(60)]


def warnings_for(tmp_path, caplog, **changes) -> list[str]:
    """What is logged about a text of which pairs 3 to 5 are development text, too, and pair 5 test
    text.
    """
    config = data_config(
        train=write_lines(tmp_path / "train", TRAIN, [line.upper() for line in TRAIN]),
        val=write_lines(
            tmp_path / "val", ["new", *TRAIN[3:6]], ["NEU", *(line.upper() for line in TRAIN[3:6])]
        ),
        test=write_lines(
            tmp_path / "test", ["other", " " + TRAIN[5]], ["ANDERE", TRAIN[5].upper()]
        ),
        folder=str(tmp_path / "data"),
    )
    caplog.set_level(logging.INFO, "aiayn")
    prepare_corpus(replace(config, **changes))
    return [
        record.getMessage() for record in caplog.records if OF_HELD_OUT.search(record.getMessage())
    ]


def test_held_out_pairs_that_are_training_text_are_counted_in_one_line(tmp_path, caplog):
    [line] = warnings_for(tmp_path, caplog)

    assert (
        f"3 of 4 pairs of data.val={tmp_path}/val, 1 of 2 pairs of data.test={tmp_path}/test"
        in line
    )


def test_a_corpus_that_is_prepared_already_is_looked_at_again_with_the_test_text_of_today(
    tmp_path, caplog
):
    warnings_for(tmp_path, caplog)
    caplog.clear()
    test = write_lines(
        tmp_path / "later",
        [TRAIN[7], TRAIN[8], TRAIN[8]],
        [TRAIN[7].upper(), *[TRAIN[8].upper()] * 2],
    )

    [line] = warnings_for(tmp_path, caplog, test=test)

    assert f"3 of 4 pairs of data.val={tmp_path}/val, 2 of 2 pairs of data.test={test}" in line
    assert len(list((tmp_path / "data").glob("en-de-*"))) == 1, "of the same corpus"


def test_a_pair_that_is_too_long_to_be_learned_is_no_overlap(tmp_path, caplog):
    [line] = warnings_for(
        tmp_path,
        caplog,
        train=write_lines(tmp_path / "new", ["a b", "c " * 99], ["d e", "f " * 99]),
        vocab_size=261,
        test=write_lines(tmp_path / "long", ["a b", "c " * 99], ["d e", "f " * 99]),
    )

    assert f"1 of 2 pairs of data.test={tmp_path}/long" in line


def test_a_pair_with_another_translation_is_no_overlap(tmp_path, caplog):
    val = write_lines(tmp_path / "other", TRAIN[:2], ["one", "two"])

    assert warnings_for(tmp_path, caplog, val=val, test=None) == []


def test_trees_are_compared_with_the_same_tags_on_both_sides(tmp_path, caplog):
    words, trees = (
        [f"word{number}" for number in range(60)],
        [f"( NN{number} )" for number in range(60)],
    )
    files = {
        "train": write_lines(tmp_path / "trees", words, trees),
        "val": write_lines(tmp_path / "held", ["new", *words[3:5]], ["( VB )", *trees[3:5]]),
    }

    [line] = warnings_for(tmp_path, caplog, **files, test=None, task="parsing", tags="xx")

    assert f"2 of 3 pairs of data.val={tmp_path}/held" in line


def test_a_file_that_is_listed_twice_is_named(tmp_path, caplog):
    train, val = str(tmp_path / "train"), write_lines(tmp_path / "other", ["a b"], ["c d"])

    [line] = warnings_for(
        tmp_path,
        caplog,
        train=[train, train],
        val=val,
        test=str(tmp_path / "missing"),
        check_sides=False,
    )

    assert line == f"warning: data.train={[train, train]}: the same text is listed twice"


def test_held_out_text_in_another_unicode_form_is_training_text_all_the_same(tmp_path, caplog):
    src, tgt = (
        [f"Café {number}" for number in range(60)],
        [f"Größe {number}" for number in range(60)],
    )
    decomposed = [[unicodedata.normalize("NFD", line) for line in side[3:6]] for side in (src, tgt)]

    [line] = warnings_for(
        tmp_path,
        caplog,
        train=write_lines(tmp_path / "nfc", src, tgt),
        val=write_lines(tmp_path / "nfd", *decomposed),
        test=None,
    )

    assert (
        f"3 of 3 pairs of data.val={tmp_path}/nfd (repeats counted once) are also training pairs"
        in line
    )
