"""The numbers about a corpus, counted once more pair by pair."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from applications import composed, write_pairs

from aiayn.data.batch_plan import BINS, BatchPlan, describe_corpus
from aiayn.data.corpus import PreparedSplit, unigram_loss
from aiayn.data.encode import Sentences
from aiayn.data.preparation import prepare_corpus


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_pairs(folder / "train", 180, seed=1)
    write_pairs(folder / "dev", 7, seed=2)
    options = [
        "data=files",
        f"data.train={folder}/train",
        f"data.val={folder}/dev",
        "data.src_lang=en",
    ]
    options += ["data.tgt_lang=de", f"data.folder={folder}/data", "data.vocab_size=280"]
    return prepare_corpus(composed(*options).data)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_lengths_and_padding_are_those_of_the_pairs(prepared, micro_batches):
    train = prepared.train
    plan = BatchPlan(
        train.src.lengths, train.tgt.lengths, tokens_per_step=700, seed=5, parts=micro_batches
    )

    found = describe_corpus(prepared, plan)

    assert (found["pairs"], found["splits"]["val"]["kept"]) == (180, 7)
    for side, name in enumerate(("src", "tgt")):
        lengths = Counter(len(train.pair(number)[side]) for number in range(180))
        assert {n: count for n, count in enumerate(found["lengths"][name]) if count} == lengths
    assert sum(found["padding_of_parts"]) == plan.steps_per_epoch * micro_batches
    assert len(found["padding_of_parts"]) == BINS
    middles = (np.arange(BINS) + 0.5) / BINS
    mean = np.average(middles, weights=found["padding_of_parts"])
    assert mean == pytest.approx(found["padding"], abs=0.02)
    assert json.loads(json.dumps(found)) == found


def test_the_unigram_loss_is_the_entropy_of_the_smoothed_frequencies(tmp_path):
    side = Sentences.of([[4, 4], [4, 5]])
    split = PreparedSplit(tmp_path, "train", side, side)

    # Four tokens and two end marks, of a vocabulary of 7: 3/6, 1/6 and 2/6, with a tenth spread
    # evenly.
    spread = 0.1 / 7
    frequencies = [0.9 * 3 / 6 + spread, 0.9 * 1 / 6 + spread, 0.9 * 2 / 6 + spread, *[spread] * 4]
    assert unigram_loss(split, 7, 0.1) == pytest.approx(-sum(p * math.log(p) for p in frequencies))
