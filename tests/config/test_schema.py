"""Every rule of every option, and configurations as plain data."""

import json
import math
import shutil
from copy import deepcopy
from dataclasses import MISSING
from operator import attrgetter

import pytest
from applications import ROOT, composed, composed_options

from aiayn.config.compose import Sources, compose_evaluation, compose_training, default_name
from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import run_config
from aiayn.config.rules import options_of
from aiayn.config.schema import Config
from aiayn.config.stored import (
    changed_options,
    comparable,
    flatten,
    from_dict,
    mutable_on_resume,
    stored_config,
    to_dict,
)
from aiayn.errors import ConfigError


@pytest.fixture(scope="session")
def whole() -> dict:
    return to_dict(composed("data=files", "data.train=a/train", "data.val=a/val"))


@pytest.fixture
def plain(whole) -> dict:
    """The default training configuration, on text files; a copy."""
    return deepcopy(whole)


def changed(plain: dict, **options) -> dict:
    """plain with dotted options changed: changed(plain, **{"model.dropout": 2})."""
    tree = deepcopy(plain)
    for key, value in options.items():
        *sections, name = key.split(".")
        section = tree
        for part in sections:
            section = section[part]
        assert name in section, key
        section[name] = value
    return tree


def refusal(plain: dict, **options) -> str:
    with pytest.raises(ConfigError) as error:
        from_dict(Config, changed(plain, **options))
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_code == 2
    return message


COUNTS = [
    *(
        f"model.{name}"
        for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "max_positions")
    ),
    *(
        f"data.{name}"
        for name in ("max_length", "tokens_per_step", "max_tokens_per_device", "micro_batches")
    ),
    "data.tokenizer_pairs",
    "data.prepare_processes",
    "data.max_length_ratio",
    "optim.warmup_steps",
    *(
        f"trainer.{name}"
        for name in ("max_steps", "devices", "num_nodes", "val_every", "checkpoint_every")
    ),
    *(f"trainer.{name}" for name in ("average_last", "log_every", "patience")),
    *(f"search.{name}" for name in ("beam_size", "max_extra_tokens", "batch_tokens")),
]
FURTHER = [
    "model.attention_window",
    *(f"trainer.{name}" for name in ("timeout", "max_skipped_steps", "val_bleu_sentences")),
]
UP_TO = {
    "data.vocab_size": 10_000_000,
    "data.micro_batches": 1_000_000,
    "data.num_workers": 1000,
    "data.prepare_processes": 1000,
    "trainer.devices": 1000,
    "trainer.num_nodes": 1000,
    "search.beam_size": 1000,
    "search.max_extra_tokens": 10_000,
}
BAD = [
    *((key, value) for key in COUNTS for value in (0, -1)),
    # Libraries end in tracebacks or hang with larger numbers.
    *((key, 2**31) for key in (*COUNTS, *FURTHER) if key not in UP_TO),
    *((key, most + 1) for key, most in UP_TO.items()),
    *(("data.vocab_size", value) for value in (0, 259)),
    *(
        (key, -1)
        for key in ("data.num_workers", "trainer.val_bleu_sentences", "search.length_penalty")
    ),
    *(
        (key, value)
        for key in ("model.dropout", "optim.label_smoothing", "optim.beta1", "optim.beta2")
        for value in (-0.1, 1.0, 1.5, math.nan)
    ),
    *((key, value) for key in ("optim.lr_scale", "optim.eps") for value in (0.0, -1.0, math.nan)),
    *((key, math.nan) for key in ("data.max_length_ratio", "search.length_penalty")),
    *(("seed", value) for value in (-1, 2**32)),
    *(
        (f"data.{split}", value)
        for split in ("train", "val", "test")
        for value in ("", [], ["a", ""], 3)
    ),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_impossible_values_are_refused_in_one_line_that_begins_with_key_and_value(
    plain, key, value
):
    assert refusal(plain, **{key: value}).startswith(f"{key}={value}: must be ")


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("model.positions", "sinusoidal, learned"),
        ("data.source", "hub, files, phrasebook"),
        ("trainer.accelerator", "auto, cpu, gpu"),
        ("trainer.strategy", "auto, ddp, ddp_find_unused_parameters_true"),
        ("trainer.precision", "auto, tf32, 32-true, bf16-mixed, bf16-true, 16-mixed, 64-true"),
        ("search.penalty", "gnmt, power"),
        ("logger.kind", "wandb, tensorboard, csv, none"),
        ("logger.mode", "auto, online, offline"),
    ],
)
def test_unknown_choices_are_refused_with_the_known_ones(plain, key, choices):
    assert refusal(plain, **{key: "other"}) == f"{key}=other: choose one of {choices}"
    for choice in choices.split(", "):
        if (key, choice) != ("data.source", "hub"):  # which wants more than that
            from_dict(Config, changed(plain, **{key: choice}))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            {"model.n_heads": 3, "model.d_k": None},
            ["model.d_model=512", "model.n_heads=3", "model.d_k and model.d_v"],
        ),
        ({"model.n_heads": 3, "model.d_v": None}, ["model.n_heads=3", "model.d_v"]),
        (
            {"model.d_model": 511, "model.n_heads": 7},
            ["model.d_model=511", "model.positions=learned"],
        ),
        (
            {"model.positions": "learned", "model.max_positions": 305},
            ["model.max_positions=305", "306 positions"],
        ),
        ({"data.source": "hub"}, ["data.hub_path is empty", "data=files"]),
        ({"data.train": None}, ["data.train is missing", "data.train=PREFIX"]),
        ({"data.val": None}, ["data.val is missing", "data.val=PREFIX"]),
        ({"data.src_lang": ""}, ["data.src_lang=:", "such as en"]),
        ({"data.tgt_lang": ""}, ["data.tgt_lang=:", "such as en"]),
        ({"data.src_lang": "de"}, ["data.src_lang", "data.tgt_lang", "both de"]),
        ({"data.tokens_per_step": 255}, ["data.tokens_per_step=255", "data.max_length=255"]),
        (
            {"data.max_tokens_per_device": 255},
            ["data.max_tokens_per_device=255", "data.max_length=255"],
        ),
        ({"data.micro_batches": 3}, ["data.micro_batches=3", "data.parts_per_step=4"]),
        (
            {"data.micro_batches": 4, "trainer.devices": 3},
            ["data.micro_batches=4", "3 devices", "multiple of 3"],
        ),
        (
            {"data.micro_batches": 4, "trainer.devices": 4, "trainer.num_nodes": 2},
            ["data.micro_batches=4", "8 devices", "multiple of 8"],
        ),
        (
            {"trainer.best_metric": "val/bleu", "trainer.val_bleu_sentences": 0},
            [
                "trainer.best_metric=val/bleu",
                "trainer.val_bleu_sentences=0",
                "trainer.best_metric=val/loss",
            ],
        ),
        ({"name": "../elsewhere"}, ["name=../elsewhere", "letters"]),
    ],
)
def test_values_at_odds_with_each_other_are_refused_with_every_key_involved(plain, options, named):
    message = refusal(plain, **options)
    for words in named:
        assert words in message


