"""Three initialisations of a post-norm Transformer: the loss of its first steps, docs/fidelity.md.

    python benchmarks/initialisation.py PREFIX [--src en --tgt de] [--steps 200] [--seeds 0 1 2] [--out FOLDER]

PREFIX names raw text, as for `train.py data=files`. Every run is `model=tiny` with dropout 0.1 in
float32, --tokens a step, Adam, label smoothing 0.1 and a rate that rises in a straight line to
--peak at the last step. A seed draws the weights, the order of the steps and dropout. `loss` is the
mean per target token of the last quarter of the steps; `alike` the mean cosine of the encoder's
outputs at two positions of a sentence after training: 1 is a collapse.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace

import torch
from measure import parse_options, report
from torch import Tensor, nn
from torch.nn import functional as F

import aiayn
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import run_config
from aiayn.config.schema import Config
from aiayn.data.batch import Batch, collate
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedCorpus
from aiayn.data.preparation import prepare_corpus
from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy
from aiayn.training.module import dropout_seed


def glorot(model: Transformer) -> None:
    """Glorot-uniform projections, none of them scaled."""
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter is not model.embedding.weight:
            nn.init.xavier_uniform_(parameter)


def fairseq(model: Transformer) -> None:
    """As fairseq's MultiheadAttention: Glorot-uniform, queries, keys and values times 2^-0.5."""
    glorot(model)
    for name, parameter in model.named_parameters():
        if name.endswith(("w_q.weight", "w_k.weight", "w_v.weight")):
            parameter.data *= 2**-0.5


def ours(model: Transformer) -> None:
    """As `Transformer.reset_parameters` drew it: w_o and w_2 times (2 n_layers)^-0.5."""


INITIALISATIONS: dict[str, Callable[[Transformer], None]] = {
    "Glorot": glorot,
    "Glorot, w_q, w_k and w_v times 0.71": fairseq,
    "Glorot, w_o and w_2 times (2 N)^-0.5": ours,
}


def train(
    prepared: PreparedCorpus,
    config: ModelConfig,
    initialise: Callable[[Transformer], None],
    seed: int,
    steps: int,
    tokens: int,
    peak: float,
) -> tuple[float, float]:
    """Returns the mean loss of the last quarter of the steps and how alike the encoder's outputs
    are then.
    """
    torch.manual_seed(seed)
    model = Transformer(config, prepared.tokenizer.vocab_size)
    initialise(model)
    accelerate(model.train(), torch.device("cpu"))
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    train = prepared.train
    plan = BatchPlan(
        train.src.lengths, train.tgt.lengths, tokens_per_step=tokens, parts=1, seed=seed
    )
    losses = []
    for step in range(steps):
        batch = collate(prepared.train, plan.micro_batch(step), step)
        torch.manual_seed(dropout_seed(seed, step))
        states = model.decode(batch.tgt_in, model.encode(batch.src, batch.src_mask), batch.src_mask)
        loss = output_cross_entropy(states, model.output, batch.tgt_out, 0.1) / batch.n_tokens
        loss.backward()
        adam.param_groups[0]["lr"] = peak * (step + 1) / steps
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
    return statistics.mean(losses[-max(steps // 4, 1) :]), alike(model.eval(), batch)


@torch.no_grad()
def alike(model: Transformer, batch: Batch) -> float:
    """The mean cosine of the encoder's outputs at two different positions of a sentence."""
    memory = F.normalize(model.encode(batch.src, batch.src_mask), dim=-1)
    real = batch.src_mask[:, 0, 0]
    pairs: Tensor = real[:, :, None] & real[:, None, :] & ~torch.eye(real.size(1), dtype=torch.bool)
    return float((memory @ memory.mT)[pairs].mean())


def main(arguments: list[str] | None = None) -> None:
    sizes = {
        "steps": 200,
        "seeds": [0, 1, 2],
        "peak": 0.0034,
        "vocab_size": 1000,
        "tokens": 1024,
        "threads": 1,
    }
    options = parse_options(__doc__, arguments, {"prefix": None}, src="en", tgt="de", **sizes)
    text = [f"data.{split}={options.prefix}" for split in ("train", "val", "test")]
    text += [
        f"data.src_lang={options.src}",
        f"data.tgt_lang={options.tgt}",
        f"data.vocab_size={options.vocab_size}",
    ]
    fixed = [
        "model=tiny",
        "optim=adam",
        "trainer=default",
        f"data.tokens_per_step={options.tokens}",
    ]
    config: Config = run_config(aiayn.compose("data=files", *text, *fixed))
    prepared, model = prepare_corpus(config.data), replace(config.model, dropout=0.1)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in INITIALISATIONS}
    for seed in options.seeds:
        for name, initialise in INITIALISATIONS.items():
            measured[name].append(
                train(
                    prepared, model, initialise, seed, options.steps, options.tokens, options.peak
                )
            )
            print(f"seed {seed}, {name}: loss {measured[name][-1][0]:.3f}", flush=True)
    rows = []
    for name, of_seeds in measured.items():
        losses, alikes = zip(*of_seeds, strict=True)
        by_seed = {
            f"loss, seed {seed}": loss for seed, loss in zip(options.seeds, losses, strict=True)
        }
        means = {"loss": statistics.mean(losses), "alike": statistics.mean(alikes)}
        rows.append({"initialisation": name} | means | by_seed)
    report("initialisation", rows, options.out)


if __name__ == "__main__":
    main()
