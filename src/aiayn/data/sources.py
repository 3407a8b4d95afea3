"""Where text comes from: files, a data set of the Hugging Face hub, or the built-in phrasebook."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiayn import phrasebook
from aiayn.config.data import DataOptions
from aiayn.config.rules import listed
from aiayn.data.pair_files import FileText
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.text_files import scan
from aiayn.errors import DataError

REMEDY = (
    "download it elsewhere and set data.hub_path=FOLDER, or use text files: data=files "
    "data.train=PREFIX"
)


def text_of(config: DataOptions, split: str) -> RawText:
    """Returns the text of a split, "train", "val" or "test". Raises DataError if its option is not
    set.
    """
    key, value, langs = f"data.{split}", getattr(config, split), (config.src_lang, config.tgt_lang)
    if value is None:
        raise DataError(f"{key} is not set; set {key}=PREFIX (files) or {key}=SPLIT (hub)")
    if config.source == "files":
        return FileText(key, listed(value), langs, config.max_expansion)
    if config.source == "hub":
        return HubText(key, listed(value), config)
    return PhrasebookText(key, [split], langs)


class PhrasebookText(RawText):
    """The generated English-German corpus that comes with the program."""

    def pairs(self) -> Iterator[RawPair]:
        if set(self.langs) != {"en", "de"}:
            raise DataError(
                f"data.src_lang={self.langs[0]}, data.tgt_lang={self.langs[1]}: the phrasebook "
                "has en and de only; set data.src_lang=en data.tgt_lang=de, or use your own text "
                "with data=files"
            )
        for number, (en, de) in enumerate(phrasebook.pairs(self.names[0]), 1):
            src, tgt = (en, de) if self.langs[0] == "en" else (de, en)
            yield RawPair(self.option, number, src.encode(), tgt.encode())

    def identity(self) -> Any:
        return ["phrasebook", phrasebook.VERSION]


class HubText(RawText):
    """One or several splits of a data set of the Hugging Face hub, or of a local folder with the
    same layout.

    On the hub it is identified by name and revision, so that opening a prepared corpus needs no
    network.
    """

    def __init__(self, key: str, names: list[str], config: DataOptions):
        super().__init__(key, names, (config.src_lang, config.tgt_lang))
        assert config.hub_path is not None  # DataOptions requires it with data.source=hub
        self.hub_path, self.hub_name, self.revision = (
            config.hub_path,
            config.hub_name,
            config.hub_revision,
        )

    def pairs(self) -> Iterator[RawPair]:
        rows = self._rows([self._load(name) for name in self.names])
        return (RawPair(self.option, number, src, tgt) for number, (src, tgt) in enumerate(rows, 1))

    def identity(self) -> Any:
        folder, config = self._place()
        if folder is None:
            return [self.names, self.hub_path, config, self.revision]
        paths = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        visible = [
            [name, scan(path, is_text=False)[1]]
            for name, path in paths.items()
            if not name.startswith(".")
        ]
        return [self.names, visible, *([config] if config else [])]

    def _place(self) -> tuple[Path | None, str | None]:
        """Returns the folder of a local data set, or None for a name on the hub, and the
        configuration to read.
        """
        folder = Path(self.hub_path).expanduser()
        if folder.is_dir():
            # Such as WMT14's, which has a folder for each configuration.
            config_folder = folder / (self.hub_name or "")
            return (config_folder, None) if config_folder.is_dir() else (folder, self.hub_name)
        if self.hub_path.startswith(("/", ".", "~")) or self.hub_path.count("/") > 1:
            raise DataError(f"data.hub_path={self.hub_path}: no such folder")
        return None, self.hub_name

    def _load(self, name: str) -> Any:
        """Opens one split with the library `datasets`. Raises DataError if that fails."""
        folder, config = self._place()
        try:
            import datasets.config
        except ImportError as error:
            raise DataError(f"data.source=hub needs `pip install datasets`; or {REMEDY}") from error
        try:
            if folder is None:
                _look_only_into_the_cache_if_offline(self.hub_path)
                return datasets.load_dataset(
                    self.hub_path, config, revision=self.revision, split=name
                )
            # Read in place, without a second copy in the library's cache.
            return datasets.load_dataset(str(folder), config, split=name, streaming=True)
        except Exception as error:  # datasets, pyarrow and the file system raise many kinds
            offline = folder is None and datasets.config.HF_HUB_OFFLINE
            reason = (
                "no connection to the hub, and not in its local cache"
                if offline
                else _one_line(error)
            )
            remedy = (
                REMEDY if folder is None else "the folder must have the same layout as on the hub"
            )
            if folder is None and not offline and self.revision:
                remedy = (
                    f"if data.hub_revision={self.revision} is not one of its commits, set it to "
                    f"null; or {remedy}"
                )
            raise DataError(
                f"data.hub_path={self.hub_path}, split {name}: {reason}; {remedy}"
            ) from error

    def _rows(self, splits: list[Any]) -> Iterator[tuple[bytes, bytes]]:
        empty = True
        for split in splits:
            try:
                # Whole Arrow batches are ten times as fast as single rows.
                for table in split.with_format("arrow").iter(batch_size=10_000):
                    sides = [self._texts(table, lang) for lang in self.langs]
                    empty = empty and not sides[0]
                    yield from zip(*sides, strict=True)
            except DataError:
                raise
            except Exception as error:  # as in _load
                raise DataError(
                    f"data.hub_path={self.hub_path}: cannot be read ({_one_line(error)})"
                ) from error
        if empty:
            raise DataError(
                f"data.hub_path={self.hub_path}: split {', '.join(self.names)} is empty"
            )

    def _texts(self, table: Any, lang: str) -> list[bytes]:
        """Returns the column of a language: a field of `translation` (WMT14), or a column of its
        name (Multi30k).
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {name: table.column(name) for name in table.column_names}
        if "translation" in columns:
            fields = [f.name for f in columns["translation"].type]
            columns = dict(zip(fields, columns["translation"].flatten(), strict=True))
        if lang not in columns:
            raise DataError(
                f"data.hub_path={self.hub_path}: no column {lang} among {', '.join(columns)}"
            )
        # A sentence is one line: a line feed inside it would become two lines when hypotheses are
        # written.
        texts = pc.fill_null(columns[lang], "").cast(pa.large_binary()).to_pylist()
        return [text.replace(b"\n", b" ") for text in texts]


def _look_only_into_the_cache_if_offline(name: str) -> None:
    """Tests the connection with one request, because the library itself would retry for 23
    seconds.
    """
    import datasets.config
    import huggingface_hub.constants
    from huggingface_hub.errors import HfHubHTTPError

    try:
        huggingface_hub.HfApi().dataset_info(name, timeout=3)
    except (HfHubHTTPError, ValueError):
        return  # the hub answers, or the name is malformed: `load_dataset` says what is wrong
    except Exception:  # whatever the HTTP client raises without a connection
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
