"""Data sets of the Hugging Face hub, or of a local folder that is laid out like one."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from aiayn.config import DataConfig
from aiayn.errors import DataError

REMEDY = "download it elsewhere and set data.hub_path=FOLDER, or use text files: data=files data.train=PREFIX"


def local_folder(config: DataConfig) -> Path | None:
    """The local folder that holds the data set (or its configuration), if it is one."""
    folder = Path(config.hub_path).expanduser()
    if folder.is_dir():
        named = folder / config.hub_name if config.hub_name else folder
        return named if named.is_dir() else folder
    if config.hub_path.startswith(("/", ".", "~")) or config.hub_path.count("/") > 1:
        raise DataError(f"data.hub_path={config.hub_path}: there is no such folder")
    return None


def hub_pairs(config: DataConfig, names: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of the data set's splits of these names, source first.

    Raises DataError where the data set cannot be had, before the first pair, or read.
    """
    return _rows(config, names, [_load(config, name) for name in names])


def _rows(config: DataConfig, names: list[str], datasets: list[Any]) -> Iterator[tuple[bytes, bytes]]:
    empty = True
    for dataset in datasets:
        try:
            # Whole Arrow batches: row by row costs ten times as much.
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


def _texts(config: DataConfig, table: Any, lang: str) -> list[bytes]:
    """One language's column: a field of `translation` as in WMT14, or a column named by the language as in Multi30k."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: table.column(name) for name in table.column_names}
    if "translation" in columns:
        fields = [f.name for f in columns["translation"].type]
        columns = {name: pc.struct_field(columns["translation"], name) for name in fields}
    if lang not in columns:
        raise DataError(f"data.hub_path={config.hub_path}: no language {lang} among its columns {', '.join(columns)}")
    # A pair is one line: a line feed inside it would become two when hypotheses are written.
    texts = pc.replace_substring(pc.fill_null(columns[lang], ""), "\n", " ")
    return texts.cast(pa.large_binary()).to_pylist()


def _load(config: DataConfig, name: str) -> Any:
    folder = local_folder(config)
    answered = _probe() if folder is None else None
    try:
        import datasets
        import huggingface_hub.constants
    except ImportError as error:
        raise DataError(f"data.source=hub needs `pip install datasets`; or {REMEDY}") from error
    offline = answered is not None and not answered()
    if offline:
        # Left alone the library tries again for 23 seconds; like this it looks into its cache and gives up at once.
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        if folder is None:
            return datasets.load_dataset(config.hub_path, config.hub_name, revision=config.hub_revision, split=name)
        # Read in place, without a second copy in the library's cache.
        whole = folder == Path(config.hub_path).expanduser()
        return datasets.load_dataset(str(folder), config.hub_name if whole else None, split=name, streaming=True)
    except Exception as error:  # as above
        reason = "no connection to the hub, and not in its local cache" if offline else _one_line(error)
        remedy = REMEDY if folder is None else "the folder must be laid out as on the hub"
        raise DataError(f"data.hub_path={config.hub_path}, split {name}: {reason}; {remedy}") from error


def _probe() -> Callable[[], bool]:
    """Starts to look for the hub (or the proxy before it); the function returned says whether it answers.

    In a thread, because a name look-up knows no time-out, and the imports that follow take as long.
    """
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxy = getproxies().get(address.scheme)
    address = urlsplit(proxy) if proxy else address
    deadline = time.monotonic() + 1.2
    found = threading.Event()

    def connect() -> None:
        port = address.port or (80 if address.scheme == "http" else 443)
        with suppress(OSError):
            socket.create_connection((address.hostname, port), timeout=1).close()
            found.set()

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()

    def answered() -> bool:
        thread.join(max(0.0, deadline - time.monotonic()))
        return found.is_set()

    return answered


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
