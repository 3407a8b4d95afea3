"""What the files in conf/ compose to: every one of them, and every row of Table 3 as the diff that
it claims to be.
"""

from collections import Counter
from pathlib import Path

import pytest
import yaml
from applications import TINY, composed, composed_options, run_application, slow_but, write_pairs
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from parsing.generated_grammar import generated_trees, write_split
from studies import RESULTS, read_study

from aiayn.config.compose import check_config, register
from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.model import ModelOptions
from aiayn.config.rules import options_of
from aiayn.config.schema import Config
from aiayn.config.stored import comparable, flatten, from_dict, to_dict
from aiayn.reports import published

CONF = Path(__file__).parents[2] / "conf"
GROUPS = {
    folder.name: sorted(file.stem for file in folder.glob("*.yaml"))
    for folder in CONF.iterdir()
    if folder.is_dir()
}

# Table 3 as it is printed, apart from training steps: what a line leaves blank is base's.
TABLE_3 = """
          N d_model d_ff  h d_k d_v P_drop e_ls  PPL BLEU params
base      6     512 2048  8  64  64    0.1  0.1 4.92 25.8     65
a_h1      .       .    .  1 512 512      .    . 5.29 24.9      .
a_h4      .       .    .  4 128 128      .    . 5.00 25.5      .
a_h16     .       .    . 16  32  32      .    . 4.91 25.8      .
a_h32     .       .    . 32  16  16      .    . 5.01 25.4      .
b_dk16    .       .    .  .  16   .      .    . 5.16 25.1     58
b_dk32    .       .    .  .  32   .      .    . 5.01 25.4     60
c_n2      2       .    .  .   .   .      .    . 6.11 23.7     36
c_n4      4       .    .  .   .   .      .    . 5.19 25.3     50
c_n8      8       .    .  .   .   .      .    . 4.88 25.5     80
c_dmodel256  .  256    .  .  32  32      .    . 5.75 24.5     28
c_dmodel1024 . 1024    .  . 128 128      .    . 4.66 26.0    168
c_dff1024 .       . 1024  .   .   .      .    . 5.12 25.4     53
c_dff4096 .       . 4096  .   .   .      .    . 4.75 26.2     90
d_drop00  .       .    .  .   .   .    0.0    . 5.77 24.6      .
d_drop02  .       .    .  .   .   .    0.2    . 4.95 25.5      .
d_ls00    .       .    .  .   .   .      .  0.0 4.67 25.3      .
d_ls02    .       .    .  .   .   .      .  0.2 5.47 25.7      .
e_learned .       .    .  .   .   .      .    . 4.92 25.7      .
big       6    1024 4096 16   .   .    0.3    . 4.33 26.4    213
"""
_, FIRST, *LINES = (line.split() for line in TABLE_3.strip().split("\n"))
PRINTED = {
    name: [
        own if own != "." else base for own, base in zip(cells, [*FIRST[1:-1], "."], strict=True)
    ]
    for name, *cells in (FIRST, *LINES)
}
QUARTER_OF = {
    "b_dk4": "b_dk16",
    "b_dk8": "b_dk32",
    "c_dmodel64": "c_dmodel256",
    "c_dmodel256": "c_dmodel1024",
}
QUARTER_OF |= {"c_dff256": "c_dff1024", "c_dff1024": "c_dff4096"}
QUARTER = sorted(path.stem for path in (CONF / "ablation/quarter").iterdir())


def sizes(config: Config) -> list[float]:
    """The columns of Table 3 up to label smoothing."""
    model = config.model
    widths = [model.n_layers, model.d_model, model.d_ff, model.n_heads, model.d_k, model.d_v]
    return [*widths, model.dropout, config.optim.label_smoothing]


@pytest.fixture(scope="module")
def base() -> Config:
    return composed_options()


def changes(before: Config, after: Config) -> dict:
    """What differs, as {option: new value}."""
    old, new = comparable(before), comparable(after)
    assert old.keys() == new.keys()
    return {key: new[key] for key in new if new[key] != old[key]}


def test_the_defaults_of_the_schema_are_the_values_of_conf(base):
    assert Config() == base


