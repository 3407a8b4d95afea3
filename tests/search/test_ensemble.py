"""Several models as one: the mean of log-probabilities, and a model with its copy is that model."""

import pytest
import torch
from applications import composed, run_application, small_model, translator_of, write_pairs

from aiayn.config.search import SamplingConfig, SearchConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, RefusedError
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import read_json
from aiayn.search.ensemble import Ensemble
from aiayn.search.translator import Translator
from aiayn.token_ids import BOS_ID, EOS_ID

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
]
TOKENIZER = Tokenizer.train(
    [["the old house of the man sees two cats", "das alte Haus des Mannes sieht"]], 280
)


def transformer(seed: int, **sizes) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(small_model(**sizes), TOKENIZER.vocab_size).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model


def translator(*models: Transformer) -> Translator:
    return Translator(
        Ensemble(list(models)) if len(models) > 1 else models[0], TOKENIZER, SEARCH, "cpu"
    )


def test_a_model_with_its_copy_gives_the_models_own_translations():
    alone, twice = translator(transformer(1)), translator(transformer(1), transformer(1))
    for one, two in zip(alone.n_best(LINES, 3), twice.n_best(LINES, 3), strict=True):
        assert [best.tokens for best in two] == [best.tokens for best in one]
        assert [best.log_prob for best in two] == pytest.approx(
            [best.log_prob for best in one], abs=1e-4
        )
    sampling = SamplingConfig(seed=2)
    assert [s.tokens for s in twice.sample(LINES, sampling)] == [
        s.tokens for s in alone.sample(LINES, sampling)
    ]


def test_the_log_prob_of_an_ensemble_is_the_mean_of_its_models_own():
    models = [transformer(1), transformer(2, n_layers=1, d_ff=30), transformer(3)]
    ready = translator(*models)
    for line, found in zip(LINES, ready.n_best(LINES, 3), strict=True):
        src = torch.tensor([[*TOKENIZER.encode([line])[0], EOS_ID]])
        for best in found if line else []:
            by_hand = []
            for model in models:
                with torch.no_grad():
                    mask = torch.ones(1, 1, 1, src.size(1), dtype=torch.bool)
                    log_probs = model(src, torch.tensor([[BOS_ID, *best.tokens]]), mask)[
                        0
                    ].log_softmax(-1)
                by_hand.append(
                    sum(
                        float(log_probs[t, token]) for t, token in enumerate([*best.tokens, EOS_ID])
                    )
                )
            assert best.log_prob == pytest.approx(sum(by_hand) / 3, abs=1e-4)
    pairs = [
        translator(*some).score(LINES, LINES[::-1])
        for some in (models, *([model] for model in models))
    ]
    for together, *apart in zip(*pairs, strict=True):
        assert together.log_prob == pytest.approx(
            sum(pair.log_prob for pair in apart) / 3, abs=1e-4
        )
    drawn = ready.sample(LINES, SamplingConfig(seed=1, top_k=5))
    assert len({tuple(sample.tokens) for sample in drawn}) > 3


def run_of(outputs, name: str, seed: int, tokenizer: Tokenizer = TOKENIZER, tgt_lang: str = "de"):
    options = [
        "data=files",
        "data.train=x",
        "data.val=x",
        f"name={name}",
        f"data.tgt_lang={tgt_lang}",
    ]
    options += [
        "model.n_layers=1",
        "model.d_model=12",
        "model.d_ff=20",
        "model.n_heads=2",
        "search.max_extra_tokens=4",
    ]
    config = composed(*options)
    torch.manual_seed(seed)
    weights = Transformer(config.model, tokenizer.vocab_size).state_dict()
    weights["embedding.weight"] *= 3
    (outputs / name / "checkpoints").mkdir(parents=True)
    found = Checkpoint(7, config, weights, tokenizer.to_json(), "corpus", 1, [])
    checkpoints.save(outputs / name / "checkpoints/last.ckpt", found)
    return outputs / name


@pytest.mark.slow
def test_runs_translate_together_and_others_are_refused(tmp_path):
    first, second = run_of(tmp_path, "first", 1), run_of(tmp_path, "second", 2)
    alone, both = translator_of(first), translator_of(first, ensemble=[second])
    assert both.translate(LINES) != alone.translate(LINES)
    assert translator_of(first, ensemble=[first]).translate(LINES) == alone.translate(LINES)
    french = run_of(tmp_path, "french", 1, tgt_lang="fr")
    with pytest.raises(
        RefusedError,
        match="french translates en-fr, but first translates en-de; an ensemble needs runs",
    ):
        translator_of(first, ensemble=[french])
    other = run_of(tmp_path, "other", 1, Tokenizer.train([["the old mouse"]], 262))
    with pytest.raises(RefusedError, match="other and first have different vocabularies"):
        translator_of(first, ensemble=[second, other])
    with pytest.raises(ConfigError, match="with several runs, choose averaged, best or last"):
        translator_of(first, str(first / "checkpoints/last.ckpt"), ensemble=[second])


@pytest.mark.slow
def test_the_commands_take_several_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("first", "second")):
        run_of(tmp_path / "outputs", name, seed)
    write_pairs(tmp_path / "dev", 5, seed=1)
    runs = ("outputs/first", "--with", "outputs/second")
    together = run_application("aiayn", "translate", *runs, "dev.en", "--format", "jsonl")
    assert together.code == 0, together.err
    expected = translator_of("outputs/first", ensemble=["outputs/second"]).translate(
        (tmp_path / "dev.en").read_text(encoding="utf-8").split("\n")[:-1]
    )
    assert run_application("aiayn", "translate", *runs, "dev.en").out.split("\n")[:-1] == expected
    assert run_application("aiayn", "score", *runs, "dev.en", "dev.de").out.count("\n") == 5
    one_for_both = ("--checkpoint", "outputs/first/checkpoints/last.ckpt")
    for command in (("translate", *runs, "dev.en"), ("score", *runs, "dev.en", "dev.de")):
        refused = run_application("aiayn", *command, *one_for_both)
        assert (
            refused.code,
            "with several runs, choose averaged, best or last instead of a file" in refused.err,
        ) == (2, True)

    scored = run_application(
        "evaluate.py", "run=outputs/first", "ensemble=outputs/second", "test=dev", "accelerator=cpu"
    )
    assert scored.code == 0, scored.err
    assert "in an ensemble with outputs/second" in scored.out
    folder = tmp_path / "outputs/first/evaluation/dev-with-second"
    assert (folder / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1] == expected
    assert [one["run"] for one in read_json(folder / "evaluation.json")["ensemble"]] == [
        "outputs/second"
    ]
    wrong = run_application("evaluate.py", "run=outputs/first", "ensemble=3", "test=dev")
    assert (wrong.code, wrong.err.count("\n")) == (4, 1)
