"""What tests of text share: a configuration of text files, and how to write them."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from applications import composed

from aiayn.config.data import DataConfig
from aiayn.data.raw_text import RawPair, RawText

# Everything that some program takes for the end of a line.
SEPARATORS = [
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    "\r\n",
    "\n",
]


@functools.cache
def _files() -> DataConfig:
    return composed(
        "data=files", "data.train=train", "data.val=val", "data.src_lang=en", "data.tgt_lang=de"
    ).data


def data_config(**changes: Any) -> DataConfig:
    """`data=files` for text of a few lines, unchecked."""
    options = {
        "train": None,
        "val": None,
        "vocab_size": 300,
        "max_length": 20,
        "max_length_ratio": 2.0,
    }
    return replace(
        _files(), **options | {"tokens_per_step": 100, "max_tokens_per_device": 100} | changes
    )


def raw_pairs(pairs: list[tuple[bytes, bytes]]) -> list[RawPair]:
    return [RawPair("text", number, src, tgt) for number, (src, tgt) in enumerate(pairs, 1)]


def read_pairs(text: RawText) -> list[tuple[bytes, bytes]]:
    return [(pair.src, pair.tgt) for pair in text.pairs()]


def write_bytes(prefix: Path, src: bytes, tgt: bytes) -> str:
    """PREFIX.en and PREFIX.de, byte for byte."""
    for lang, text in (("en", src), ("de", tgt)):
        Path(f"{prefix}.{lang}").write_bytes(text)
    return str(prefix)


def write_lines(prefix: Path, src: list[str], tgt: list[str], tgt_lang: str = "de") -> str:
    """PREFIX.en and the other side, LF after every line and nowhere else."""
    for lang, lines in (("en", src), (tgt_lang, tgt)):
        Path(f"{prefix}.{lang}").write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(prefix)


# A small one of each kind that is translated.
DOCUMENTS = {
    "page.html": b"<!DOCTYPE html><p title='a<b'>the <b>old</b> house. Two cats.</p><style>the</style>",
    "manual.md": b"# the *old* house\n\n```\nthe cat\n```\n\n> two cats\n",
    "film.srt": b"1\r\n00:00:01,000 --> 00:00:02,000\r\nthe old house\r\n",
    "messages.po": b'# the\nmsgid  "the %s house"\nmsgstr ""\n',
    "units.xliff": b"<xliff ><file><trans-unit><source>the <x id='1' />house</source></trans-unit></file></xliff>",
    "table.csv": b"id,en,de\r\n1,two cats,\r\n",
    "lines.jsonl": b'{"id": 1e400, "en":"two cats"}\n',
}
