"""Exports against the program itself: the same subwords, the same translations; refusals by
name.
"""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import ctranslate2
import pytest
import tokenizers
import torch
from applications import ROOT, TEXT, TINY, composed, run_application, write_text
from hypothesis import given, settings
from hypothesis import strategies as st

import aiayn
from aiayn.apps.export import export as module
from aiayn.apps.export.export import export_ctranslate2, export_marian
from aiayn.config.extensions import load_extension
from aiayn.config.search import SearchConfig
from aiayn.data.cleaning import normalise
from aiayn.data.tokenizer import Tokenizer
from aiayn.doors import load_from
from aiayn.errors import ConfigError, RefusedError, ResourceError
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint, restore, save
from aiayn.search.beam_search import beam_search
from aiayn.search.translator import load_translator
from aiayn.token_ids import BOS_ID, EOS_ID

LINES = [
    "the old house",
    "two cats see the man",
    " the\u2028man \x85 sees\x1f",
    "</s> <pad> <s>",
    "a é 猫 b",
    "cats",
]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """A random model that is sure of itself, as unequal in its sizes as the other engines allow."""
    config = composed(
        "data=files",
        "data.train=x",
        "data.val=x",
        *("model.n_layers=3", "model.d_model=12", "model.d_ff=20", "model.n_heads=2"),
        *("search.beam_size=3", "search.length_penalty=0.0", "search.max_extra_tokens=4"),
    )
    tokenizer = Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes"]], 280
    )
    torch.manual_seed(5)
    weights = Transformer(config.model, tokenizer.vocab_size).state_dict()
    for name, weight in weights.items():  # biases and norms as well have something to say
        weight += 0.3 * torch.randn(weight.shape) if weight.dim() == 1 else 0
        weight *= 3 if name == "embedding.weight" else 1
    return Checkpoint(7, config, weights, tokenizer.to_json(), "corpus", 1, [])


def changed(checkpoint: Checkpoint, **model) -> Checkpoint:
    return replace(
        checkpoint,
        config=replace(checkpoint.config, model=replace(checkpoint.config.model, **model)),
    )


def our_logits(checkpoint: Checkpoint, src: list[int], tgt: list[int]) -> torch.Tensor:
    """Returns our logits (T, V) for bos and tgt."""
    model = load_translator(checkpoint, accelerator="cpu").model
    with torch.no_grad():
        source = torch.tensor([[*src, EOS_ID]])
        return model(
            source,
            torch.tensor([[BOS_ID, *tgt]]),
            torch.ones(1, 1, 1, len(src) + 1, dtype=torch.bool),
        )[0]


