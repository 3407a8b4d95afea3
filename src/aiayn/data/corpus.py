"""The prepared corpus on disk: ids in the order of the text, flat and memory-mapped, with the
places of the sentences.

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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config.data import OTHER_ALGORITHMS
from aiayn.data.encode import Sentences
from aiayn.data.tokenizer import Tokenizer
from aiayn.files import read_regular, sha256, write_json
from aiayn.token_ids import EOS_ID, UNK_ID

SPLITS, SIDES = ("train", "val"), ("src", "tgt")
FILES = {"tokenizer.json", "report.json"} | {
    f"{split}.{side}.{ending}" for split in SPLITS for side in SIDES for ending in ("bin", "npy")
}
COUNTED = 1 << 24  # subwords counted at once
MAX_MANIFEST = 100_000_000  # bytes of a file that describes a corpus
SAMPLE = 100  # sentences of each side that are encoded again when a corpus is opened


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """The ids of one split's pairs, in the order of the text."""

    folder: Path
    name: str
    src: Sentences
    tgt: Sentences

    @classmethod
    def open(cls, folder: Path, name: str) -> "PreparedSplit":
        """Maps the files of a split. Raises ValueError if they do not belong together."""
        src, tgt = (_open_sentences(folder / f"{name}.{side}") for side in SIDES)
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
        manifest, report, tokenizer = (
            read_regular(folder / f"{name}.json", MAX_MANIFEST).decode()
            for name in ("manifest", "report", "tokenizer")
        )
        return cls(
            folder,
            json.loads(manifest)["fingerprint"],
            Tokenizer.from_json(tokenizer),
            PreparedSplit.open(folder, "train"),
            PreparedSplit.open(folder, "val"),
            json.loads(report),
        )

    def __reduce__(self):
        return PreparedCorpus.open, (self.folder,)


def store_split(
    folder: Path, name: str, ids: Iterable[tuple[Sentences, Sentences]]
) -> dict[str, int]:
    """Writes the ids of a split, sources and targets, some at a time. Returns the tokens of each
    side.
    """
    lengths: list[list[np.ndarray]] = [[], []]
    with (
        open(folder / f"{name}.src.bin", "wb") as src,
        open(folder / f"{name}.tgt.bin", "wb") as tgt,
    ):
        for both in ids:
            for file, counts, sentences in zip((src, tgt), lengths, both, strict=True):
                file.write(sentences.flat.data)
                counts.append(np.diff(sentences.starts))
    tokens = {}
    for side, counts in zip(SIDES, lengths, strict=True):
        starts = np.concatenate([[0], *counts]).cumsum()
        np.save(folder / f"{name}.{side}.npy", starts)
        tokens[f"{side}_tokens"] = int(starts[-1])
    return tokens


def _open_sentences(path: Path) -> Sentences:
    """Maps the files of a side, such as train.src. Raises ValueError if they do not belong
    together.
    """
    starts, stored = np.load(f"{path}.npy", mmap_mode="r"), np.memmap(f"{path}.bin", mode="r")
    if starts.dtype != np.int64 or starts.ndim != 1:
        raise ValueError(f"{path.name}.npy does not hold the starts of sentences")
    width, rest = divmod(len(stored), int(starts[-1]))
    if rest or width not in (2, 4):
        raise ValueError(f"{path.name}.bin does not hold {starts[-1]} ids")
    return Sentences(np.asarray(stored).view(f"<u{width}"), starts)


def unigram_loss(split: PreparedSplit, vocab_size: int, label_smoothing: float) -> float:
    """Returns the smoothed loss of a unigram model, in nats per target token.

    No model that ignores the source and the previous tokens has a lower one.
    """
    chunks = np.array_split(split.tgt.flat, -(-len(split.tgt.flat) // COUNTED))
    counts = np.sum([np.bincount(ids, minlength=vocab_size) for ids in chunks], axis=0)
    counts[EOS_ID] += len(split)
    targets = (1 - label_smoothing) * counts / counts.sum() + label_smoothing / vocab_size
    return float(-(targets[targets > 0] * np.log(targets[targets > 0])).sum())


def fingerprint_of(settings: dict[str, Any]) -> str:
    """Returns the SHA-256 of everything that shapes a corpus, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def write_manifest(folder: Path, settings: dict[str, Any]) -> None:
    """Writes what shaped the corpus, and sizes and checksums of its files."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
    }
    manifest = {"fingerprint": fingerprint_of(settings), "settings": settings, "files": files}
    write_json(folder / "manifest.json", manifest)


def _inconsistency(corpus: PreparedCorpus, settings: dict[str, Any]) -> str:
    """Returns why a corpus cannot be trained on although its checksums are right; else ""."""
    tokenizer = corpus.tokenizer
    if settings.get("tokenizer") not in (None, *OTHER_ALGORITHMS, tokenizer.fingerprint):
        return "tokenizer.json is that of another corpus"
    for split in (corpus.train, corpus.val):
        if not _counts(corpus.report[split.name], split):
            return f"report.json does not count the {len(split)} pairs of {split.name}"
        coders = tokenizer.source, tokenizer
        for side, ids, coder in zip(SIDES, (split.src, split.tgt), coders, strict=True):
            name = f"{split.name}.{side}"
            if ids.starts[0] != 0 or np.any(ids.starts[1:] <= ids.starts[:-1]):
                return f"the sentences of {name} are not in order"
            if ids.flat.min() <= UNK_ID or ids.flat.max() >= coder.vocab_size:
                return f"{name} has ids outside the vocabulary of {coder.vocab_size}"
            # Another tokenizer would divide the text of these ids differently. Lower case may also
            # do so, in a rare line.
            rows = [ids[number].tolist() for number in range(0, len(ids), -(-len(ids) // SAMPLE))]
            again = coder.encode(coder.decode(rows))
            if 2 * sum(map(list.__eq__, rows, again)) < len(rows):
                return f"tokenizer.json is not that of {name}"
    return ""


def _counts(report: dict[str, Any], split: PreparedSplit) -> bool:
    """Returns whether a split's report has its numbers. Raises errors of Python's own for a
    malformed one.
    """
    tokens = {"src_tokens": len(split.src.flat), "tgt_tokens": len(split.tgt.flat)}
    return (
        report["kept"] == sum(report.get("corpora", [len(split)])) == len(split)
        and report["read"] == report["kept"] + sum(report["dropped"].values())
        and tokens.items() <= report.items()
    )


def open_verified(folder: Path) -> PreparedCorpus | str:
    """Opens a corpus whose files have the checksums of its manifest and belong together; else
    returns what is wrong with it.
    """
    name = "manifest.json"
    try:
        manifest = json.loads(read_regular(folder / name, MAX_MANIFEST))
        if not manifest["files"].keys() >= FILES:
            return "manifest.json lacks files of the corpus"
        for name, expected in manifest["files"].items():
            if sha256(folder / name) != expected["sha256"]:
                return f"{name} has been changed"
        fingerprint = fingerprint_of(manifest["settings"])
        if manifest["fingerprint"] != fingerprint or not folder.name.endswith(
            f"-{fingerprint[:16]}"
        ):
            return "manifest.json is that of another corpus"
        name = "report.json"
        corpus = PreparedCorpus.open(folder)
        return _inconsistency(corpus, manifest["settings"]) or corpus
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError:
        raise
    except Exception as error:  # whatever json, numpy and the tokenizer raise on malformed content
        return f"{name} or a related file is unreadable: {error!s:.200}"
