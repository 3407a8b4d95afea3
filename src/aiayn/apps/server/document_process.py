"""Reads and writes an uploaded document in a process of its own, which can be ended at any time."""

import asyncio
import json
import os
import struct
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from starlette.exceptions import HTTPException

from aiayn.apps.documents.document import READERS, Document, parse_document
from aiayn.apps.documents.placement import Attention
from aiayn.apps.documents.texts import Texts
from aiayn.data.sources import OTHER_FORMATS
from aiayn.data.text_files import suffix
from aiayn.errors import DataError, ResourceError
from aiayn.search.translations import Translation

# The time to place tags grows with the tags times the words.
MAX_HTML = 30_000  # characters of a text
MAX_TAGS = 1000
LENGTH = struct.Struct("<Q")  # of a message between the processes, in front of it


class ReadDocument:
    """The sentences of a document that another process has read, and keeps until it is written."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process
        self.name = ""
        self.texts = Texts([], "", markup=False, paragraphs=False)

    async def read(
        self, name: str, content: bytes, langs: tuple[str, str], tag: str, seconds: float
    ) -> None:
        """Reads the document. Raises DataError for one that cannot be read, 413 for too many tags
        in a part.
        """
        answer = await self._ask([name, b64encode(content).decode(), langs, tag, seconds])
        self.name = answer["name"]
        self.texts.sentences, self.texts.marked = answer["sentences"], answer["marked"]
        self.texts.tagged = set(answer["tagged"])

    async def write(
        self, best: list[Translation], attention: list[Attention]
    ) -> tuple[bytes, Counter[str], list[str]]:
        """Returns the translated document, how mark-up was placed, and what is to be said of it."""
        plain = [
            (tgt_lengths, src_lengths, None if weights is None else weights.tolist())
            for tgt_lengths, src_lengths, weights in attention
        ]
        answer = await self._ask([[translation.text for translation in best], plain])
        return b64decode(answer["content"]), Counter(answer["places"]), answer["remarks"]

    async def _ask(self, question: object) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        message = json.dumps(question).encode()
        try:
            process.stdin.write(LENGTH.pack(len(message)) + message)
            await process.stdin.drain()
            [length] = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
            answer = json.loads(await process.stdout.readexactly(length))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ResourceError(
                "the process that reads the document was ended; send a smaller one"
            ) from error
        if status := answer.get("status"):
            raise HTTPException(status, answer["message"])
        return answer


@asynccontextmanager
async def document_process(turns: asyncio.Semaphore) -> AsyncIterator[ReadDocument]:
    """Starts a process for a document as soon as `turns` allows, and ends it with the context."""
    async with turns:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aiayn.apps.server.document_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield ReadDocument(process)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _read(name: str, content: bytes, langs: tuple[str, str], tag: str) -> tuple[Document, Texts]:
    """Cuts a document into sentences. Raises DataError for one that cannot be read, 413 for too
    many tags in a part.
    """
    path = Path(PurePosixPath(name.replace("\\", "/")).name)
    if suffix(path.name) not in READERS:
        known = f"choose a file of {', '.join(READERS)}"
        raise DataError(f"{path}: {OTHER_FORMATS.get(suffix(path.name), known)}")
    document = parse_document(path, content, langs)
    for part in document.parts if document.markup else []:
        if len(part.text) > MAX_HTML or len(part.tags) + len(part.kept) > MAX_TAGS:
            raise HTTPException(
                413,
                f"a paragraph may have {MAX_HTML:,} characters and {MAX_TAGS:,} tags; divide it",
            )
    return document, Texts([document.pieces], langs[0], document.markup, document.is_prose, tag=tag)


def main() -> None:
    """Answers two questions on standard input: what a document says, and what it is with these
    translations.
    """
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        name, content, langs, tag, seconds = _receive(questions)
        _limit(seconds)
        document, texts = _read(name, b64decode(content), tuple(langs), tag)
        shared = {
            "sentences": texts.sentences,
            "marked": texts.marked,
            "tagged": sorted(texts.tagged),
        }
        _send(answers, {"name": document.path.name, **shared})
        translations, attention = _receive(questions)
        [translated], placement_counts = texts.restore(
            [Translation(text) for text in translations], attention
        )
        written = b64encode(document.encode(translated)).decode()
        _send(
            answers, {"content": written, "places": placement_counts, "remarks": document.remarks}
        )
    except EOFError:  # the server needs no answer any more
        return
    except DataError as error:
        _send(answers, {"status": 400, "message": str(error)})
    except HTTPException as error:
        _send(answers, {"status": error.status_code, "message": error.detail})
    except MemoryError:
        _send(
            answers,
            {"status": 413, "message": "the document needs too much memory; send it in parts"},
        )


def _limit(seconds: float) -> None:
    """Ends this process after some seconds of work, should nobody else do that; others come
    first.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        os.nice(5)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))


def _receive(stream: BinaryIO) -> Any:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return json.loads(stream.read(LENGTH.unpack(head)[0]))


def _send(stream: BinaryIO, answer: dict[str, Any]) -> None:
    message = json.dumps(answer).encode()
    stream.write(LENGTH.pack(len(message)) + message)
    stream.flush()


if __name__ == "__main__":
    main()
