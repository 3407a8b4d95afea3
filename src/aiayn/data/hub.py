"""Data sets of the Hugging Face hub, or of a local folder with the same layout."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from aiayn.config.data import DataOptions
from aiayn.errors import DataError

REMEDY = "download it elsewhere and set data.hub_path=FOLDER, or use text files: data=files data.train=PREFIX"


def local_folder(config: DataOptions) -> Path | None:
    """Returns the folder of a local data set (or of its configuration), None for a name on the hub."""
    name = _hub_path(config)
    folder = Path(name).expanduser()
    if folder.is_dir():
        named = folder / config.hub_name if config.hub_name else folder
        return named if named.is_dir() else folder
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise DataError(f"data.hub_path={name}: there is no such folder")
    return None


def _hub_path(config: DataOptions) -> str:
    assert config.hub_path is not None  # DataOptions requires it with data.source=hub
    return config.hub_path


def hub_pairs(config: DataOptions, names: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of the named splits, source first.

    Raises DataError before the first pair if the data set cannot be opened, and later if it cannot be read.
    """
    return _rows(config, names, [_load(config, name) for name in names])


def _rows(config: DataOptions, names: list[str], datasets: list[Any]) -> Iterator[tuple[bytes, bytes]]:
    empty = True
    for dataset in datasets:
        try:
            # Whole Arrow batches are ten times as fast as single rows.
            for table in dataset.with_format("arrow").iter(batch_size=10_000):
                sides = [_texts(config, table, lang) for lang in (config.src_lang, config.tgt_lang)]
                empty = empty and not sides[0]
                yield from zip(*sides, strict=True)
        except DataError:
            raise
        except Exception as error:  # datasets, pyarrow and the file system raise many kinds
            raise DataError(f"data.hub_path={config.hub_path}: cannot be read ({_one_line(error)})") from error
    if empty:
        raise DataError(f"data.hub_path={config.hub_path}: split {', '.join(names)} is empty")


def _texts(config: DataOptions, table: Any, lang: str) -> list[bytes]:
    """Returns the column of a language: a field of `translation` (WMT14), or a column of its name (Multi30k)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: table.column(name) for name in table.column_names}
    if "translation" in columns:
        fields = [f.name for f in columns["translation"].type]
        columns = dict(zip(fields, columns["translation"].flatten(), strict=True))
    if lang not in columns:
        raise DataError(f"data.hub_path={config.hub_path}: no language {lang} among its columns {', '.join(columns)}")
    # A sentence is one line: a line feed inside it would become two lines when hypotheses are written.
    texts = pc.fill_null(columns[lang], "").cast(pa.large_binary()).to_pylist()
    return [text.replace(b"\n", b" ") for text in texts]


def _load(config: DataOptions, name: str) -> Any:
    """Opens one split with the library `datasets`. Raises DataError if that fails."""
    folder = local_folder(config)
    answers = _probe() if folder is None else None
    try:
        import datasets.config
        import huggingface_hub.constants
    except ImportError as error:
        raise DataError(f"data.source=hub needs `pip install datasets`; or {REMEDY}") from error
    offline = answers is not None and not answers()
    if offline:
        # Otherwise the library retries for 23 seconds; offline it only looks into its cache.
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        if folder is None:
            return datasets.load_dataset(_hub_path(config), config.hub_name, revision=config.hub_revision, split=name)
        # Read in place, without a second copy in the library's cache.
        whole = folder == Path(_hub_path(config)).expanduser()
        return datasets.load_dataset(str(folder), config.hub_name if whole else None, split=name, streaming=True)
    except Exception as error:  # as in _rows
        reason = "no connection to the hub, and not in its local cache" if offline else _one_line(error)
        remedy = REMEDY if folder is None else "the folder must have the same layout as on the hub"
        if folder is None and not offline and config.hub_revision:
            remedy = f"if data.hub_revision={config.hub_revision} is none of its commits, set it to null; or {remedy}"
        raise DataError(f"data.hub_path={config.hub_path}, split {name}: {reason}; {remedy}") from error


def _probe() -> Callable[[], bool]:
    """Starts to connect to the hub, or to the proxy in front of it; the function returned waits for the answer.

    In a thread, because a name look-up has no time-out, and the imports meanwhile take as long.
    """
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxy = getproxies().get(address.scheme)
    address = urlsplit(proxy) if proxy else address
    connected = threading.Event()

    def connect() -> None:
        port = address.port or (80 if address.scheme == "http" else 443)
        with suppress(OSError):
            socket.create_connection((address.hostname, port), timeout=1).close()
            connected.set()

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()

    def answers() -> bool:
        thread.join(1.2)
        return connected.is_set()

    return answers


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
