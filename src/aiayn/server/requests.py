"""What a request says: JSON, or a form and the query string, as LibreTranslate's clients send them."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

Fields = Mapping[str, object]  # values are texts, files, or what JSON has

DRAINED = 1 << 26  # bytes beyond the limit that are still read
DRAIN_SECONDS = 5
MAX_FIELDS = 100


async def read_fields(request: Request, max_body: int) -> Fields:
    """Returns the fields of a request. A form's `q` may come several times, and is a list then; no other field may.

    Raises HTTPException: 413 for a body that is too long, 400 for one that cannot be read, 415 for another content
    type.
    """
    request = _with_limit(request, max_body)
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            fields = json.loads(body.decode(), object_pairs_hook=_once)
            if not isinstance(fields, dict):
                raise HTTPException(400, "the request must be a JSON object")
            return fields
        query = request.scope["query_string"].decode()
        if kind in ("application/x-www-form-urlencoded", ""):
            pairs = parse_qsl(f"{query}&{body.decode()}", errors="strict", max_num_fields=MAX_FIELDS)
        elif kind == "multipart/form-data":
            form = await request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=max_body)
            pairs = [*parse_qsl(query, errors="strict", max_num_fields=MAX_FIELDS), *form.multi_items()]
        else:
            forms = "application/x-www-form-urlencoded or multipart/form-data"
            raise HTTPException(415, f"send JSON (application/json) or a form ({forms})")
    except UnicodeDecodeError:
        raise HTTPException(400, "the request is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the request cannot be read: {error}") from None
    texts = [value for name, value in pairs if name == "q"]
    fields = _once([(name, value) for name, value in pairs if name != "q"])
    return fields | ({"q": texts if len(texts) > 1 else texts[0]} if texts else {})


def _with_limit(request: Request, max_body: int) -> Request:
    """Returns a request of which a body that is too long raises 413.

    Some of it is still read for a while, so that the client comes to read the answer.
    """
    too_long = HTTPException(413, f"the request is longer than {max_body:,} bytes; send it in parts")
    announced = request.headers.get("content-length", "0")
    left = max_body
    if announced.isdecimal() and int(announced) > max_body + DRAINED:
        raise too_long

    async def receive() -> Message:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left >= 0:
            return message
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while message.get("more_body") and left > -DRAINED:
                    message = await request.receive()
                    left -= len(message.get("body", b""))
        raise too_long

    return Request(request.scope, receive)


def _once(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise HTTPException(400, f"{name!r:.40} is given twice")
        fields[name] = value
    return fields


def texts_of(fields: Fields) -> list[str]:
    """Returns the texts of `q`, which is one or a list of them. Raises 400 for anything else, and for nothing."""
    q = fields.get("q")
    items = q if isinstance(q, list) else [q]
    texts = [text for text in items if isinstance(text, str)]
    if not q or len(texts) < len(items):
        raise HTTPException(400, "q must be a text, or a list of texts, and not empty")
    return texts


def line_of(fields: Fields, name: str) -> str:
    """Returns a field that must be a text and not blank. Raises 400."""
    line = fields.get(name)
    if not isinstance(line, str) or not line.strip():
        raise HTTPException(400, f"{name} must be a text, and not empty")
    return line


def count_of(fields: Fields, name: str, most: int) -> int:
    """Returns a field that must be a whole number up to `most`; 0 without it. Forms send digits. Raises 400."""
    given = fields.get(name)
    if given is None or given == "":
        return 0
    if isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) < 10:
        given = int(given)
    if type(given) is not int or not 0 <= given <= most:  # True is an int, too
        raise HTTPException(400, f"{name} must be a whole number from 0 to {most}")
    return given


async def file_of(fields: Fields) -> tuple[str, bytes]:
    """Returns name and content of the file that a form sends. Raises 400."""
    file = fields.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise HTTPException(400, "send a form (multipart/form-data) with a file named file")
    return file.filename, await file.read()


def is_language(given: object, code: str, other: str) -> bool:
    """Whether a language is the one with this code: EN and en-US are en, if the other language is not English."""
    if not isinstance(given, str):
        return False
    asked, here, there = (one.lower().replace("_", "-") for one in (given, code, other))
    primary = asked.partition("-")[0]
    return asked == here or (primary == here.partition("-")[0] != there.partition("-")[0])


def bearer(request: Request) -> str:
    """Returns what follows `Authorization: Bearer`; empty without it."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