# Tests of their own compose the experiments of Tables 2 and 4.
@pytest.mark.quick(
    "experiment-captions",
    "experiment-iwslt",
    "experiment-multi30k",
    "experiment-quickstart",
    "experiment-table3",
    "ablation-e_learned",
    "data-files",
    "data-treebank",
    "model-big",
    "optim-auto",
    "logger-none",
)
@pytest.mark.parametrize(
    ("group", "choice"), [(group, choice) for group in GROUPS for choice in GROUPS[group]]
)
def test_every_choice_of_every_group_composes(group, choice):
    text = ["data.train=my/train", "data.val=my/dev"] if choice in ("files", "treebank") else []

    config = composed_options(f"{group}={choice}", *text)

    assert isinstance(config, Config)


def test_base_is_the_base_model_of_the_paper(base):
    assert base.model == ModelOptions(
        n_layers=6,
        d_model=512,
        d_ff=2048,
        n_heads=8,
        d_k=None,
        d_v=None,
        dropout=0.1,
        positions="sinusoidal",
        max_positions=512,
        attention_window=None,
        attention_dropout=0.0,
    )
    optim, trainer, search, data = base.optim, base.trainer, base.search, base.data
    assert (optim.beta1, optim.beta2, optim.eps, optim.warmup_steps, optim.lr_scale) == (
        0.9,
        0.98,
        1e-9,
        4000,
        1,
    )
    assert (optim.label_smoothing, trainer.max_steps, trainer.average_last) == (0.1, 100_000, 5)
    assert (search.beam_size, search.length_penalty, search.penalty, search.max_extra_tokens) == (
        4,
        0.6,
        "gnmt",
        50,
    )
    assert (data.hub_path, data.src_lang, data.tgt_lang, data.vocab_size) == (
        "wmt/wmt14",
        "en",
        "de",
        37_000,
    )
    assert data.tokens_per_step == 25_000


# What differs from base in the paper's big, by Table 3 and sections 5.2 and 6.1.
BIG = {
    "model.d_model": 1024,
    "model.d_ff": 4096,
    "model.n_heads": 16,
    "model.dropout": 0.3,
    "trainer.max_steps": 300_000,
    "trainer.checkpoint_every": 600,
    "trainer.average_last": 20,
}


def test_big_on_eight_devices_differs_from_base_in_exactly_what_the_paper_says(base):
    assert changes(base, composed_options("model=big", "trainer.devices=8")) == BIG | {
        "trainer.devices": 8
    }


@pytest.mark.quick("a_h1]", "big", "d_ls02", "c_dmodel256")
@pytest.mark.parametrize("row", PRINTED)
def test_each_row_is_the_line_of_table_3_with_that_name(row):
    *expected, ppl, bleu, params = PRINTED[row]
    name = "model=big" if row == "big" else f"ablation={row}"
    config, found = composed(name), next(one for one in published.TABLE_3 if one.name == row)

    assert sizes(config) == [float(value) for value in expected]
    assert config.model.positions == ("learned" if row == "e_learned" else "sinusoidal")
    assert (
        config.trainer.max_steps == found.printed["steps"] == (300_000 if row == "big" else 100_000)
    )
    assert (found.printed["ppl"], found.printed["bleu"]) == (float(ppl), float(bleu))
    assert found.printed["parameters"] == (None if params == "." else int(params))
    same = [one.name for one in published.TABLE_3 if one.is_of(flatten(to_dict(config)))]
    assert same == [row]


@pytest.mark.quick("b_dk16", "e_learned")
@pytest.mark.parametrize("row", PRINTED)
def test_a_row_changes_one_option_and_wins_over_the_model_it_is_combined_with(base, row):
    if row in ("base", "big"):
        return
    [(key, value)] = changes(base, composed_options(f"ablation={row}")).items()

    assert flatten(to_dict(composed_options("model=tiny", f"ablation={row}")))[key] == value
    assert len((CONF / f"ablation/{row}.yaml").read_text().splitlines()) == 3


def test_there_is_a_file_at_a_quarter_of_the_width_for_every_row_of_table_3():
    assert sorted([*(QUARTER_OF.get(row, row) for row in QUARTER), "big"]) == sorted(PRINTED)


