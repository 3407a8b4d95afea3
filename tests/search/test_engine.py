"""CTranslate2 against the search in torch: the same translations, scores and refusals; and when
which is chosen.
"""

import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from applications import composed, run_application, slow_but
from torch import nn

from aiayn.config.search import SamplingConfig, SearchConfig, SearchOverrides
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError, DivergedError, RefusedError
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.embedding import LearnedPositions
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search import convert
from aiayn.search.engine import Choice, open_translator
from aiayn.search.fast_translator import ABOUT, FastTranslator, converted_folder
from aiayn.search.line_translator import LineTranslator
from aiayn.search.translations import Hypothesis
from aiayn.search.translator import Translator
from aiayn.token_ids import BOS_ID, EOS_ID

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

WORDS = [
    "the",
    "old",
    "house",
    "of",
    "man",
    "sees",
    "two",
    "cats",
    "near",
    "a",
    "red",
    "door",
    "and",
    "some",
    "more",
]


def taught(steps: int = 700, **model) -> Checkpoint:
    """A model that has learnt to write a line backwards, and is not sure of everything."""
    sizes = {"n_layers": 2, "d_model": 32, "d_ff": 40, "n_heads": 2, "dropout": 0.0} | model
    config = composed(
        *("data=files", "data.train=x", "data.val=x"),
        *(f"model.{name}={value}" for name, value in sizes.items()),
    )
    config = replace(config, search=SearchConfig(beam_size=4, max_extra_tokens=20))
    tokenizer = Tokenizer.train([[" ".join(WORDS)] * 3], 300)
    words = torch.tensor([ids[0] for ids in tokenizer.encode(WORDS)])
    torch.manual_seed(5)
    network = Transformer(config.model, tokenizer.vocab_size)
    adam = torch.optim.Adam(network.parameters(), lr=0.005, fused=True)
    end, start = (torch.full((32, 1), token) for token in (EOS_ID, BOS_ID))
    for step in range(steps):
        src = words[torch.randint(len(words), (32, 2 + step % 6))]
        tgt, mask = src.flip(1), torch.ones(32, 1, 1, src.size(1) + 1, dtype=torch.bool)
        logits = network(torch.cat([src, end], 1), torch.cat([start, tgt], 1), mask).flatten(0, 1)
        loss = nn.functional.cross_entropy(
            logits, torch.cat([tgt, end], 1).flatten(), label_smoothing=0.1
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
    return Checkpoint(9, config, network.state_dict(), tokenizer.to_json(), "corpus", 1, [])


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return taught()


def lines(count: int = 40, longest: int = 7) -> list[str]:
    torch.manual_seed(1)
    drawn = [torch.randint(len(WORDS), (1 + number % longest,)).tolist() for number in range(count)]
    return [" ".join(WORDS[word] for word in words) for words in drawn]


def stored(checkpoint: Checkpoint, folder: Path) -> Path:
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    checkpoints.save(folder / "checkpoints/last.ckpt", checkpoint)
    return folder / "checkpoints/last.ckpt"


def opened(path: Path, **choice) -> tuple[LineTranslator, str]:
    search = SearchOverrides(**{"patience": 2} | choice.pop("search", {}))
    with open_translator(
        Choice(**{"checkpoints": [path], "search": search, "accelerator": "cpu"} | choice)
    ) as found:
        return found


def differences(fast: LineTranslator, slow: LineTranslator, text: list[str], n: int) -> int:
    """Checks every score against torch's; returns for how many lines another translation was found
    than in torch.
    """
    found, expected = fast.n_best(text, n), slow.n_best(text, n)
    count = 0
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.score for one in ours] == sorted((one.score for one in ours), reverse=True)
        assert len({tuple(one.tokens) for one in ours}) == len(ours)
        known = {tuple(one.tokens): one for one in theirs}
        for one in ours:
            if same := known.get(tuple(one.tokens)):
                assert one.score == pytest.approx(same.score, abs=1e-4)
                assert one.log_prob == pytest.approx(same.log_prob, abs=1e-4)
                assert one.text == same.text
        count += ours[0].tokens != theirs[0].tokens
    return count


