"""The files of examples/extensions: each trains, stops, resumes to the bit, and every command knows
it.
"""

import importlib
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from applications import (
    ROOT,
    TWELVE_STEPS,
    composed,
    run_application,
    slow_but,
    stopped_in,
    text_in,
    write_pairs,
)
from pytorch_lightning import Callback
from torch.nn import functional as F

import aiayn
from aiayn.config import extensions
from aiayn.config.extensions import load_extension
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import run_config
from aiayn.errors import ConfigError, DivergedError, RefusedError, explain_own_code
from aiayn.model.attention import attention
from aiayn.model.layers import LayerPosition
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import (
    RunFolder,
    find_checkpoint,
    read_json,
    saved_steps,
    with_stored,
)
from aiayn.search.build import build_model
from aiayn.token_ids import BOS_ID, EOS_ID
from aiayn.training.callbacks import monitors
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.module import TranslationModule
from aiayn.training.proof import check_shapes

EXAMPLES = ROOT / "examples/extensions"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
WITH_PARTS = {"alibi", "experts", "lora", "pre_norm", "rotary"}
WITH_RATES = {"cosine", "lion"}


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, count) in enumerate({"train": 120, "val": 13, "test": 5}.items()):
        write_pairs(folder / split, count, seed)
    return folder


def each_once(*typed: str) -> list[str]:
    """Of a key that comes twice, the last value."""
    return list({option.partition("=")[0]: option for option in typed}.values())


def options(text: Path, outputs: Path, name: str, *more: str) -> list[str]:
    """Twelve steps; keys and queries have an even size, which rotary positions need."""
    files = [f"extensions=[{EXAMPLES}/{name}.py]"] if name else []
    sizes = ["model.d_model=16", "model.n_heads=2"]
    return each_once(
        *TWELVE_STEPS,
        *text_in(text),
        *sizes,
        "trainer.max_steps=8",
        f"outputs={outputs}",
        *files,
        *more,
    )


def series(folder: Path) -> list[dict[str, float]]:
    records = RunFolder(folder).read_metrics()
    return [
        {key: value for key, value in record.items() if not key.startswith("perf/")}
        for record in records
    ]


@pytest.fixture(scope="module")
def plain(text, tmp_path_factory) -> Path:
    """A run without any extension."""
    return aiayn.train(
        aiayn.compose(*options(text, tmp_path_factory.mktemp("plain"), "", "name=plain"))
    )


@pytest.mark.quick("rotary")
@pytest.mark.parametrize("name", slow_but(["lion", "rotary"], NAMES))
def test_an_extension_trains_resumes_to_the_bit_and_is_known_afterwards(
    name, text, plain, tmp_path, monkeypatch, caplog
):
    more = {
        "experts": ["model.n_layers=2"],
        "distillation": [f"extension.distillation.teacher={plain}"],
    }
    given = options(text, tmp_path, name, *more.get(name, []))
    config = aiayn.compose(*given, "name=whole")
    whole = aiayn.train(config)
    assert ("peak learning rate" in caplog.text) == (name not in WITH_RATES), "that of equation (3)"
    with stopped_in(5):
        aiayn.train(replace(config, name="stopped"))
    stopped = aiayn.train(replace(config, name="stopped"))

    mine, theirs = (checkpoints.load(RunFolder(folder).last) for folder in (stopped, whole))
    assert [
        key for key in theirs.weights if not torch.equal(mine.weights[key], theirs.weights[key])
    ] == []
    assert series(stopped) == series(whole)
    assert [mark.partition(":")[0] for mark in mine.config.extensions_sha256] == [f"{name}.py"]

    same = checkpoints.load(RunFolder(plain).last).weights
    differs = same.keys() != theirs.weights.keys() or any(
        not torch.equal(same[key], theirs.weights[key]) for key in same
    )
    assert differs == (name != "chrf_pp")

    named = f"{EXAMPLES}/{name}.py"
    assert (
        "sacrebleu"
        in aiayn.evaluate(
            f"run={whole}", f"extensions=[{named}]", "accelerator=cpu", "trusted=true"
        )["metrics"]
    )
    monkeypatch.chdir(tmp_path)
    lines = ["one two three four", "seven"]
    text_ = aiayn.load(whole, accelerator="cpu", extensions=[named], beam_size=1).translate(lines)
    Path("lines.en").write_text("\n".join(lines) + "\n")
    command = (
        "aiayn",
        "translate",
        str(whole),
        "lines.en",
        "--accelerator",
        "cpu",
        "--extension",
        named,
    )
    for engine in ("torch", "auto"):
        translated = run_application(*command, "--beam-size", "1", "--engine", engine)
        assert translated.out.splitlines() == text_, translated.err
    assert ("CTranslate2, float32" in translated.err) == (name not in WITH_PARTS)
    exported = run_application(
        "aiayn", "export", str(whole), "model", "--format", "ctranslate2", "--extension", named
    )
    assert exported.code == (4 if name in WITH_PARTS else 0), exported.err
    drawn = run_application(
        "aiayn", "attention", str(whole), "one two", "--accelerator", "cpu", "--extension", named
    )
    assert drawn.code == 0, drawn.err
    metrics = ["chrf_pp", "token_accuracy"] if name == "chrf_pp" else ["sacrebleu"]
    table = run_application(
        "aiayn", "table", str(whole), str(plain), "--metrics", ",".join(["val/ppl", *metrics])
    )
    assert table.code == 0, table.err
    assert [metric for metric in metrics if f"{metric} (test)" not in table.out] == []


@pytest.mark.quick("rotary")
@pytest.mark.parametrize("name", sorted(WITH_PARTS))
def test_loading_a_model_with_parts_of_a_file_runs_no_code_that_was_not_named(
    name, text, tmp_path, monkeypatch
):
    copy = shutil.copy(EXAMPLES / f"{name}.py", tmp_path / f"own_{name}.py")
    more = (f"extensions=[{copy}]", "name=run", "trainer.max_steps=1")
    folder = aiayn.train(aiayn.compose(*options(text, tmp_path, "", *more)))
    monkeypatch.setattr(extensions, "_named", {})  # as in another process
    with pytest.raises(RefusedError, match=rf"the extension own_{name}\.py .*: add extensions=\["):
        aiayn.load(folder, accelerator="cpu")
    assert (
        len(aiayn.load(folder, accelerator="cpu", extensions=[str(copy)]).translate(["one"])) == 1
    )


