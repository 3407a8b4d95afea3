"""Trains the captions model here and with JoeyNMT 2.3.0, a trainer that nobody here wrote, and
compares the results.

    pip install --target joey --no-deps joeynmt==2.3.0 sentencepiece subword-nmt importlib_metadata==8.5.0 zipp mock
    PYTHONPATH=joey python benchmarks/cross_check.py --seeds 0 1 2 3 4 5 6 7 -- \
        data.train=multi30k/data/task1/raw/train data.val=multi30k/data/task1/raw/val \
        data.test=multi30k/data/task1/raw/test_2016_flickr
    PYTHONPATH=joey python benchmarks/cross_check.py --text iwslt14 --seeds 0 1 2 3 -- \
        data.src_lang=de data.tgt_lang=en data.train=iwslt14/train data.val=iwslt14/valid data.test=iwslt14/test
    PYTHONPATH=joey python benchmarks/cross_check.py --text base --device cuda --seeds 0 1 2 -- \
        model=base data.tokens_per_step=4096 trainer.precision=bf16-mixed data.train=...

Four arms: `here` (this program), `joeynmt` (JoeyNMT's model, loss, optimizer, schedule and training
loop on the same steps of the same ids, from the same initial weights), `joeynmt-batches` (the same
on JoeyNMT's own batches), and `joeynmt-recipe` (all of JoeyNMT's own: batches, initialisation,
biases, dropout, clipping, schedule and search). All on one CPU in float32, if options do not say
otherwise. Weights of all arms, the mean of the same last checkpoints, are scored by this program's
search (of the last arm by JoeyNMT's), and validation perplexity is computed here, in plain torch. A
run is a line of results/cross_check.jsonl; those that are there are kept, so that the command
continues. `--curves` trains the first 50 steps of both without dropout and smoothing, where they
must agree to rounding. Without JoeyNMT, `--report` writes docs/results/cross-check.md anew from the
files.
"""

import argparse
import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from pages import ROOT, replaced
from peers import joey
from torch import Tensor, nn

import aiayn
from aiayn.config.schema import Config
from aiayn.data.batch import Batch
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.encode import Sentences
from aiayn.data.sources import text_of
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import RefusedError, counted
from aiayn.evaluation.scoring import score
from aiayn.files import source_commit
from aiayn.hardware import describe_machine
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import load
from aiayn.runs.run_folder import append_jsonl, read_jsonl
from aiayn.search.translator import Translator
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID
from aiayn.training.module import TranslationModule

RESULTS, PAGE = ROOT / "results/cross_check.jsonl", ROOT / "docs/results/cross-check.md"
RECIPE = "joeynmt-recipe"
ARMS = ("here", "joeynmt", "joeynmt-batches", RECIPE)
# A CPU, float32, and JoeyNMT's epsilon of Adam, which its configuration does not offer.
EQUAL = (
    "experiment=captions",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
    "optim.eps=1e-8",
    "trainer.log_every=1",
)
CPU = torch.device("cpu")
BLEU_MARGIN, PERPLEXITY_MARGIN = 1.0, 0.01  # fixed before the first run
CURVE_STEPS = 50

PARTS = {  # of a layer: names here, names in JoeyNMT
    "encoder": {
        "self_attention": "src_src_att",
        "feed_forward": "feed_forward",
        "norm_1.norm": "layer_norm",
        "norm_2.norm": "feed_forward.layer_norm",
    },
    "decoder": {
        "self_attention": "trg_trg_att",
        "cross_attention": "src_trg_att",
        "feed_forward": "feed_forward",
        "norm_1.norm": "x_layer_norm",
        "norm_2.norm": "dec_layer_norm",
        "norm_3.norm": "feed_forward.layer_norm",
    },
}
WEIGHTS = {
    "attention": {"w_q": "q_layer", "w_k": "k_layer", "w_v": "v_layer", "w_o": "output_layer"},
    "feed_forward": {"w_1": "pwff_layer.0", "w_2": "pwff_layer.3"},
}


def name_in_joey(name: str) -> str:
    """encoder.0.self_attention.w_q.weight -> encoder.layers.0.src_src_att.q_layer.weight."""
    if name == "embedding.weight":
        return "src_embed.lut.weight"
    side, layer, rest = name.split(".", 2)
    part = next(part for part in PARTS[side] if rest.startswith(part))
    rest = rest.removeprefix(part)
    for ours, theirs in WEIGHTS.get(
        part.rsplit("_", 1)[-1] if "attention" in part else part, {}
    ).items():
        rest = rest.replace(f".{ours}.", f".{theirs}.")
    return f"{side}.layers.{layer}.{PARTS[side][part]}{rest}"