@pytest.mark.quick("'patience': 1}", "{'beam_size': 1}")
@pytest.mark.parametrize(
    "search",
    [
        {"beam_size": 1},
        {"beam_size": 4, "penalty": "gnmt", "length_penalty": 0.6},
        {"beam_size": 4, "penalty": "gnmt", "length_penalty": 2.0},
        {"beam_size": 5, "penalty": "power", "length_penalty": 1.0, "patience": 1},
        {"beam_size": 3, "penalty": "power", "length_penalty": 0.0, "patience": 3.5},
    ],
    ids=str,
)
def test_it_finds_the_translations_of_torch_with_their_scores_by_either_penalty(
    checkpoint, tmp_path, search
):
    path, text = stored(checkpoint, tmp_path), ["", *lines(), " \t"]
    fast, slow = (
        opened(path, engine=engine, search=search)[0] for engine in ("ctranslate2", "torch")
    )
    assert isinstance(fast, FastTranslator)
    # CTranslate2 ends a hypothesis only among the best K of a step, our search among the best 2 K.
    assert differences(fast, slow, text, search["beam_size"]) <= 2
    assert fast.n_best(["", " \t"], 1) == slow.n_best(["", " \t"], 1)


def forced(slow: Translator, line: str, output: list[int]) -> float:
    """log P of an output and its end."""
    src = torch.tensor([[*slow.source_ids([line])[0], EOS_ID]])
    with torch.no_grad():
        mask = torch.ones(1, 1, 1, src.size(1), dtype=torch.bool)
        logits = slow.models[0](src, torch.tensor([[BOS_ID, *output]]), mask)[0]
    return float(logits.double().log_softmax(-1)[range(len(output) + 1), [*output, EOS_ID]].sum())


