"""Where translations are written: to standard output, or into shards, from which an interrupted command resumes."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from aiayn.cli.output import as_bytes, write_lines
from aiayn.errors import ConfigError, RefusedError, writing
from aiayn.files import atomic_file, atomic_write, atomic_write_text

REMEDY = "make room; the same command goes on after the last complete shard"


class StandardOutput:
    """Translations are written as they come."""

    def has(self, number: int) -> bool:
        """Whether chunk `number` was translated by an earlier command."""
        return False

    def write(self, number: int, lines: Iterable[str]) -> None:
        """Writes the translations of chunk `number`."""
        write_lines(lines)


class Shards(StandardOutput):
    """A folder beside the output: a file per chunk, named by number and checksum, and made-by.json with the options."""

    def __init__(self, out: Path, made_by: dict[str, Any], writes: bool):
        """`made_by`: everything that the translations depend on. With several ranks only one `writes`; all skip the
        same chunks, because a chunk is written only after all ranks have translated their share.
        """
        self.out, self.made_by, self.writes = out, made_by, writes
        self.folder = out.with_name(f"{out.name}.shards")
        self.options = self.folder / "made-by.json"
        self.files: list[Path] = []

    def has(self, number: int) -> bool:
        return number < len(self.files)

    def write(self, number: int, lines: Iterable[str]) -> None:
        assert number == len(self.files)
        text = as_bytes(lines)
        self.files.append(self.folder / _name(number, text))
        if self.writes:
            with writing(self.folder, REMEDY):
                atomic_write(self.files[-1], text)

    def open(self) -> None:
        """Finds the complete shards. Raises RefusedError if they were made from other text, or in another way."""
        shards = sorted(path for path in self.folder.glob("*.*") if path.name[:6].isdigit())
        for path in shards:
            if path.name != _name(len(self.files), path.read_bytes()):
                break  # damaged: it is translated again, with all after it
            self.files.append(path)
        if self.files:
            self._refuse_others()
        elif self.writes:
            atomic_write_text(self.options, json.dumps(self.made_by, indent=1))
        if self.writes:
            for path in shards[len(self.files) :]:
                path.unlink()

    def _refuse_others(self) -> None:
        before: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            before = json.loads(self.options.read_text(encoding="utf-8"))
        now = json.loads(json.dumps(self.made_by))
        differing = [name for name in now if before.get(name) != now[name]]
        if differing:
            # If one of these differs, the others follow from it.
            known = [name for name in ("model", "text", "program") if name in differing]
            told = ", ".join(f"another {name}" for name in known) or ", ".join(
                f"{name} {before.get(name)} instead of {now[name]}" for name in differing
            )
            raise RefusedError(
                f"{self.folder}: an unfinished translation with {told}; repeat that command, or remove this folder to "
                "begin anew"
            )

    def finish(self) -> None:
        """Joins the shards to the output, and removes them."""
        with writing(self.out, REMEDY), atomic_file(self.out) as joined:
            for path in self.files:
                with open(path, "rb") as shard:
                    shutil.copyfileobj(shard, joined)
        shutil.rmtree(self.folder)


def _name(number: int, text: bytes) -> str:
    """The file name of a complete shard."""
    return f"{number:06}.{hashlib.sha256(text).hexdigest()[:32]}"


@contextmanager
def output_to(out: Path | None, made_by: dict[str, Any], devices: int = 1) -> Iterator[StandardOutput]:
    """Yields standard output or, for a file, its shards; they are joined at the end, unless the context raises.

    Raises RefusedError for shards of another command, ConfigError for those of one that is still running, ResourceError
    where they cannot be written.
    """
    if out is None:
        yield StandardOutput()
        return
    shards = Shards(out, made_by, writes=devices == 1 or _is_first_rank())
    if not shards.writes:
        shards.open()
        yield shards
        return
    with writing(shards.folder):
        shards.folder.mkdir(exist_ok=True)
    with open(shards.folder / "lock", "w") as lock:
        try:
            is_free = lock_descriptor(lock.fileno(), blocking=False)
        except OSError:
            is_free = True  # a file system without locks
        if not is_free:
            raise ConfigError(f"{shards.folder}: another command writes to it; wait, or choose another --out")
        _refuse_existing(out)  # another command may have ended in between
        with writing(shards.folder, REMEDY):
            shards.open()
        if shards.files:
            print(f"{shards.folder}: goes on after {len(shards.files)} complete shards", file=sys.stderr)
        try:
            yield shards
        except KeyboardInterrupt:
            print(f"{shards.folder}: {len(shards.files)} shards are kept; the same command goes on", file=sys.stderr)
            raise
        shards.finish()


def _is_first_rank() -> bool:
    from aiayn.training.distributed.rank import global_rank  # with Lightning, which several devices need anyway

    return global_rank() == 0


def check_output(out: Path | None, file: Path | None) -> None:
    """Raises ConfigError or RefusedError for an output that would not be safe, before anything is loaded."""
    if out is None:
        return
    if file is None or not file.is_file():
        raise ConfigError(f"--out {out}: needs a FILE that can be read again; leave out --out to translate a stream")
    _refuse_existing(out)
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}; make it")


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise RefusedError(f"--out {out}: exists; remove it to translate again, or choose another file")
