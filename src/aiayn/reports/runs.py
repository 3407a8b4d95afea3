"""What the folder of a run tells about it, finished or not, whole or broken."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from aiayn.config import program
from aiayn.config.options import stored_config
from aiayn.config.schema import Config
from aiayn.errors import ConfigError, RefusedError
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.run_folder import RunFolder, is_count, is_of_split, read_json, runs_within, saved_steps, series


@dataclass
class MeasuredRun:
    """What was measured of a run; None where it was not, and `notes` names what is missing or cannot be read."""

    folder: RunFolder
    config: Config
    step: int
    parameters: int
    flops: float  # of training so far
    flops_exact: bool  # counted over the corpus; else as if all steps were full
    ppl: float | None = None  # of the validation set: unsmoothed, per subword
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)  # split: its evaluation.json
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.folder.path)


def find_runs(folders: list[Path]) -> list[RunFolder]:
    """Returns every run among these folders and within them once. Raises RefusedError for a folder without any."""
    found: dict[Path, RunFolder] = {}
    for folder in folders:
        runs = list(runs_within(folder))
        if not runs:
            raise RefusedError(f"{folder}: neither a run nor a folder of runs (no checkpoints/ and no config.yaml)")
        found |= {run.path: run for run in runs}
    return list(found.values())


def read_run(folder: RunFolder) -> MeasuredRun:
    """Reads the run's small files; no checkpoint is opened. Raises RefusedError without a readable config.yaml."""
    try:
        config = stored_config(folder.read_config())
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        raise RefusedError(f"{folder.config}: {error}; it was written by another version of this program") from error
    records = folder.read_metrics()
    measured = max((record["step"] for record in records), default=0)
    step = max(saved_steps(folder.checkpoints), default=measured)
    vocab_size = config.data.vocab_size
    flops, exact = _flops(config, step, read_json(folder.corpus))
    run = MeasuredRun(folder, config, step, n_parameters(config.model, vocab_size), flops, exact)
    if step < config.trainer.max_steps:
        run.notes.append(f"unfinished: step {step:,} of {config.trainer.max_steps:,}")
    _read_perplexity(run, series(records, "val/ppl"))
    for split in ("val", "test") if config.data.task == "translation" else ("test",):
        _read_evaluation(run, split)
    return run


def _read_perplexity(run: MeasuredRun, measured: list[tuple[int, float]]) -> None:
    if not measured:
        run.notes.append("no perplexity in metrics.jsonl")
        return
    step, run.ppl = measured[-1]
    if step != run.step:
        run.notes.append(f"the perplexity is that of step {step:,}")


def _read_evaluation(run: MeasuredRun, split: str) -> None:
    path = run.folder.evaluation(split).scores
    command = f"{program.typed('evaluate')} run={run.name} split={split}" + (
        " checkpoint=last" if split == "val" else ""
    )
    if not path.exists():
        if split == "val":  # a sweep scores nothing else
            run.notes.append(f"not scored on {split}: {command}")
        return
    result = run.folder.read_evaluations().get(split)
    if result is None:
        run.notes.append(f"{path}: damaged; score again: {command}")
    elif not is_of_split(result, split) and getattr(run.config.data, split) is not None:
        run.notes.append(f"{path} has the scores of other text ({result['text']}): {command}")
    elif split == "val" and result.get("averaged"):
        run.notes.append(f"{split} was scored with averaged weights, Table 3 has one checkpoint's: {command}")
    else:
        if result["step"] != run.step:
            run.notes.append(f"{split} was scored at step {result['step']:,}, the run is at {run.step:,}: {command}")
        run.evaluations[split] = result


def _flops(config: Config, step: int, corpus: dict[str, Any]) -> tuple[float, bool]:
    """Returns the FLOPs of `step` training steps, and whether they were counted over the training pairs."""
    model, vocab_size = config.model, config.data.vocab_size
    try:
        src, tgt = (tuple(corpus["lengths"][side]) for side in ("src", "tgt"))
        epoch = sum(n * training_flops(model, vocab_size, s, t) for (s, t), n in _pair_lengths(src, tgt).items())
        return float(epoch) * step / corpus["steps_per_epoch"], True
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        # Without the lengths of sentences no scores of attention: they add less than 1 % to a base model.
        return float(config.data.tokens_per_step * step * training_flops(model, vocab_size, 1, 1)), False


@cache
def _pair_lengths(src: tuple[int, ...], tgt: tuple[int, ...]) -> Counter[tuple[int, int]]:
    """Pairs by source and target tokens, end marks included, from sentences of 0, 1, 2, ... subwords on each side.

    The n-th shortest source is taken for the one of the n-th shortest target. Which of them belong together matters to
    the scores of cross-attention only, a term of about 0.1 %.
    """
    if not all(map(is_count, (*src, *tgt))):
        raise ValueError("corpus.json: lengths that are no counts")
    sides = (chain.from_iterable(repeat(n, count) for n, count in enumerate(counts, 1)) for counts in (src, tgt))
    return Counter(zip(*sides, strict=True))
