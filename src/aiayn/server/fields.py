"""The fields of a request: JSON, or a form and the query string, as LibreTranslate's clients send them."""

import json
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

Fields = Mapping[str, object]


async def read_fields(request: Request, max_body: int) -> Fields:
    """Returns the fields of a request.

    Raises HTTPException: 413 for a body that is or will be too long, 400 for one that cannot be read, 415 for another
    content type.
    """
    announced = request.headers.get("content-length", "0")
    too_long = HTTPException(413, f"the request is longer than {max_body:,} bytes; send it in parts")
    if not announced.isdecimal() or int(announced) > max_body:
        raise too_long
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_body:
            raise too_long
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            fields = json.loads(body.decode())
        elif kind in ("application/x-www-form-urlencoded", ""):
            text = request.scope["query_string"].decode() + "&" + body.decode()
            fields = dict(parse_qsl(text, errors="strict", max_num_fields=100))
        else:
            raise HTTPException(415, "send JSON (application/json) or a form (application/x-www-form-urlencoded)")
    except UnicodeDecodeError:
        raise HTTPException(400, "the request is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the request cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise HTTPException(400, "the request must be a JSON object")
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


def key_of(request: Request, fields: Fields) -> str:
    """Returns the API key of a request, from its header or its fields; empty without one."""
    return bearer(request) or str(fields.get("api_key") or "")


def bearer(request: Request) -> str:
    """Returns what follows `Authorization: Bearer`; empty without it."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
