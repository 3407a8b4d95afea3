"""The web application: routes, API keys, limits, and error responses."""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiayn.apps.server.answers import Answers
from aiayn.apps.server.batching import Batcher
from aiayn.apps.server.metrics import Metrics, observed
from aiayn.apps.server.options import ServeOptions
from aiayn.apps.server.requests import Fields, bearer, read_fields
from aiayn.apps.server.service import Service
from aiayn.errors import DataError, ResourceError, UserError, summary_of

PAGE = Path(__file__).parent
DRAWING = PAGE.parents[1] / "visualize"  # what the page shares with the attention explorer
FILES = {
    "/": PAGE / "page.html",
    "/page.css": PAGE / "page.css",
    "/page.js": PAGE / "page.js",
    "/drawing.css": DRAWING / "drawing.css",
    "/drawing.js": DRAWING / "drawing.js",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LATER = {"Retry-After": "1"}
# Below, by their own handlers
ANSWERED = (HTTPException, UserError, ClientDisconnect)
ENDINGS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)

log = logging.getLogger("aiayn.server")

Work = Callable[[Fields, State], Coroutine[None, None, object]]
T = TypeVar("T")


def make_app(service: Service, run: str, options: ServeOptions, metrics: Metrics) -> Starlette:
    """Returns the application that translates with the model of a service; `run` is the name that
    the page shows.
    """
    batcher = Batcher(options.max_waiting, metrics.on_batch, options.time_limit)
    answers = Answers(service, run, options, batcher, metrics)
    metrics.watch("aiayn_waiting_lines", "Lines that wait for the model.", lambda: batcher.waiting)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with batcher.running():
            yield

    def get(path: str, answer: Callable[[], object]) -> Route:
        return Route(path, lambda _: JSONResponse(answer()), methods=["GET"])

    def post(path: str, work: Work) -> Route:
        return Route(path, _limited(work, service, options), methods=["POST"])

    async def counts(request: Request) -> Response:
        _check_key(bearer(request), service)
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def download(request: Request) -> Response:
        name = request.path_params["name"]
        if (content := answers.files.get(name)) is None:
            raise HTTPException(404, "the file no longer exists; translate it again")
        attached = f"attachment; filename*=UTF-8''{quote(name.partition('.')[2], safe='')}"
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"Content-Disposition": attached},
        )

    routes = [
        *(Route(path, lambda _, file=file: FileResponse(file)) for path, file in FILES.items()),
        get("/languages", answers.languages),
        get("/frontend/settings", answers.settings),
        Route("/metrics", counts),
        post("/translate", answers.translate),
        post("/translate_file", answers.translate_file),
        Route("/download_file/{name}", download),
        post("/detect", answers.detect),
        post("/attention", answers.attention),
    ]
    # Probes call a server by its address, and learn nothing but its health.
    hosts = Middleware(_known_hosts, [*LOOPBACK, options.host, *options.allow_host])
    counted = Middleware(
        observed, metrics, {"/health", *(route.path for route in routes)}, options.access_log
    )
    cors = Middleware(
        CORSMiddleware,
        allow_origins=options.allow_origin,
        allow_methods=["POST"],
        allow_headers=["*"],
    )
    return Starlette(
        routes=[
            Route("/health", lambda _: JSONResponse({"status": "ok"}), methods=["GET", "POST"]),
            Mount("/", routes=routes, middleware=[hosts]),
        ],
        middleware=[counted, Middleware(_one_length), *([cors] if options.allow_origin else [])],
        exception_handlers={
            HTTPException: _refused,
            DataError: lambda _, error: _refusal(400, str(error)),
            ResourceError: lambda _, error: _refusal(503, str(error), LATER),
            UserError: lambda _, error: _refusal(500, str(error)),
            ClientDisconnect: lambda _, error: _refusal(499, "the client closed the connection"),
        },
        lifespan=lifespan,
    )


def _known_hosts(app: ASGIApp, names: list[str]) -> ASGIApp:
    """Refuses requests under other host names, against DNS rebinding; Starlette alone would do so
    in plain text.
    """
    refusal = _refusal(
        400,
        "this host name is not allowed: start the server with --allow-host NAME for each name "
        "that clients use",
    )
    # An address of IPv6, as in URLs
    names = [f"[{name.strip('[]')}]" if ":" in name else name for name in names]
    check = TrustedHostMiddleware(lambda *_: asyncio.sleep(0), names, www_redirect=False)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refused = asyncio.Queue[Message]()
        await check(scope, receive, refused.put)
        await (app if refused.empty() else refusal)(scope, receive, send)

    return answer


def _one_length(app: ASGIApp) -> ASGIApp:
    """Refuses a request with two lengths, and ends its connection: what follows may be meant as
    another request.
    """
    refusal = _refusal(
        400, "send Content-Length or Transfer-Encoding, not both", {"Connection": "close"}
    )

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        names = {name.lower() for name, _ in scope.get("headers", ())}
        has_both = {b"content-length", b"transfer-encoding"} <= names
        await (refusal if has_both else app)(scope, receive, send)

    return answer


def _limited(
    work: Work, service: Service, options: ServeOptions
) -> Callable[[Request], Awaitable[Response]]:
    """Returns the endpoint that answers with work(fields, state) within the limits, to clients with
    a key.
    """

    async def endpoint(request: Request) -> Response:
        try:
            async with asyncio.timeout(options.time_limit):
                request.state.base_url = request.base_url
                fields = await read_fields(request, options.max_body)
                _check_key(bearer(request) or str(fields.get("api_key") or ""), service)
                return JSONResponse(await while_connected(request, work(fields, request.state)))
        except TimeoutError:
            limit = f"{options.time_limit:g} seconds"
            message = f"not done within {limit}; send less text, or try again later"
            return _refusal(503, message, LATER)
        except (*ANSWERED, *ENDINGS):
            raise
        except BaseException as error:  # libraries in Rust panic with what is no Exception
            log.error(summary_of(error))
            return _refusal(500, "internal error; the server's log has details")

    return endpoint


def _check_key(key: str, service: Service) -> None:
    known, key_bytes = service.served.api_keys, key.encode("utf-8", "surrogatepass")
    if known and not key:
        message = "this server requires an API key: send it as api_key, or as Authorization: Bearer"
        raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
    # All are compared, so that the time tells nothing about any of them.
    if known and not sum(hmac.compare_digest(key_bytes, known_key.encode()) for known_key in known):
        raise HTTPException(403, "unknown API key")


async def while_connected(request: Request, work: Coroutine[None, None, T]) -> T:
    """Returns what `work` returns, but cancels it when the client goes away: nobody waits for it
    any more.
    """
    task, gone = asyncio.create_task(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, error.detail, error.headers)


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)