@pytest.mark.quick("a_h1]")
@pytest.mark.parametrize("row", QUARTER)
def test_each_row_at_a_quarter_changes_one_option_to_a_quarter_of_the_papers_row_and_names_that(
    row,
):
    paper = QUARTER_OF.get(row, row)
    base, of_row = (
        ["experiment=table3_quarter"],
        ["experiment=table3_quarter", f"ablation=quarter/{row}"],
    )
    quarter, full = composed(*of_row), composed(f"ablation={paper}")

    assert len(changes(composed_options(*base), composed_options(*of_row))) == (row != "base")
    assert sizes(quarter) == [
        size / (4 if 1 <= at <= 2 or 4 <= at <= 5 else 1) for at, size in enumerate(sizes(full))
    ]
    assert quarter.model.positions == full.model.positions
    first, second, *_ = (CONF / f"ablation/quarter/{row}.yaml").read_text().split("\n")
    # Anywhere else it is silently ignored, and base is trained
    assert first == "# @package _global_"
    assert f"row {paper}, at a quarter of its width" in second.replace("first row", "row base")


def test_the_command_line_wins_over_everything():
    assert composed_options("experiment=quickstart", "model.dropout=0.25").model.dropout == 0.25
    assert composed_options("ablation=a_h4", "model.n_heads=2").model.n_heads == 2
    assert composed_options("experiment=quickstart", "model=base").model.d_model == 512


# Names, places of text, and what may follow from the machine.
ELSEWHERE = {
    "name",
    "sweep",
    "data.source",
    "data.train",
    "data.val",
    "data.test",
    "data.max_tokens_per_device",
}
ELSEWHERE |= {"trainer.compile", "trainer.precision"}


@pytest.mark.parametrize(
    "experiment", [name for name in GROUPS["experiment"] if (RESULTS / f"{name}.jsonl").exists()]
)
def test_an_experiment_has_the_options_that_its_published_scores_were_made_with(experiment):
    now = comparable(composed_options(f"experiment={experiment}"))
    stored = [
        comparable(from_dict(Config, record["config"]))
        for record in read_study(RESULTS / f"{experiment}.jsonl").values()
    ]
    changes = [
        {key for key in now if old.get(key) != now[key] and not key.startswith("logger.")}
        for old in stored
    ]
    assert min(changes, key=len) <= ELSEWHERE  # the other rows of a table change an option


# Table 2 and section 6: what differs from base on WMT14 English-German, and newstest2014 BLEU.
FRENCH = {"data.hub_name": "fr-en", "data.tgt_lang": "fr", "data.vocab_size": 32_000}
TABLE_2 = {
    "table2_base_en_de": ({}, "27.3"),
    "table2_big_en_de": (BIG, "28.4"),
    "table2_base_en_fr": (FRENCH, "38.1"),
    "table2_big_en_fr": (BIG | FRENCH, "41.8"),
}


@pytest.mark.parametrize("experiment", TABLE_2)
def test_the_experiments_of_table_2_are_the_papers_models_and_state_its_figures(base, experiment):
    expected, bleu = TABLE_2[experiment]
    expected = expected | {"name": experiment}
    if experiment == "table2_big_en_fr":
        del expected["model.dropout"]  # 0.1, as in base

    changed = changes(base, composed_options(f"experiment={experiment}"))

    # Says how much text the vocabulary is learnt on, not how large it is
    changed.pop("data.tokenizer_pairs", None)
    assert changed == expected
    assert f"newstest2014 BLEU {bleu}" in (CONF / "experiment" / f"{experiment}.yaml").read_text()


# Section 6.3: what differs from base on a treebank, and F1 on section 23.
WSJ = {
    "data.train": "wsj/train",
    "data.val": "wsj/section22",
    "data.test": "wsj/section23",
    "data.vocab_size": 16_000,
    "data.tokens_per_step": 25_000,
    "model.n_layers": 4,
    "model.d_model": 1024,
    "model.dropout": 0.2,
    "model.attention_dropout": 0.2,
    "optim.warmup_steps": 16_000,
    "search.beam_size": 21,
    "search.length_penalty": 0.3,
    "search.max_extra_tokens": 300,
}
SEMI = {
    "data.train": ["wsj/train", "wsj/high_confidence", "wsj/berkeley_parser"],
    "data.vocab_size": 32_000,
    "data.tokenizer_pairs": 2_000_000,
}
# Of semi-supervised training
AS_BASE = {
    "model.dropout",
    "model.attention_dropout",
    "optim.warmup_steps",
}
TABLE_4 = {
    "table4_wsj": (WSJ, "F1 91.3"),
    "table4_semi": (WSJ | SEMI, "F1 92.7"),
}


