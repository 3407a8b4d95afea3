"""A test set from raw source to scores: what `evaluate.py` does."""

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiayn.checkpoint import Checkpoint, load, resolve
from aiayn.config import DataConfig, EvaluateConfig, SearchConfig, to_plain
from aiayn.data.corpus import parallel_files, read_lines, read_split
from aiayn.errors import DataError, RefusedError, ResourceError
from aiayn.evaluation.scoring import KINDS, Scores, paired_bootstrap, score
from aiayn.files import write_text
from aiayn.inference.translator import Translator

N_SAMPLES = 1000  # of the paired bootstrap


@dataclass(frozen=True)
class TestSet:
    """Untouched text; `name` is that of its results' folder, `option` what the command line calls it."""

    name: str
    option: str
    sources: list[str]
    references: list[str]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of sources and references."""
        return hashlib.sha256("\n".join([*self.sources, *self.references]).encode()).hexdigest()


@dataclass(frozen=True)
class Baseline:
    """Another run's translations of the same test set."""

    run: Path
    hypotheses: list[str]


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Translates raw source, scores the text, prints a table, and writes both into the run's folder.

    `RUN/evaluation/SPLIT/` gets `hypotheses.txt` and `evaluation.json`, whose content is returned. Raises RefusedError
    for a missing or damaged run, checkpoint or baseline, DataError for missing or misaligned text, ConfigError for a
    GPU that is not there, ResourceError where memory or disk do not suffice.
    """
    run = Path(config.run)
    path = resolve(run, config.checkpoint)
    checkpoint = load(path)
    test = _read_test_set(config, checkpoint.config.data)
    baseline = _read_baseline(Path(config.baseline), test) if config.baseline else None
    translator = Translator.from_checkpoint(checkpoint, config.search, config.accelerator)

    progress = Progress()
    hypotheses = translator.translate(test.sources, progress)
    seconds = progress.finish()
    scores = score(hypotheses, test.references, checkpoint.config.data.tgt_lang)
    result = _result(path, checkpoint, test, translator.search, scores) | {
        "seconds": round(seconds, 1),
        "device": translator.device.type,
    }
    if baseline:
        compared = paired_bootstrap(baseline.hypotheses, hypotheses, test.references, N_SAMPLES)
        result["baseline"] = {"run": str(baseline.run), "n_samples": N_SAMPLES, **compared}

    folder = _folder(run, test.name)
    _write(folder / "hypotheses.txt", "".join(f"{line}\n" for line in hypotheses))
    _write(folder / "evaluation.json", json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    print(table(result))
    print(f"\nwritten: {folder}/evaluation.json, hypotheses.txt")
    return result


def table(result: Mapping[str, Any]) -> str:
    """What was scored and how, then a line for every kind of score with its signature."""
    averaged = result["averaged"]
    weights = f"average of {len(averaged)} checkpoints" if averaged else "one checkpoint"
    search = result["search"]
    rows = [
        ("model", f"{result['checkpoint']}, step {result['step']}, {weights}"),
        ("text", f"{result['text']}, {result['src_lang']} -> {result['tgt_lang']}, {result['lines']} lines"),
        (
            "search",
            f"beam_size {search['beam_size']}, length_penalty {search['length_penalty']:g} ({search['penalty']}), "
            f"at most {search['max_extra_tokens']} tokens more than the source",
        ),
        ("time", f"{result['seconds']:.1f} s to translate on {result['device']}"),
        ("", ""),
    ]
    for kind in KINDS:
        value, signature = result["metrics"][kind], result["signatures"][kind]
        shown = "     -  does not apply to this language" if value is None else f"{value:6.2f}  {signature}"
        rows.append((kind, shown))
    if baseline := result.get("baseline"):
        samples = f"paired bootstrap of {baseline['n_samples']} samples"
        first, second = (
            f"{baseline[name]['mean']:.2f} +- {baseline[name]['ci']:.2f}" for name in ("baseline", "system")
        )
        rows += [
            ("", ""),
            ("baseline", f"{baseline['baseline']['score']:6.2f}  {baseline['run']} (sacrebleu)"),
            ("difference", f"{baseline['delta']:+6.2f}  p = {baseline['p_value']:.4f}, {samples}"),
            ("", f"        95 % intervals: {first} (baseline) and {second}"),
        ]
    return "\n".join(f"{name:<20} {text}".rstrip() for name, text in rows)


class Progress:
    """Lines done, rate and time left on stderr: a live line on a terminal, else a plain one every ten seconds."""

    EVERY = 10.0

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()
        self.live = sys.stderr.isatty()

    def __call__(self, done: int, lines: int) -> None:
        now = time.monotonic()
        if not self.live and now - self.last < self.EVERY:
            return
        self.last = now
        rate = done / max(now - self.start, 1e-9)
        left = timedelta(seconds=round((lines - done) / rate))
        text = f"translated {done} of {lines} lines  {rate:,.0f} lines/s  ETA {left}"
        # Erased to its end, since a shorter text may follow a longer one.
        print(f"\r{text}\x1b[K" if self.live else text, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def finish(self) -> float:
        """Leaves the live line. Returns the seconds since the start."""
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        return time.monotonic() - self.start


def _read_test_set(config: EvaluateConfig, data: DataConfig) -> TestSet:
    """The text of test=PREFIX, or of the run's own split."""
    if config.test is None:
        try:
            sources, references = read_split(data, config.split)
        except DataError as error:
            raise DataError(f"{error}; or name other text: test=PREFIX") from error
        return TestSet(config.split, f"split={config.split}", sources, references)
    [(src, tgt)] = parallel_files([config.test], data.src_lang, data.tgt_lang, "test")
    sources, references = read_lines(src), read_lines(tgt)
    if len(sources) != len(references) or not sources:
        raise DataError(
            f"test={config.test}: {src} has {len(sources)} lines and {tgt} has {len(references)}: line N of one must "
            "translate line N of the other (only LF ends a line)"
        )
    # No `=` in any path that is written: Hydra could not read it back.
    return TestSet(Path(config.test).name.replace("=", "-"), f"test={config.test}", sources, references)