def joey_model(config: Config, start: Transformer) -> nn.Module:
    """JoeyNMT's model with the weights of `start`, and without what the paper's model lacks.

    Its biases of attention projections stay zero, its attention weights and inner layers have no
    dropout (peers.py), its LayerNorm has our epsilon.
    """
    model = joey(config.model, start.vocab_size)[0]
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in start.named_parameters():
            weights.pop(name_in_joey(name)).copy_(weight)
    for name, left in weights.items():
        assert not left.any(), f"{name} is not in the model of the paper"
        left.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = nn.LayerNorm(1).eps
    return model


class Steps:
    """The plan's steps as JoeyNMT's batches, in the place of its data loader."""

    def __init__(self, data: TranslationDataModule, device: torch.device):
        self.data = data
        self.device = device
        self.batch_sampler = SimpleNamespace(set_seed=lambda seed: None)

    @property
    def parts(self) -> int:
        """Batches that make up a step."""
        return self.data.plan.parts

    def make_iter(self, **options: object) -> "Steps":
        return self

    def __iter__(self) -> Iterator:
        train, number = self.data.corpus.train, 0
        while True:
            parts = self.data.plan.step(number)
            tokens = sum(int(train.tgt.lengths[part].sum()) for part in parts)
            for part in parts:
                batch = joey_batch(train.src, train.tgt, part, self.device)
                # JoeyNMT divides a part's loss by its tokens and by the number of parts; the mean
                # is over the step.
                batch.ntokens = tokens / len(parts)
                yield batch
            number += 1


class OwnBatches(Steps):
    """JoeyNMT's batches: shuffled pairs in a row until their padded tokens reach a limit; no
    buckets.
    """

    def __init__(self, data: TranslationDataModule, device: torch.device, seed: int):
        super().__init__(data, device)
        self.seed = seed

    @property
    def parts(self) -> int:
        return 1

    def __iter__(self) -> Iterator:
        from joeynmt.datasets import RandomSubsetSampler, TokenBatchSampler

        src, tgt = self.data.corpus.train.src, self.data.corpus.train.tgt

        class Pairs:
            """What the sampler asks of a data set."""

            random_subset, indices = -1, list(range(len(src)))

            def __len__(self) -> int:
                return len(src)

            def __getitem__(self, number: int) -> tuple:
                return number, src[number], tgt[number]

        generator = torch.Generator()
        sampler = RandomSubsetSampler(Pairs(), shuffle=True, generator=generator)  # type: ignore[arg-type]
        batches = TokenBatchSampler(
            sampler, batch_size=self.padded_tokens(), drop_last=False, seed=self.seed
        )
        epoch = 0
        while True:
            epoch += 1
            batches.set_seed(self.seed + epoch)
            for pairs in batches:
                yield joey_batch(src, tgt, np.array(pairs), self.device)

    def padded_tokens(self) -> int:
        """The limit at which a batch has as many pairs, on average, as a step of ours."""
        plan = self.data.plan
        pairs = len(plan.src_lengths) / plan.steps_per_epoch
        longer = np.maximum(plan.src_lengths, plan.tgt_lengths)
        drawn = np.random.default_rng(0).choice(longer, (2000, round(pairs)))
        return round(drawn.max(axis=1).mean() * pairs)


def joey_batch(src: Sentences, tgt: Sentences, pairs: np.ndarray, device: torch.device) -> Any:
    from joeynmt.batch import Batch as JoeyBatch

    def padded(side: Sentences, first: list[int]) -> tuple[Tensor, Tensor]:
        rows = [[*first, *side[pair].tolist(), EOS_ID] for pair in pairs]
        length = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (length - len(row)) for row in rows]), torch.tensor(
            [*map(len, rows)]
        )

    ids, lengths = padded(src, [])
    return JoeyBatch(
        src=ids,
        src_length=lengths,
        src_prompt_mask=None,
        trg=padded(tgt, [BOS_ID])[0],
        trg_prompt_mask=None,
        indices=torch.from_numpy(pairs.astype(np.int64)),
        device=device,
        pad_index=PAD_ID,
        eos_index=EOS_ID,
    )


