"""Reads requests: JSON, or a form and the query string, as LibreTranslate's clients send them."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from aiayn.data.cleaning import normalise
from aiayn.data.languages import primary, short_code

Fields = Mapping[str, object]  # values are texts, files, or what JSON has
T = TypeVar("T")

MAX_FIELDS = 100
MAX_NAME = 255  # characters of an uploaded file's name
DRAINED = 1 << 26  # bytes beyond the limit that are still read
SHORT = 10_000  # characters of a body that is read in the server's own thread: about 1 ms
# Others are read one at a time: each thread of Python code keeps the server's own waiting for 5 ms,
# again and again.
LONG_BODIES = CapacityLimiter(1)
MAX_BRACKETS = 50_000  # of JSON, which is read without a pause: many lists would take seconds


async def read_fields(request: Request, max_body: int) -> Fields:
    """Returns the fields of a request. A form's `q` may come several times, and is a list then.

    Raises HTTPException: 413 for a body that is too long, 400 for one that cannot be read, 415 for
    another content type and for a compressed body.
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise HTTPException(415, f"Content-Encoding {coding!r:.40}: send the body uncompressed")
    body = await _body(request, max_body)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # An empty text keeps its place among others.
    read = partial(parse_qsl, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    try:
        if content_type == "application/json":
            if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
                most = f"at most {MAX_BRACKETS:,} of the characters [ and {{"
                raise HTTPException(413, f"JSON may have {most}; send it in parts")
            parse = partial(json.loads, object_pairs_hook=_once)
            fields = await _parsed(parse, body.decode())
            if not isinstance(fields, dict):
                raise HTTPException(400, "the request must be a JSON object")
            return fields
        query = request.scope["query_string"].decode()
        if content_type in ("application/x-www-form-urlencoded", ""):
            pairs = await _parsed(read, f"{query}&{body.decode()}")
        elif content_type == "multipart/form-data":

            async def receive() -> Message:
                return {"type": "http.request", "body": body}

            # The parser would decode with any codec of Python that a client names, and read other
            # text as Latin-1. In Latin-1 bytes stay what they are.
            header = request.headers["content-type"].encode("latin-1") + b"; charset=latin-1"
            scope = {**request.scope, "headers": [(b"content-type", header)]}
            form = Request(scope, receive).form(
                max_files=1, max_fields=MAX_FIELDS, max_part_size=max_body
            )
            pairs = [*read(query), *map(_as_utf_8, (await form).multi_items())]
        else:
            forms = "application/x-www-form-urlencoded or multipart/form-data"
            raise HTTPException(415, f"send JSON (application/json) or a form ({forms})")
    except UnicodeDecodeError:
        raise HTTPException(400, "the request is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the request cannot be read: {error}") from None
    texts = [value for name, value in pairs if name == "q"]
    others = _once([pair for pair in pairs if pair[0] != "q"])
    return others | ({"q": texts if len(texts) > 1 else texts[0]} if texts else {})


async def _parsed(parse: Callable[[str], T], body: str) -> T:
    """Returns parse(body): of a long body beside the server's own thread."""
    if len(body) <= SHORT:
        return parse(body)
    return await to_thread.run_sync(parse, body, limiter=LONG_BODIES)


def _as_utf_8(pair: tuple[str, str | UploadFile]) -> tuple[str, str | UploadFile]:
    """Returns a part of a form, whose bytes were read as Latin-1, as text."""
    name, value = pair
    if isinstance(value, str):
        value = value.encode("latin-1").decode()
    elif value.filename:
        value.filename = value.filename.encode("latin-1").decode()
    return name.encode("latin-1").decode(), value


def _once(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Returns fields by name. Raises 400 for one that is given twice: either may be meant."""
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise HTTPException(400, f"{name!r:.40} is given twice")
        fields[name] = value
    return fields


async def _body(request: Request, most: int) -> bytes:
    """Returns the body of a request, or raises 413.

    Some more of one that is too long is read, but not kept: only then does the client come to read
    the answer.
    """
    body, length = bytearray(), 0
    async for chunk in request.stream():
        body += chunk[: most - len(body)]
        length += len(chunk)
        if length > most + DRAINED:
            break
    if length > most:
        raise HTTPException(413, f"the request is longer than {most:,} bytes; send it in parts")
    return bytes(body)


def texts_of(fields: Fields, most: int) -> list[str]:
    """Returns the texts of `q`, which is one or a list of them. Raises 400 for anything else, and
    for nothing, and 413 for more than `most`.
    """
    q = fields.get("q")
    values = q if isinstance(q, list) else [q]
    texts = [text for text in values if isinstance(text, str)]
    if not q or len(texts) < len(values):
        raise HTTPException(400, "q must be a text, or a list of texts, and not empty")
    if len(texts) > most:
        raise HTTPException(
            413, f"{len(texts)} texts; at most {most} are allowed at once: send fewer"
        )
    return texts


def line_of(fields: Fields, name: str) -> str:
    """Returns a field that must be a text and not blank. Raises 400."""
    line = fields.get(name)
    if not isinstance(line, str) or not normalise(line):
        raise HTTPException(400, f"{name} must be a text, and not empty")
    return line


def alternatives_of(fields: Fields, most: int) -> int:
    """Returns the field `alternatives`, a whole number up to `most`; 0 without it. Forms send
    digits. Raises 400.
    """
    value = fields.get("alternatives")
    digits = "0" if value in (None, "") else str(value)
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10 and int(digits) <= most):
        raise HTTPException(400, f"alternatives must be a whole number from 0 to {most}")
    return int(digits)


async def file_of(fields: Fields) -> tuple[str, bytes]:
    """Returns name and content of the file that a form sends. Raises 400."""
    file = fields.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise HTTPException(400, "send a form (multipart/form-data) with a file named file")
    if len(file.filename) > MAX_NAME:
        raise HTTPException(400, f"the file's name is longer than {MAX_NAME} characters; rename it")
    return file.filename, await file.read()


def is_language(requested: object, code: str, other: str) -> bool:
    """Returns whether a language is the one with this code: EN and en-US are en, if the other
    language is not English.
    """
    if not isinstance(requested, str):
        return False
    return short_code(requested) == short_code(code) or (
        primary(requested) == primary(code) != primary(other)
    )


def bearer(request: Request) -> str:
    """Returns what follows `Authorization: Bearer`; empty without it."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