def _read_baseline(run: Path, test: TestSet) -> Baseline:
    """The other run's hypotheses. Raises RefusedError unless they are translations of this very text."""
    folder = _folder(run, test.name)
    remedy = f"type: python evaluate.py run={run} {test.option}"
    try:
        text = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["text_sha256"]
        hypotheses = read_lines(folder / "hypotheses.txt")
    except (OSError, ValueError, KeyError, DataError) as error:
        raise RefusedError(f"baseline={run}: there are no scored translations in {folder}; {remedy}") from error
    if text != test.fingerprint or len(hypotheses) != len(test.references):
        raise RefusedError(
            f"baseline={run}: {folder}/hypotheses.txt translates another text ({len(hypotheses)} lines, here "
            f"{len(test.references)}); {remedy}"
        )
    return Baseline(run, hypotheses)


def _result(path: Path, checkpoint: Checkpoint, test: TestSet, search: SearchConfig, scores: Scores) -> dict[str, Any]:
    data = checkpoint.config.data
    return {
        "metrics": scores.metrics,
        "signature": scores.signature,
        "signatures": scores.signatures,
        "details": scores.details,
        "lines": scores.lines,
        "text": test.option,
        "text_sha256": test.fingerprint,
        "src_lang": data.src_lang,
        "tgt_lang": data.tgt_lang,
        "checkpoint": path.name,
        "step": checkpoint.step,
        "averaged": checkpoint.averaged,
        "search": to_plain(search),
    }


def _folder(run: Path, name: str) -> Path:
    return run / "evaluation" / name


def _write(path: Path, text: str) -> None:
    """Writes a file that is whole whenever it stands under its name. Raises ResourceError where that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written ({error.strerror}); make room there and run again") from error