def plain_search(slow: Translator, line: str, k: int) -> list[int]:
    """The output of highest log P, of all until the k-th ended, an end counting among the best k of
    its step.
    """
    src = torch.tensor([[*slow.source_ids([line])[0], EOS_ID]])
    mask = torch.ones(1, 1, 1, src.size(1), dtype=torch.bool)
    alive, ended = [(0.0, [])], []
    while len(ended) < k:
        with torch.no_grad():
            rows = [
                slow.models[0](src, torch.tensor([[BOS_ID, *ids]]), mask)[0, -1].log_softmax(-1)
                for _, ids in alive
            ]
        best, places = (
            (torch.stack(rows) + torch.tensor([[total] for total, _ in alive]))
            .flatten()
            .topk(2 * k)
        )
        found = [
            (total, alive[place // len(rows[0])][1], place % len(rows[0]))
            for total, place in zip(best.tolist(), places.tolist(), strict=True)
        ]
        ended += [(total, ids) for total, ids, token in found[:k] if token == EOS_ID]
        alive = [(total, [*ids, token]) for total, ids, token in found if token != EOS_ID][:k]
    return max(ended)[1]


@pytest.mark.slow
def test_the_best_output_is_found_however_many_end_in_the_last_step(tmp_path):
    """CTranslate2 returns no more than it waits for: which of them it drops must not be the
    best.
    """
    search = {"beam_size": 4, "patience": 1, "length_penalty": 0, "max_extra_tokens": 200}
    path, text = stored(taught(steps=150), tmp_path), lines(20)
    fast, slow = (
        opened(path, engine=engine, search=search)[0] for engine in ("ctranslate2", "torch")
    )
    assert isinstance(slow, Translator)
    assert [best.tokens for best, *_ in fast.n_best(text, 1)] == [
        plain_search(slow, line, 4) for line in text
    ]


@pytest.mark.quick("4")
@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_output_that_is_cut_at_its_own_limit_is_scored_with_its_end(tmp_path, beam_size):
    """Untaught, the model does not end, and lines of a batch have limits of their own."""
    path = stored(taught(steps=0), tmp_path)
    fast, _ = opened(path, search={"beam_size": beam_size, "max_extra_tokens": 3})
    text, longest = lines(12), 0
    found = fast.n_best(text, beam_size)
    for line, best in zip(text, found, strict=True):
        limit = len(fast.source_ids([line])[0]) + 3
        longest += sum(len(one.tokens) == limit for one in best)
        assert all(len(one.tokens) <= limit for one in best)
        assert [one.log_prob for one in best] == pytest.approx(
            [forced(fast.in_torch(), line, one.tokens) for one in best], abs=1e-4
        )
    assert longest >= 6
    if beam_size == 1:
        assert [best[0].tokens for best in found] == [
            best[0].tokens for best in fast.in_torch().n_best(text, 1)
        ]


def test_opening_an_engine_leaves_the_threads_of_torch_alone(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    assert isinstance(opened(stored(checkpoint, tmp_path))[0], FastTranslator)
    assert torch.get_num_threads() == before == 1


@pytest.mark.parametrize(
    ("d_model", "typed", "n_threads"), [(128, "", 1), (129, "", 3), (128, "2", 2), (128, "0", 1)]
)
def test_a_narrow_model_translates_in_one_thread_unless_omp_num_threads_is_set(
    checkpoint, tmp_path, monkeypatch, d_model, typed, n_threads
):
    import ctranslate2

    path = stored(checkpoint, tmp_path)
    opened(path)  # converts
    about = converted_folder(path) / ABOUT
    about.write_text(json.dumps(json.loads(about.read_text()) | {"d_model": d_model}))
    settings = []

    def engine(*names, **options):
        settings.append(options["intra_threads"])
        return SimpleNamespace(device="cpu")

    monkeypatch.setenv("OMP_NUM_THREADS", typed)
    monkeypatch.setattr("aiayn.search.fast_translator.cores", lambda: 3)
    monkeypatch.setattr(ctranslate2, "Translator", engine)
    opened(path)
    assert settings == [n_threads]


def test_a_lines_result_does_not_depend_on_longer_lines_in_its_batch(checkpoint, tmp_path):
    path = stored(checkpoint, tmp_path)
    fast, _ = opened(path, search={"max_extra_tokens": 1})
    text = lines(14)
    alone = [fast.n_best([line], 4)[0] for line in text]
    together = fast.n_best(text, 4)
    assert [[one.tokens for one in best] for best in together] == [
        [one.tokens for one in best] for best in alone
    ]
    small, _ = opened(path, search={"max_extra_tokens": 1, "batch_tokens": 30})
    seen = []
    assert [best[0].text for best in small.n_best(text, 1, lambda *done: seen.append(done))] == [
        best[0].text for best in together
    ]
    assert seen[-1] == (14, 14)
    assert len(seen) > 3


def test_sources_beyond_1024_subwords_are_not_cut_and_those_beyond_the_tables_are_translated_in_torch(
    checkpoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(convert, "POSITIONS", 1200)
    fast, _ = opened(stored(checkpoint, tmp_path), search={"beam_size": 1, "max_extra_tokens": 2})
    long = [
        " ".join(WORDS[number * step % len(WORDS)] for number in range(1050)) for step in (1, 3)
    ]
    assert all(len(ids) > 1024 for ids in fast.source_ids(long))
    for line, (best, *_) in zip(long, fast.n_best(long, 1), strict=True):
        assert best.log_prob == pytest.approx(forced(fast.in_torch(), line, best.tokens), abs=1e-3)
    asked = []
    monkeypatch.setattr(
        fast.in_torch(),
        "find",
        lambda ids, *given: asked.append(ids) or [[Hypothesis([290], 0, 0)]],
    )
    assert (
        fast.translate(["the", f"{long[0]} {long[1]}", "red"])[1]
        == fast.tokenizer.decode([[290]])[0]
    )
    assert asked == [fast.source_ids([f"{long[0]} {long[1]}"])]


@pytest.mark.slow
def test_outputs_are_not_cut_after_256_subwords(tmp_path):
    fast, _ = opened(
        stored(taught(steps=0), tmp_path), search={"beam_size": 1, "max_extra_tokens": 2}
    )
    line = " ".join(WORDS[number % 3] for number in range(260))
    [[best]] = fast.n_best([line], 1)
    assert len(best.tokens) > 256
    assert best.tokens == fast.in_torch().n_best([line], 1)[0][0].tokens


def test_an_output_with_a_special_token_inside_is_searched_again_in_torch(checkpoint, tmp_path):
    weights = {name: weight.clone() for name, weight in checkpoint.weights.items()}
    weights["embedding.weight"][BOS_ID] = 3 * weights["embedding.weight"][20:40].mean(0)
    weights["embedding.weight"][BOS_ID] += weights["embedding.weight"][EOS_ID]
    path, text = stored(replace(checkpoint, weights=weights), tmp_path), lines(12)
    fast, _ = opened(path, search={"max_extra_tokens": 2})
    assert not any(BOS_ID in one.tokens for best in fast.n_best(text, 2) for one in best)
    assert fast._torch is not None, "some had it inside"
    assert differences(fast, fast.in_torch(), text, 2) == 0


@pytest.mark.quick("d_k': 20")
@pytest.mark.parametrize(
    "model",
    slow_but(
        [
            {"d_k": 8, "d_v": 12},
            {"d_k": 20, "d_v": 16},
            {"positions": "learned", "max_positions": 306},
        ],
        [
            {"d_k": 8, "d_v": 12},
            {"d_k": 20, "d_v": 16},
            {"d_k": 16, "d_v": 24},
            {"n_heads": 1, "n_layers": 1},
            {"positions": "learned", "max_positions": 306},
        ],
    ),
    ids=str,
)
def test_rows_of_table_3_are_converted_too(tmp_path, model):
    path = stored(taught(60, **model), tmp_path)
    search = {"beam_size": 1, "max_extra_tokens": 5}
    fast, slow = (
        opened(path, engine=engine, search=search)[0] for engine in ("ctranslate2", "torch")
    )
    assert isinstance(fast, FastTranslator)
    assert differences(fast, slow, lines(12), 1) == 0
    if "positions" in model:
        assert fast.longest_source == slow.longest_source == 300
        with pytest.raises(DataError, match="this model's 306 learned positions allow at most 300"):
            fast.translate(["the " * 350])


def test_the_model_is_converted_once_for_every_state_of_the_checkpoint(
    checkpoint, tmp_path, monkeypatch
):
    path = stored(checkpoint, tmp_path)
    expected = opened(path)[0].translate(lines(4))
    folder = converted_folder(path)
    assert {one.name for one in path.parent.iterdir()} == {path.name, folder.name}
    ordinary = path.stat().st_mode & 0o666
    assert {one.stat().st_mode & 0o666 for one in folder.iterdir()} == {ordinary}
    with monkeypatch.context() as patch:
        patch.setattr(convert, "write_converted", lambda *given: pytest.fail("again"))
        assert opened(path)[0].translate(lines(4)) == expected
    damaged = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(damaged[:-9] + b"something")
    assert opened(path)[0].translate(lines(4)) == expected
    assert (folder / "model.bin").read_bytes() == damaged
    (folder / ABOUT).write_text("{")
    assert opened(path)[0].translate(lines(4)) == expected

    stored(
        replace(
            checkpoint, weights={name: weight * 1.1 for name, weight in checkpoint.weights.items()}
        ),
        tmp_path,
    )
    assert isinstance(opened(path)[0], FastTranslator)
    assert converted_folder(path) != folder
    assert {one.name for one in path.parent.iterdir()} == {
        path.name,
        converted_folder(path).name,
    }, "old ones go"


def test_where_nothing_can_be_written_beside_the_checkpoint_it_is_converted_for_the_one_command(
    checkpoint, tmp_path, monkeypatch
):
    path = stored(checkpoint, tmp_path)
    folder = convert.atomic_folder

    def refuses(to: Path):
        if to.is_relative_to(path.parent):
            raise PermissionError(13, "Permission denied")
        return folder(to)

    monkeypatch.setattr(convert, "atomic_folder", refuses)
    assert opened(path)[0].translate(lines(2)) == opened(path, engine="torch")[0].translate(
        lines(2)
    )
    assert [one.name for one in path.parent.iterdir()] == [path.name]

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with open_translator(
        Choice(checkpoints=[path], search=SearchOverrides(patience=2), accelerator="cpu")
    ) as opening:
        left = list((tmp_path / "tmp").iterdir())  # a signal would end the command now
    assert isinstance(opening[0], FastTranslator)
    assert left == []


def test_a_checkpoint_that_changes_while_a_command_runs_is_not_mixed_with_the_model_that_was_converted(
    checkpoint, tmp_path
):
    path = stored(checkpoint, tmp_path)
    fast, _ = opened(path)
    stored(replace(checkpoint, step=10), tmp_path)
    with pytest.raises(
        RefusedError, match="has been replaced since this command began; run it again"
    ):
        fast.in_torch()


class GELU(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w_2(nn.functional.gelu(self.w_1(x)))


def hooked(model: Transformer) -> None:
    model.encoder[0].feed_forward.register_forward_hook(lambda *given: given[-1])


CHANGES: dict[str, tuple[Callable[[Transformer], object], str]] = {
    "part": (
        lambda m: setattr(m.encoder[1], "feed_forward", GELU(32, 40)),
        r"encoder\.1\.feed_forward \(GELU",
    ),
    "hook": (hooked, r"encoder\.0\.feed_forward \(FeedForward or a hook on it"),
    "norm": (lambda m: setattr(m, "decoder_norm", nn.LayerNorm(32)), "a norm after the layers"),
    "epsilon": (lambda m: setattr(m.decoder[0].norm_2.norm, "eps", 1e-3), r"decoder\.0\.norm_2"),
    "linear": (
        lambda m: setattr(
            m.encoder[0].self_attention,
            "w_q",
            nn.utils.parametrizations.orthogonal(nn.Linear(32, 32)),
        ),
        r"encoder\.0\.self_attention, whose matrices|Parametrized",
    ),
    "heads": (
        lambda m: setattr(m.encoder[0].self_attention, "n_heads", 4),
        r"encoder\.0\.self_attention",
    ),
    "a size": (
        lambda m: setattr(m.decoder[0], "cross_attention", MultiHeadAttention(32, 2, 4, 16)),
        r"decoder\.0\.cross_attention",
    ),
    "bias": (
        lambda m: setattr(m.encoder[0].self_attention, "w_q", nn.Linear(32, 32)),
        r"encoder\.0\.self_attention",
    ),
    "no layer": (lambda m: setattr(m.decoder[1], "feed_forward", nn.Identity()), r"decoder\.1"),
    "norm without weights": (
        lambda m: setattr(m.encoder[0].norm_1, "norm", nn.LayerNorm(32, elementwise_affine=False)),
        r"encoder\.0\.norm_1",
    ),
    "scale": (lambda m: setattr(m.embedding, "scale", 1.0), "embedding"),
    "positions": (lambda m: setattr(m, "src_positions", LearnedPositions(99, 32)), "src_positions"),
}


@pytest.mark.quick("heads", "bias", "scale", "positions")
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_with_other_code_is_translated_in_torch_and_the_line_says_what_it_is(
    checkpoint, tmp_path, monkeypatch, change
):
    from aiayn.search import build

    def built(config, vocab_size):
        model = Transformer(config.model, vocab_size)
        CHANGES[change][0](model)
        return model

    monkeypatch.setattr(build, "build_model", built)
    monkeypatch.setattr(build, "restore", lambda model, checkpoint: None)
    found, line = opened(stored(checkpoint, tmp_path))
    assert isinstance(found, Translator)
    assert line.startswith("engine   torch, float32, cpu: CTranslate2 does not support ")
    assert re.search(CHANGES[change][1], line)
    with pytest.raises(ConfigError, match="engine=ctranslate2: CTranslate2 does not support"):
        opened(stored(checkpoint, tmp_path), engine="ctranslate2")


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"engine": "torch"}, "torch was requested"),
        ({"only_torch": "--sample draws in torch"}, "--sample draws in torch"),
        ({"precision": "bfloat16"}, "CTranslate2 does not support bfloat16 on this cpu"),
        ({"search": {"patience": None}}, "an exact search"),
        ({"search": {"patience": 0}}, "an exact search"),
    ],
    ids=str,
)
def test_what_ctranslate2_cannot_do_is_done_in_torch_with_the_reason(
    checkpoint, tmp_path, monkeypatch, choice, reason
):
    monkeypatch.setattr(
        "ctranslate2.get_supported_compute_types", lambda device: {"float32", "int8_float32"}
    )
    path = stored(checkpoint, tmp_path)
    found, line = opened(path, **choice)
    assert isinstance(found, Translator)
    assert reason in line
    if choice.get("engine") != "torch":
        with pytest.raises(ConfigError, match="engine=ctranslate2: "):
            opened(path, engine="ctranslate2", **choice)


def test_everything_works_where_ctranslate2_cannot_be_imported(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    found, line = opened(stored(checkpoint, tmp_path))
    assert isinstance(found, Translator)
    assert line.startswith("engine   torch, float32, cpu: CTranslate2 cannot be imported (")
    assert all(found.translate(lines(3)))
    with pytest.raises(
        ConfigError, match="precision=int8: needs CTranslate2, but CTranslate2 cannot be imported"
    ):
        opened(stored(checkpoint, tmp_path), precision="int8")


@pytest.mark.parametrize("found", [True, False])
def test_a_gpu_without_the_library_that_ctranslate2_multiplies_with_translates_in_torch(
    checkpoint, tmp_path, monkeypatch, found
):
    """CTranslate2 looks for it at its first product, and fails in the middle of a translation."""
    asked = []

    def load(path: str) -> None:
        asked.append(path)
        if not (found and path.endswith("nvidia/cublas/lib/libcublas.so.12")):
            raise OSError(path)

    packages = SimpleNamespace(submodule_search_locations=["/site/nvidia"])
    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 1)
    monkeypatch.setattr("aiayn.search.engine.sys.platform", "linux")
    monkeypatch.setattr("aiayn.search.engine.find_spec", lambda name: packages)
    monkeypatch.setattr("aiayn.search.engine.ctypes.CDLL", load)
    translator, line = opened(stored(checkpoint, tmp_path), accelerator="auto")
    assert isinstance(translator, Translator)
    # The test machine has no GPU
    assert "CTranslate2 fails" in line if found else "CTranslate2 finds no libcublas.so.12" in line
    assert asked == ["libcublas.so.12", "/site/nvidia/cublas/lib/libcublas.so.12"]


def test_int8_translates_nearly_as_float32(checkpoint, tmp_path):
    path = stored(checkpoint, tmp_path)
    exact, quick = (
        opened(path, precision=precision)[0].n_best(lines(), 1) for precision in ("float32", "int8")
    )
    assert quick != exact
    # So narrow a model is not sure of much, and processors differ in how they round.
    assert sum(a.tokens == b.tokens for (a,), (b,) in zip(quick, exact, strict=True)) >= 0.6 * len(
        exact
    )
    scores = [[best.score for (best,) in found] for found in (quick, exact)]
    assert statistics.correlation(*scores) > 0.8


def test_a_broken_model_is_told_by_its_output(checkpoint, tmp_path):
    weights = {
        name: torch.full_like(weight, math.nan) for name, weight in checkpoint.weights.items()
    }
    with pytest.raises(DivergedError, match="the model's output is NaN or infinite"):
        opened(stored(replace(checkpoint, weights=weights), tmp_path))[0].translate(["the old man"])


def test_a_batch_that_does_not_fit_into_memory_is_halved_and_later_ones_begin_smaller(
    checkpoint, tmp_path, monkeypatch, caplog
):
    fast, _ = opened(stored(checkpoint, tmp_path))
    expected, start, sizes = fast.translate(lines(9)), fast._start, []

    class Full:
        def result(self):
            raise RuntimeError("CUDA failed with error out of memory")

    def small(sources):
        sizes.append(len(sources))
        return start(sources) if len(sources) <= 2 else [Full()]

    monkeypatch.setattr(fast, "_start", small)
    assert fast.translate(lines(9)) == expected
    assert sizes[0] == 9
    assert f"search.batch_tokens={fast.batch_tokens}" in caplog.text
    sizes.clear()
    assert fast.translate(lines(9)) == expected
    assert max(sizes) < 9


def test_several_processors_translate_as_one(checkpoint, tmp_path):
    path, text = stored(checkpoint, tmp_path), ["", *lines(30)]
    search = {"batch_tokens": 60}
    one, two = (
        opened(path, devices=devices, search=search)[0].translate(text) for devices in (1, 2)
    )
    assert one == two


TORCH_FREE = """
import sys
from aiayn.cli import main
sys.argv = ["aiayn", "translate", *sys.argv[1:]]
try:
    main()
finally:
    slow = {"torch", "pytorch_lightning", "hydra", "omegaconf", "pandas", "scipy", "matplotlib", "datasets"}
    slow |= {"numpy", "typer", "pydantic", "yaml", "filelock"}  # each takes as long as the translation of a line
    print(sorted(slow & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.quick("options0")
@pytest.mark.parametrize(
    "options", [[], ["--n-best", "2"], ["--scores", "--beam-size", "1"], ["--precision", "int8"]]
)
def test_once_converted_a_line_is_translated_without_slow_imports(checkpoint, tmp_path, options):
    path = stored(checkpoint, tmp_path)
    expected = opened(path)[0].translate(["the old man"])

    ended = subprocess.run(
        [sys.executable, "-c", TORCH_FREE, str(tmp_path), *options],
        input="the old man\n",
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )

    assert ended.stderr.split("\n")[:-1] == [
        f"engine   CTranslate2, {'int8' if 'int8' in options else 'float32'}, cpu",
        "[]",
    ]
    if not options:
        assert ended.stdout == f"{expected[0]}\n"


SERVED_TORCH_FREE = """
import sys
import aiayn.apps.server.serve as module
from aiayn.cli import main

def serve(service, run, options):
    print(service.served.translator.translate(["the old man"])[0], "torch" in sys.modules)
    print(service.served.describe())

module.serve = serve
sys.argv = ["aiayn", "serve", *sys.argv[1:]]
main()
"""


def test_once_converted_a_model_is_served_without_torch(checkpoint, tmp_path):
    expected = opened(stored(checkpoint, tmp_path))[0].translate(["the old man"])

    command = [sys.executable, "-c", SERVED_TORCH_FREE, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)

    line, described, _ = ended.stdout.split("\n")
    assert line == f"{expected[0]} False"
    assert described.endswith("; engine CTranslate2, float32, cpu")


def test_the_command_says_its_engine_and_refuses_one_that_cannot_do_it(
    checkpoint, tmp_path, monkeypatch
):
    config = replace(checkpoint.config, search=replace(checkpoint.config.search, patience=1.0))
    stored(replace(checkpoint, config=config), tmp_path)
    (tmp_path / "text").write_text("the old man\n\nsees\n")
    ours, torchs = (
        run_application(
            "aiayn", "translate", str(tmp_path), str(tmp_path / "text"), "--engine", engine
        )
        for engine in ("auto", "torch")
    )
    assert (ours.code, torchs.code) == (0, 0)
    assert ours.out == torchs.out
    assert ours.err == "engine   CTranslate2, float32, cpu\n"
    assert torchs.err == "engine   torch, float32, cpu: torch was requested\n"
    for options in (["--sample"], ["--patience", "0"]):
        refused = run_application(
            "aiayn", "translate", str(tmp_path), "--engine", "ctranslate2", *options
        )
        assert refused.code == 2
        assert refused.err.count("\n") == 1
        assert "engine" in refused.err
    refused = run_application("aiayn", "translate", str(tmp_path), "--engine", "marian")
    assert (
        refused.code,
        "--engine=marian: choose one of auto, ctranslate2, torch" in refused.err,
    ) == (2, True)


def test_special_tokens_are_not_suppressed_as_that_would_change_the_probability_of_the_others(
    checkpoint, tmp_path
):
    fast, _ = opened(stored(checkpoint, tmp_path), search={"beam_size": 1})
    for line, (best, *_) in zip(lines(8), fast.n_best(lines(8), 1), strict=True):
        assert best.log_prob == pytest.approx(forced(fast.in_torch(), line, best.tokens), abs=1e-5)


def test_a_constraint_of_an_extension_acts_in_the_search_of_torch_alone(checkpoint, tmp_path):
    path, file = stored(checkpoint, tmp_path / "run"), tmp_path / "short.py"
    file.write_text(
        "def constraint(tokenizer):\n"
        "    [never] = tokenizer.encode(['house'])\n"
        "    def allowed(src, prefixes, log_probs):\n"
        "        log_probs[..., never[0]] = -float('inf')\n"
        "        return log_probs\n"
        "    return allowed\n"
    )
    text = ["the old house", "two cats near a door"]
    free, _ = opened(path, engine="torch")
    found, line = opened(path, extensions=[str(file)])
    [[never, *_]] = free.tokenizer.encode(["house"])

    assert line.endswith("cpu: an extension constrains the search")
    assert [
        [never in best.tokens for best, *_ in made.n_best(text, 1)] for made in (free, found)
    ] == [[True, False], [False, False]]
    assert found.translate(text[1:]) == free.translate(text[1:])
    with pytest.raises(ConfigError, match="engine=ctranslate2: an extension constrains the search"):
        opened(path, extensions=[str(file)], engine="ctranslate2")
    with pytest.raises(
        ConfigError, match="--sample: constraints of extensions only work in a search"
    ):
        found.sample(text, SamplingConfig())
