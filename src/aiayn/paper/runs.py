"""What the folder of a run says about it, finished or not, whole or broken."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from aiayn.checkpoints import load
from aiayn.config import Config
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedSplit, corpus_folder
from aiayn.errors import ConfigError, RefusedError, UserError
from aiayn.model.flops import n_parameters, training_flops
from aiayn.options import from_plain
from aiayn.run_folder import read_jsonl


@dataclass
class Run:
    """What was measured of a run; None where it was not, and `notes` says what is missing or cannot be read."""

    folder: Path
    config: Config
    step: int
    vocab_size: int
    parameters: int
    flops: float  # of training so far
    flops_exact: bool  # counted over the corpus; else as if all steps were full
    ppl: float | None = None  # of the validation set: unsmoothed, per subword
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)  # split: its evaluation.json
    notes: list[str] = field(default_factory=list)


def find_runs(folders: list[Path]) -> list[Path]:
    """Every run among these folders and within them, each once. Raises RefusedError for a folder without any."""
    found: dict[Path, None] = {}
    for folder in folders:
        runs = list(_runs_within(folder))
        if not runs:
            raise RefusedError(f"{folder}: neither a run nor a folder of runs (no checkpoints/ and no config.yaml)")
        found |= dict.fromkeys(runs)
    return list(found)


def _runs_within(folder: Path) -> Iterator[Path]:
    # Loggers keep folders with a config.yaml of their own inside a run: the search ends at a run.
    if (folder / "checkpoints").is_dir() or (folder / "config.yaml").is_file():
        yield folder
    elif folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                yield from _runs_within(inner)


def read_run(folder: Path) -> Run:
    """Reads what there is. Raises RefusedError where neither its last checkpoint nor its config.yaml can be read."""
    notes: list[str] = []
    try:
        checkpoint = load(folder / "checkpoints" / "last.ckpt")
        config = checkpoint.config
    except UserError as error:
        checkpoint, config = None, _stored_config(folder, error)
        notes.append(f"{error}; step and vocabulary are those of metrics.jsonl and config.yaml")
    records = _records(folder / "metrics.jsonl")
    step = checkpoint.step if checkpoint else int(max((record["step"] for record in records), default=0))
    vocab_size = checkpoint.vocab_size if checkpoint else config.data.vocab_size
    flops, exact = _flops(config, vocab_size, step, checkpoint.corpus if checkpoint else None)
    run = Run(folder, config, step, vocab_size, n_parameters(config.model, vocab_size), flops, exact, notes=notes)
    if step < config.trainer.max_steps:
        notes.append(f"unfinished: step {step:,} of {config.trainer.max_steps:,}")
    _read_perplexity(run, records)
    for split in ("val", "test"):
        _read_evaluation(run, split)
    return run


def _stored_config(folder: Path, flaw: UserError) -> Config:
    """The config.yaml of a run whose checkpoint has a flaw."""
    try:
        return from_plain(Config, yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    except (OSError, ValueError, ConfigError, TypeError, AttributeError, yaml.YAMLError) as error:
        reason = str(error).split("\n")[0]
        raise RefusedError(f"{flaw}; config.yaml does not tell what it was either ({reason})") from error


def _records(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl that have a step."""
    records = read_jsonl(path)
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("step"), int)]


def _read_perplexity(run: Run, records: list[dict[str, Any]]) -> None:
    measured = [record for record in records if _is_number(record.get("val/ppl"))]
    if not measured:
        run.notes.append("no perplexity in metrics.jsonl")
        return
    run.ppl = measured[-1]["val/ppl"]
    if measured[-1]["step"] != run.step:
        run.notes.append(f"the perplexity is that of step {measured[-1]['step']:,}")


def _read_evaluation(run: Run, split: str) -> None:
    path = run.folder / "evaluation" / split / "evaluation.json"
    command = f"python evaluate.py run={run.folder} split={split}" + (" checkpoint=last" if split == "val" else "")
    if not path.exists():
        if split == "val":  # a sweep scores nothing else
            run.notes.append(f"not scored on {split}: {command}")
        return
    try:
        result = json.loads(path.read_bytes())
        # What is read here must be there.
        usable = all(isinstance(result[key], kind) for key, kind in (("metrics", dict), ("step", int), ("lines", int)))
        usable = usable and all(value is None or _is_number(value) for value in result["metrics"].values())
    except (OSError, ValueError, KeyError, TypeError):
        usable = False
    if not usable:
        run.notes.append(f"{path}: damaged; score again: {command}")
        return
    if split == "val" and result.get("averaged"):
        run.notes.append(f"{split} was scored with averaged weights, Table 3 has one checkpoint's: {command}")
        return
    if result["step"] != run.step:
        run.notes.append(f"{split} was scored at step {result['step']:,}, the run is at {run.step:,}: {command}")
    run.evaluations[split] = result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _flops(config: Config, vocab_size: int, step: int, corpus: str | None) -> tuple[float, bool]:
    """FLOPs of `step` training steps, and whether they were counted over the very pairs of the prepared corpus."""
    data = config.data
    if corpus:
        try:
            src, tgt, steps_per_epoch = _corpus(corpus_folder(data, corpus), data.tokens_per_step)
        except (OSError, ValueError, ZeroDivisionError, AssertionError):
            pass  # moved away or removed; it is no part of a run
        else:
            epoch = training_flops(config.model, vocab_size, src, tgt).sum()
            return float(epoch) * step / steps_per_epoch, True
    # Without the lengths of sentences no scores of attention: they add less than 1 % to a base model.
    return float(data.tokens_per_step * step * training_flops(config.model, vocab_size, 1, 1)), False


@cache
def _corpus(folder: Path, tokens_per_step: int) -> tuple[Any, Any, int]:
    """Lengths of all pairs, end marks counted, (n,) float64 each, and the steps of an epoch."""
    split = PreparedSplit.open(folder, "train")
    src, tgt = split.src_lengths + 1, split.tgt_lengths + 1
    steps = BatchPlan(src, tgt, tokens_per_step=tokens_per_step, seed=0, micro_batches=1).steps_per_epoch
    return src.astype(float), tgt.astype(float), steps