@pytest.mark.parametrize("experiment", TABLE_4)
def test_the_experiments_of_table_4_are_the_papers_parsers_and_state_its_figures(experiment):
    expected, f1 = TABLE_4[experiment]
    expected = expected | {"name": experiment}
    if experiment == "table4_semi":
        expected = {key: value for key, value in expected.items() if key not in AS_BASE}

    changed = changes(
        composed_options("data=treebank", "data.train=x", "data.val=y"),
        composed_options(f"experiment={experiment}"),
    )

    assert changed == expected
    assert f1 in (CONF / "experiment" / f"{experiment}.yaml").read_text()


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """A folder with train and dev in every language of the experiments, and as trees."""
    folder = tmp_path_factory.mktemp("texts")
    for split, count in (("train", 90), ("dev", 4)):
        write_pairs(folder / split, count, seed=count)
        (folder / f"{split}.fr").write_text(
            (folder / f"{split}.de").read_text(encoding="utf-8"), encoding="utf-8"
        )
        write_split(folder / split, generated_trees(count, seed=count))
    return folder


# Of each kind of data and of every model one; the others with --slow.
TRAINED = [
    "captions",
    "iwslt14_de_en",
    "multi30k_wu2021",
    "quickstart",
    "table2_base_en_de",
    "table3_quarter",
]
TRAINED += ["table4_semi"]


@pytest.mark.quick("quickstart")
@pytest.mark.parametrize("experiment", slow_but(TRAINED, GROUPS["experiment"]))
def test_every_experiment_trains_two_steps_on_generated_text(texts, monkeypatch, experiment):
    monkeypatch.chdir(texts)
    text = [
        f"data.{split}={prefix}"
        for split, prefix in (("train", "train"), ("val", "dev"), ("test", "dev"))
    ]

    outcome = run_application(
        "train.py", f"experiment={experiment}", "data.source=files", *text, *TINY
    )

    assert outcome.code == 0, outcome.err
    run = texts / "outputs" / experiment
    assert (run / "checkpoints" / "averaged.ckpt").exists()
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_steps"] == 2


def values_of(path: Path, prefix: str) -> list[str]:
    """The options that a file gives a value."""
    tree = yaml.safe_load(path.read_text()) or {}
    return list(
        flatten(
            {key: value for key, value in tree.items() if key not in ("defaults", "hydra")}, prefix
        )
    )


def test_every_option_of_train_has_its_value_exactly_once():
    defaults = yaml.safe_load((CONF / "train.yaml").read_text())["defaults"]
    chosen = [next(iter(entry.items())) for entry in defaults if isinstance(entry, dict)]
    given = values_of(CONF / "train.yaml", "")
    for group, choice in chosen:
        if group in GROUPS and choice is not None:
            prefix = "" if group == "ablation" else f"{group}."
            inherited = values_of(CONF / "logger/none.yaml", prefix) if group == "logger" else []
            given += [name for name in inherited if name != "logger.kind"]
            given += values_of(CONF / group / f"{choice}.yaml", prefix)

    assert Counter(given) == Counter(list(options_of(Config)))


def test_every_option_of_evaluate_is_in_its_file_and_only_the_run_must_be_given():
    register(EvaluateConfig)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        bare = compose("evaluate")
        config = check_config(
            compose("evaluate", overrides=["run=outputs/x", "search.beam_size=7"]), EvaluateConfig
        )

    assert Counter(values_of(CONF / "evaluate.yaml", "")) == Counter(
        list(options_of(EvaluateConfig))
    )
    assert OmegaConf.missing_keys(bare) == {"run"}
    assert (config.run, config.split, config.search.beam_size, config.search.penalty) == (
        "outputs/x",
        "test",
        7,
        None,
    )


def test_no_file_names_code():
    assert [path for path in CONF.rglob("*.yaml") if "_target_" in path.read_text()] == []