PART = """
import torch
from torch import nn
from aiayn.model.layers import AddNorm, FeedForward, Parts

class Own({base}):
    def forward(self, *inputs):
        x = super().forward(*inputs)
        return {returned}

PARTS = Parts({part}=lambda config, layer: Own(config.d_model{more}))
"""
FEED_FORWARD = {"base": "FeedForward", "part": "feed_forward", "more": ", config.d_ff"}
ADD_NORM = {"base": "AddNorm", "part": "add_norm", "more": ", 0.1"}
IN_FORWARD = r"own\.py, line 7, in Own\.forward: "
# What a file brings, and the line that refuses it
MISTAKES = {
    "too narrow": (
        PART.format(**FEED_FORWARD, returned="x[..., :7]"),
        IN_FORWARD + r"the part feed_forward returned \(2, 3, 7\); expected \(2, 3, 16\)",
    ),
    "broadcast": (
        PART.format(**FEED_FORWARD, returned="x.mean(2, keepdim=True)"),
        IN_FORWARD + r"the part feed_forward returned \(2, 3, 1\); expected \(2, 3, 16\)",
    ),
    "two values": (
        PART.format(**ADD_NORM, returned="x, None"),
        IN_FORWARD + r"the part add_norm returned tuple; expected \(2, 3, 16\)",
    ),
    "positions": (
        "import torch\nfrom aiayn.model.layers import Parts\n"
        "PARTS = Parts(positions=lambda c, p: lambda start, length: torch.zeros(length, 3))\n",
        r"own\.py, line 3, in <lambda>.*: the part positions returned \(2, 3\); expected \(2, 16\)",
    ),
    "another signature": (
        "from aiayn.model.layers import Parts\nPARTS = Parts(add_norm=lambda config: None)\n",
        r"extensions: own\.py: TypeError: .*<lambda>\(\) takes 1 positional .* from `.*self\.norm_1 = parts\.add_norm",
    ),
    "not a part": (
        "from aiayn.model.layers import Parts\nPARTS = Parts(feed_forward=lambda *given: None)\n",
        r"extensions: own\.py: TypeError: 'NoneType' object is not callable, .*self\.feed_forward\)",
    ),
    "a loss for each token": (
        "from aiayn.training.module import TranslationModule\n"
        "class Module(TranslationModule):\n"
        "    def training_loss(self, batch):\n"
        "        return super().training_loss(batch).repeat(3)\n",
        r"extensions: own\.py: RuntimeError: .*; debug=true shows the traceback",
    ),
    "a step of its own": (
        "from aiayn.training.module import TranslationModule\n"
        "class Module(TranslationModule):\n"
        "    def training_step(self, batch, batch_idx):\n"
        "        return self.training_loss(batch) / batch.n_tokens\n",
        r"Module\.training_step returns no loss_sum; override training_loss instead",
    ),
    "no callbacks": ("callbacks = lambda run: None\n", r"extensions: own\.py: TypeError: "),
    "another object": ("callbacks = lambda run: [0]\n", "callbacks: 0 is not a Lightning Callback"),
    "syntax": ("callbacks = lambda run: [\n", r"own\.py: SyntaxError: .* line 1\); compare"),
    "only in a helper": (
        "from own_helper import Module\n",
        r"own_helper\.py, line 4, in Module\.training_loss: AttributeError: 'Module' object",
    ),
}
HELPER = """from aiayn.training.module import TranslationModule
class Module(TranslationModule):
    def training_loss(self, batch):
        return self.no_such_name
"""


@pytest.mark.parametrize(
    "mistake", slow_but(["broadcast", "another signature", "only in a helper"], MISTAKES)
)
def test_a_mistake_in_a_file_is_one_line_leaves_no_run_and_can_be_corrected(
    mistake, text, tmp_path
):
    file, (source, line) = tmp_path / "own.py", MISTAKES[mistake]
    file.write_text(source)
    (tmp_path / "own_helper.py").write_text(HELPER)
    command = ("train.py", *options(text, tmp_path / "runs", "", f"extensions=[{file}]"), "name=a")
    refused = run_application(*command, "trainer.max_steps=1", "trainer.log_every=1")
    last = refused.err.strip("\n").split("\n")[-1]
    assert refused.code == 2, refused.err
    assert re.search(f"^error: {line}" if line[:3] == "ext" else line, last), last
    assert "Traceback" not in refused.err
    assert [*(tmp_path / "runs").glob("*")] == [], "a run that is refused writes nothing"
    file.write_text("callbacks = lambda run: []\n")
    assert run_application(*command, "trainer.max_steps=1").code == 0


@pytest.mark.parametrize(
    "part",
    [
        "positions=lambda config, layer: lambda start, length: torch.zeros(length, 16)",
        "positions=lambda config, layer: lambda start, length: torch.zeros(length, 1)",
        "positions=lambda config, layer: lambda start, length: torch.zeros(())",
        "final_norm=lambda config, layer: lambda x: x / 2",
        "feed_forward=lambda config, layer: torch.relu",
    ],
)
def test_functions_and_positions_that_broadcast_may_be_parts(part, text, tmp_path):
    file = tmp_path / "function.py"
    file.write_text(f"import torch\nfrom aiayn.model.layers import Parts\nPARTS = Parts({part})\n")
    parts = extensions.ids_of_builders(extensions.register_extensions([str(file)]))
    config = composed(*options(text, tmp_path, "", "model.d_model=16", "data.vocab_size=280"))
    config = replace(config, model=replace(config.model, parts=parts))
    module = TranslationModule(run_config(config), 280)
    check_shapes(module)
    assert module.training


def test_two_files_build_one_model_unless_they_bring_the_same_part(text, tmp_path):
    def kinds(*names: str) -> set[str]:
        found = extensions.register_extensions([f"{EXAMPLES}/{name}.py" for name in names])
        config = composed(*options(text, tmp_path, ""))
        model = replace(config.model, parts=extensions.ids_of_builders(found))
        return {
            type(module).__name__
            for module in build_model(replace(config, model=model), 280).modules()
        }

    assert {"RotaryAttention", "PreNorm"} <= kinds("rotary", "pre_norm")
    with pytest.raises(ConfigError, match="two of them define the part self_attention"):
        kinds("rotary", "alibi")


def test_parts_of_another_type_are_refused(text, tmp_path):
    (tmp_path / "mine.py").write_text("PARTS = {}")
    ids = extensions.ids_of_builders(extensions.register_extensions([f"{tmp_path}/mine.py"]))
    config = composed(*options(text, tmp_path, ""))
    config = replace(config, model=replace(config.model, parts=ids))
    with pytest.raises(ConfigError, match=r"extensions: PARTS=\{\}: write PARTS = Parts\(\.\.\.\)"):
        build_model(config, 280)


BUILDERS = {
    "one decoder layer, an output of its own": """
        model.decoder = model.decoder[:1]
        model.output = nn.Linear(config.model.d_model, vocab_size, bias=False)""",
    "a low rank beside a matrix": """
        parametrize.register_parametrization(model.encoder[0].self_attention.w_q, "weight", LowRank(16, 16))
        parametrize.register_parametrization(model.embedding, "weight", LowRank(vocab_size, 16))""",
}
MODULE = """
import torch
from torch import nn
from torch.nn.utils import parametrize
from aiayn.training.module import TranslationModule

class LowRank(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(n, 2)), nn.Parameter(torch.randn(2, m))

    def forward(self, weight):
        return weight + self.a @ self.b / 100

class Module(TranslationModule):
    @classmethod
    def build_model(cls, config, vocab_size):
        model = super().build_model(config, vocab_size){change}
        return model
"""


