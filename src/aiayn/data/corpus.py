"""The prepared corpus on disk: ids in the order of the text, flat and memory-mapped, with the places of the sentences.

    data/en-de-0123456789abcdef/
        manifest.json      what shaped the corpus, sizes and SHA-256 of the other files
        tokenizer.json
        report.json        pairs read, kept and dropped
        train.src.bin      uint16 or uint32: ids of all sentences, without end marks
        train.src.npy      int64, (pairs + 1,): where each sentence begins, and the end of the last
        train.tgt.bin ...  the same for targets, and for val

A folder under its final name is complete.
"""

import hashlib
import json
import mmap
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import CleaningReport
from aiayn.data.encode import Ids, encode_split, id_type
from aiayn.data.held_out import Leakage
from aiayn.data.raw_text import RawText
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError
from aiayn.files import atomic_write_text, sha256

SPLITS = ("train", "val")
SMALL_FILE = 1 << 20  # bytes; such files are read at every start


@dataclass(frozen=True, eq=False)
class Sentences:
    """The ids of one side of a split."""

    flat: np.ndarray  # (tokens,) uint16 or uint32
    starts: np.ndarray  # (sentences + 1,) int64

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        return self.flat[self.starts[number] : self.starts[number + 1]]

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of every sentence with its end mark, (sentences,) int32."""
        return np.diff(self.starts).astype(np.int32) + 1

    @classmethod
    def of(cls, rows: list[list[int]]) -> "Sentences":
        """Returns sentences that are in no file."""
        starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(rows), np.uint32, starts[-1]), starts)

    @classmethod
    def open(cls, folder: Path, name: str) -> "Sentences":
        """Maps the files of a side, such as train.src. Raises ValueError if they do not belong together."""
        starts = np.load(folder / f"{name}.npy", mmap_mode="r")
        path, tokens = folder / f"{name}.bin", int(starts[-1])
        with open(path, "rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_WILLNEED"):
            mapping.madvise(mmap.MADV_WILLNEED)  # pairs are read from all over the file
        width, rest = divmod(len(mapping), tokens)
        if rest or width not in (2, 4):
            raise ValueError(f"{name}.bin does not hold {tokens} ids")
        return cls(np.frombuffer(mapping, f"<u{width}"), starts)


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """The ids of one split's pairs, in the order of the text."""

    folder: Path
    name: str
    src: Sentences
    tgt: Sentences

    @classmethod
    def open(cls, folder: Path, name: str) -> "PreparedSplit":
        src, tgt = (Sentences.open(folder, f"{name}.{side}") for side in ("src", "tgt"))
        if len(src) != len(tgt):
            raise ValueError(f"{name} has {len(src)} sources and {len(tgt)} targets")
        return cls(folder, name, src, tgt)

    def __reduce__(self):
        # Worker processes map the files themselves instead of receiving copies.
        return PreparedSplit.open, (self.folder, self.name)

    def __len__(self) -> int:
        return len(self.src)

    def pair(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of the source and of the target of a pair."""
        return self.src[number], self.tgt[number]


@dataclass(frozen=True, eq=False)
class PreparedCorpus:
    """Training and validation split, and the tokenizer that their ids belong to."""

    folder: Path
    fingerprint: str  # SHA-256 of everything that shaped the corpus
    tokenizer: Tokenizer
    train: PreparedSplit
    val: PreparedSplit
    report: dict[str, Any]  # pairs read, kept and dropped, by split

    @classmethod
    def open(cls, folder: Path) -> "PreparedCorpus":
        return cls(
            folder=folder,
            fingerprint=json.loads((folder / "manifest.json").read_text("utf-8"))["fingerprint"],
            tokenizer=Tokenizer.from_json((folder / "tokenizer.json").read_text("utf-8")),
            train=PreparedSplit.open(folder, "train"),
            val=PreparedSplit.open(folder, "val"),
            report=json.loads((folder / "report.json").read_text("utf-8")),
        )

    def __reduce__(self):
        return PreparedCorpus.open, (self.folder,)

    def repetitions(self, temperature: float, weights: list[float] | None = None) -> np.ndarray | None:
        """How often an epoch has each training pair on average, (pairs,); None: every pair once.

        The weight of its file, or so often that file f has p_f ^ (1 / T) of the epoch, and the largest file each pair
        once. Raises DataError for text of one file.
        """
        if temperature == 1 and weights is None:
            return None
        pairs = np.array(self.report["train"].get("corpora", []))
        if len(pairs) < 2 or len(weights or pairs) != len(pairs):
            option = f"data.temperature={temperature:g}" if weights is None else f"data.weights={weights}"
            raise DataError(
                f"{option}: it mixes several files of data.train, and {self.folder} has pairs of {len(pairs) or 1} or "
                "is of an older version: name files with usable pairs, remove that folder, or leave the option out"
            )
        return np.repeat(weights or (pairs.max() / pairs) ** (1 - 1 / temperature), pairs)


class SplitWriter:
    """Writes a split, some pairs at a time."""

    def __init__(self, folder: Path, name: str, tokenizer: Tokenizer):
        self._type = id_type(tokenizer)
        self._sides = {side: folder / f"{name}.{side}" for side in ("src", "tgt")}
        self._files = {side: open(f"{path}.bin", "wb") for side, path in self._sides.items()}  # noqa: SIM115
        self._lengths: dict[str, list[np.ndarray]] = {side: [] for side in self._sides}

    def add(self, src: Ids, tgt: Ids) -> None:
        for side, ids in (("src", src), ("tgt", tgt)):
            self._files[side].write(ids.flat.astype(self._type, copy=False).data)
            self._lengths[side].append(ids.lengths)

    def close(self) -> dict[str, int]:
        """Returns the tokens of each side."""
        tokens = {}
        for side, path in self._sides.items():
            self._files[side].close()
            starts = np.cumsum(np.concatenate([[0], *self._lengths[side]]), dtype=np.int64)
            np.save(f"{path}.npy", starts)
            tokens[f"{side}_tokens"] = int(starts[-1])
        return tokens


def store_split(
    split: str, config: DataConfig, text: RawText, tokenizer: Tokenizer, leakage: Leakage, folder: Path
) -> dict[str, Any]:
    """Writes a split. Returns what the report says of it. Raises DataError if hardly any of its text is usable."""
    report, writer = CleaningReport(), SplitWriter(folder, split, tokenizer)
    for src, tgt in encode_split(split, config, text, tokenizer, report, leakage):
        writer.add(src, tgt)
    report.check(text, config)
    return report.as_dict() | writer.close()


def fingerprint(settings: dict[str, Any]) -> str:
    """Returns the SHA-256 of everything that shapes a corpus, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def corpus_folder(config: DataConfig, fingerprint: str) -> Path:
    """Returns the folder of the prepared corpus with this fingerprint, existing or not."""
    return Path(config.folder).expanduser() / f"{config.src_lang}-{config.tgt_lang}-{fingerprint[:16]}"


def write_manifest(folder: Path, settings: dict[str, Any]) -> None:
    """Writes what shaped the corpus, and sizes and checksums of its files."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
        if path.name != "dropped.jsonl"
    }
    manifest = {"fingerprint": fingerprint(settings), "settings": settings, "files": files}
    atomic_write_text(folder / "manifest.json", json.dumps(manifest, indent=2))


def find_damage(folder: Path, scans: FileScans) -> str | None:
    """Returns why this is not a complete prepared corpus, or None if it is one.

    Large files are read the first time only: `scans` remembers them.
    """
    name = "manifest.json"
    try:
        manifest = json.loads((folder / name).read_text("utf-8"))
        for name, expected in manifest["files"].items():
            size = (folder / name).stat().st_size
            if size != expected["size"]:
                return f"{name} has {size} bytes, not {expected['size']}"
            if scans.sha256(folder / name, anew=size <= SMALL_FILE) != expected["sha256"]:
                return f"{name} has other content"
        if manifest["fingerprint"] != fingerprint(manifest["settings"]) or not folder.name.endswith(
            f"-{manifest['fingerprint'][:16]}"
        ):
            return "manifest.json is that of another corpus"
        PreparedCorpus.open(folder)
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError:
        raise
    except Exception as error:  # whatever json, numpy and the tokenizer raise on malformed content
        return f"{name} or what it belongs to is unreadable: {error!s:.200}"
    return None