def test_marians_logits_are_ours(checkpoint, tmp_path):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed (extra: export)"
    )
    export_marian(checkpoint, tmp_path / "model")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "model").eval()
    src, tgt = [40, 8, 33, 12, 200], [50, 61, 7]
    with torch.no_grad():
        found = model(
            input_ids=torch.tensor([[*src, EOS_ID]]),
            decoder_input_ids=torch.tensor([[BOS_ID, *tgt]]),
        ).logits[0]
    torch.testing.assert_close(found, our_logits(checkpoint, src, tgt), rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def reverser(checkpoint) -> Checkpoint:
    """A model that has half learnt to write what it reads backwards: it ends, early or late."""
    sizes = vars(checkpoint.config.model) | {
        "d_model": 32,
        "d_ff": 40,
        "d_k": 16,
        "d_v": 16,
        "dropout": 0.0,
    }
    config = replace(checkpoint.config, model=type(checkpoint.config.model)(**sizes))
    torch.manual_seed(5)
    model = Transformer(config.model, checkpoint.vocab_size)
    adam = torch.optim.Adam(model.parameters(), lr=0.005)
    end, start = (torch.full((32, 1), token) for token in (EOS_ID, BOS_ID))
    with torch.enable_grad():
        for step in range(100):
            src = torch.randint(30, 50, (32, 2 + step % 5))
            tgt, mask = src.flip(1), torch.ones(32, 1, 1, src.size(1) + 1, dtype=torch.bool)
            logits = model(torch.cat([src, end], 1), torch.cat([start, tgt], 1), mask).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(
                logits, torch.cat([tgt, end], 1).flatten(), label_smoothing=0.1
            )
            adam.zero_grad()
            loss.backward()
            adam.step()
    return replace(checkpoint, config=config, weights=model.state_dict())


@pytest.mark.parametrize(("beam_size", "alpha"), [(4, 0.6), (3, 1.0)])
def test_our_n_best_lists_hold_what_marians_hold_and_what_ended_just_outside_its_beam(
    reverser, tmp_path, beam_size, alpha
):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed (extra: export)"
    )
    export_marian(reverser, tmp_path / "model")
    marian = transformers.MarianMTModel.from_pretrained(tmp_path / "model")
    marian.generation_config.max_length = None
    search = SearchConfig(
        beam_size=beam_size, length_penalty=alpha, penalty="power", max_extra_tokens=20
    )
    model, equal, compared = load_translator(reverser).model, 0, 0
    for sentence in (
        [31, 47],
        [40, 33, 38],
        [45, 45, 30, 49, 36],
        [34, 41, 48, 39, 31, 35],
        [42],
        [38, 46, 32, 33],
    ):
        src = torch.tensor([[*sentence, EOS_ID]])
        [ours] = beam_search(model, src, torch.ones(1, 1, 1, src.size(1), dtype=torch.bool), search)
        options = {
            "num_beams": beam_size,
            "num_return_sequences": beam_size,
            "length_penalty": alpha,
        }
        options |= {
            "early_stopping": "never",
            "output_scores": True,
            "return_dict_in_generate": True,
        }
        found = marian.generate(
            input_ids=src,
            attention_mask=torch.ones_like(src),
            max_new_tokens=len(sentence) + 20,
            **options,
        )
        own = {tuple(one.tokens): one.score for one in ours}
        for ids, score in zip(
            found.sequences.tolist(), found.sequences_scores.tolist(), strict=True
        ):
            if EOS_ID not in ids:
                continue  # cut at the limit, where ours has to end
            tokens = tuple(ids[1 : ids.index(EOS_ID)])
            # Ours lets any of the best 2 K continuations end, transformers of the best K only.
            assert own.get(tokens, score) == pytest.approx(score, abs=1e-5)
            assert tokens in own or score <= min(own.values()) + 1e-5
            equal, compared = equal + (tokens in own), compared + 1
    assert compared >= 4 * beam_size
    assert equal >= 0.5 * compared


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_ctranslate2_scores_outputs_as_we_do(checkpoint, tmp_path, positions):
    ctranslate2 = pytest.importorskip(
        "ctranslate2", reason="ctranslate2 is not installed (extra: export)"
    )
    if positions == "learned":
        checkpoint = changed(checkpoint, positions="learned", max_positions=260)
        tables = {f"{side}_positions.table": torch.randn(260, 12) for side in ("src", "tgt")}
        checkpoint = replace(checkpoint, weights=checkpoint.weights | tables)
    export_ctranslate2(checkpoint, tmp_path / "model")
    engine = ctranslate2.Translator(
        str(tmp_path / "model"), compute_type="float32", intra_threads=1
    )
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    translator = load_translator(checkpoint, accelerator="cpu")
    for line in LINES:
        src, tgt = tokenizer.encode(line), [50, 61, 7]
        assert src.ids == translator.source_ids([line])[0]
        [scored] = engine.score_batch(
            [src.tokens], [[tokenizer.id_to_token(token) for token in tgt]]
        )
        log_probs = our_logits(checkpoint, src.ids, tgt).log_softmax(-1)
        expected = log_probs[range(4), [*tgt, EOS_ID]].tolist()
        assert scored.log_probs == pytest.approx(expected, abs=1e-4)


PAGE = (ROOT / "docs/other-engines.md").read_text(encoding="utf-8")


SENTENCE, TRANSLATION = "A man is sitting on a bench.", "das alte Haus"