def test_a_file_that_builds_the_model_leaves_it_the_parts_of_a_file_before(text, tmp_path):
    (tmp_path / "built.py").write_text(
        MODULE.format(change=BUILDERS["one decoder layer, an output of its own"])
    )
    found = extensions.register_extensions([f"{EXAMPLES}/rotary.py", f"{tmp_path}/built.py"])
    config = composed(*options(text, tmp_path, ""))
    model = build_model(
        replace(config, model=replace(config.model, parts=extensions.ids_of_builders(found))), 280
    )
    assert len(model.decoder) == 1
    assert "RotaryAttention" in {type(module).__name__ for module in model.modules()}


@pytest.mark.slow
@pytest.mark.parametrize("change", BUILDERS)
def test_what_builds_the_model_for_training_builds_it_everywhere(
    change, text, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    Path("own parts").mkdir()
    file = Path("own parts/built.py")
    file.write_text(f"# {change}\n" + MODULE.format(change=BUILDERS[change]))
    run = aiayn.train(
        *options(text, tmp_path, "", f"extensions=[{file}]", "name=run", "trainer.max_steps=6")
    )
    assert RunFolder(run).averaged.exists()
    said = caplog.messages[-1]
    assert "'extensions=[own parts/built.py]'" in said
    assert " --extension 'own parts/built.py'" in said
    lines = ["one two three four", "seven"]
    translator = aiayn.load(
        run, "averaged", "cpu", extensions=[str(file)], beam_size=2, engine="torch"
    )
    scored = translator.score(lines, translator.translate(lines))
    module = load_extension(str(file)).module.Module
    average = checkpoints.load(RunFolder(run).averaged)
    model = module(average.config, average.vocab_size).model.eval()
    model.load_state_dict(average.weights)
    ids = torch.tensor([[*translator.source_ids(lines[:1], 1)[0], EOS_ID]])
    tokens = torch.tensor([scored[0].tokens])
    with torch.no_grad():
        logits = model(
            ids,
            F.pad(tokens[:, :-1], (1, 0), value=BOS_ID),
            torch.ones(1, 1, 1, ids.size(1), dtype=bool),
        )
    expected = logits.log_softmax(-1).gather(2, tokens[..., None]).sum()
    assert scored[0].log_prob == pytest.approx(float(expected), abs=1e-4)

    Path("text.en").write_text("\n".join(lines) + "\n")
    command = (
        "aiayn",
        "translate",
        str(run),
        "text.en",
        "--extension",
        str(file),
        "--accelerator",
        "cpu",
    )
    outputs = [
        run_application(*command, "--beam-size", "1", "--engine", engine)
        for engine in ("torch", "auto")
    ]
    assert outputs[0].out == outputs[1].out
    assert ("CTranslate2, float32" in outputs[1].err) == ("output of its own" in change)
    exported = run_application(
        "aiayn", "export", str(run), "model", "--format", "ctranslate2", "--extension", str(file)
    )
    assert exported.code == (0 if "output of its own" in change else 4), exported.err
    monkeypatch.setattr(extensions, "_named", {})  # as in another process
    with pytest.raises(RefusedError, match=r"the extension built\.py"):
        aiayn.load(run, accelerator="cpu", engine="torch")  # a conversion needs none of the code


@pytest.mark.slow
def test_an_adapter_learns_beside_a_finished_model_that_stays_as_it_is(text, plain, tmp_path):
    given = options(text, tmp_path, "lora", "name=run", f"init_from={plain}", "trainer.max_steps=4")
    run = aiayn.train(aiayn.compose(*given))
    source = checkpoints.load(find_checkpoint(plain, None)).weights
    adapted = checkpoints.load(RunFolder(run).last).weights
    assert [name for name in source if not torch.equal(source[name], adapted[name])] == []
    learned = {name: weight for name, weight in adapted.items() if name.endswith(".up")}
    assert len(learned) == 4
    assert min(float(weight.abs().max()) for weight in learned.values()) > 0


@pytest.mark.slow
def test_distillation_with_a_teacher_of_no_weight_is_the_papers_loss(text, plain, tmp_path):
    more, teacher = (
        ("optim.label_smoothing=0.3", "trainer.max_steps=2"),
        f"extension.distillation.teacher={plain}",
    )
    losses = []
    for name, own in (("", ()), ("distillation", (teacher, "extension.distillation.weight=0"))):
        folder = aiayn.train(*options(text, tmp_path, name, *more, *own, f"name=run{name}"))
        losses.append([record["train/loss"] for record in series(folder) if "train/loss" in record])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("wrong", ["trainer.precision=bf16-true", "extension.ema.decay=1"])
def test_a_moving_average_that_would_not_move_is_refused(wrong, text, tmp_path):
    with pytest.raises(ConfigError, match=wrong):
        aiayn.train(*options(text, tmp_path, "ema", wrong, "name=run"))
    assert not (tmp_path / "run/config.yaml").exists()


@pytest.mark.slow
def test_what_minimum_risk_draws_follows_from_the_seed(text, tmp_path, monkeypatch):
    own = load_extension(f"{EXAMPLES}/minimum_risk.py").module
    seen, sample = [], own.sample
    monkeypatch.setattr(own, "sample", lambda *given: seen.append(given[4].seed) or sample(*given))
    for seed in (4, 5):
        aiayn.train(
            *options(
                text,
                tmp_path,
                "minimum_risk",
                "trainer.max_steps=1",
                f"seed={seed}",
                f"name=run{seed}",
            )
        )
    assert len(set(seen)) == 2 * own.SAMPLES


def test_a_module_given_in_python_builds_the_model_of_its_checkpoints(text, tmp_path, monkeypatch):
    class Short(TranslationModule):
        @classmethod
        def build_model(cls, config, vocab_size):
            model = super().build_model(config, vocab_size)
            model.decoder = model.decoder[:1]
            return model

    given = options(text, tmp_path, "", "name=run", "trainer.max_steps=2")
    run = aiayn.train(*given, module=Short)
    monkeypatch.setattr(extensions, "_named", {})
    with pytest.raises(
        RefusedError, match=r"the extension \S*test_extensions\.py#.*Short.* module=CLASS"
    ):
        aiayn.load(run, accelerator="cpu")
    assert len(aiayn.load(run, accelerator="cpu", module=Short).translate(["one"])) == 1


def test_a_module_of_a_script_builds_its_model_in_commands_that_name_the_file(
    text, tmp_path, monkeypatch, caplog
):
    script = tmp_path / "script_of_mine.py"
    script.write_text(
        "from depth_of_mine import DEPTH\nfrom aiayn.training.module import TranslationModule\n"
        "class Short(TranslationModule):\n    @classmethod\n"
        "    def build_model(cls, config, vocab_size):\n"
        "        model = super().build_model(config, vocab_size)\n"
        "        model.decoder = model.decoder[:DEPTH]\n        return model\n"
    )
    (tmp_path / "depth_of_mine.py").write_text("DEPTH = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    short = importlib.import_module("script_of_mine").Short
    given = options(text, tmp_path, "", "name=run", "trainer.max_steps=1")
    run = aiayn.train(*given, module=short)
    assert re.search(r"evaluate run=\S+ 'extensions=\[stored\]'", caplog.text)
    assert caplog.text.rstrip().endswith("--extension stored")
    expected = aiayn.load(run, accelerator="cpu", module=short).translate(["one"])
    for file in (str(script), "stored"):
        monkeypatch.setattr(extensions, "_named", {})  # as in another process
        assert aiayn.load(run, accelerator="cpu", extensions=[file]).translate(["one"]) == expected
    assert "differs" not in caplog.text
    (tmp_path / "depth_of_mine.py").write_text("DEPTH = 1  # changed\n")
    aiayn.load(run, accelerator="cpu", module=short)
    assert "depth_of_mine.py differs from the file that the model was trained with" in caplog.text


@pytest.mark.quick("rotary")
@pytest.mark.parametrize("name", ["alibi", "rotary"])
def test_positions_in_the_attention_are_the_same_in_cached_decoding(name, text, tmp_path):
    folder = aiayn.train(
        aiayn.compose(*options(text, tmp_path, name, "name=run", "trainer.max_steps=4"))
    )
    translator = aiayn.load(
        folder, accelerator="cpu", extensions=[f"{EXAMPLES}/{name}.py"], engine="torch"
    )
    lines = ["one two three four", "seven"]
    [[best, *_], _] = translator.n_best(lines, 1)
    [scored] = translator.score(lines[:1], [best.text])
    if scored.tokens[:-1] == best.tokens:
        assert scored.log_prob == pytest.approx(best.log_prob, abs=1e-4)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_alibi_adds_minus_slope_times_distance_to_the_scores(stack):
    made = load_extension(f"{EXAMPLES}/alibi.py").module.PARTS.self_attention
    attention = made(ModelConfig(d_model=12, n_heads=4, d_k=5, d_v=3), LayerPosition(stack))
    x, rows = torch.randn(2, 7, 12), torch.arange(7)
    mask = (
        rows <= rows[:, None]
        if stack == "decoder"
        else torch.tensor([7, 4])[:, None, None, None] > rows
    )
    q, (k, v) = attention.queries(x), attention.keys_values(x)
    slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None]
    scores = q @ k.mT / 5**0.5 - slopes * (rows - rows[:, None]).abs()
    expected = attention.w_o(
        (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)
    )
    torch.testing.assert_close(attention(x, x, mask), expected)


def test_a_bias_on_scores_may_be_learned_as_a_mask_of_factors():
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    bias = torch.randn(3, 5, 5, requires_grad=True)
    scores = (q @ k.mT / 2 + bias).masked_fill(~mask, -torch.inf)
    factors = torch.where(mask, bias.exp(), 0.0)
    v = torch.randn(2, 3, 5, 4)

    [expected] = torch.autograd.grad((scores.softmax(-1) @ v).square().sum(), bias)
    [gradient] = torch.autograd.grad(attention(q, k, v, factors).square().sum(), bias)
    torch.testing.assert_close(gradient, expected)
    [undefined] = torch.autograd.grad(attention(q, k, v, mask * bias.exp()).sum(), bias)
    assert undefined.isnan().any()


def test_a_run_is_not_continued_with_another_file_or_without_it(text, tmp_path):
    own = shutil.copy(EXAMPLES / "lion.py", tmp_path / "lion.py")
    given = options(text, tmp_path, "", f"extensions=[{own}]", "name=run")
    aiayn.train(aiayn.compose(*each_once(*given, "trainer.max_steps=2")))
    with pytest.raises(RefusedError, match=r"extensions_sha256: .* -> \[\]"):
        aiayn.train(aiayn.compose(*options(text, tmp_path, "", "name=run")))
    with pytest.raises(RefusedError, match=r"extension\.lion\.scale: 0\.1 -> 1"):
        aiayn.train(aiayn.compose(*given, "extension.lion.scale=1.0"))
    with open(own, "a") as file:
        file.write("# changed\n")
    message = (
        r"\(extensions_sha256: \['lion\.py:\w{8}\.{3}'\] -> \['lion\.py:\w{8}\.{3}'\]\); .* name=$"
    )
    with pytest.raises(RefusedError, match=message):
        aiayn.train(aiayn.compose(*given))
    shutil.rmtree(tmp_path / "run/checkpoints")
    with pytest.raises(RefusedError, match=r"or remove that folder, which has no checkpoint$"):
        aiayn.train(aiayn.compose(*given))


@pytest.mark.slow
def test_a_schedule_that_reads_the_last_step_is_not_continued_with_another(text, tmp_path):
    given = options(text, tmp_path, "cosine", "name=run", "optim.warmup_steps=2")
    run = RunFolder(aiayn.train(aiayn.compose(*each_once(*given, "trainer.max_steps=4"))))
    before = run.config.read_bytes()
    with pytest.raises(RefusedError, match=r"the schedule gave step \d+ .*trainer\.max_steps"):
        aiayn.train(aiayn.compose(*each_once(*given, "trainer.max_steps=8")))
    assert run.config.read_bytes() == before, "where max_steps is null the stored one decides"


def test_a_module_and_callbacks_may_be_given_in_python(text, tmp_path, monkeypatch):
    monkeypatch.setattr(monitors, "peak_rate", lambda *_: 1e6)

    class Doubled(TranslationModule):
        def training_loss(self, batch):
            return 2 * super().training_loss(batch)

    config = aiayn.compose(*options(text, tmp_path, "", "name=run", "trainer.max_steps=2"))
    folder = aiayn.train(config, module=Doubled)
    assert (
        "test_extensions.py#"
        in checkpoints.load(RunFolder(folder).last).config.extensions_sha256[0]
    )
    assert not [record for record in RunFolder(folder).read_metrics() if "perf/mfu" in record], (
        "not known of this loss"
    )
    with pytest.raises(RefusedError, match="extensions_sha256"):
        aiayn.train(config)


@pytest.mark.slow
def test_a_part_that_is_frozen_in_evaluation_mode_stays_there(text, tmp_path, monkeypatch):
    modes = []

    class Frozen(TranslationModule):
        def on_train_start(self):
            super().on_train_start()
            self.model.encoder.eval()

        def training_loss(self, batch):
            modes.append(
                (self.model.encoder[0].norm_1.training, self.model.decoder[0].norm_1.training)
            )
            return super().training_loss(batch)

    given = options(text, tmp_path, "", "name=run", "trainer.max_steps=4", "trainer.val_every=2")
    aiayn.train(aiayn.compose(*given), module=Frozen)
    assert modes == [(False, True)] * 8, "after the proof of the first step and a validation, too"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_gradients_of_weights_that_no_optimizer_has_do_not_clip_the_others(
    text, tmp_path, algorithm
):
    class Part(TranslationModule):
        frozen = False

        def configure_optimizers(self):
            self.requires_grad_(not self.frozen)
            self.model.decoder.requires_grad_(True)
            optimizer = torch.optim.Adam(self.model.decoder.parameters(), 1.0)
            return {"optimizer": optimizer, "lr_scheduler": self.schedule(optimizer)}

    class Frozen(Part):
        frozen = True

    clipped = (
        "trainer.gradient_clip_val=0.01",
        f"trainer.gradient_clip_algorithm={algorithm}",
        "trainer.max_steps=3",
    )
    runs = [
        aiayn.train(
            aiayn.compose(*options(text, tmp_path, "", f"name={each.__name__}", *clipped)),
            module=each,
        )
        for each in (Part, Frozen)
    ]
    one, other = (checkpoints.load(RunFolder(run).last).weights for run in runs)
    assert [name for name, weight in one.items() if not torch.equal(weight, other[name])] == []


@pytest.mark.slow
def test_hooks_of_a_subclass_that_do_not_call_super_leave_dropout_and_gradients_in_order(
    text, tmp_path, caplog
):
    class Hooks(TranslationModule):
        def on_train_batch_start(self, batch, batch_idx):
            torch.rand(3)

        def on_before_optimizer_step(self, optimizer):
            if self.trainer.global_step == 3:
                next(self.parameters()).grad[0] = torch.nan

    run = aiayn.train(*options(text, tmp_path, "", "name=run", "trainer.max_steps=3"), module=Hooks)
    expected = aiayn.train(*options(text, tmp_path, "", "name=plain", "trainer.max_steps=3"))
    mine, theirs = (checkpoints.load(RunFolder(folder).last).weights for folder in (run, expected))
    assert [name for name in theirs if not torch.equal(mine[name], theirs[name])] == []
    skipped = aiayn.train(
        *options(
            text, tmp_path, "", "name=skipped", "trainer.max_steps=4", "trainer.max_skipped_steps=1"
        ),
        module=Hooks,
    )
    kept = checkpoints.load(RunFolder(skipped).last).weights
    assert [name for name in theirs if not torch.equal(kept[name], theirs[name])] == [], (
        "a step that is skipped"
    )

    unheard = type(
        "Unheard",
        (TranslationModule,),
        dict.fromkeys(("forward", "predict_step"), lambda *given: None),
    )
    aiayn.train(*options(text, tmp_path, "", "name=unheard", "trainer.max_steps=1"), module=unheard)
    for name in ("forward", "predict_step"):
        assert f"Unheard.{name}: not called here, only by a Trainer of your own" in caplog.text

    class Quiet(TranslationModule):
        def on_validation_epoch_start(self):
            pass

        def configure_gradient_clipping(self, optimizer, **settings):
            pass

    rows = [
        options(text, tmp_path, "", name, "trainer.val_every=2")
        for name in ("name=quiet", "name=usual")
    ]
    quiet, usual = (
        series(aiayn.train(*row, module=kind))
        for row, kind in zip(rows, (Quiet, None), strict=True)
    )
    assert [row for row in quiet if "val/loss" in row] == [
        row for row in usual if "val/loss" in row
    ]
    assert not any({"train/lr", "train/grad_norm"} & row.keys() for row in quiet), (
        "what was not measured is not 0"
    )

    class Spoilt(TranslationModule):
        def on_save_checkpoint(self, checkpoint):
            pass

        def on_load_checkpoint(self, checkpoint):
            pass

        def training_loss(self, batch):
            return super().training_loss(batch) * (
                torch.nan if self.trainer.global_step in (1, 5) else 1
            )

    spoilt = options(text, tmp_path, "", "name=spoilt", "trainer.max_skipped_steps=1")
    with stopped_in(3):
        aiayn.train(*spoilt, module=Spoilt)
    with pytest.raises(DivergedError, match="at step 6 \\(2 such steps"):
        aiayn.train(*spoilt, module=Spoilt)

    for hook in ("on_validation_epoch_end", "validation_step"):
        silent = type("Silent", (TranslationModule,), {hook: lambda *given: None})
        with pytest.raises(ConfigError, match=r"Silent does not log val/loss: .* super"):
            aiayn.train(
                *options(text, tmp_path, "", f"name={hook}", "trainer.val_every=2"), module=silent
            )


def test_lightnings_finders_are_refused_from_python_and_from_a_file_with_what_to_do(text, tmp_path):
    import pytorch_lightning as pl

    file = tmp_path / "finder.py"
    file.write_text(
        "from pytorch_lightning.callbacks import BatchSizeFinder\ncallbacks = lambda run: "
        "[BatchSizeFinder()]\n"
    )
    for given, named in (([pl.callbacks.LearningRateFinder()], []), ([], [f"extensions=[{file}]"])):
        with pytest.raises(ConfigError, match=r"sweep optim\.peak_lr"):
            aiayn.train(
                aiayn.compose(*options(text, tmp_path, "", "name=run", *named)), callbacks=given
            )
        assert not (tmp_path / "run").exists()


def test_an_error_in_the_code_of_a_file_is_one_line_with_its_place_in_every_command(
    text, tmp_path, monkeypatch
):
    file = tmp_path / "own.py"
    source = (
        "from aiayn.model.transformer import Transformer\n"
        "from aiayn.training.module import TranslationModule\n"
        "class Own(Transformer):\n"
        "    def encode(self, src, *given):\n"
        "        return super().encode({src}, *given)\n"
        "class Module(TranslationModule):\n"
        "    @classmethod\n"
        "    def build_model(cls, config, vocab_size):\n"
        "        return Own(config.model, vocab_size)\n"
    )
    given = options(text, tmp_path, "", f"extensions=[{file}]", "trainer.max_steps=1")
    file.write_text(source.format(src="src"))
    assert run_application("train.py", *given, "name=run").code == 0
    file.write_text(source.format(src="self.no_such_name"))
    monkeypatch.setattr(extensions, "_named", {})  # as in another process
    translated = ("translate", str(tmp_path / "run"), f"{text}/val.en", "--accelerator", "cpu")
    for ended in (
        run_application("train.py", *given, "name=wrong"),
        run_application("aiayn", *translated, "--extension", str(file)),
    ):
        assert ended.code == 2
        last = ended.err.strip("\n").split("\n")[-1]
        assert last.startswith(
            f"error: extensions: {file}, line 5, in Own.encode: AttributeError: 'Own' object"
        )
        assert last.endswith("; debug=true shows the traceback")


class Several(TranslationModule):
    def configure_optimizers(self):
        weights = list(self.parameters())
        return [torch.optim.Adam(weights[:3]), torch.optim.Adam(weights[3:])]


class SeveralWithSchedules(Several):
    def configure_optimizers(self):
        return super().configure_optimizers(), []


class Without(TranslationModule):
    def configure_optimizers(self):
        return None


class Manual(TranslationModule):
    def __init__(self, config, vocab_size):
        super().__init__(config, vocab_size)
        self.automatic_optimization = False


class ManualInAHook(TranslationModule):
    def on_train_start(self):
        self.automatic_optimization = False


@pytest.mark.quick("Several-", "Manual-")
@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Several, "Several: configure_optimizers returns several optimizers; return one"),
        (SeveralWithSchedules, "returns several optimizers"),
        (Without, "Without: configure_optimizers returns no optimizer"),
        (Manual, "Manual: manual optimization is not supported"),
    ],
)
def test_another_optimization_is_refused_in_a_line_before_anything_is_written(
    module, message, text, tmp_path
):
    with pytest.raises(ConfigError, match=message):
        aiayn.train(*options(text, tmp_path, "", "name=run"), module=module)
    assert not (tmp_path / "run/config.yaml").exists()


