"""Lines in, lines out: order, batches, blank lines, limits; and nothing of it changes the model."""

import json
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
import torch
from applications import composed, translator_of
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn.config.model import ModelConfig
from aiayn.config.search import SearchConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError, RefusedError, ResourceError
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search import translator as module
from aiayn.search.beam_search import beam_search
from aiayn.search.build import load_tokenizer
from aiayn.search.translations import Hypothesis, Translation
from aiayn.search.translator import Translator
from aiayn.token_ids import EOS_ID, PAD_ID

SEARCH = SearchConfig(
    beam_size=3, length_penalty=0.6, penalty="gnmt", max_extra_tokens=4, batch_tokens=60
)
LINES = [
    "the old house",
    "a",
    "the cat sees the old house of the man",
    "",
    "two cats",
    "   ",
    "the man the man",
    "é\u00a0!",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes sieht"]], 280
    )


def transformer(vocab_size: int, positions: str = "sinusoidal") -> Transformer:
    torch.manual_seed(3)
    config = ModelConfig(
        n_layers=1,
        d_model=12,
        d_ff=20,
        n_heads=2,
        d_k=None,
        d_v=None,
        dropout=0.4,
        positions=positions,
        max_positions=20,
        attention_window=None,
        attention_dropout=0.0,
    )
    model = Transformer(config, vocab_size)
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model


def translator(tokenizer: Tokenizer, **search) -> Translator:
    options = {**vars(SEARCH), **search}
    return Translator(transformer(tokenizer.vocab_size), tokenizer, SearchConfig(**options), "cpu")


@pytest.fixture
def echo(monkeypatch):
    """Replaces the search by one that gives the source back; records the shape of every batch."""
    shapes = []

    def search(model, src, src_mask, config, constraint):
        shapes.append(tuple(src.shape))
        assert torch.equal(src_mask[:, 0, 0], src != PAD_ID)
        rows = [row[mask].tolist() for row, mask in zip(src, src_mask[:, 0, 0], strict=True)]
        assert all(row[-1] == EOS_ID for row in rows)
        return [
            [Hypothesis(row[:-1], -1.0 - k, -2.0 - k) for k in range(config.beam_size)]
            for row in rows
        ]

    monkeypatch.setattr(module, "beam_search", search)
    return shapes


@settings(deadline=None, max_examples=40)
@given(
    lines=st.lists(st.text(st.sampled_from("the odcasu é.-"), max_size=25), max_size=12),
    batch_tokens=st.integers(1, 200),
)
def test_every_line_comes_back_in_its_place_whatever_the_batches(tokenizer, lines, batch_tokens):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module,
            "beam_search",
            lambda model, src, mask, config, constraint: [
                [Hypothesis(row[row > EOS_ID].tolist(), 0.0, 0.0)] * config.beam_size for row in src
            ],
        )
        translated = translator(tokenizer, batch_tokens=batch_tokens).translate(lines)
    assert translated == [line.strip() for line in lines]


def test_batches_hold_lines_of_similar_length_and_keep_the_budget_of_positions_times_beams(
    tokenizer, echo
):
    lines = [" ".join(["the"] * n) for n in (1, 9, 2, 8, 3, 30, 1)]
    translator(tokenizer, batch_tokens=60).translate(lines)
    widths = [len(ids) + 1 for ids in tokenizer.encode(lines)]
    assert sum(rows for rows, _ in echo) == 7
    assert echo[0] == (1, max(widths))  # longer than the budget alone, and still translated
    assert all(rows * width * 3 <= 60 for rows, width in echo[1:])
    assert [width for _, width in echo] == sorted((width for _, width in echo), reverse=True)
    assert len(echo) < 7


def test_blank_lines_give_empty_translations_without_the_model(tokenizer, echo):
    assert translator(tokenizer).translate(["", "  ", "\t", "\u00a0\u3000"]) == [""] * 4
    assert translator(tokenizer).n_best([" "], 2) == [[Translation("", 0.0, 0.0, [])]]
    assert translator(tokenizer).translate([]) == []
    assert echo == []


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\r", "\u2028", "\x85", "\x0b"])
def test_a_translation_never_holds_a_line_break(tokenizer, echo, separator):
    assert translator(tokenizer).translate([f"the{separator}cat", "a"]) == ["the cat", "a"]