def taught(checkpoint: Checkpoint) -> Checkpoint:
    """The model after it has learnt one sentence by heart: whatever rules an engine searches by, it
    finds that one.
    """
    model = Transformer(checkpoint.config.model, checkpoint.vocab_size).eval()
    restore(model, checkpoint)
    [src], [tgt] = (
        Tokenizer.from_json(checkpoint.tokenizer).encode([text]) for text in (SENTENCE, TRANSLATION)
    )
    mask = torch.ones(1, 1, 1, len(src) + 1, dtype=torch.bool)
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    with torch.enable_grad():
        for _ in range(500):
            logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]), mask)
            loss = torch.nn.functional.cross_entropy(logits[0], torch.tensor([*tgt, EOS_ID]))
            if loss < 0.003:
                break
            adam.zero_grad()
            loss.backward()
            adam.step()
    assert loss < 0.003
    return replace(checkpoint, weights=model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "library"), [("ctranslate2", "ctranslate2"), ("marian", "transformers")]
)
def test_the_documented_commands_and_lines_translate(
    checkpoint, tmp_path, monkeypatch, capsys, target, library
):
    pytest.importorskip(library, reason=f"{library} is not installed (extra: export)")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs/mine/checkpoints").mkdir(parents=True)
    save(tmp_path / "outputs/mine/checkpoints/last.ckpt", taught(checkpoint))

    for line in re.findall(rf"^aiayn (.* --format {target})$", PAGE, re.MULTILINE):
        assert run_application("aiayn", *line.split()).code == 0
    [lines] = re.findall(
        rf"^```python\n((?:import|from) {library}.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert SENTENCE in lines
    capsys.readouterr()
    exec(lines, {})

    assert capsys.readouterr().out == f"{TRANSLATION}\n"


@pytest.mark.parametrize(
    ("target", "library"), [("ctranslate2", "ctranslate2"), ("marian", "transformers")]
)
def test_an_exported_folder_is_as_readable_as_any_other(checkpoint, tmp_path, target, library):
    pytest.importorskip(library, reason=f"{library} is not installed (extra: export)")
    load_from("aiayn.exporters", target)(checkpoint, tmp_path / "model")
    (tmp_path / "ordinary").write_text("")
    ordinary = (tmp_path / "ordinary").stat().st_mode
    assert {
        path.name for path in (tmp_path / "model").iterdir() if path.stat().st_mode != ordinary
    } == set()


@settings(max_examples=200)
@given(
    st.text(
        st.one_of(
            st.characters(codec="utf-8"), st.sampled_from(" \t\n\r\x0b\x0c\x1c\x1f\x85\u2028</s>")
        )
    )
)
def test_the_exported_tokenizer_spaces_lines_as_training_did(checkpoint, text):
    ours = Tokenizer.from_json(checkpoint.tokenizer)
    core = tokenizers.Tokenizer.from_str(json.dumps(module._tokenizer(ours) | {"added_tokens": []}))
    assert core.encode(text).ids == ours.encode([normalise(text)])[0]


@pytest.mark.parametrize(
    ("target", "model", "message"),
    [
        ("marian", {"d_k": 5}, r"model\.d_k=5 \(other than d_model / n_heads = 6\)"),
        ("marian", {"d_v": 7}, r"model\.d_v=7 \(other than d_model / n_heads = 6\)"),
        ("marian", {"positions": "learned"}, r"model\.positions=learned"),
        ("marian", {"attention_window": 3}, r"model\.attention_window=3"),
        ("ctranslate2", {"attention_window": 3}, r"model\.attention_window=3"),
    ],
)
def test_what_a_format_cannot_express_is_refused_by_name(
    checkpoint, tmp_path, monkeypatch, target, model, message
):
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    config = replace(checkpoint.config.model, **model)
    weights = Transformer(config, checkpoint.vocab_size).state_dict()
    with pytest.raises(RefusedError, match=f"--format {target} does not support {message}"):
        load_from("aiayn.exporters", target)(
            replace(changed(checkpoint, **model), weights=weights), tmp_path / "model"
        )
    assert list(tmp_path.iterdir()) == []


GELU = """
from torch.nn import functional as F
from aiayn.model.layers import FeedForward, Parts

class Gelu(FeedForward):
    def forward(self, x):
        return self.w_2(F.gelu(self.w_1(x)))

PARTS = Parts(feed_forward=lambda config, place: Gelu(config.d_model, config.d_ff))
"""


@pytest.mark.parametrize("target", ["ctranslate2", "marian"])
def test_a_model_with_parts_of_an_extension_is_never_written_as_the_papers(
    checkpoint, tmp_path, monkeypatch, target
):
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gelu.py").write_text(f"# for {target}: named in no other test\n{GELU}")
    extended = changed(checkpoint, parts=load_extension("gelu.py").file_id)
    (tmp_path / "outputs/mine/checkpoints").mkdir(parents=True)
    save(tmp_path / "outputs/mine/checkpoints/last.ckpt", extended)
    command = ("aiayn", "export", "outputs/mine", "model", "--format", target)
    unnamed = run_application(*command)
    assert unnamed.code == 4, unnamed.err
    assert "gelu.py" in unnamed.err or "Gelu" in unnamed.err
    named = run_application(*command, "--extension", "gelu.py")
    assert named.code == 4
    assert f"--format {target} does not support encoder.0.feed_forward (Gelu" in named.err
    assert not (tmp_path / "model").exists()


def test_unknown_formats_missing_libraries_and_folders_in_use_are_named(
    checkpoint, tmp_path, monkeypatch
):
    save(tmp_path / "last.ckpt", checkpoint)
    unknown = run_application(
        "aiayn", "export", str(tmp_path / "last.ckpt"), "x", "--format", "onnx"
    )
    assert unknown.code == 2
    assert "--format=onnx: choose one of aiayn, ctranslate2, marian" in unknown.err
    (tmp_path / "last.ckpt").unlink()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"--format marian needs transformers: pip install 'aiayn\[export\]'"
    ):
        export_marian(checkpoint, tmp_path / "model")
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RefusedError, match="exists and is not an empty folder; choose a new one"):
        export_marian(checkpoint, tmp_path)