def train_joey(
    config: Config, model: nn.Module, steps: Steps, *, own_recipe: bool = False
) -> tuple[dict[str, Tensor], list[float]]:
    """JoeyNMT's training loop. Returns the mean of its model's last weights, and the loss of every
    step.
    """
    from joeynmt import training
    from joeynmt.config import TrainConfig

    optim, trainer = config.optim, config.trainer
    model.to(steps.device)
    model.loss_function = ("crossentropy", optim.label_smoothing)
    options = dict.fromkeys(TrainConfig._fields) | {
        "optimizer": "adam",
        "adam_betas": [optim.beta1, optim.beta2],
        "learning_rate": 0.0,
        "learning_rate_min": 0.0,
        "weight_decay": 0.0,
        "scheduling": "noam",
        "learning_rate_factor": optim.lr_scale,
        "learning_rate_warmup": optim.warmup_steps,
        "normalization": "tokens",
        "batch_size": 1,
        "batch_type": "token",
        "batch_multiplier": steps.parts,
        "shuffle": True,
        "epochs": sys.maxsize,
        "max_updates": trainer.max_steps,
        "logging_freq": 1,
        "validation_freq": sys.maxsize,
        "minimize_metric": True,
        "early_stopping_metric": "ppl",
        "keep_best_ckpts": 1,
    }
    if own_recipe:  # as in JoeyNMT's configurations for Transformers
        options |= {"clip_grad_norm": 1.0, "learning_rate_min": 1e-8}
    every, last = trainer.checkpoint_every, trainer.max_steps
    averaged = {last - every * number for number in range(trainer.average_last)}
    parameters = dict(model.named_parameters())
    total = {name: torch.zeros_like(weight) for name, weight in parameters.items()}
    losses: list[float] = []

    class Recorder(training.TrainManager):
        """Keeps losses and weights instead of writing them."""

        def _log_scores(
            self, epoch: int, seconds: float, tokens: int, correct: int, loss: float
        ) -> None:
            losses.append(loss)
            if self.stats.steps in averaged:
                for name, sum_ in total.items():
                    sum_ += parameters[name].detach()

        def _save_checkpoint(self, new_best: bool, score: float) -> None:
            pass

    with TemporaryDirectory() as folder:
        manager = Recorder(
            rank=0,
            model=model,
            model_dir=Path(folder),
            device=steps.device,
            autocast={
                "device_type": steps.device.type,
                "dtype": torch.bfloat16,
                "enabled": trainer.precision == "bf16-mixed",
            },
            seed=config.seed,
            train_args=SimpleNamespace(**options, _asdict=lambda: options),  # type: ignore[arg-type]
        )
        if not own_recipe:
            # Its schedule is advanced after a step, by the number of the step that has been taken:
            # one step late.
            advance = manager.scheduler.step
            manager.scheduler.step = lambda steps_taken: advance(steps_taken + 1)
            advance(0)
        manager.train_and_validate(train_data=steps, valid_data=SimpleNamespace())  # type: ignore[arg-type]
    model.to(CPU)
    return {name: sum_.to(CPU) / len(averaged) for name, sum_ in total.items()}, losses


def train_here(options: Sequence[str]) -> tuple[dict[str, Tensor], list[float]]:
    """As `train_joey`, by this program."""
    with TemporaryDirectory() as folder:
        run = aiayn.train(*options, f"outputs={folder}")
        records = read_jsonl(run / "metrics.jsonl")
        losses = [record["train/loss"] for record in records if "train/loss" in record]
        return load(run / "checkpoints/averaged.ckpt").weights, losses


def translate_by_joey(
    model: nn.Module, tokenizer: Tokenizer, sources: Sequence[str], beam_size: int, alpha: float
) -> list[str]:
    """JoeyNMT's own search, 50 sentences at a time, of similar length; the translations are in the
    order of the sources.
    """
    from joeynmt.search import search

    ids = tokenizer.encode(sources)
    sentences = Sentences.of(ids)
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    translations = [""] * len(ids)
    for first in range(0, len(order), 50):
        lines = np.array(order[first : first + 50])
        batch = joey_batch(sentences, sentences, lines, CPU)
        longest = -1  # 1.5 times the longest source
        outputs, _, _ = search(model, batch, longest, beam_size, alpha, generate_unk=False)
        rows = [row.tolist() for row in outputs]
        ended = [row[: row.index(EOS_ID)] if EOS_ID in row else row for row in rows]
        texts = tokenizer.decode(ended)
        for line, text in zip(lines, texts, strict=True):
            translations[line] = text
    return translations