def test_a_hook_that_switches_to_manual_optimization_is_refused_in_a_line_before_the_first_step(
    text, tmp_path
):
    message = "^ManualInAHook: manual optimization is not supported"
    with pytest.raises(ConfigError, match=message):
        aiayn.train(*options(text, tmp_path, "", "name=run"), module=ManualInAHook)
    assert saved_steps(tmp_path / "run/checkpoints") == []


class Twice(torch.optim.SGD):
    """Steps by the gradient that it finds after a first step, as SAM does."""

    def step(self, closure):
        closure()
        return super().step(closure)


class StepsTwice(TranslationModule):
    def configure_optimizers(self):
        return Twice(self.parameters())


def test_an_optimizer_that_computes_the_gradient_again_needs_steps_of_one_micro_batch(
    text, tmp_path
):
    more = ("trainer.max_steps=2", "name=run", "data.micro_batches=2")
    with pytest.raises(ConfigError, match=r"^Twice .* again, .*; set data\.micro_batches=1$"):
        aiayn.train(*options(text, tmp_path, "", *more), module=StepsTwice)
    assert saved_steps(tmp_path / "run/checkpoints") == []
    more = (*more[:2], "data.micro_batches=1")
    run = aiayn.train(*options(text, tmp_path, "", *more), module=StepsTwice)
    assert saved_steps(RunFolder(run).checkpoints)[-1] == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"module": dict}, "<class 'dict'> is not a subclass of TranslationModule"),
        ({"module": torch.nn.Linear(1, 1)}, r"Linear\(.* is not a subclass of TranslationModule"),
        ({"datamodule": TranslationModule}, "is not a subclass of TranslationDataModule"),
        ({"callbacks": Callback()}, "callbacks: .* is not a list; pass a list of callbacks"),
    ],
)
def test_arguments_of_other_types_are_refused_in_a_line(given, message, text, tmp_path):
    with pytest.raises(ConfigError, match=message):
        aiayn.train(*options(text, tmp_path, "", "name=run"), **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name",
    [
        "StochasticWeightAveraging",
        "GradientAccumulationScheduler",
        "RichProgressBar",
        "ModelPruning",
    ],
)
def test_callbacks_whose_work_would_be_lost_are_refused_by_name_with_what_to_do(
    name, text, tmp_path
):
    callbacks = importlib.import_module("pytorch_lightning.callbacks")
    given = {
        "StochasticWeightAveraging": [0.01],
        "GradientAccumulationScheduler": [{0: 2}],
        "ModelPruning": ["l1_unstructured"],
    }.get(name, [])
    kind = type("Own", (getattr(callbacks, name),), {})
    with pytest.raises(ConfigError, match=r"Own is not supported: .*; (use|set|leave|mask)"):
        aiayn.train(*options(text, tmp_path, "", "name=run"), callbacks=[kind(*given)])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changed", [0.5, pytest.param(1.0, marks=pytest.mark.slow)])
