"""What a run's folder holds: all file names, readers and writers (docs/run-folder.md lists the
files).

Readers skip what a kill or another program left unreadable, so that reports and tables can still be
made.
"""

import errno
import json
import logging
import os
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeGuard, cast

from aiayn.config.extensions import (
    STORED,
    constraining,
    file_names,
    is_importable,
    load_extensions,
)
from aiayn.config.rules import MAX_COUNT
from aiayn.errors import ConfigError, RefusedError
from aiayn.files import atomic_write, jsonl_line, open_regular, read_regular

if TYPE_CHECKING:
    from aiayn.config.schema import Config

log = logging.getLogger(__name__)

Record = dict[str, Any]

# Stands in a run's option `given` for what has no description: nobody can say whether another run
# has the same.
UNKNOWN = "<unknown>"

# Bytes of what is read whole: of config.yaml and other small files, and of metrics.jsonl and other
# files of lines. A million steps, each of them logged, take 130 MB of metrics.
MAX_CONFIG, MAX_JSON, MAX_LINES = 10_000_000, 16_000_000, 1_000_000_000

# The checksum at the end of a checkpoint file, in its zip comment: SHA-256 of the bytes before it.
CHECKSUM_PREFIX = b"sha256:"
CHECKSUM_SIZE = len(CHECKSUM_PREFIX) + 64


class EvaluationFolder:
    """`RUN/evaluation/NAME/`: what `evaluate.py` wrote for one test set."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.scores = folder / "evaluation.json"
        self.hypotheses = folder / "hypotheses.txt"
        self.source = folder / "source.txt"
        self.reference = folder / "reference.txt"  # the first of several
        self.samples = folder / "samples.jsonl"


class RunFolder:
    """`outputs/NAME`."""

    def __init__(self, path: Path):
        self.path = path
        # For continuing and translating.
        self.config = path / "config.yaml"
        # step_N.ckpt, step_N.optim and the next three: checkpoint_folder.py
        self.checkpoints = path / "checkpoints"
        self.averaged = self.checkpoints / "averaged.ckpt"
        # The average's metrics, and whether best.ckpt is better
        self.validated = path / "averaged.json"
        self.best = self.checkpoints / "best.ckpt"
        self.last = self.checkpoints / "last.ckpt"
        # Of a training that ended before `max_steps`: step, reason, and its limits
        self.end = path / "end.json"
        self.lock = path / ".lock"
        self.owner = path / ".owner"
        self.extensions = path / "extensions"  # copies of the files that `extensions` names
        self.wandb_id = path / "wandb" / "run_id"
        # Measurements.
        # one JSON object per line: {"step": 100, "train/loss": 4.2, ...}
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.jsonl"  # validation sentences with their translations
        self.corpus = path / "corpus.json"
        self.machine = path / "machine.json"
        # For people.
        self.report = path / "report.html"
        self.attention_picture = path / "attention.png"
        self.attention = path / "attention"  # the folder that `aiayn attention` writes into

    def non_finite_pairs(self, step: int) -> Path:
        """Returns the file of the sentences of a step with a NaN or infinite loss or gradient."""
        return self.path / f"not_finite_at_step_{step}.tsv"

    def evaluation(self, name: str) -> EvaluationFolder:
        return EvaluationFolder(self.path / "evaluation" / name)

    def default_checkpoint(self) -> str:
        """Returns which checkpoint is used if none is named: averaged, best if that validates
        better, else last.
        """
        if not self.averaged.exists():
            return "last"
        is_worse = read_json(self.validated).get("worse") is True
        return "best" if is_worse and self.best.exists() else "averaged"

    def exists(self) -> bool:
        return self.checkpoints.is_dir() or self.config.is_file()

    def write_config(self, config: "Config") -> None:
        """Writes config.yaml, and signs the text that it names as this user's."""
        import yaml

        from aiayn.config.stored import to_dict
        from aiayn.runs.owner import signatures

        atomic_write(
            self.config, yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        )
        # Without a home the paths stay unsigned, and `evaluate.py` asks for test=
        with suppress(OSError):
            atomic_write(self.owner, "\n".join(signatures(self.path, config.data)))

    def read_config(self) -> Record:
        """Returns config.yaml as stored. Raises RefusedError if it is missing or not the
        configuration of a run, or too large for one.
        """
        import yaml

        try:
            # libyaml, where it is installed, is ten times faster: a sweep has hundreds of files.
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            config = loader(_read_limited(self.config, MAX_CONFIG).decode()).get_single_data()
            config["trainer"]["max_steps"]
            config["data"]["src_lang"]
            config["data"]["tgt_lang"]
        except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError, RecursionError) as error:
            raise RefusedError(
                f"{self.config}: not the configuration of a run; restore it, or train again"
            ) from error
        return config

    def store_sources(self, sources: Mapping[str, bytes]) -> None:
        """Copies the files of the user's code, by their paths below their import roots, into the
        run.
        """
        for name, content in sources.items():
            atomic_write(self.extensions / name, content)

    def read_metrics(self) -> list[Record]:
        """Returns the lines of metrics.jsonl that have a step."""
        return [record for record in read_jsonl(self.metrics) if is_count(record.get("step"))]


