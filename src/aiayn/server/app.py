"""The web application: LibreTranslate's API for one run, and a page that uses it."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from aiayn.config.schema import ServeConfig
from aiayn.errors import DataError, ResourceError, UserError
from aiayn.inference.translator import Translation, Translator
from aiayn.server.batching import Batcher, QueueFullError
from aiayn.server.words import word_attention

PAGE = Path(__file__).parent
DRAWING = PAGE.parent / "attention"  # what the page shares with the attention explorer
FILES = {
    "/": PAGE / "page.html",
    "/page.css": PAGE / "page.css",
    "/page.js": PAGE / "page.js",
    "/drawing.css": DRAWING / "drawing.css",
    "/drawing.js": DRAWING / "drawing.js",
}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
LATER = {"Retry-After": "1"}
# Languages by their English names, for clients that show them; others keep their code.
NAMES = {"cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian"}

Fields = dict[str, Any]


def make_app(translator: Translator, run: str, options: ServeConfig) -> Starlette:
    """Returns the application that translates with one model; `run` is the name that the page shows."""
    routes = Routes(translator, run, options)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with routes.batcher.running():
            yield

    hosts = [*LOOPBACK, options.host, *options.allow_host]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)]
    if options.allow_origin:
        allowed = {"allow_origins": options.allow_origin, "allow_methods": ["POST"], "allow_headers": ["*"]}
        middleware.append(Middleware(CORSMiddleware, **allowed))
    return Starlette(
        routes=[
            *(Route(path, _sender(file)) for path, file in FILES.items()),
            Route("/health", lambda _: JSONResponse({"status": "ok"})),
            Route("/languages", routes.languages),
            Route("/frontend/settings", routes.settings),
            Route("/translate", routes.limited(routes.translate), methods=["POST"]),
            Route("/attention", routes.limited(routes.attention), methods=["POST"]),
        ],
        middleware=middleware,
        exception_handlers={
            HTTPException: lambda _, error: _refusal(error.status_code, error.detail, error.headers),
            QueueFullError: lambda _, error: _refusal(503, "too many lines wait; send this again later", LATER),
            DataError: lambda _, error: _refusal(400, str(error)),
            ResourceError: lambda _, error: _refusal(503, str(error), LATER),
            UserError: lambda _, error: _refusal(500, str(error)),
            ClientDisconnect: lambda _, error: _refusal(499, "the client closed the connection"),
            Exception: lambda _, error: _refusal(500, "an error of the server; its output tells more"),
        },
        lifespan=lifespan,
    )


class Routes:
    """What is answered to requests."""

    def __init__(self, translator: Translator, run: str, options: ServeConfig):
        self.translator = translator
        self.run = run
        self.options = options
        self.api_keys = [key.encode() for key in options.api_keys]
        self.src_lang, self.tgt_lang = translator.languages
        limits = (options.max_line, translator.longest_source)
        self.max_line = min(limit for limit in limits if limit is not None)
        self.max_alternatives = translator.search.beam_size - 1
        self.batcher = Batcher(translator.n_best, options.max_waiting)

    def languages(self, _: Request) -> Response:
        """The source language, which can be translated into the target language, and that."""
        return JSONResponse([self._language(self.src_lang, [self.tgt_lang]), self._language(self.tgt_lang, [])])

    def settings(self, _: Request) -> Response:
        """What LibreTranslate tells its clients, and for our page the run and the number of alternatives."""
        language = {"source": self._language(self.src_lang), "target": self._language(self.tgt_lang)}
        settings = {
            "apiKeys": bool(self.api_keys),
            "keyRequired": bool(self.api_keys),
            "charLimit": -1,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "suggestions": False,
            "frontendTimeout": 500,
            "language": language,
            "run": self.run,
            "alternatives": self.max_alternatives,
        }
        return JSONResponse(settings)

    def limited(self, work: Callable[[Fields], Coroutine[Any, Any, Any]]) -> Callable[[Request], Awaitable[Response]]:
        """Returns the endpoint that answers with `work(fields)`, within the limits and for those who may."""

        async def endpoint(request: Request) -> Response:
            try:
                async with asyncio.timeout(self.options.time_limit):
                    fields = await read_fields(request, self.options.max_body)
                    self._check_key(fields)
                    return JSONResponse(await while_connected(request, work(fields)))
            except TimeoutError:
                message = f"not done within {self.options.time_limit:g} seconds; send less text, or send it later"
                raise HTTPException(503, message, LATER) from None

        return endpoint

    async def translate(self, fields: Fields) -> dict[str, Any]:
        """LibreTranslate's POST /translate: a text or a list of texts, each of one line or more."""
        texts, n = self._texts(fields.get("q")), 1 + self._alternatives(fields)
        self._check_languages(fields)
        text_lines = [text.split("\n") for text in texts]
        lines = [line for lines in text_lines for line in lines]
        if len(lines) > self.options.max_waiting:
            raise HTTPException(413, f"{len(lines)} lines; at most {self.options.max_waiting} are translated at once")
        await self._subwords(lines)
        found = iter(await self.batcher.n_best(lines, n))
        ranked = [_ranked([next(found) for _ in lines], n) for lines in text_lines]
        is_list = isinstance(fields["q"], list)
        answer = {"translatedText": [best for best, *_ in ranked] if is_list else ranked[0][0]}
        if n > 1:
            answer["alternatives"] = [others for _, *others in ranked] if is_list else ranked[0][1:]
        if fields["source"] == "auto":  # nothing is detected: a run has one source language
            detected = {"language": self.src_lang, "confidence": 0.0}
            answer["detectedLanguage"] = [detected for _ in texts] if is_list else detected
        return answer

    async def attention(self, fields: Fields) -> dict[str, Any]:
        """Where the model looks in the line `q` as it writes the line `translation`: see `word_attention`."""
        lines = [fields.get("q"), fields.get("translation")]
        if not all(isinstance(line, str) and line.strip() for line in lines):
            raise HTTPException(400, "q and translation must be two lines of text")
        src_ids, tgt_ids = await self._subwords(lines)
        return await self.batcher.call(word_attention, self.translator, src_ids, tgt_ids)

    def _check_key(self, fields: Fields) -> None:
        given = str(fields.get("api_key") or "").encode("utf-8", "surrogatepass")
        if self.api_keys and not given:
            raise HTTPException(401, "this server asks for an API key: send it as api_key")
        if self.api_keys and not any(hmac.compare_digest(given, key) for key in self.api_keys):
            raise HTTPException(403, "this API key is not known here")

    def _check_languages(self, fields: Fields) -> None:
        source, target = fields.get("source"), fields.get("target")
        if source not in (self.src_lang, "auto") or target != self.tgt_lang:
            pair = f"source {self.src_lang} (or auto) and target {self.tgt_lang}"
            raise HTTPException(400, f"source {source!r:.40} and target {target!r:.40}: this server has {pair}")
        if fields.get("format") not in (None, "text"):
            raise HTTPException(400, f"format {fields['format']!r:.40}: this server translates plain text; send text")

    def _texts(self, q: Any) -> list[str]:
        texts = q if isinstance(q, list) else [q]
        if not q or not all(isinstance(text, str) for text in texts):
            raise HTTPException(400, "q must be a text, or a list of texts, and not empty")
        return texts

    def _alternatives(self, fields: Fields) -> int:
        try:
            count = int(fields.get("alternatives") or 0)
        except (TypeError, ValueError, OverflowError):
            count = -1
        if not 0 <= count <= self.max_alternatives:
            raise HTTPException(400, f"alternatives must be a number from 0 to {self.max_alternatives}")
        return count

    async def _subwords(self, lines: list[str]) -> list[list[int]]:
        """Returns the subwords of lines. Raises DataError for what is not text, and 413 for a line that is too long."""
        found = await asyncio.to_thread(self.translator.source_ids, lines)
        for number, ids in enumerate(found, 1):
            if len(ids) > self.max_line:
                message = f"line {number} has {len(ids)} subwords, at most {self.max_line} are allowed; split it"
                raise HTTPException(413, message)
        return found

    def _language(self, code: str, targets: list[str] | None = None) -> dict[str, Any]:
        language = {"code": code, "name": NAMES.get(code, code)}
        return language if targets is None else language | {"targets": targets}


async def read_fields(request: Request, max_body: int) -> Fields:
    """Returns the fields of a JSON object, or of a form and the address, as LibreTranslate's clients send them.

    Raises HTTPException: 413 for a body that is too long, 400 for one that cannot be read.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_body:
            raise HTTPException(413, f"the request is longer than {max_body:,} bytes; send it in parts")
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


async def while_connected(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Returns what `work` returns, but cancels it when the client goes away: nobody waits for it any more."""
    task, gone = asyncio.create_task(work), asyncio.create_task(request.receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


def _ranked(lines: list[list[Translation]], n: int) -> list[str]:
    """Returns the best translation of a text, then others; the k-th has the k-th of every line, or else its last."""
    texts = ["\n".join(found[min(k, len(found) - 1)].text for found in lines) for k in range(n)]
    return list(dict.fromkeys(texts))  # different subwords may spell the same text


def _sender(file: Path) -> Callable[[Request], Response]:
    return lambda _: FileResponse(file)


def _refusal(status: int, message: str, headers: Any = None) -> Response:
    return JSONResponse({"error": message}, status, headers)
