"""Where text comes from: files, a data set of the Hugging Face hub, or the built-in phrasebook."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiayn.config.data import DataOptions
from aiayn.config.rules import listed
from aiayn.data.hub import HubText
from aiayn.data.parallel_files import FileText
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.text_files import FileScans
from aiayn.errors import DataError


def text_of(config: DataOptions, split: str, scans: FileScans | None = None) -> RawText:
    """Returns the text of a split, "train", "val" or "test". Raises DataError if its option is not set."""
    key, value, langs = f"data.{split}", getattr(config, split), (config.src_lang, config.tgt_lang)
    if value is None:
        raise DataError(f"{key} is not set: name text to read, {key}=PREFIX (files) or {key}=SPLIT (hub)")
    scans = scans or FileScans()
    if config.source == "files":
        return FileText(key, listed(value), langs, scans)
    if config.source == "hub":
        return HubText(key, listed(value), config, scans)
    return PhrasebookText(key, split, langs)


def texts_of(config: DataOptions, scans: FileScans) -> dict[str, RawText]:
    """Returns the text of training and validation, and of the test set if there is one."""
    splits = ("train", "val") if config.test is None else ("train", "val", "test")
    return {split: text_of(config, split, scans) for split in splits}


class PhrasebookText(RawText):
    """The generated English-German corpus that comes with the program."""

    def __init__(self, key: str, split: str, langs: tuple[str, str]):
        super().__init__(key, [split])
        self.langs = langs

    def pairs(self, first: int = 0) -> Iterator[RawPair]:
        src_lang, tgt_lang = self.langs
        if {src_lang, tgt_lang} != {"en", "de"}:
            raise DataError(
                f"data.src_lang={src_lang}, data.tgt_lang={tgt_lang}: the phrasebook has en and de only; "
                "set data.src_lang=en data.tgt_lang=de, or bring text with data=files"
            )
        from aiayn import phrasebook

        encoded = ((en.encode(), de.encode()) for en, de in phrasebook.pairs(self.names[0]))
        return islice(encoded if src_lang == "en" else ((de, en) for en, de in encoded), first, None)

    def identity(self) -> Any:
        from aiayn import phrasebook

        return ["phrasebook", phrasebook.VERSION]
