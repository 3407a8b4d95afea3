"""Reads and writes documents and long texts in a process of its own, which can be ended at any
time.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from anyio import BrokenWorkerProcess, CapacityLimiter, to_process
from starlette.exceptions import HTTPException

from aiayn.apps.documents.document import READERS, Document, parse_document
from aiayn.apps.documents.placement import Attention
from aiayn.apps.documents.texts import CutSentences, Texts
from aiayn.data.sources import OTHER_FORMATS
from aiayn.data.text_files import COMPRESSED, OPENERS, suffix
from aiayn.errors import DataError, ResourceError

# The time to place tags grows with the tags times the words.
MAX_HTML = 30_000  # characters of a text
MAX_TAGS = 1000
T = TypeVar("T")


class Upload(NamedTuple):
    """A document as it was sent, and what it is translated to."""

    name: str  # without a path
    content: bytes
    langs: tuple[str, str]
    tag: str  # of the target language


def as_upload(name: str, content: bytes, langs: tuple[str, str], tag: str) -> Upload:
    """Returns an upload without its path. Raises DataError for a file that is no document, or
    compressed.
    """
    name = PurePosixPath(name.replace("\\", "/")).name
    if suffix(name) not in READERS:
        known = f"choose a file of {', '.join(READERS)}"
        raise DataError(f"{name}: {OTHER_FORMATS.get(suffix(name), known)}")
    if PurePosixPath(name).suffix in OPENERS or content.startswith(tuple(COMPRESSED)):
        raise DataError(f"{name}: compressed files are not supported here: decompress this one")
    return Upload(name, content, langs, tag)


async def in_process(limiter: CapacityLimiter, work: Callable[..., T], *arguments: object) -> T:
    """Returns work(*arguments), computed in another process as soon as `limiter` allows; cancelling
    it ends that process.

    Raises what `work` raises, 413 if memory runs out, ResourceError if the process is ended or
    cannot be started.
    """
    try:
        async with limiter:
            return await _cancellable(work, *arguments)
    except MemoryError:
        raise HTTPException(413, "the text needs too much memory; send it in parts") from None
    except BrokenWorkerProcess as error:
        raise ResourceError("the process that read the text was killed; send less text") from error
    except OSError as error:  # no file descriptor is left
        raise ResourceError(
            f"no process can be started to read the text ({error.strerror}); try again later"
        ) from error


async def _cancellable(work: Callable[..., T], *arguments: object) -> T:
    """Returns work(*arguments), computed in another process, which is ended by cancelling it.

    anyio would leave a process behind that is cancelled while it starts: it starts in any case.
    """
    # Waits for nothing, so that the work takes the process that has just been started
    unlimited: Any = nullcontext()
    is_starting, is_wanted = True, True

    async def start_and_work() -> T:
        nonlocal is_starting
        await to_process.run_sync(os.getpid, limiter=unlimited)
        is_starting = False
        if not is_wanted:
            raise asyncio.CancelledError
        return await to_process.run_sync(
            _nicely, work, *arguments, cancellable=True, limiter=unlimited
        )

    task = asyncio.create_task(start_and_work())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        is_wanted = False
        if not is_starting:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


def _nicely(work: Callable[..., T], *arguments: object) -> T:
    if hasattr(os, "nice"):  # not on Windows
        os.nice(max(0, 5 - os.nice(0)))  # the server's own process comes first
    return work(*arguments)


def check_count(sentences: CutSentences, most: int) -> None:
    """Raises 413 for more sentences than are translated at once."""
    if (count := len(sentences.lines)) > most:
        raise HTTPException(
            413, f"{count} sentences; at most {most} are allowed at once: send less text"
        )


def read_upload(document: Upload, most: int) -> CutSentences:
    """Returns the sentences of a document. Raises DataError for one that cannot be read, 413 for
    more than `most` sentences or too many tags in a part.
    """
    sentences = _parsed(document)[1].sentences
    check_count(sentences, most)
    return sentences


def write_upload(
    document: Upload, translations: list[str], attention: list[Attention]
) -> tuple[bytes, Counter[str], list[str]]:
    """Returns the translated document, how mark-up was placed, and remarks for the user."""
    parsed, texts = _parsed(document)
    [translated], placement_counts = texts.restore(translations, attention)
    return parsed.encode(translated), placement_counts, parsed.remarks


def _parsed(upload: Upload) -> tuple[Document, Texts]:
    document = parse_document(Path(upload.name), upload.content, upload.langs)
    for part in document.parts if document.markup else []:
        if len(part.text) > MAX_HTML or len(part.tags) + len(part.kept) > MAX_TAGS:
            raise HTTPException(
                413,
                f"a paragraph has over {MAX_HTML:,} characters or {MAX_TAGS:,} tags; divide it",
            )
    return document, Texts(
        [document.pieces], upload.langs[0], document.markup, document.is_prose, tag=upload.tag
    )
