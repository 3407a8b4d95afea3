"""Ideas as a researcher brings them, a file each in `ideas`: killed, resumed to the bit, searched as
it is scored, a row of its own in a table; or refused at the first step in one line.
"""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from applications import (
    TWELVE_STEPS,
    composed,
    slow_but,
    text_in,
    write_pairs,
)
from faults.harness import Child, dies_at, differences
from torch.nn import functional as F

import aiayn
from aiayn.config.schema import Config
from aiayn.errors import ConfigError
from aiayn.reports.groups import differing_options, group_runs
from aiayn.reports.runs import read_runs
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder, saved_steps
from aiayn.search.build import load_model
from aiayn.token_ids import BOS_ID, EOS_ID
from aiayn.training.module import TranslationModule
from aiayn.training.run import train

IDEAS = Path(__file__).parent / "ideas"
LINES = ["one two three four", "seven"]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, count) in enumerate({"train": 90, "val": 13, "test": 5}.items()):
        write_pairs(folder / split, count, seed)
    return folder


@pytest.fixture(scope="module")
def config(text) -> Config:
    """Four steps, two checkpoints; one validation of one sentence."""
    steps = ("trainer.max_steps=4", "trainer.checkpoint_every=2", "trainer.val_every=4")
    quick = ("trainer.val_bleu_sentences=1", "model.n_layers=2", "name=plain")
    return composed(*TWELVE_STEPS, *text_in(text), *steps, *quick)


def with_idea(config: Config, idea: str) -> Config:
    """Another seed as well: only what the idea changes may make it another row of a table."""
    return replace(config, name=idea, extensions=[f"{IDEAS}/{idea}.py"], seed=config.seed + 1)


@pytest.fixture(scope="module")
def plain(config, tmp_path_factory) -> Path:
    return train(config, tmp_path_factory.mktemp("plain"))


def train_with_a_kill(config, outputs: Path) -> Path:
    """Kills a training in its third step, after two are saved, and starts it again."""

    def killed() -> None:
        torch.set_num_threads(1)
        dies_at(TranslationModule, "training_step", 6)()
        train(config, outputs)

    outputs.mkdir()
    ended = Child(killed, outputs / "log").wait()
    assert ended.code == -signal.SIGKILL, ended.said
    assert saved_steps(outputs / config.name / "checkpoints")[-1] == 2
    return train(config, outputs)


def forced_log_prob(run: Path, source: list[int], target: list[int]) -> float:
    """Returns log P of a translation by the model in the form in which it was trained."""
    model = load_model(checkpoints.load(RunFolder(run).last)).eval()
    src, tgt_out = torch.tensor([[*source, EOS_ID]]), torch.tensor([[*target, EOS_ID]])
    mask = torch.ones(1, 1, 1, src.size(1), dtype=torch.bool)
    with torch.no_grad():
        logits = model(src, F.pad(tgt_out[:, :-1], (1, 0), value=BOS_ID), mask)
    return float(logits.log_softmax(-1).gather(2, tgt_out[..., None]).sum())


def assert_works_as_itself(idea: str, config: Config, plain: Path, folder: Path) -> Path:
    config = with_idea(config, idea)
    run = train(config, folder)
    assert differences(train_with_a_kill(config, folder / "killed"), run) == []

    file = [str(IDEAS / f"{idea}.py")]
    found = aiayn.load(run, "last", "cpu", extensions=file, engine="torch", beam_size=3)
    for source, [best, *_] in zip(found.source_ids(LINES, 1), found.n_best(LINES, 1), strict=True):
        forced = forced_log_prob(run, source, best.tokens)
        assert best.log_prob == pytest.approx(forced, abs=1e-4)

    groups = group_runs(read_runs([run, plain])[0])
    assert [[one.folder.path for one in group.runs] for group in groups] == [[run], [plain]]
    assert "extensions_sha256" in differing_options(groups)
    return run


def assert_refused_at_the_first_step(idea: str, config: Config, folder: Path, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"{idea}\.py: {message}") as refused:
        train(with_idea(config, idea), folder)
    assert "\n" not in str(refused.value)
    assert saved_steps(folder / idea / "checkpoints") == []


@pytest.mark.parametrize(
    "idea", slow_but(["multi_query"], ["multi_query", "grouped_query", "latent"])
)
def test_heads_that_share_keys_and_values_are_cached_as_they_are(idea, config, plain, tmp_path):
    run = assert_works_as_itself(idea, config, plain, tmp_path)
    assert (run / "attention.png").exists() == (idea != "latent")


@pytest.mark.slow
def test_relative_positions_with_values_are_searched_by_their_mask(config, plain, tmp_path):
    run = assert_works_as_itself("relative_positions", config, plain, tmp_path)
    assert not (run / "attention.png").exists(), "values by distance are no weights of values"


@pytest.mark.slow
@pytest.mark.parametrize("idea", ["parallel_layer", "one_stack"])
def test_a_decoder_of_other_layers_is_searched_by_its_own_step(idea, config, plain, tmp_path):
    assert_works_as_itself(idea, config, plain, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("idea", slow_but(["talking_heads"], ["talking_heads", "shared_layers"]))
def test_heads_that_talk_and_layers_that_are_one_resume_and_are_searched_as_they_train(
    idea, config, plain, tmp_path
):
    assert_works_as_itself(idea, config, plain, tmp_path)


@pytest.mark.parametrize("idea", slow_but(["geglu"], ["geglu", "scale_norm", "swiglu"]))
def test_other_sub_layers_and_norms_start_and_train_as_the_papers_do(idea, config, plain, tmp_path):
    run = assert_works_as_itself(idea, config, plain, tmp_path)
    model = load_model(checkpoints.load(RunFolder(run).last))
    model.reset_parameters()
    feed_forward = model.decoder[1].feed_forward
    back = {"geglu": lambda: feed_forward.back[1], "swiglu": lambda: feed_forward.down}
    if idea in back:  # Glorot's bound, divided by sqrt(2 N) at the end of a sub-layer
        back = back[idea]()
        bound = (6 / (back.in_features + back.out_features)) ** 0.5 / 4**0.5
        assert 0.9 * bound < float(back.weight.abs().max().detach()) <= bound


def test_what_python_and_numpy_draw_while_training_is_drawn_again_after_a_kill(
    config, plain, tmp_path
):
    assert_works_as_itself("stochastic_depth", config, plain, tmp_path)


@pytest.mark.parametrize(
    "idea",
    slow_but(
        ["wrong_alibi", "wrong_offsets", "wrong_positions"],
        ["wrong_alibi", "wrong_offsets", "wrong_positions", "wrong_convolution"],
    ),
)
def test_what_takes_rows_for_positions_is_refused_at_the_first_step(idea, config, tmp_path):
    message = r"decoding position by position gives different outputs .* differ by [\d.]+\)"
    assert_refused_at_the_first_step(idea, config, tmp_path, message)


@pytest.mark.parametrize("idea", slow_but(["moving_average"], ["moving_average", "noisy_gradient"]))
def test_a_callback_with_a_state_of_its_own_changes_the_files_and_resumes(
    idea, config, plain, tmp_path
):
    run = assert_works_as_itself(idea, config, plain, tmp_path)
    ours, theirs = (checkpoints.load(RunFolder(folder).averaged) for folder in (run, plain))
    assert not torch.equal(ours.weights["embedding.weight"], theirs.weights["embedding.weight"])