def test_weights_that_a_callback_changes_when_the_training_ends_are_saved_again(
    changed, text, tmp_path, caplog
):
    class AtEnd(Callback):
        def on_train_end(self, trainer, pl_module):
            for weight in pl_module.parameters():
                weight.data.mul_(changed)

    short = options(text, tmp_path, "", "trainer.max_steps=1")
    plain = checkpoints.load(RunFolder(aiayn.train(*short, "name=plain")).last).weights
    run = RunFolder(aiayn.train(*short, "name=run", callbacks=[AtEnd()]))
    for file in (run.last, run.averaged):
        weights = checkpoints.load(file).weights
        assert all(torch.equal(weights[name], changed * plain[name]) for name in plain)
    assert ("saved again" in caplog.text) == (changed != 1)


def test_a_file_that_brings_nothing_is_named(text, tmp_path, caplog):
    (tmp_path / "wrong.py").write_text("class module: pass\nPart = METRIC = {}\n")
    more = (
        f"extensions=[{tmp_path}/wrong.py,{EXAMPLES}/chrf_pp.py]",
        "name=run",
        "trainer.max_steps=1",
    )
    aiayn.train(*options(text, tmp_path, "", *more))
    [said] = [message for message in caplog.messages if "wrong.py has no effect" in message]
    assert said.endswith(
        "wrong.py has no effect: it defines none of PARTS, Module, DataModule, callbacks, METRICS, "
        "constraint"
    )