def test_an_export_that_fails_leaves_nothing_behind(checkpoint, tmp_path, monkeypatch):
    def full(model, tokenizer, folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "find_spec", lambda name: name)
    monkeypatch.setattr(module, "write_ctranslate2", full)
    with pytest.raises(ResourceError, match="No space left on device"):
        export_ctranslate2(checkpoint, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_options_of_search_are_in_the_export(checkpoint, tmp_path):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    export_ctranslate2(checkpoint, tmp_path / "model")
    assert json.loads((tmp_path / "model/search.json").read_text()) == vars(
        checkpoint.config.search
    )


@pytest.mark.slow
def test_a_model_of_characters_is_trained_exported_and_translates_alike_everywhere(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    characters = ("data.tokenizer=characters", "data.vocab_size=300", "trainer.max_steps=40")
    trained = run_application("train.py", *TEXT, *TINY, *characters, "name=run")
    assert trained.code == 0, trained.err
    line = "sëven 八 one"  # letters that the training text lacks
    [ids] = aiayn.load("outputs/run", accelerator="cpu").source_ids([line])
    assert len(ids) == len(" sven  one") + len("ë八".encode())

    for form, out in (("aiayn", "run.aiayn"), ("ctranslate2", "converted")):
        exported = run_application("aiayn", "export", "outputs/run", out, "--format", form)
        assert exported.code == 0, exported.err
    Path("lines.en").write_text(f"{line}\none two three\n", encoding="utf-8")
    expected, *others = [
        run_application(
            "aiayn", "translate", model, "lines.en", "--beam-size", "1", "--engine", engine
        ).out
        for model, engine in product(("outputs/run", "run.aiayn"), ("torch", "ctranslate2"))
    ]
    assert expected.count("\n") == 2
    assert others == [expected] * 3
    tokenizer = tokenizers.Tokenizer.from_file("converted/tokenizer.json")
    [found] = ctranslate2.Translator("converted").translate_batch(
        [tokenizer.encode(line).tokens], beam_size=1, max_decoding_length=len(ids) + 3
    )
    written = [tokenizer.token_to_id(token) for token in found.hypotheses[0]]
    assert tokenizer.decode(written).strip() == expected.split("\n")[0].strip()