def test_translations_are_those_of_the_search_on_each_line_alone(tokenizer):
    ready = translator(tokenizer)
    results = ready.n_best(LINES, 2)
    assert ready.translate(LINES) == [candidates[0].text for candidates in results]
    model = ready.model.eval()
    for line, candidates in zip(LINES, results, strict=True):
        if not line.strip():
            continue
        src = torch.tensor([[*tokenizer.encode([line])[0], EOS_ID]])
        [alone] = beam_search(model, src, (src != PAD_ID)[:, None, None], SEARCH)
        assert [c.tokens for c in candidates] == [h.tokens for h in alone[:2]]
        assert [c.score for c in candidates] == pytest.approx(
            [h.score for h in alone[:2]], abs=2e-5
        )
        assert [c.log_prob for c in candidates] == pytest.approx(
            [h.log_prob for h in alone[:2]], abs=2e-5
        )
        texts = tokenizer.decode([h.tokens for h in alone[:2]])
        assert [c.text for c in candidates] == [" ".join(text.splitlines()) for text in texts]


@pytest.mark.parametrize("training", [True, False])
def test_translating_ignores_dropout_and_leaves_the_model_in_the_mode_it_was_in(
    tokenizer, training
):
    ready = translator(tokenizer)
    ready.model.train(training)
    before = {name: tensor.clone() for name, tensor in ready.model.state_dict().items()}
    assert ready.translate(LINES) == ready.translate(LINES)
    assert all(part.training == training for part in ready.model.modules())
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in ready.model.state_dict().items()
    )


def test_a_model_that_has_translated_long_lines_can_still_be_trained(tokenizer):
    ready = translator(tokenizer, max_extra_tokens=300)
    ready.model.train()
    ready.translate(["the " * 200])  # beyond the sinusoids computed so far
    src = torch.tensor([[5, 6, EOS_ID]])
    ready.model(src, src, (src != PAD_ID)[:, None, None]).sum().backward()
    assert all(parameter.grad is not None for parameter in ready.model.parameters())


def test_a_line_beyond_the_learned_positions_is_refused_by_its_number_before_translating(
    tokenizer, echo
):
    # 20 positions: 15 subwords + 4 extra + 1
    model = transformer(tokenizer.vocab_size, positions="learned")
    ready = Translator(model, tokenizer, SEARCH, "cpu")
    fits, too_long = "the" + " the" * 14, "the" + " the" * 15
    assert [len(ids) for ids in tokenizer.encode([fits, too_long])] == [15, 16]
    assert ready.translate([fits]) == [fits]
    echo.clear()
    with pytest.raises(
        DataError, match=r"^line 3 has 16 subwords: .* allow at most 15; split the line or lower"
    ):
        ready.translate(["a", "", too_long, fits])
    assert echo == []


def test_more_candidates_than_beams_are_refused(tokenizer):
    with pytest.raises(
        ConfigError, match=r"4 translations .* search\.beam_size=3: .* set search\.beam_size=4"
    ):
        translator(tokenizer).n_best(["a"], 4)
    with pytest.raises(ConfigError, match="0 translations"):
        translator(tokenizer).n_best(["a"], 0)


def test_progress_counts_lines_up_to_all_of_them(tokenizer, echo):
    seen = []
    translator(tokenizer, batch_tokens=1).translate(
        ["a", "", "the cat", "two"], on_batch=lambda *n: seen.append(n)
    )
    assert seen == [(2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("bad", ["half \ud800", "an argument \udcff of bytes", b"bytes", None])
def test_what_is_not_text_is_refused_by_its_line_number(tokenizer, bad):
    with pytest.raises(DataError, match=r"^line 12 is not valid text: .*; correct it$"):
        translator(tokenizer).n_best(["the cat", bad], 1, first_line=11)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you "
            "tried ..."
        ),
    ],
)
def test_a_line_for_which_memory_does_not_suffice_is_named_with_the_remedy(
    tokenizer, monkeypatch, error
):
    def fail(*_):
        raise error

    monkeypatch.setattr(module, "beam_search", fail)
    with pytest.raises(
        ResourceError,
        match=r"with line 1 \(4 subwords\) alone: split it, or lower search\.beam_size",
    ):
        translator(tokenizer).translate(["the the the"])


def test_another_error_that_speaks_of_an_allocation_is_raised_as_it_is(tokenizer, monkeypatch):
    def fail(*_):
        raise RuntimeError("the allocation of ids is wrong")

    monkeypatch.setattr(module, "beam_search", fail)
    with pytest.raises(RuntimeError, match=r"^the allocation of ids is wrong$"):
        translator(tokenizer).translate(["the the the"])


def test_batches_are_halved_until_memory_suffices_and_the_text_stays_the_same(
    tokenizer, monkeypatch, caplog
):
    lines = ["the cat", "cat", "the the the", "", "cat the cat"] * 3
    expected = translator(tokenizer).translate(lines)
    search, sizes = module.beam_search, []

    def fails_above_two(model, src, *others):
        sizes.append(len(src))
        if len(src) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return search(model, src, *others)

    monkeypatch.setattr(module, "beam_search", fails_above_two)
    short = translator(tokenizer)
    short.batch_tokens = 200
    assert short.translate(lines) == expected
    assert sizes[0] > 4
    assert sum(size > 2 for size in sizes) <= 4, "what did not fit is not tried again"
    assert f"search.batch_tokens={short.batch_tokens}" in caplog.text


