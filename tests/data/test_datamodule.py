"""Which batches a rank gets, where it begins, that all ranks evaluate every pair once; and use in a
notebook.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from applications import composed, composed_options, text_in, write_pairs

from aiayn.data.cleaning import normalise
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError


def trainer(
    step: int = 0, rank: int = 0, world_size: int = 1, accumulate: int = 1, **options
) -> SimpleNamespace:
    given = {"limit_train_batches": 1.0, "overfit_batches": 0.0} | options
    return SimpleNamespace(
        global_step=step,
        global_rank=rank,
        world_size=world_size,
        accumulate_grad_batches=accumulate,
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
        **given,
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, count) in enumerate({"train": 90, "val": 23, "test": 17}.items()):
        write_pairs(folder / split, count, seed)
    sizes = ("data.vocab_size=280", "data.max_length=40", "data.tokens_per_step=90")
    return replace(composed(*text_in(folder), *sizes).data, max_tokens_per_device=60)


@pytest.fixture
def data(config) -> TranslationDataModule:
    """Steps of four micro-batches."""
    made = TranslationDataModule(replace(config, micro_batches=4), seed=1)
    made.prepare_data()
    made.setup("fit")
    return made


def numbers(data: TranslationDataModule) -> list[int]:
    return list(data.train_dataloader().sampler)


def test_alone_it_prepares_the_text_and_loads_batches_of_whole_steps(config, tmp_path):
    data = TranslationDataModule(replace(config, folder=str(tmp_path)))
    with pytest.raises(RuntimeError, match="prepare_data"):
        _ = data.corpus
    data.prepare_data()
    assert list(tmp_path.glob("en-de-*/manifest.json"))
    data.setup("fit")

    batches = list(data.train_dataloader())

    assert len(batches) == data.plan.steps_per_epoch * data.plan.micro_batches
    pairs = sum(int((batch.tgt_out == 2).sum()) for batch in batches)
    assert pairs == len(data.corpus.train) == 90
    assert sum(batch.n_tokens for batch in batches) == data.corpus.train.tgt.lengths.sum()
    for batch in batches:
        assert max(batch.src.numel(), batch.tgt_out.numel()) <= 60
        assert batch.step_tokens <= 130  # about 90


@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (0, 2), (1, 2), (3, 4)])
@pytest.mark.parametrize("step", [0, 3, 50])
def test_training_goes_on_at_the_trainers_step_with_this_ranks_micro_batches(
    data, step, rank, world_size
):
    data.trainer = trainer(step, rank, world_size, 4 // world_size)
    epoch = data.plan.steps_per_epoch
    first, end = 4 * step + rank, 4 * epoch * (step // epoch + 1)

    assert epoch > 4
    assert numbers(data) == list(range(first, end, world_size))
    for batch in data.train_dataloader():
        planned = data.plan.micro_batch(batch.number)
        assert batch.n_tokens == sum(
            len(data.corpus.train.pair(pair)[1]) + 1 for pair in planned.pairs
        )
        assert (batch.step_tokens, batch.micro_batches) == (planned.step_tokens, 4)


@pytest.mark.parametrize("kind", [int, float])
def test_with_a_limit_every_epoch_has_the_first_steps_of_its_own_order(data, kind):
    epoch = 4 * data.plan.steps_per_epoch
    limit = 8 if kind is int else 8.5 / epoch
    data.trainer = trainer(5, accumulate=4, limit_train_batches=limit)
    # From the second step of epoch 2 on
    assert numbers(data)[:8] == list(range(2 * epoch + 4, 2 * epoch + 12))


def test_to_overfit_every_epoch_is_the_first_one(data):
    data.trainer = trainer(5, accumulate=4, limit_train_batches=8, overfit_batches=8)
    assert numbers(data)[:4] == [4, 5, 6, 7]


@pytest.mark.parametrize("kind", [int, float])
def test_a_limit_within_a_step_is_refused(data, kind):
    limit = 6 if kind is int else 6.5 / (4 * data.plan.steps_per_epoch)
    data.trainer = trainer(accumulate=4, limit_train_batches=limit)
    with pytest.raises(
        ConfigError,
        match="6 batches end within a step; set a multiple of accumulate_grad_batches=4",
    ):
        data.train_dataloader()


@pytest.mark.parametrize("packed", [False, True])
def test_batches_of_a_loaders_process_arrive_by_value_without_a_file_of_shared_memory(
    config, packed
):
    loaders = []
    for workers in (0, 1):
        data = TranslationDataModule(replace(config, num_workers=workers), seed=1)
        data.packed = packed
        data.setup("fit")
        loaders.append(data.train_dataloader())
    for made, arrived in zip(*loaders, strict=True):
        assert made.number == arrived.number
        assert torch.equal(made.src, arrived.src)
        assert torch.equal(made.tgt_out, arrived.tgt_out)
        assert not arrived.src.is_shared()
        assert not arrived.tgt_out.is_shared()


def test_accumulation_cuts_the_same_steps_into_more_parts(config):
    parts = {}
    for accumulate, world_size in ((12, 1), (4, 2), (8, 1)):
        data = TranslationDataModule(config, seed=1)
        data.trainer = trainer(0, 0, world_size, accumulate)
        data.setup("fit")
        plan = data.plan
        assert plan.micro_batches == accumulate * world_size
        count = plan.micro_batches
        parts[accumulate] = [
            sorted(
                pair
                for part in range(count)
                for pair in plan.micro_batch(step * count + part).pairs.tolist()
            )
            for step in range(2 * plan.steps_per_epoch)
        ]
    assert parts[12] == parts[4] == parts[8]


@pytest.mark.parametrize(
    ("micro_batches", "accumulate", "remedy"),
    [
        (None, 1, "accumulate_grad_batches=4"),
        (None, 3, "accumulate_grad_batches=4"),
        (4, 3, "accumulate_grad_batches=4"),
    ],
)
def test_accumulation_that_does_not_fit_is_refused_with_what_does(
    config, micro_batches, accumulate, remedy
):
    data = TranslationDataModule(replace(config, micro_batches=micro_batches))
    data.trainer = trainer(accumulate=accumulate)
    with pytest.raises(ConfigError, match=f"set {remedy}$"):
        data.setup("fit")


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("split", ["val", "test"])
def test_all_ranks_together_evaluate_every_pair_once_in_equally_many_batches(
    config, world_size, split
):
    targets, lengths = [], set()
    for rank in range(world_size):
        data = TranslationDataModule(config)
        data.trainer = trainer(7, rank, world_size)
        data.setup("validate" if split == "val" else "test")
        batches = list(getattr(data, f"{split}_dataloader")())
        lengths.add(len(batches))
        targets += [
            row[row > 2].tolist() for batch in batches for row in batch.tgt_out if batch.n_tokens
        ]

    text = Path(f"{getattr(config, split)}.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert sorted(targets) == sorted(data.tokenizer.encode([normalise(line) for line in text]))
    assert len(lengths) == 1


@pytest.mark.parametrize(("limit", "batches"), [(4, 4), (0.5, 3), (1, 1)])
def test_a_limited_validation_is_of_the_same_batches_on_any_number_of_devices(
    config, limit, batches
):
    found = []
    for world_size in (1, 2, 3):
        seen = []
        for rank in range(world_size):
            data = TranslationDataModule(replace(config, max_tokens_per_device=90))
            data.trainer, data.limit_val_batches = trainer(0, rank, world_size), limit
            data.setup("validate")
            seen += [batch.tgt_out.tolist() for batch in data.val_dataloader() if batch.n_tokens]
        found.append(sorted(seen))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == batches


def test_a_limited_validation_is_of_short_and_of_long_sentences(config):
    data = TranslationDataModule(replace(config, max_tokens_per_device=60))
    data.setup("validate")
    widths = [batch.tgt_out.size(1) for batch in data.val_dataloader()]
    data.limit_val_batches = 3
    kept = [batch.tgt_out.size(1) for batch in data.val_dataloader()]
    assert widths == sorted(widths, reverse=True)
    assert kept == [widths[number * len(widths) // 3] for number in range(3)]
    assert kept[-1] < widths[2]


def test_all_ranks_together_translate_every_line_that_is_not_blank_once(config, tmp_path):
    lines = ["one two", "", "three three three four", "five"]
    for side in ("en", "de"):
        (tmp_path / f"new.{side}").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )
    found = {}
    for rank in range(2):
        data = TranslationDataModule(
            replace(config, test=str(tmp_path / "new"), max_tokens_per_device=50)
        )
        data.trainer = trainer(0, rank, 2)
        data.setup("predict")
        for batch in data.predict_dataloader():
            found |= {
                line: row[row > 2].tolist()
                for line, row in zip(batch.lines, batch.src, strict=False)
            }

    ids = data.tokenizer.encode([normalise(line) for line in lines])
    assert found == {line: ids[line] for line in (0, 2, 3)}


@pytest.mark.parametrize("option", ["vocab_size", "tokens_per_step"])
def test_options_that_only_a_run_settles_are_asked_for(option):
    options = composed_options(
        "data=files", "data.train=x", "data.val=x", "data.src_lang=en", "data.tgt_lang=de"
    ).data
    with pytest.raises(ConfigError, match=rf"data.{option}=null.*set both"):
        TranslationDataModule(options)