@pytest.mark.parametrize(
    "options",
    [
        {"model.n_heads": 3, "model.d_k": 5, "model.d_v": 7},
        {"model.d_model": 511, "model.n_heads": 7, "model.positions": "learned"},
        {"model.positions": "learned", "model.max_positions": 306},
        {"model.d_k": 3, "model.d_v": 1},
        {"model.dropout": 0.0, "optim.label_smoothing": 0.0},
        {"data.tokens_per_step": 256, "data.max_tokens_per_device": 256},
        {"data.max_tokens_per_device": None},
        {"data.micro_batches": 8, "trainer.devices": 4, "trainer.num_nodes": 2},
        {
            "data.train": ["a", "b/c"],
            "data.test": None,
            "data.vocab_size": 260,
            "data.max_length_ratio": 1.0,
        },
        {"data.source": "hub", "data.hub_path": "a/b"},
        {"search.beam_size": 1, "search.length_penalty": 0.0, "trainer.val_bleu_sentences": 0},
        {"seed": 2**32 - 1, "name": "sweeps/table3/a_h1"},
    ],
)
def test_values_at_the_edge_of_a_rule_are_accepted(plain, options):
    flat = flatten(to_dict(from_dict(Config, changed(plain, **options))))
    assert {key: flat[key] for key in options} == options


def test_the_sizes_of_a_head_follow_unless_they_are_set():
    assert (ModelConfig().d_k, ModelConfig().d_v) == (64, 64)
    one_set = run_config(composed_options("name=x", "model.n_heads=4", "model.d_k=16")).model
    assert (one_set.d_k, one_set.d_v) == (16, 128)
    assert (ModelConfig(d_model=12, n_heads=3).d_k, ModelConfig(n_heads=4, d_v=7).d_v) == (4, 7)


