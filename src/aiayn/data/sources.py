"""Where text comes from: files, a data set of the Hugging Face hub, or the built-in phrasebook."""

from collections.abc import Iterator
from typing import Any

from aiayn.config.data import DataConfig
from aiayn.config.rules import listed
from aiayn.data.hub import HubText
from aiayn.data.pair_files import FileText
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.text_files import FileScans
from aiayn.errors import DataError


def text_of(config: DataConfig, split: str, scans: FileScans | None = None) -> RawText:
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


class PhrasebookText(RawText):
    """The generated English-German corpus that comes with the program."""

    def __init__(self, key: str, split: str, langs: tuple[str, str]):
        super().__init__(key, [split])
        self.langs = langs

    def pairs(self) -> Iterator[RawPair]:
        if set(self.langs) != {"en", "de"}:
            raise DataError(
                f"data.src_lang={self.langs[0]}, data.tgt_lang={self.langs[1]}: the phrasebook has en and de only; "
                "set data.src_lang=en data.tgt_lang=de, or bring text with data=files"
            )
        from aiayn import phrasebook

        for number, (en, de) in enumerate(phrasebook.pairs(self.names[0]), 1):
            src, tgt = (en, de) if self.langs[0] == "en" else (de, en)
            yield RawPair(self.option, number, src.encode(), tgt.encode())

    def identity(self) -> Any:
        from aiayn import phrasebook

        return ["phrasebook", phrasebook.VERSION]