def test_a_line_longer_than_any_sentence_is_refused_by_its_number(tokenizer):
    with pytest.raises(DataError, match=r"^line 8 has 32,769 characters; split it"):
        translator(tokenizer).n_best(["cat", "c" * 32_769], 1, first_line=7)


@pytest.fixture
def stored(tokenizer) -> Checkpoint:
    """A checkpoint whose row of Table 3 differs from the others in every size."""
    options = [
        "data=files",
        "data.train=x",
        "data.val=x",
        "model.n_layers=2",
        "model.d_model=12",
        "model.d_ff=20",
    ]
    options += [
        "model.n_heads=3",
        "model.d_k=5",
        "model.d_v=7",
        "search.beam_size=3",
        "search.max_extra_tokens=4",
    ]
    config = composed(*options)
    torch.manual_seed(8)
    model = Transformer(config.model, tokenizer.vocab_size)
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return Checkpoint(9, config, model.state_dict(), tokenizer.to_json(), "corpus", 1, [])


def run_of(folder: Path, **checkpoint_folder: Checkpoint) -> Path:
    (folder / "checkpoints").mkdir()
    for name, checkpoint in checkpoint_folder.items():
        checkpoints.save(folder / "checkpoints" / f"{name}.ckpt", checkpoint)
    return folder


def test_a_run_translates_as_the_model_that_was_saved(stored, tokenizer, tmp_path):
    model = Transformer(stored.config.model, tokenizer.vocab_size)
    model.load_state_dict(stored.weights)
    expected = Translator(model, tokenizer, stored.config.search, "cpu").n_best(LINES, 3)
    ready = translator_of(run_of(tmp_path, last=stored))
    assert not ready.model.training
    found = ready.n_best(LINES, 3)  # by products with prepacked weights, which add in another order
    assert [[each.tokens for each in best] for best in found] == [
        [each.tokens for each in best] for best in expected
    ]
    scores = [[each.score for best in results for each in best] for results in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_a_run_translates_in_few_bits_nearly_as_in_many(stored, tmp_path):
    run = run_of(tmp_path, last=stored)
    exact, quick = (
        translator_of(run, precision=name).n_best(LINES, 1) for name in ("float32", "bfloat16")
    )
    assert [best.score for (best,) in quick] == pytest.approx(
        [best.score for (best,) in exact], rel=0.05
    )
    assert quick != exact


def test_a_run_is_read_from_its_average_unless_another_checkpoint_is_named(stored, tmp_path):
    other = replace(stored, weights={name: tensor + 1 for name, tensor in stored.weights.items()})
    run = run_of(tmp_path, last=stored, averaged=other, step_3=stored)
    step_3 = str(run / "checkpoints" / "step_3.ckpt")
    for named, expected in ((None, other), ("averaged", other), ("last", stored), (step_3, stored)):
        model = translator_of(str(run), named).model
        for name, tensor in expected.weights.items():
            assert torch.equal(reduce(getattr, name.split("."), model), tensor)
    with pytest.raises(RefusedError, match="no such checkpoint"):
        translator_of(run, "step_4.ckpt")


@pytest.mark.parametrize("change", ["missing", "unexpected", "shape"])
def test_weights_that_do_not_fit_are_refused_in_one_line(stored, tmp_path, change):
    weights = dict(stored.weights)
    if change == "missing":
        del weights["decoder.1.cross_attention.w_k.weight"]
    elif change == "unexpected":
        weights["decoder.2.cross_attention.w_k.weight"] = torch.zeros(2)
    else:
        weights["decoder.1.cross_attention.w_k.weight"] = torch.zeros(2, 3)
    with pytest.raises(
        RefusedError, match=r"^the checkpoint of step 9 .*cross_attention\.w_k\.weight.*$"
    ):
        translator_of(run_of(tmp_path, last=replace(stored, weights=weights)))


def test_a_tokenizer_that_is_not_of_this_program_is_refused_with_its_file(stored, tmp_path):
    fields = json.loads(stored.tokenizer)
    fields["model"]["type"] = "WordLevel"
    other = replace(stored, tokenizer=json.dumps(fields))
    message = r"^.*checkpoints/last\.ckpt: its tokenizer is not a tokenizer of this program.*file$"
    with pytest.raises(RefusedError, match=message):
        translator_of(run_of(tmp_path, last=other))
    with pytest.raises(RefusedError, match=r"^the checkpoint of step 9: its tokenizer is not a"):
        load_tokenizer(other)