def validation_perplexity(forward: Callable[[Batch], Tensor], data: TranslationDataModule) -> float:
    """exp of the mean negative log-likelihood of the validation set's tokens, end marks counted, in
    plain torch.
    """
    total, tokens = 0.0, 0
    with torch.no_grad():
        for batch in data.val_dataloader():
            logits = forward(batch).double()
            total += nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=PAD_ID, reduction="sum"
            ).item()
            tokens += batch.n_tokens
    return math.exp(total / tokens)


class Trained(NamedTuple):
    """A model after its training."""

    losses: list[float]  # of every step
    translate: Callable[[list[str]], list[str]]
    logits: Callable[[Batch], Tensor]


def train_arm(
    arm: str,
    options: Sequence[str],
    config: Config,
    data: TranslationDataModule,
    device: torch.device,
) -> Trained:
    """Trains one of the arms whose weights this program's model can hold."""
    torch.manual_seed(config.seed)  # as a training here does
    model = TranslationModule(config, data.tokenizer.vocab_size).model
    if arm == "here":
        weights, losses = train_here(options)
    else:
        steps = Steps(data, device)
        if arm == "joeynmt-batches":
            steps = OwnBatches(data, device, config.seed)
        theirs, losses = train_joey(config, joey_model(config, model), steps)
        weights = {name: theirs[name_in_joey(name)] for name, _ in model.named_parameters()}
    model.load_state_dict(weights, strict=False)
    model.eval()
    translator = Translator(model, data.tokenizer, config.search, "cpu")
    return Trained(
        losses,
        translator.translate,
        lambda batch: model(batch.src, batch.tgt_in, batch.src_mask),
    )


def train_recipe(config: Config, data: TranslationDataModule, device: torch.device) -> Trained:
    """Trains JoeyNMT's own model, and searches with it: nothing of this program but the sizes of
    the model, the ids and the average.
    """
    torch.manual_seed(config.seed)
    model, forward = joey(config.model, data.tokenizer.vocab_size, as_in_paper=False)
    batches = OwnBatches(data, device, config.seed)
    weights, losses = train_joey(config, model, batches, own_recipe=True)
    model.load_state_dict(weights, strict=False)
    model.eval()
    search, tokenizer = config.search, data.tokenizer

    def translate(sources: list[str]) -> list[str]:
        return translate_by_joey(model, tokenizer, sources, search.beam_size, search.length_penalty)

    return Trained(losses, translate, forward)


def run(
    arm: str, options: Sequence[str], commit: str, device: torch.device = CPU
) -> dict[str, object]:
    """Trains one arm, and scores its weights on a CPU. `commit` is that of the code."""
    if device.type == "cuda":
        options = [*options, "trainer.accelerator=gpu"]
    config = aiayn.compose(*options)
    data = TranslationDataModule(config.data, seed=config.seed)
    data.setup("fit")
    start, processor_start = time.perf_counter(), time.process_time()
    if arm == RECIPE:
        trained = train_recipe(config, data, device)
    else:
        trained = train_arm(arm, options, config, data, device)
    seconds = time.perf_counter() - start
    processor_seconds = time.process_time() - processor_start
    losses = trained.losses
    if arm != "here":
        constant = smoothing_constant(config.optim.label_smoothing, data.tokenizer.vocab_size)
        losses = [loss + constant for loss in losses]
    sources, references = text_of(config.data, "test").read()
    hypotheses = trained.translate(sources)
    scores = score(hypotheses, references, config.data.tgt_lang, ("sacrebleu", "chrf"))
    return {
        "arm": arm,
        "seed": config.seed,
        "sacrebleu": scores.metrics["sacrebleu"],
        "chrf": scores.metrics["chrf"],
        "length_ratio": scores.details["sacrebleu"]["length_ratio"],
        "val_ppl": validation_perplexity(trained.logits, data),
        "losses": means_of_tens(losses),
        "processor_seconds": round(processor_seconds),
        "seconds": round(seconds),
        "commit": commit,
        "machine": describe_machine(device, config.trainer.precision, torch.get_num_threads()),
    }