def test_options_that_are_still_open_cannot_be_taken_for_resolved_ones():
    options = composed_options("name=x", "model.d_model=null", "trainer.val_every=null")

    with pytest.raises(
        ConfigError,
        match=r"unset options: model\.d_k, model\.d_model, model\.d_v, trainer\.val_every",
    ):
        run_config(options)
    with pytest.raises(ConfigError, match="name is missing"):
        run_config(composed_options())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/abs",
        "a/",
        "a//b",
        "..",
        "a/../b",
        ".hidden",
        "-x",
        "a b",
        "a=b",
        "a\nb",
        "ü",
        "a\x00",
        "$HOME",
    ],
)
def test_names_that_leave_the_folder_or_need_quoting_are_refused(plain, name):
    with pytest.raises(ConfigError, match=r"^name="):
        from_dict(Config, changed(plain, name=name))


@pytest.mark.parametrize(
    ("name", "is_accepted"),
    [
        ("n" * 200, True),
        ("n" * 201, False),
        ("/".join(["n" * 199] * 5), True),
        ("/".join(["n" * 199] * 5) + "/n", False),
    ],
)
@pytest.mark.parametrize("key", ["name", "sweep"])
def test_names_are_as_long_as_file_systems_allow(plain, key, name, is_accepted):
    if is_accepted:
        from_dict(Config, changed(plain, **{key: name}))
    else:
        message = refusal(plain, **{key: name})
        assert message.startswith(f"{key}={name[:60]}... ({len(name)} characters): must have at ")


GIANT = 10**400


@pytest.mark.parametrize("number", [GIANT, -GIANT, 10**5000], ids=["400", "-400", "5000"])
@pytest.mark.parametrize(
    "key",
    [
        "seed",
        "trainer.max_steps",
        "trainer.limit_val_batches",
        "optim.peak_lr",
        "optim.beta1",
        "search.length_penalty",
        "data.max_length_ratio",
    ],
)
def test_stored_numbers_beyond_every_limit_are_refused_in_a_short_line(plain, key, number):
    message = refusal(plain, **{key: number})

    assert message.startswith(f"{key}: a number of more than 300 digits: must be ")
    assert len(message) < 120


@pytest.mark.parametrize(
    "override",
    [
        f"optim.peak_lr={GIANT}",
        f"trainer.max_steps={GIANT}",
        f"trainer.max_steps={'9' * 5000}",
        f"data.weights=[1,{GIANT}]",
        f"trainer.max_time={GIANT}:00:00:00",
        "optim.peak_lr=1e400",
        f"{'k' * 300}=1",
        f"name={'n' * 300}",
    ],
    ids=lambda override: f"{override[:20]}-{len(override)}",
)
def test_giant_numbers_and_names_on_the_command_line_are_one_short_line(override):
    with pytest.raises(ConfigError) as error:
        compose_training(["data=files", "data.train=a", "data.val=a", override])

    key, message = override.partition("=")[0], str(error.value)
    assert message.startswith(key[:60])
    assert "\n" not in message
    assert len(message) < 200


def test_a_giant_number_in_a_file_of_options_is_one_line(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = f"# @package _global_\noptim: {{lr_scale: {GIANT}}}\n"
    (tmp_path / "experiment/mine.yaml").write_text(text)

    with pytest.raises(
        ConfigError, match=r"^a file of options: contains a number that is too large for "
    ):
        compose_training(["experiment=mine"], Sources("train", folder=str(tmp_path)))


def test_a_runs_default_name_says_data_model_and_row():
    choices = {"data": "wmt14_en_de", "model": "big", "ablation": "base"}
    assert default_name(choices) == "wmt14_en_de-big"
    assert default_name(choices | {"ablation": "a_h4", "model": "base"}) == "wmt14_en_de-base-a_h4"
    assert (
        default_name(choices | {"ablation": "quarter/a_h4", "model": "quarter"})
        == "wmt14_en_de-quarter-a_h4"
    )
    assert default_name(choices | {"ablation": "quarter/base"}) == "wmt14_en_de-big"


# Evaluation.


def evaluate(**options) -> EvaluateConfig:
    return from_dict(EvaluateConfig, changed(to_dict(EvaluateConfig(run="outputs/a")), **options))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("split", "train"),
        ("accelerator", "tpu"),
        ("search.penalty", "none"),
        ("search.beam_size", 0),
        ("search.max_extra_tokens", 0),
        ("search.batch_tokens", 0),
        ("search.length_penalty", -0.5),
        ("search.beam_size", 1001),
        ("search.max_extra_tokens", 10_001),
        ("search.length_penalty", 5.1),
    ],
)
def test_the_options_of_evaluation_have_rules_too(key, value):
    with pytest.raises(ConfigError, match=f"^{key}={value}: "):
        evaluate(**{key: value})