def saved_steps(folder: Path) -> list[int]:
    """Returns the steps of the checkpoints in a folder by the names of their files, oldest
    first.
    """
    numbers = (path.stem.removeprefix("step_") for path in folder.glob("step_*.ckpt"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def find_checkpoint(run: Path, checkpoint: str | None) -> Path:
    """Returns the file of `averaged`, `best`, `last` or a path; for None that of
    `RunFolder.default_checkpoint`.

    `run` may be a checkpoint file itself. Raises ConfigError if there is no such run, RefusedError
    if it has no such checkpoint or the file is something else.
    """
    folder, path = RunFolder(run), run
    if run.is_file():
        if checkpoint is not None:
            raise RefusedError(
                f"{run}: is one checkpoint; leave out checkpoint={checkpoint}, or name the run's "
                "folder"
            )
    elif not folder.exists():
        remedy = similar_run(run) or "; name a run's folder, such as outputs/quickstart"
        raise ConfigError(f"{run}: neither a run (no checkpoints/) nor a checkpoint{remedy}")
    else:
        name = checkpoint or folder.default_checkpoint()
        is_named = name in ("averaged", "best", "last")
        path = folder.checkpoints / f"{name}.ckpt" if is_named else Path(name)
        if path.name == name and not path.is_file():  # as it is called in that folder
            path = folder.checkpoints / name
        if not path.is_file():
            if any(folder.checkpoints.glob("*.ckpt")):
                raise RefusedError(f"{path}: no such checkpoint{_saved_checkpoints(folder)}")
            raise RefusedError(
                f"{run}: this run has no checkpoint yet; repeat the command that trains it, "
                "or name another run"
            )
    try:
        with open_regular(path) as file:
            is_archive = zipfile.is_zipfile(file)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from error
    if not is_archive:
        raise RefusedError(
            f"{path}: damaged or not a checkpoint of this program (no archive); choose another"
        )
    return path


def similar_run(run: Path, *, of_folders: bool = False) -> str:
    """Returns the question whether the run or model with the most similar name is meant, beside it
    or in `outputs`; empty if there is none. With `of_folders`, folders of runs count, too, and
    files do not.
    """
    import difflib

    by_name: dict[str, Path] = {}
    for parent in (Path("outputs"), run.parent):
        for level in range(3 if of_folders else 1):
            folders = (
                path.parents[level] for path in parent.glob("*/" * (level + 1) + "checkpoints")
            )
            by_name |= {folder.name: folder for folder in folders}
        for suffix in () if of_folders else (".ckpt", ".aiayn"):
            by_name |= {file.name: file for file in parent.glob(f"*{suffix}")}
    near = difflib.get_close_matches(run.name, by_name, n=1)
    return f"; did you mean {by_name[near[0]]}?" if near else ""


def _saved_checkpoints(folder: RunFolder) -> str:
    """Returns what a run has instead of a checkpoint that it lacks."""
    names = {file.stem for file in folder.checkpoints.glob("*.ckpt")}
    roles = [role for role in ("averaged", "best", "last") if role in names]
    return f"; choose {' or '.join([*roles, f'a file in {folder.checkpoints}'])}"


def find_checkpoints(
    run: Path | str, others: Sequence[Path | str], checkpoint: str | None
) -> list[Path]:
    """Returns the checkpoint files of a run and of those that translate with it, the run's own
    first.

    Raises ConfigError if one file is named for several runs, and what `find_checkpoint` raises.
    """
    if others and checkpoint not in (None, "averaged", "best", "last"):
        raise ConfigError(
            f"checkpoint={checkpoint}: with several runs, choose averaged, best or last instead "
            "of a file"
        )
    return [find_checkpoint(Path(folder), checkpoint) for folder in (run, *others)]


def read_checksum(checkpoint: Path) -> str:
    """Returns the digits of a file's checksum; "" without one, as in a checkpoint of Lightning's
    own.
    """
    with open_regular(checkpoint) as file:
        return checksum_at_end(file)


def checksum_at_end(file: BinaryIO) -> str:
    """Returns what `read_checksum` does for an open file: another one may have its name by now."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - CHECKSUM_SIZE))
    checksum = re.fullmatch(CHECKSUM_PREFIX + b"([0-9a-f]{64})", file.read())
    return checksum[1].decode() if checksum else ""


def folder_of(run: Path) -> Path:
    """Returns where measurements of RUN go: its folder; for a checkpoint file that of its run, or
    else its own.
    """
    if not run.is_file():
        return run
    return run.parent.parent if run.parent.name == "checkpoints" else run.parent


def with_stored(paths: Sequence[str] | None, run: Path) -> list[str]:
    """Returns the paths of extensions, with the run's own copies in the place of `stored`.

    Warns of files that this run does not use. Raises RefusedError if the run holds no copies.
    """
    if not paths:
        return []
    folder, files = RunFolder(folder_of(run)), [path for path in paths if path != STORED]
    stored: Record = {}
    with suppress(RefusedError):  # a checkpoint by itself
        stored = folder.read_config()
    if STORED in paths:
        names = [Path(name).name for name in stored.get("extensions", [])]
        parts = file_names(stored.get("model", {}).get("parts"))
        names += [name.partition("#")[0] for name in parts if is_importable(name)]
        copies = [folder.extensions / name for name in dict.fromkeys(names)]
        if not copies or not all(copy.is_file() for copy in copies):
            raise RefusedError(
                f"extension {STORED}: {folder.extensions} holds no copies of this run's "
                "extensions; name the file instead"
            )
        files += map(str, copies)
    # What is stored is FILE:SHA-256, or FILE#CLASS:SHA-256
    trained_with = {re.split("[:#]", file_id)[0] for file_id in stored.get("extensions_sha256", [])}
    for extension in load_extensions(files) if stored else ():
        brings = hasattr(extension.module, "METRICS") or constraining([extension])
        if extension.path.name not in trained_with and not brings:
            log.warning(
                "warning  extension %s: not used; the run was trained without it, and it defines "
                "neither METRICS nor a constraint",
                extension.path,
            )
    return files


def is_number(value: Any) -> TypeGuard[float]:
    """Returns True for an int or float that is neither NaN nor infinite, nor too large for a
    float.
    """
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )


def is_count(value: Any) -> TypeGuard[int]:
    """Returns True for an int that can be a number of steps or lines."""
    return type(value) is int and 0 <= value <= MAX_COUNT


def read_json(path: Path) -> Record:
    """Returns a JSON object; empty if the file is missing, damaged or holds something else. Raises
    RefusedError if it is too large.
    """
    try:
        parsed = json.loads(_read_limited(path, MAX_JSON).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _read_limited(path: Path, most: int) -> bytes:
    """Returns what `read_regular` does. Raises RefusedError for a file that is too large."""
    try:
        return read_regular(path, most)
    except OSError as error:
        if error.errno == errno.EOVERFLOW:
            raise RefusedError(f"{path}: {error.strerror}; replace it or move it away") from error
        raise


def read_jsonl(path: Path) -> list[Record]:
    """Returns the objects of a .jsonl file in order; none if there is no file. Damaged lines are
    skipped. Raises RefusedError if it is too large.
    """
    try:
        text = _read_limited(path, MAX_LINES).decode(errors="replace")
    except OSError:
        return []
    records = []
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def write_jsonl(path: Path, records: list[Record]) -> None:
    atomic_write(path, "".join(map(jsonl_line, records)))


def append_jsonl(path: Path, records: list[Record]) -> None:
    with open_unlinked(path, "a") as file:
        file.write("".join(map(jsonl_line, records)))


def open_unlinked(path: Path, mode: str) -> TextIO:
    """Opens a text file of a run to write into; one that other folders share by a hard link is
    copied before. Raises what `refuse_link` raises.
    """
    refuse_link(path)
    if path.exists() and path.stat().st_nlink > 1:
        atomic_write(path, path.read_bytes())
    return cast(TextIO, open(path, mode, encoding="utf-8"))


def refuse_link(path: Path) -> None:
    """Raises RefusedError for a symbolic link inside a run, which may lead anywhere, and for a pipe
    or a device, in which what is written is lost.
    """
    if path.is_symlink():
        raise RefusedError(
            f"{path}: is a symbolic link, which is not supported here; remove it, or replace it "
            "with its target"
        )
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RefusedError(f"{path}: is a pipe or a device, not a file; remove it")


def drop_records_after(path: Path, step: int) -> None:
    """Drops the records of later steps: a run that resumes at `step` will write them again."""
    records = [record for record in read_jsonl(path) if is_count(record.get("step"))]
    write_jsonl(path, [record for record in records if record["step"] <= step])


def series(records: list[Record], key: str) -> list[tuple[float, float]]:
    """Returns (step, value) of every record that has the key, with a finite number."""
    return [
        (record["step"], record[key])
        for record in records
        if key in record and is_count(record.get("step")) and is_number(record[key])
    ]
