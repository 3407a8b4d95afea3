"""What many tests begin with: entry points, configurations and a little text.

Entry points run inside the test process, as a command line would run them: new interpreters cost
seconds each.
"""

import contextlib
import dataclasses
import functools
import io
import logging
import os
import random
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.types import RunMode
from omegaconf import DictConfig

from aiayn.config.compose import check_config, for_hydra, register
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import run_config
from aiayn.config.schema import Config
from aiayn.reports import drawing, plots, report
from aiayn.sweep.jobs import SweepJob, make_jobs

ROOT = Path(__file__).parent.parent
# Published texts and scores that some tests compare with; see CONTRIBUTING.md.
CORPORA = Path(os.environ.get("AIAYN_CORPORA") or "/nowhere")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def slow_but(kept: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases of a test, of which all but the kept ones run with --slow only. A tuple is for
    several parameters.
    """
    kept = list(kept)

    def marked(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=() if case in kept else pytest.mark.slow)

    return [marked(case) for case in cases]


def run_application(script: str, *arguments: str) -> Outcome:
    """`python SCRIPT ARGUMENTS` or, for `aiayn`, the console command, in the working directory.

    The scripts' pictures are empty: most of a tiny run's time would go into them.
    """
    # As Python opens them: what cannot be encoded is an error on the one, and an escape on the
    # other.
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGHUP)}
    state = Singleton.get_state()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", [script, *last_of_each(arguments)])
        patch.setenv("HYDRA_FULL_ERROR", "1")
        compose_once(patch)
        if script != "aiayn":
            spare_the_pictures(patch)
        GlobalHydra.instance().clear()
        try:
            if script == "aiayn":
                from aiayn.cli import main

                main()
            else:
                runpy.run_path(str(ROOT / script), run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            # What an application leaves behind for the whole process: Hydra's state, handlers, this
            # stderr.
            for number, handler in handlers.items():
                signal.signal(number, handler)
            Singleton.set_state(state)
            register(Config)
            logging.getLogger("aiayn").handlers.clear()
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def last_of_each(arguments: Sequence[str]) -> list[str]:
    """Returns arguments with the last value of each key only: tests add options to those of TEXT
    and TINY.
    """
    last = {
        argument.lstrip("+").partition("=")[0]: argument
        for argument in arguments
        if "=" in argument
    }
    kept = [argument for argument in arguments if "=" not in argument or argument in last.values()]
    return list(dict.fromkeys(kept)) if len(kept) < len(arguments) else list(arguments)


def compose_once(patch: pytest.MonkeyPatch) -> None:
    """Hydra composes a tenth of a second longer than it must, to see whether a file sets
    hydra.mode. None does here.
    """
    patch.setattr(Hydra, "get_mode", lambda *arguments, **options: None)


def spare_the_pictures(patch: pytest.MonkeyPatch) -> None:
    """From now on every picture is an empty one, of the right format."""
    for module in (drawing, plots):
        patch.setattr(module, "render", lambda figure, kind: _empty_picture(kind))
    svg = _empty_picture("svg").decode()
    patch.setattr(report, "panel_svg", lambda *arguments: svg)
    patch.setattr(report, "corpus_svgs", lambda corpus: (svg, svg))
    if "pytorch_lightning" in sys.modules:  # else no training draws in this process
        from aiayn.visualize import figures

        patch.setattr(
            figures, "draw_cross_attention", lambda data, path: drawing.save_figure(None, path)
        )


def prove_searches_once() -> None:
    """From now on this process proves once for each configuration that a model without code of its
    own searches as it trains: a quarter of a tiny run's time would go into that.
    """
    from aiayn.training import proof

    prove_anew = proof.search_faults
    if hasattr(prove_anew, "__wrapped__"):
        return
    proven: dict[str, dict[str, float]] = {}

    @functools.wraps(prove_anew)
    def search_faults(model, checkpoint, device):
        config = checkpoint.config
        if config.model.parts:
            return prove_anew(model, checkpoint, device)
        sizes = checkpoint.vocab_size, config.data.src_vocab_size, config.data.max_length
        key = f"{config.model} {sizes} {device}"
        if key not in proven:
            proven[key] = prove_anew(model, checkpoint, device)
        return proven[key]

    proof.search_faults = search_faults


@functools.cache
def _empty_picture(kind: str, render: Callable = drawing.render) -> bytes:
    return render(drawing.new_figure(2, 1), kind)


def in_new_interpreter(
    folder: Path, script: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """`python SCRIPT ARGUMENTS` in a folder, in a process of its own, for what only that can
    show.
    """
    return subprocess.run(
        [sys.executable, ROOT / script, *last_of_each(arguments)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


# Text that `write_text` wrote to train and dev; the latter is tested on, too.
TEXT = (
    "data=files",
    "data.train=train",
    "data.val=dev",
    "data.test=dev",
    "data.src_lang=en",
    "data.tgt_lang=de",
)
# The small run, which every test that trains begins with: a model and text of which a step takes
# milliseconds ...
SMALL = (
    "model.n_layers=1",
    "model.d_model=16",
    "model.d_ff=24",
    "model.n_heads=2",
    "data.vocab_size=280",
    "data.tokens_per_step=520",
    "data.max_tokens_per_device=400",
    "optim=adam",
    "trainer=default",
    "trainer.accelerator=cpu",
    "search.max_extra_tokens=3",
    "logger=none",
)
# What `data=files` would settle by the text.
FIXED = {
    "model": "base",
    "optim": "adam",
    "trainer": "default",
    "data.vocab_size": "8000",
    "data.tokens_per_step": "8192",
}
# ... for two steps,
TINY = (
    *SMALL,
    "trainer.max_steps=2",
    "trainer.val_every=2",
    "trainer.val_bleu_sentences=2",
    "trainer.checkpoint_every=1",
)
# ... or for twelve steps of two micro-batches each, with a checkpoint every third and two
# validations.
TWELVE_STEPS = (
    *SMALL,
    "model.dropout=0.2",
    "data.max_length=40",
    "data.micro_batches=2",
    "optim.warmup_steps=20",
    "trainer.precision=32-true",
    "trainer.max_steps=12",
    "trainer.val_every=6",
    "trainer.val_bleu_sentences=3",
    "trainer.checkpoint_every=3",
    "trainer.average_last=3",
    "trainer.log_every=1",
)


def text_in(folder: Path, tgt_lang: str = "de") -> list[str]:
    """Options of the text FOLDER/train, FOLDER/val and FOLDER/test, to be prepared in
    FOLDER/prepared.
    """
    splits = [f"data.{split}={folder}/{split}" for split in ("train", "val", "test")]
    return [
        "data=files",
        *splits,
        "data.src_lang=en",
        f"data.tgt_lang={tgt_lang}",
        f"data.folder={folder}/prepared",
    ]


def composed(*overrides: str) -> Config:
    """The configuration that `python train.py` runs with, given these arguments; its name is `run`
    unless given.

    With `data=files` what the arguments leave to the program is that of base.
    """
    if "data=files" in overrides:
        given = {override.partition("=")[0] for override in overrides}
        overrides = (
            *(f"{key}={value}" for key, value in FIXED.items() if key not in given),
            *overrides,
        )
    options = composed_options(*overrides)
    return run_config(dataclasses.replace(options, name=options.name or "run"))


@functools.cache
def composed_options(*overrides: str) -> Config:
    """The options of `python train.py` with these arguments, as they are before any is settled."""
    register(Config)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        kept = [for_hydra(override, Config) for override in overrides]
        return check_config(compose("train", overrides=kept), Config)


def composed_jobs(*batch: list[str]) -> list[SweepJob]:
    """The jobs of a sweep as its launchers make them, each from a list of arguments."""
    typed = [override for override in batch[0] if all(override in job for job in batch)]
    return make_jobs(lambda overrides: _composed_row(*overrides), batch, typed)


@functools.cache
def _composed_row(*overrides: str) -> DictConfig:
    register(Config)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        return loader.load_configuration("train", list(overrides), run_mode=RunMode.RUN)


def small_model(**changes: Any) -> ModelConfig:
    """A model in which no two sizes are equal, so that exchanged dimensions cannot go unnoticed."""
    sizes = {"n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 5, "d_v": 7}
    others = {"dropout": 0.3, "max_positions": 64}
    return ModelConfig(**sizes | others | changes)


def write_run(
    folder: Path, src_lang: str = "en", tgt_lang: str = "de", others: Sequence[str] = ()
) -> Path:
    """A run's folder with two checkpoints of different tiny models, `last` and `averaged`, that
    translate nonsense. The others are options of the model.
    """
    import torch

    from aiayn.data.tokenizer import Tokenizer
    from aiayn.model.transformer import Transformer
    from aiayn.runs import checkpoints

    text = [
        "data=files",
        "data.train=x",
        "data.val=x",
        f"data.src_lang={src_lang}",
        f"data.tgt_lang={tgt_lang}",
    ]
    options = [*text, "model.n_layers=2", "model.d_model=12", "model.d_ff=20"]
    config = composed(
        *options, "model.n_heads=2", "search.beam_size=3", "search.max_extra_tokens=4", *others
    )
    tokenizer = Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes"]], 280
    )
    (folder / "checkpoints").mkdir(parents=True)
    torch.manual_seed(2)
    for name in ("last", "averaged"):
        weights = Transformer(config.model, tokenizer.vocab_size).state_dict()
        weights["embedding.weight"] *= 3
        found = checkpoints.Checkpoint(7, config, weights, tokenizer.to_json(), "corpus", 1, [])
        checkpoints.save(folder / "checkpoints" / f"{name}.ckpt", found)
    return folder


def write_pairs(prefix: Path, count: int, seed: int) -> None:
    """Numbers in words, English and German: PREFIX.en and PREFIX.de."""
    english = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    german = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    rng = random.Random(seed)
    drawn = [[rng.randrange(10) for _ in range(rng.randint(1, 8))] for _ in range(count)]
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for lang, words in (("en", english), ("de", german)):
        text = "".join(" ".join(words[digit] for digit in digits) + "\n" for digits in drawn)
        Path(f"{prefix}.{lang}").write_text(text, encoding="utf-8")


def reversed_digits(
    count: int, seed: int, shortest: int, longest: int
) -> tuple[list[str], list[str]]:
    """Digits in words, and the same digits reversed in figures."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rng = random.Random(seed)
    drawn = [
        [rng.randrange(10) for _ in range(rng.randint(shortest, longest))] for _ in range(count)
    ]
    english = [" ".join(words[digit] for digit in digits) for digits in drawn]
    return english, [" ".join(str(digit) for digit in reversed(digits)) for digits in drawn]


def write_text(folder: Path) -> None:
    """What TEXT names: 90 pairs to train on and 5 others."""
    write_pairs(folder / "train", 90, seed=1)
    write_pairs(folder / "dev", 5, seed=2)


@contextlib.contextmanager
def stopped_in(step: int, number: int = signal.SIGTERM) -> Iterator[pytest.ExceptionInfo]:
    """A training inside this context gets a signal amid the micro-batches of a step, by which it
    must end.
    """
    from aiayn.errors import InterruptedRunError
    from aiayn.training.callbacks.monitors import ThroughputMonitor

    plain = ThroughputMonitor.on_micro_batch_end

    def on_micro_batch_end(self, outputs, batch):
        if self.module.trainer.global_step == step - 1 and batch.number % 2 == 0:
            os.kill(os.getpid(), number)
        plain(self, outputs, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThroughputMonitor, "on_micro_batch_end", on_micro_batch_end)
        with pytest.raises(InterruptedRunError) as ended:
            yield ended


def translator_of(
    run: Path | str,
    checkpoint: str | None = None,
    ensemble: Sequence[Path | str] = (),
    **options: Any,
) -> Any:
    """The torch translator of a run, or of several as an ensemble."""
    from aiayn.runs.checkpoints import load
    from aiayn.runs.run_folder import find_checkpoints
    from aiayn.search.translator import load_translator

    first, *others = (load(path) for path in find_checkpoints(run, ensemble, checkpoint))
    return load_translator(first, others=others, **options)
