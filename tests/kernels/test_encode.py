"""Encoding in parts against encoding the batch at once."""

import pytest
import torch
from search.test_beam_search import padded, transformer

from aiayn.kernels import encode as module
from aiayn.kernels.encode import encode


@pytest.mark.parametrize("at_a_time", [1, 2, 3])
def test_memory_of_a_part_is_that_of_the_whole_batch_at_real_positions_and_0_elsewhere(at_a_time, monkeypatch):
    monkeypatch.setattr(module, "SENTENCES", at_a_time)
    model = transformer(23, seed=1)
    widths, plain = [], model.encode
    src, mask = padded([[5, 6, 7, 8, 9, 10, 11], [7, 7, 3, 9, 4, 8], [4], [8, 3], [6]])
    with torch.inference_mode():
        expected = plain(src, mask)
        monkeypatch.setattr(model, "encode", lambda ids, mask: widths.append(ids.size(1)) or plain(ids, mask))
        memory = encode(model, src, mask)
    real = mask[:, 0, 0]
    torch.testing.assert_close(memory[real], expected[real])
    assert widths == {1: [8, 8, 4, 4, 4], 2: [8, 4, 4], 3: [8, 4]}[at_a_time]
    longest = torch.tensor([width for width in widths for _ in range(at_a_time)])[: len(src)]
    assert not memory[torch.arange(src.size(1)) >= longest[:, None]].any()


def test_few_sentences_are_encoded_at_once():
    model = transformer(23, seed=1)
    src, mask = padded([[5, 6, 7], [4]])
    with torch.inference_mode():
        assert torch.equal(encode(model, src, mask), model.encode(src, mask))