def test_search_overrides_replace_what_they_name_and_nothing_else(plain):
    search = from_dict(Config, plain).search
    assert evaluate(references=[], ensemble=[]).search.apply(search) == search
    overridden = evaluate(**{"search.beam_size": 7, "search.length_penalty": 0.0}).search.apply(
        search
    )
    assert (overridden.beam_size, overridden.length_penalty) == (7, 0.0)
    assert (overridden.penalty, overridden.max_extra_tokens, overridden.batch_tokens) == (
        "gnmt",
        50,
        None,
    )


def test_an_exact_search_that_is_asked_for_by_0_is_that_of_null_also_over_a_runs_patience(plain):
    exact = from_dict(Config, plain).search
    assert exact.patience is None
    patient = evaluate(**{"search.patience": 2.0}).search.apply(exact)
    assert patient.patience == 2.0
    assert evaluate(**{"search.patience": 0}).search.apply(patient) == exact


# Plain data.


def test_a_configuration_survives_json(plain):
    config = from_dict(Config, plain)
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


SECTIONS = ["model", "data", "optim", "trainer", "search", "logger"]


@pytest.mark.parametrize("section", [None, *SECTIONS])
def test_unknown_options_are_refused_by_name(plain, section):
    tree = deepcopy(plain)
    (tree[section] if section else tree)["nonsense"] = 1
    name = f"{section}.nonsense" if section else "nonsense"
    with pytest.raises(ConfigError, match=f"unknown options are stored: {name}$"):
        from_dict(Config, tree)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_stored_configuration_without_a_section_is_refused(plain, section):
    del plain[section]
    with pytest.raises(ConfigError, match=f"stored options lack {section}$"):
        from_dict(Config, plain)


@pytest.mark.parametrize("key", options_of(Config))
def test_a_configuration_stored_before_an_option_existed_reads_with_what_runs_had_then_or_is_refused(
    key, plain
):
    section, _, name = key.rpartition(".")
    tree = plain[section] if section else plain
    del tree[name]
    absent = options_of(Config)[key].metadata["absent"]

    if absent is MISSING:
        with pytest.raises(ConfigError, match=f"stored options lack {key}$"):
            from_dict(Config, plain)
    else:
        read = from_dict(Config, plain)
        assert (attrgetter(key)(read), comparable(read)[key]) == (absent, absent)


def test_every_option_has_help_and_one_value_which_stands_in_conf(monkeypatch, tmp_path):
    for schema in (Config, EvaluateConfig):
        for key, option in options_of(schema).items():
            assert option.metadata["help"], key
            assert option.default is MISSING or key.startswith("search."), key
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    file = tmp_path / "conf/model/base.yaml"
    file.write_text(file.read_text().replace("n_layers: 6", "n_layers: 5"))
    monkeypatch.setattr("aiayn.config.rules.conf_folder", lambda: tmp_path / "conf")
    assert (ModelConfig().n_layers, ModelConfig().d_ff, Config().model.n_layers) == (5, 2048, 5)


def test_a_configuration_stored_with_open_sizes_of_heads_is_that_with_the_sizes_that_follow(plain):
    assert plain["model"]["d_k"] == 64
    older = changed(plain, **{"model.d_k": None, "model.d_v": None})

    assert stored_config(older) == stored_config(plain)
    assert (
        changed_options(from_dict(Config, older), stored_config(plain))
        == changed_options(stored_config(plain), from_dict(Config, older))
        == {}
    )
    assert changed_options(
        stored_config(older), stored_config(changed(plain, **{"model.d_k": 32}))
    ) == {"model.d_k": "null -> 32"}


CALLS = [
    {"_target_": "os.system", "command": "touch {sentinel}"},
    {"_target_": "pathlib.Path.write_text", "_args_": ["{sentinel}", "x"]},
    {"_target_": "builtins.eval", "_args_": ["open('{sentinel}', 'w')"]},
    {"_target_": "torch.load", "f": "{sentinel}", "weights_only": False},
    {"_target_": "logging.os.system", "_partial_": False, "command": "touch {sentinel}"},
    {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "{sentinel}"]}},
    {"_instantiator": "os.system", "command": "touch {sentinel}"},
]


