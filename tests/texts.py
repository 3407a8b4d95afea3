"""What tests of text share: a configuration of text files, and how to write them."""

from pathlib import Path

from aiayn.config import DataConfig

# Everything that some program takes for the end of a line.
SEPARATORS = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r\n", "\n"]


def data_config(**changes) -> DataConfig:
    options = {
        "source": "files",
        "hub_path": None,
        "hub_name": None,
        "hub_revision": None,
        "train": None,
        "val": None,
        "test": None,
        "src_lang": "en",
        "tgt_lang": "de",
        "folder": "data",
        "vocab_size": 300,
        "max_length": 20,
        "max_length_ratio": 2.0,
        "tokenizer_pairs": None,
        "tokens_per_step": 100,
        "max_tokens_per_device": 100,
        "micro_batches": None,
        "num_workers": 0,
    }
    return DataConfig(**(options | changes))


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