def means_of_tens(losses: Sequence[float]) -> list[float]:
    tens = np.array(losses[: len(losses) // 10 * 10]).reshape(-1, 10)
    return [round(float(mean), 5) for mean in tens.mean(axis=1)]


def smoothing_constant(smoothing: float, vocab_size: int) -> float:
    """What JoeyNMT's loss, a divergence, lacks to be a cross entropy: the entropy of the smoothed
    target.

    It gives the right token 1 - smoothing, and the others but <pad> the rest.
    """
    if not smoothing:
        return 0.0
    return -(
        (1 - smoothing) * math.log(1 - smoothing)
        + smoothing * math.log(smoothing / (vocab_size - 2))
    )


def curves(options: Sequence[str], commit: str) -> dict[str, object]:
    """Losses of the first steps of both, without dropout and label smoothing: the same to
    rounding.
    """
    options = [
        *options,
        "model.dropout=0",
        "optim.label_smoothing=0",
        f"trainer.max_steps={CURVE_STEPS}",
        "seed=0",
    ]
    options += ["trainer.val_every=50", "trainer.val_bleu_sentences=0", "trainer.average_last=1"]
    config = aiayn.compose(*options)
    data = TranslationDataModule(config.data, seed=0)
    data.setup("fit")
    torch.manual_seed(0)
    model = TranslationModule(config, data.tokenizer.vocab_size).model
    theirs = train_joey(config, joey_model(config, model), Steps(data, CPU))[1]
    ours = train_here(options)[1]
    apart = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    return {
        "here": ours,
        "joeynmt": theirs,
        "largest_relative_difference": apart,
        "commit": commit,
    }


def equivalent(differences: Sequence[float], margin: float) -> tuple[float, float, float, float]:
    """Two one-sided t-tests over paired differences: mean, 90 % interval, and the larger p of the
    two tests.
    """
    from scipy import stats  # is not carried to a GPU (make gpu-wheels)

    array = np.array(differences)
    error = array.std(ddof=1) / math.sqrt(len(array))
    freedom = len(array) - 1
    low, high = array.mean() + np.array([-1, 1]) * stats.t.ppf(0.95, freedom) * error
    p = max(
        stats.t.sf((array.mean() + margin) / error, freedom),
        stats.t.cdf((array.mean() - margin) / error, freedom),
    )
    return float(array.mean()), float(low), float(high), float(p)


def read(text: str) -> dict[str, dict[int, dict]]:
    """The results of a text by arm and seed."""
    runs = {arm: {} for arm in ARMS}
    for line in read_jsonl(RESULTS):
        if line["text"] == text:
            runs[line["arm"]][line["seed"]] = line
    return runs


def keep(text: str, record: dict[str, object]) -> None:
    """Adds a result to the file."""
    append_jsonl(RESULTS, [{"text": text, **record}])


def committed_code() -> str:
    """Returns the commit of the code. Raises RefusedError for uncommitted code, whose results
    nobody could make again; results that this program has added are no code.
    """
    but_results = f":(exclude){RESULTS.relative_to(ROOT)}"
    changed = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", but_results]
    if files := subprocess.check_output(changed, cwd=ROOT, text=True).split():
        raise RefusedError(f"{files[-1]}: has uncommitted changes; commit them and run again")
    return str(source_commit()).removesuffix("-dirty")


def tables(runs_by_arm: dict[str, dict[int, dict]]) -> str:
    """The tables of a text in docs/results/cross-check.md."""
    lines = [
        "| arm | seeds | test sacreBLEU | chrF | length ratio | dev perplexity | processor s |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for arm, runs in runs_by_arm.items():
        if runs:
            names = ("sacrebleu", "chrf", "length_ratio", "val_ppl")
            columns = [[run[name] for run in runs.values()] for name in names]
            cells = [
                f"{np.mean(column):.{d}f}" for column, d in zip(columns, (2, 2, 3, 3), strict=True)
            ]
            if len(runs) > 1:
                spread = [np.std(column, ddof=1) for column in columns]
                cells = [f"{cell} ± {s:.2g}" for cell, s in zip(cells, spread, strict=True)]
            seconds = np.mean([run["processor_seconds"] for run in runs.values()])
            lines.append(f"| {arm} | {len(runs)} | {' | '.join(cells)} | {seconds:.0f} |")
    paired = [
        arm for arm in ARMS[1:] if len(runs_by_arm[arm].keys() & runs_by_arm["here"].keys()) > 1
    ]
    if paired:
        lines += [
            "",
            "| difference to `here`, seed by seed | mean | 90 % interval | margin | p (two "
            "one-sided tests) |",
        ]
        lines += ["|---|---|---|---|---|"]
    for arm in paired:
        seeds = sorted(runs_by_arm[arm].keys() & runs_by_arm["here"].keys())
        bleu = [
            runs_by_arm[arm][seed]["sacrebleu"] - runs_by_arm["here"][seed]["sacrebleu"]
            for seed in seeds
        ]
        ratio = [
            math.log(runs_by_arm[arm][seed]["val_ppl"] / runs_by_arm["here"][seed]["val_ppl"])
            for seed in seeds
        ]
        mean, low, high, p = equivalent(bleu, BLEU_MARGIN)
        lines.append(
            f"| {arm}: sacreBLEU | {mean:+.2f} | [{low:+.2f}, {high:+.2f}] | 1 | {p:.2g} |"
        )
        *logarithms, p = equivalent(ratio, math.log1p(PERPLEXITY_MARGIN))
        mean, low, high = (100 * math.expm1(value) for value in logarithms)
        interval = f"[{low:+.2f} %, {high:+.2f} %]"
        lines.append(f"| {arm}: dev perplexity | {mean:+.2f} % | {interval} | 1 % | {p:.2g} |")
    return "\n".join(lines)


def draw_curves(path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    runs_of_arms = read("captions")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    [*_, exact] = [line for line in read_jsonl(RESULTS) if line["text"] == "curves"]
    for arm, style in (("here", "-"), ("joeynmt", ":")):
        left.plot(range(1, CURVE_STEPS + 1), exact[arm], style, label=arm, linewidth=2)
    left.set(
        title="no dropout, no smoothing: the same to rounding",
        xlabel="step",
        ylabel="loss per token (nats)",
    )
    for arm, style in zip(ARMS, ("-", ":", "--", "-."), strict=True):
        if runs_of_arms[arm]:
            tens = np.array([run["losses"] for run in runs_of_arms[arm].values()]).mean(axis=0)
            right.plot(10 * np.arange(1, len(tens) + 1), tens, style, label=arm)
    right.set(title="as compared: mean over seeds", xlabel="step")
    left.legend(frameon=False)
    right.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS[:2])
    parser.add_argument(
        "--text", default="captions", help="a name for another text than the captions"
    )
    parser.add_argument("--device", type=torch.device, default=CPU, help="cuda trains on a GPU")
    parser.add_argument("--commit", help="commit of the code, if this is not a clone")
    parser.add_argument("--curves", action="store_true", help="the first steps without dropout")
    parser.add_argument("--report", action="store_true", help="write the page anew")
    parser.add_argument(
        "options", nargs="*", help="options of the training, such as data.train=PREFIX"
    )
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    commit = chosen.commit
    if not commit and (chosen.curves or chosen.seeds):
        commit = committed_code()
    if chosen.curves:
        keep("curves", curves([*EQUAL, *chosen.options], commit))
    for seed in chosen.seeds:
        for arm in chosen.arms:
            if seed not in read(chosen.text)[arm]:
                options = [*EQUAL, f"seed={seed}", *chosen.options]
                record = run(arm, options, commit, chosen.device)
                keep(chosen.text, record)
                print(
                    arm,
                    {name: value for name, value in record.items() if name != "losses"},
                    flush=True,
                )
    if chosen.report:
        PAGE.write_text(replaced(PAGE.read_text("utf-8"), blocks()), "utf-8")


def blocks() -> dict[str, str]:
    """The generated blocks of the page by name."""
    return {
        **{text: tables(read(text)) for text in ("captions", "iwslt14")},
        "recipe": differences_of_recipe(read("captions")),
    }


def differences_of_recipe(runs_by_arm: dict[str, dict[int, dict]]) -> str:
    """JoeyNMT's own recipe beside ours, in words; for fewer seeds than an interval needs."""
    ours, theirs = runs_by_arm["here"], runs_by_arm[RECIPE]
    seeds = sorted(ours.keys() & theirs.keys())
    bleu = np.mean([theirs[seed]["sacrebleu"] - ours[seed]["sacrebleu"] for seed in seeds])
    ratios = [math.log(theirs[seed]["val_ppl"] / ours[seed]["val_ppl"]) for seed in seeds]
    return (
        f"Compared with `here` on {counted(len(seeds), 'common seed')}, this recipe's difference "
        f"is {bleu:+.2f} sacreBLEU and {100 * math.expm1(np.mean(ratios)):+.1f} % "
        "of dev perplexity."
    )


if __name__ == "__main__":
    main()
