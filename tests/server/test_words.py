"""Where the model looked, in words instead of subwords."""

import pytest
import torch

from aiayn.search.alignment import alignment_weights
from aiayn.server.words import word_attention


def test_weights_of_words_are_sums_over_source_and_means_over_target_subwords(translator):
    source, translation = "the hxuse of  two", "das alte Hxus"
    src_ids, tgt_ids = translator.source_ids([source, translation])

    found = word_attention(translator, src_ids, tgt_ids)

    assert (found["source"], found["translation"]) == (source.split(" "), translation.split(" "))
    [weights] = alignment_weights(translator, [src_ids], [tgt_ids])
    src_words, tgt_words = (
        torch.tensor([sum(t.startswith("▁") for t in tokens[: place + 1]) - 1 for place in range(len(tokens))])
        for tokens in (translator.tokenizer.tokens(src_ids), translator.tokenizer.tokens(tgt_ids))
    )
    assert len(src_ids) > len(found["source"])
    assert len(tgt_ids) > len(found["translation"])
    for t in range(3):
        for s in range(5):
            expected = weights[tgt_words == t][:, src_words == s].sum(1).mean()
            assert found["weights"][t][s] == pytest.approx(float(expected), abs=6e-5)
