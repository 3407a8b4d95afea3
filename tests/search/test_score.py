"""The probability of given translations: that of the search, whatever the batches, and the
validation's perplexity.
"""

import math
from copy import deepcopy

import pytest
import torch
from applications import composed, small_model, translator_of

from aiayn.config.search import SearchConfig
from aiayn.data.sources import text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import read_jsonl
from aiayn.search.force_decode import accuracy, perplexity
from aiayn.search.translator import Translator
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

SEARCH = SearchConfig(
    beam_size=3, length_penalty=0.6, penalty="gnmt", max_extra_tokens=4, batch_tokens=60
)
LINES = [
    "the old house",
    "a",
    "the cat sees the old house of the man",
    "two cats",
    "",
    "the man the man",
    "é !",
]


def translator(batch_tokens: int = 60, **model) -> Translator:
    tokenizer = Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes sieht"]], 280
    )
    torch.manual_seed(4)
    transformer = Transformer(small_model(**model), tokenizer.vocab_size)
    with torch.no_grad():
        transformer.embedding.weight.mul_(3)
    options = vars(SEARCH) | {"batch_tokens": batch_tokens}
    return Translator(transformer, tokenizer, SearchConfig(**options), "cpu")


def log_probs_by_hand(ready: Translator, source: str, target: str) -> list[float]:
    """One pair, one position at a time: every step decodes the whole prefix again, in float64."""
    src, tgt = ready.source_ids([source, target])
    model = ready.model.eval()
    src_row = torch.tensor([[*src, EOS_ID]])
    mask = (src_row != PAD_ID)[:, None, None]
    found = []
    for t, token in enumerate([*tgt, EOS_ID]):
        with torch.no_grad():
            logits = model(src_row, torch.tensor([[BOS_ID, *tgt[:t]]]), mask)[0, -1]
        found.append(float(logits.double().log_softmax(-1)[token]))
    return found


@pytest.mark.parametrize("batch_tokens", [1, 40, 5000])
def test_each_token_has_its_log_probability_given_source_and_prefix_whatever_the_batch(
    batch_tokens,
):
    ready = translator(batch_tokens)
    targets = ["das alte Haus", "the the the the", "a", "", "sieht", "das", "Mannes sieht é"]
    for source, target, pair in zip(LINES, targets, ready.score(LINES, targets), strict=True):
        expected = log_probs_by_hand(ready, source, target)
        assert pair.tokens == [*ready.source_ids([target])[0], EOS_ID]
        assert pair.token_log_probs == pytest.approx(expected, abs=2e-5)
        assert pair.log_prob == pytest.approx(sum(expected), abs=1e-4)
        assert pair.score == pytest.approx(pair.log_prob / ((5 + len(pair.tokens)) / 6) ** 0.6)


def test_a_translation_that_the_search_found_has_the_searchs_log_prob_and_score(monkeypatch):
    ready = translator()
    lines = [line for line in LINES if line]
    found = [
        (line, best)
        for line, every in zip(lines, ready.n_best(lines, 3), strict=True)
        for best in every
    ]
    # An untrained model's output is bytes that no text has, so names stand for its subwords.
    names = {f"output {number}": best.tokens for number, (_, best) in enumerate(found)}
    encode = ready.tokenizer.encode
    monkeypatch.setattr(
        ready.tokenizer,
        "encode",
        lambda lines: [names[n] if n in names else encode([n])[0] for n in lines],
    )
    pairs = ready.score([line for line, _ in found], list(names))
    assert len(pairs) == 18
    assert [pair.log_prob for pair in pairs] == pytest.approx(
        [best.log_prob for _, best in found], abs=1e-4
    )
    assert [pair.score for pair in pairs] == pytest.approx(
        [best.score for _, best in found], abs=1e-4
    )


def test_lists_of_unequal_length_and_lines_beyond_learned_positions_are_refused():
    with pytest.raises(DataError, match="2 sources and 1 targets"):
        translator().score(["a", "a"], ["a"])
    ready = translator(positions="learned", max_positions=9)
    assert len(ready.score(["a"], ["the" + " the" * 7])[0].tokens) == 9
    with pytest.raises(
        DataError, match=r"^line 12 has 9 subwords: .* allow at most 8; split the line$"
    ):
        ready.score(["a", "a"], ["a", "the" + " the" * 8], first_line=11)


def test_the_perplexity_of_the_validation_text_is_val_ppl(tmp_path):
    from applications import TEXT, TWELVE_STEPS, write_pairs

    from aiayn.training.run import train

    write_pairs(tmp_path / "train", 120, seed=1)
    write_pairs(tmp_path / "dev", 30, seed=2)
    text = [
        option.replace("=train", f"={tmp_path}/train").replace("=dev", f"={tmp_path}/dev")
        for option in TEXT
    ]
    options = (
        *text,
        *TWELVE_STEPS,
        "trainer.val_bleu_sentences=0",
        f"data.folder={tmp_path}/data",
        "name=run",
    )
    config = deepcopy(composed(*options))
    folder = train(config, tmp_path)
    reported = [
        record["val/ppl"] for record in read_jsonl(folder / "metrics.jsonl") if "val/ppl" in record
    ]
    pairs = translator_of(folder, "last").score(*text_of(config.data, "val").read())
    assert checkpoints.load(folder / "checkpoints/last.ckpt").step == 12
    log_prob, tokens = (
        sum(map(of, pairs)) for of in (lambda pair: pair.log_prob, lambda pair: len(pair.tokens))
    )
    assert perplexity(log_prob, tokens) == pytest.approx(reported[-1], rel=1e-5)


def test_accuracy_counts_the_tokens_that_no_other_is_likelier_than():
    """Compared with a greedy choice at every position, made from the full distribution."""
    one = translator()
    sources, targets = ["a b c", "d", "", "e f"], ["b a", "d d d d", "", "f"]
    pairs = one.score(sources, targets)

    likeliest = []
    for source, target in zip(one.source_ids(sources), one.source_ids(targets), strict=True):
        if not source and not target:
            continue
        src, tgt = torch.tensor([[*source, EOS_ID]]), torch.tensor([[*target, EOS_ID]])
        logits = one.model.eval()(
            src, torch.tensor([[BOS_ID, *target]]), (src != PAD_ID)[:, None, None]
        )
        likeliest += (logits[0].argmax(-1) == tgt[0]).tolist()

    assert 0 <= accuracy(pairs) == sum(likeliest) / len(likeliest) <= 1
    assert [pair.n_likeliest <= len(pair.tokens) for pair in pairs] == [True] * 4
    greedy = one.translate(sources[:1])
    assert accuracy(one.score(sources[:1], greedy)) >= accuracy(pairs[:1])
    assert math.isnan(accuracy([]))