@pytest.mark.parametrize("call", CALLS)
def test_stored_options_that_name_code_are_refused_and_never_run(plain, call, tmp_path):
    sentinel = tmp_path / "sentinel"
    call = json.loads(json.dumps(call).replace("{sentinel}", str(sentinel)))
    for tree in (
        plain | call,
        plain | {"model": plain["model"] | call},
        plain | {"model": call},
        changed(plain, **{"data.train": call}),
        changed(plain, **{"data.train": [call]}),
    ):
        with pytest.raises(ConfigError):
            from_dict(Config, tree)
    assert not sentinel.exists()


# What may change between two starts of a run.

DEFINING = {
    "init_from",
    "init_fingerprint",
    "seed",
    *(
        f"model.{name}"
        for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout", "positions")
    ),
    "model.max_positions",
    "model.attention_window",
    "model.attention_dropout",
    "model.n_decoder_layers",
    "model.tie_embeddings",
    "optim.weight_decay",
    "data.task",
    *(
        f"data.{name}"
        for name in ("source", "hub_path", "hub_name", "hub_revision", "train", "val", "src_lang")
    ),
    *(
        f"data.{name}"
        for name in (
            "tgt_lang",
            "vocab_size",
            "src_vocab_size",
            "lowercase",
            "tags",
            "max_length",
            "max_length_ratio",
            "tokenizer_pairs",
        )
    ),
    *(f"data.{name}" for name in ("tokens_per_step", "micro_batches")),
    *(
        f"optim.{name}"
        for name in ("warmup_steps", "lr_scale", "beta1", "beta2", "eps", "label_smoothing")
    ),
    "trainer.precision",
    "trainer.compile",
    "trainer.packed",
}


def test_the_options_that_shape_the_training_may_not_change():
    assert {name for name in DEFINING if mutable_on_resume(name)} == set()


def test_an_option_that_there_is_not_defines_the_training():
    assert not mutable_on_resume("searching.beam_size")
    assert not mutable_on_resume("trainer.max_steps_too")


def test_runs_that_are_named_alone_are_found_below_outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in ("all/a", "all/b", "outputs/a", "here"):
        (tmp_path / run).mkdir(parents=True)

    found = compose_evaluation(["run=a", "outputs=all", "baseline=here", "ensemble=[b,all/a]"])

    assert (found.run, found.baseline, found.ensemble) == ("all/a", "here", ["all/b", "all/a"])
    assert compose_evaluation(["run=a"]).run == "outputs/a"
    assert compose_evaluation(["run=nowhere"]).run == "outputs/nowhere"


def nested(depth: int, width: int = 1) -> list:
    value: list = []
    for _ in range(depth):
        value = [value] * width
    return value


def containing_itself() -> dict:
    table: dict = {}
    table["a"] = [table]
    return table


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        (nested(19), False),
        (nested(20), True),
        (nested(10_000), True),
        (nested(12, 9), True),  # 300 billion values in a hundred
        (["x"] * 99_999, False),
        (["x"] * 100_001, True),
        (containing_itself(), True),
    ],
    ids=["20 deep", "21 deep", "10,000 deep", "laughs", "long", "too long", "in itself"],
)
@pytest.mark.parametrize("key", ["extension", "name"])
def test_a_stored_value_that_cannot_be_copied_is_refused_before_it_is(
    plain, key, value, is_refused
):
    stored = {**plain, key: {"own": value} if key == "extension" else value}
    if key == "extension" and not is_refused:
        assert from_dict(Config, stored).extension == {"own": value}
    else:
        with pytest.raises(ConfigError, match=f"^{key}.* (too deeply|must be of type)") as refused:
            from_dict(Config, stored)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("key", "value"), [("data.weights", [[1]]), ("extensions_sha256", [7]), ("logger.kind", 3)]
)
def test_a_stored_list_with_an_entry_of_another_type_is_refused(plain, key, value):
    with pytest.raises(ConfigError, match=f"^{key}"):
        from_dict(Config, changed(plain, **{key: value}))


def test_control_characters_of_a_stored_value_are_escaped(plain):
    with pytest.raises(ConfigError, match=r"tgt_lang=a\\x1b\[2J\\nb: a language"):
        from_dict(Config, changed(plain, **{"data.tgt_lang": "a\x1b[2J\nb"}))
