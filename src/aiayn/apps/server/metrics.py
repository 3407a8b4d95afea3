"""Counts for Prometheus, and an access log. Neither holds text or keys."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from time import perf_counter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("aiayn.access")

METHODS = ("GET", "POST", "HEAD", "OPTIONS")
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
LINES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counts of one server, from zero at its start."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory and processor seconds
        count, spread = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self.requests = count("aiayn_requests", "Requests answered.", ["path", "status"])
        self.seconds = spread(
            "aiayn_request_seconds", "Time to an answer.", ["path"], buckets=SECONDS
        )
        self.lines = count("aiayn_lines", "Sentences received for translation.")
        self.subwords = count("aiayn_subwords", "Subwords received for translation.")
        self.batch_lines = spread("aiayn_batch_lines", "Sentences of a batch.", buckets=LINES)
        self.batch_seconds = count("aiayn_batch_seconds", "Time that the model took for batches.")
        self.markup = count("aiayn_markup", "Tags and placeholders by method of placement.", ["by"])
        self.removed = count(
            "aiayn_markup_removed", "Tags and placeholders removed because the source lacks them."
        )

    def on_batch(self, lines: int, seconds: float) -> None:
        self.batch_lines.observe(lines)
        self.batch_seconds.inc(seconds)

    def on_markup(self, placement_counts: Mapping[str, int]) -> None:
        for by, name in (
            ("model", "by_model"),
            ("alignment", "by_alignment"),
            ("guess", "guessed"),
        ):
            self.markup.labels(by).inc(placement_counts[name])
        self.removed.inc(placement_counts["removed"])

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a number that is looked up when the metrics are read."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def page(self) -> bytes:
        """Returns all counts in the text format of Prometheus."""
        return generate_latest(self.registry)


def _address(client: str) -> str:
    """Returns what parses as an address; else a dash: a proxy passes on what a client writes into
    its headers.

    The zone of an IPv6 address is left out, because any characters may be in it.
    """
    try:
        return str(ip_address(client)).partition("%")[0]
    except ValueError:
        return "-"


def observed(app: ASGIApp, metrics: Metrics, paths: set[str], access_log: bool) -> ASGIApp:
    """Returns middleware that counts requests, and logs each on a line if asked to.

    `request.state.lines` and `request.state.subwords`, where a route has set them, say how much
    text there was. Only these `paths` are named, for others may hold text.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status, start = 500, perf_counter()  # of an exception, which is answered further outside

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, noted)
        finally:
            seconds, state = perf_counter() - start, scope.get("state", {})
            path = scope["path"] if scope["path"] in paths else "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            lines, subwords = state.get("lines", 0), state.get("subwords", 0)
            metrics.requests.labels(path, status).inc()
            metrics.seconds.labels(path).observe(seconds)
            metrics.lines.inc(lines)
            metrics.subwords.inc(subwords)
            if access_log:
                client = _address((scope.get("client") or [""])[0])
                log.info(
                    "client=%s method=%s path=%s status=%d seconds=%.3f lines=%d subwords=%d",
                    client,
                    method,
                    path,
                    status,
                    seconds,
                    lines,
                    subwords,
                )

    return answer