def test_options_and_files_without_effect_are_named(text, tmp_path, caplog):
    more = ("name=run", "trainer.max_steps=1", "optim.beta1=0.8", "optim.eps=1e-8")
    run = aiayn.train(*options(text, tmp_path, "lion", *more))
    lines = [message for message in caplog.messages if "has no effect" in message]
    assert [line.partition(" has")[0] for line in lines] == [
        "warning  optim.beta1=0.8",
        "warning  optim.eps=1e-08",
    ]

    names = ("lion", "rotary", "chrf_pp")
    with_stored([f"{EXAMPLES}/{name}.py" for name in names], run)
    [line] = [message for message in caplog.messages if "not used" in message]
    assert "rotary.py: not used; the run was trained without it, and it" in line


@pytest.mark.slow
def test_a_row_of_ones_own_stands_beside_base_with_its_seeds(text, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for row in ("base", "pre_norm"):
        for seed in (1, 2):
            more = (
                f"ablation={row}",
                f"seed={seed}",
                f"name={row}_seed-{seed}",
                "trainer.max_steps=2",
            )
            arguments = [
                "--config-dir",
                f"{EXAMPLES}/conf",
                *options(text, tmp_path / "rows", "", *more),
            ]
            ended = run_application("train.py", *arguments)
            assert ended.code == 0, ended.err
            named = ["extensions=[examples/extensions/pre_norm.py]"] if row == "pre_norm" else []
            named += ["accelerator=cpu", "trusted=true"]
            scored = run_application(
                "evaluate.py", f"run={tmp_path}/rows/{row}_seed-{seed}", *named
            )
            assert scored.code == 0, scored.err
    table = run_application("aiayn", "table", str(tmp_path / "rows"), "--format", "json")
    assert table.code == 0, table.err
    assert re.search("pre_norm", table.out)
    assert (
        read_json(tmp_path / "rows/pre_norm_seed-1/evaluation/test/evaluation.json")["lines"] == 5
    )


@pytest.mark.slow
def test_stacks_of_unequal_depth_untied_matrices_and_weight_decay_train_resume_translate_and_convert(
    text, plain, tmp_path, monkeypatch
):
    changes = ("model.n_decoder_layers=2", "model.tie_embeddings=none", "optim.weight_decay=0.1")
    given = options(text, tmp_path, "", *changes)
    whole = aiayn.train(*given, "name=whole")
    with stopped_in(5):
        aiayn.train(*given, "name=stopped")
    stopped = aiayn.train(*given, "name=stopped")
    mine, theirs = (checkpoints.load(RunFolder(folder).last) for folder in (stopped, whole))
    assert [
        key for key in theirs.weights if not torch.equal(mine.weights[key], theirs.weights[key])
    ] == []
    matrices = [
        theirs.weights[name]
        for name in ("embedding.weight", "src_embedding.weight", "output.weight")
    ]
    assert len({float(matrix.sum()) for matrix in matrices}) == 3
    assert sum(name.startswith("decoder.1.") for name in theirs.weights) > 0
    assert sum(name.startswith("encoder.1.") for name in theirs.weights) == 0

    monkeypatch.chdir(tmp_path)
    Path("text.en").write_text("one two three\nseven\n")
    command = (
        "aiayn",
        "translate",
        str(whole),
        "text.en",
        "--accelerator",
        "cpu",
        "--beam-size",
        "1",
    )
    outputs = [run_application(*command, "--engine", engine) for engine in ("torch", "ctranslate2")]
    assert outputs[0].out == outputs[1].out != "", outputs[1].err


@pytest.mark.slow
def test_a_metric_that_fails_is_missing_from_that_validation_only(text, tmp_path):
    (tmp_path / "flaky.py").write_text(
        "calls = []\n\ndef flaky(hypotheses, references):\n    calls.append(1)\n    return 7.0 + "
        "len(calls) if len(calls) != 2 else float('nan')\n\nMETRICS = {'flaky': flaky}\n"
    )
    run = aiayn.train(
        aiayn.compose(
            *options(text, tmp_path, "", f"extensions=[{tmp_path}/flaky.py]", "trainer.val_every=3")
        )
    )
    validations = [record for record in RunFolder(run).read_metrics() if "val/loss" in record]
    assert [(each["step"], each.get("val/flaky")) for each in validations] == [
        (3, 8.0),
        (6, None),
        (8, 10.0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_with_another_best_metric_the_average_is_compared_with_what_best_ckpt_holds(
    text, tmp_path, kept
):
    (tmp_path / "order.py").write_text(
        "def order(hypotheses, references):\n    order.calls += 1\n    return order.calls\n\n"
        "order.calls, order.lower_is_better = 0, True\nMETRICS = {'order': order}\n"
    )
    more = (
        "name=run",
        f"extensions=[{tmp_path}/order.py]",
        "trainer.val_every=2",
        "trainer.checkpoint_every=2",
    )
    more += (f"trainer.average_last={9 if kept else 1}",)
    run = RunFolder(aiayn.train(aiayn.compose(*options(text, tmp_path, "", *more))))
    before = checkpoints.load(run.best).step
    assert before > 2
    more += ("trainer.best_metric=val/order", "trainer.max_steps=9")
    aiayn.train(aiayn.compose(*options(text, tmp_path, "", *more)))
    now = checkpoints.load(run.best).step
    assert now == (2 if kept else before), (
        "the first call was the best: its checkpoint, where that is still there"
    )
    [record] = [each for each in run.read_metrics() if each["step"] == now and "val/loss" in each]
    compared = read_json(run.validated)["best"]
    assert compared["step"] == now
    assert compared["val/loss"] == record["val/loss"]


@pytest.mark.slow
def test_an_average_of_weights_is_what_every_checkpoint_holds_with_and_without_the_optimizers_state(
    text, tmp_path, monkeypatch
):
    (tmp_path / "order.py").write_text(
        "def order(hypotheses, references):\n    order.calls += 1\n    return order.calls\n\n"
        "order.calls, order.lower_is_better = 0, True\nMETRICS = {'order': order}\n"
    )
    more = (
        f"extensions=[{EXAMPLES}/ema.py,{tmp_path}/order.py]",
        "extension.ema.decay=0.7",
        "trainer.val_every=2",
    )

    def weights(run, name):
        return checkpoints.load(run / "checkpoints" / f"{name}.ckpt").weights

    whole = aiayn.train(
        aiayn.compose(
            *options(
                text,
                tmp_path,
                "",
                *more,
                "name=whole",
                "trainer.checkpoint_every=2",
                "trainer.average_last=9",
            )
        )
    )
    # bytes: as in a large model, the state is not saved every time
    monkeypatch.setattr(CheckpointSaver, "SMALL", -1)
    large = aiayn.train(
        aiayn.compose(
            *options(text, tmp_path, "", *more, "name=large", "trainer.best_metric=val/order")
        )
    )
    assert not (large / "checkpoints/step_6.optim").exists()
    for name, same in (("best", "step_2"), ("step_6", "step_6")):
        theirs = weights(whole, same)
        assert [
            key
            for key, weight in weights(large, name).items()
            if not torch.equal(weight, theirs[key])
        ] == []


def test_a_metric_decides_about_the_best_checkpoint_and_is_seen_by_lightnings_callbacks(
    text, tmp_path
):
    import pytorch_lightning as pl

    (tmp_path / "count.py").write_text(
        "def calls(hypotheses, references):\n    calls.done += 1\n    return calls.done\n\n"
        "calls.done, calls.lower_is_better = 0, True\nMETRICS = {'calls': calls}\n"
    )
    seen = [
        pl.callbacks.EarlyStopping(name, mode="min", patience=9)
        for name in ("val/calls", "val/bleu")
    ]
    more = (f"extensions=[{tmp_path}/count.py]", "trainer.val_every=2", "name=run")
    run = aiayn.train(
        aiayn.compose(*options(text, tmp_path, "", *more, "trainer.best_metric=val/calls")),
        callbacks=seen,
    )
    assert checkpoints.load(RunFolder(run).best).step == 2, "the first call"
    assert read_json(RunFolder(run).validated)["averaged"]["val/calls"] > 1, (
        "the last call, for the average"
    )
    assert [float(each.best_score) for each in seen] == [1.0, pytest.approx(0, abs=100)]
    with pytest.raises(
        ConfigError,
        match=r"trainer\.best_metric=val/other: choose one of val/loss, val/bleu, val/calls",
    ):
        aiayn.train(
            aiayn.compose(*options(text, tmp_path, "", *more, "trainer.best_metric=val/other"))
        )


def test_a_run_keeps_its_sources_and_runs_them_or_a_changed_file_with_a_warning(
    text, tmp_path, monkeypatch, caplog
):
    own = tmp_path / "own"
    (own / "norms").mkdir(parents=True)
    (own / "norms/__init__.py").write_text("")
    (own / "norms/rms.py").write_text("from torch.nn import RMSNorm\n")
    file = own / "mine.py"
    file.write_text(
        "from norms.rms import RMSNorm\nfrom aiayn.model.layers import AddNorm, Parts\n"
        "PARTS = Parts(add_norm=lambda c, position: AddNorm(c.d_model, 0.1, RMSNorm(c.d_model)))\n"
    )
    given = options(text, tmp_path, "", f"extensions=[{file}]", "name=run", "trainer.max_steps=1")
    run = aiayn.train(*given)
    copies = RunFolder(run).extensions
    assert {path.relative_to(copies): path.read_bytes() for path in copies.rglob("*.py")} == {
        path.relative_to(own): path.read_bytes() for path in own.rglob("*.py")
    }
    (own / "norms/rms.py").write_text("from torch.nn import RMSNorm  # changed\n")
    with pytest.raises(RefusedError, match="extensions_sha256"):
        aiayn.train(*each_once(*given, "trainer.max_steps=2"))
    expected = aiayn.load(run, accelerator="cpu", extensions=[str(file)]).translate(["one"])
    assert "norms/rms.py differs from the file that the model was trained with" in caplog.text

    monkeypatch.setattr(extensions, "_named", {})  # as in another process
    file.write_text(f"{file.read_text()}# changed\n")
    changed = aiayn.load(run, accelerator="cpu", extensions=[str(file)])
    assert changed.translate(["one"]) == expected
    assert "mine.py differs from the file that the model was trained with" in caplog.text
    tuned = ("name=tuned", f"init_from={run}", f"extensions=[{file}]", "trainer.max_steps=1")
    assert RunFolder(aiayn.train(*options(text, tmp_path, "", *tuned))).last.exists()

    monkeypatch.setattr(extensions, "_named", {})
    shutil.rmtree(own)
    caplog.clear()
    stored = aiayn.load(run, accelerator="cpu", extensions=["stored"])
    assert stored.translate(["one"]) == expected
    assert "differs" not in caplog.text
    shutil.rmtree(copies)
    with pytest.raises(RefusedError, match="holds no copies of this run's extensions"):
        aiayn.load(run, accelerator="cpu", extensions=["stored"])


def test_files_that_an_extension_imports_by_a_call_or_changed_meanwhile_are_the_ones_that_run(
    tmp_path,
):
    def write(folder, number):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "numbers_of_mine.py").write_text(f"NUMBER = {number}\n")
        file = tmp_path / folder / f"{folder}.py"
        file.write_text('import importlib\nmine = importlib.import_module("numbers_of_mine")\n')
        return str(file)

    for folder, number in (("one", 1), ("one", 22), ("other", 333)):
        extension = load_extension(write(folder, number))
        assert number == extension.module.mine.NUMBER
        assert extension.helpers == {"numbers_of_mine.py": b"NUMBER = %d\n" % number}
    with pytest.raises(ConfigError, match=r"two different files are imported as numbers_of_mine"):
        extensions.load_extensions([write("one", 1), write("other", 333)])


def test_an_error_in_a_loaders_worker_has_its_place_in_the_one_line(text, tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "from aiayn.data.datamodule import TranslationDataModule\n"
        "def collate(pairs):\n"
        "    raise KeyError('no such pair')\n"
        "class DataModule(TranslationDataModule):\n"
        "    def train_dataloader(self):\n"
        "        loader = super().train_dataloader()\n"
        "        loader.collate_fn = collate\n"
        "        return loader\n"
    )
    given = options(text, tmp_path, "", f"extensions=[{file}]", "data.num_workers=1", "name=run")
    ended = run_application("train.py", *given)
    assert ended.code == 2, ended.err
    assert ended.err.strip("\n").split("\n")[-1] == (
        f"error: extensions: {file}, line 3, in collate: KeyError: 'no such pair' "
        "(in a data loader worker); debug=true shows the traceback"
    )


def test_an_error_of_a_loaders_worker_in_this_program_names_the_call_and_the_files():
    file = Path(aiayn.__file__)
    error = TypeError(
        "Caught TypeError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
        f'last):\n  File "{file}", line 1, in collate\nTypeError: no pair'
    )
    call = file.read_text().split("\n")[0]
    assert explain_own_code(error, "own.py").startswith(
        f"extensions: own.py: TypeError: no pair (in a data loader worker), in a call from `{call}`"
    )


@pytest.mark.parametrize(
    ("changed", "code", "line"),
    [
        (
            "def other(): pass",
            4,
            "w_1.weight: .*; it was trained with another own.py; --extension stored or",
        ),
        (
            "PARTS = Parts(feed_forward=lambda c, place: FeedForward(c.d_model, 9))",
            4,
            "w_1.weight: .*; it was trained with another own.py; --extension stored or",
        ),
        ("raise KeyError('a')", 2, "own.py, line 2, in <module>: KeyError: 'a'"),
        ("PARTS = Parts(feed_forward=lambda c, place: 1 / 0)", 2, "own.py, line 2, in <lambda>"),
        ("PARTS = Parts(feed_forward=lambda c: None)", 2, "own.py: TypeError"),
        ("PARTS = 5", 2, r"PARTS=5: write PARTS = Parts\("),
    ],
)
def test_a_file_that_no_longer_builds_the_model_is_refused_in_one_line(
    changed, code, line, own_run, tmp_path, monkeypatch
):
    run, text = own_run
    monkeypatch.setattr(extensions, "_named", {})  # as in another process
    file = tmp_path / "own.py"
    file.write_text(f"from aiayn.model.layers import FeedForward, Parts\n{changed}\n")
    command = ("translate", str(run), f"{text}/val.en", "--accelerator", "cpu")
    ended = run_application("aiayn", *command, "--engine", "torch", "--extension", str(file))
    last = ended.err.strip("\n").split("\n")[-1]
    assert ended.code == code, ended.err
    assert last.startswith("error: "), ended.err
    assert re.search(line, last), last


@pytest.fixture(scope="module")
def own_run(text, tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("own")
    file = folder / "own.py"
    file.write_text(
        "from aiayn.model.layers import FeedForward, Parts\n"
        "PARTS = Parts(feed_forward=lambda c, place: FeedForward(c.d_model, 8))\n"
    )
    more = (f"extensions=[{file}]", "name=run", "trainer.max_steps=1")
    return aiayn.train(*options(text, folder, "", *more)), text
