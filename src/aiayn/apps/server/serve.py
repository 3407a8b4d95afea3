"""Runs the web application until a signal ends it."""

import logging
import signal
import socket
import sys
from threading import Thread

import uvicorn

from aiayn.apps.server.app import make_app
from aiayn.apps.server.connection import Connection
from aiayn.apps.server.metrics import Metrics
from aiayn.apps.server.options import ServeOptions
from aiayn.apps.server.service import Service
from aiayn.errors import ConfigError

# Scripts and styles come from this server only, so text that looks like HTML can run nothing.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
        "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# seconds beyond the time limit of a request until a server that was told to end does so anyway
SHUTDOWN_GRACE = 5

log = logging.getLogger(__name__)


def serve(service: Service, run: str, options: ServeOptions) -> None:
    """Answers requests until SIGTERM or Ctrl-C, after which accepted requests are still finished.

    SIGHUP reloads model and keys. The address is printed once the server listens. Raises
    ConfigError if it cannot listen there.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("aiayn").setLevel(logging.INFO)
    logging.getLogger("asyncio").addFilter(SeldomAndShort())
    metrics = Metrics()
    config = uvicorn.Config(
        make_app(service, run, options, metrics),
        http=Connection,
        limit_concurrency=options.max_connections,
        headers=list(HEADERS.items()),
        server_header=False,
        timeout_graceful_shutdown=int(options.time_limit) + SHUTDOWN_GRACE,
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    metrics.watch(
        "aiayn_connections", "Open connections.", lambda: len(server.server_state.connections)
    )
    metrics.watch("aiayn_loads", "Times that model and keys were loaded.", lambda: service.loads)
    metrics.watch(
        "aiayn_failed_loads",
        "Times that reloading model and keys failed.",
        lambda: service.failures,
    )
    with listen(options.host, options.port) as listener:
        on_terminal = sys.stdin.isatty()
        if hasattr(signal, "SIGHUP"):  # not on Windows
            # Before anybody hears that there is a server: until then SIGHUP ends the process.
            signal.signal(signal.SIGHUP, lambda *_: _on_hangup(service, on_terminal))
        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        log.info("serving %s", service.served.describe())
        server.run([listener])


class SeldomAndShort(logging.Filter):
    """Lets through one line a minute, without traceback, while the server has no file descriptor
    left.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last = -60.0

    def filter(self, record: logging.LogRecord) -> bool:
        if "out of system resource" not in record.getMessage():
            return True
        is_due = record.created - self._last >= 60
        if is_due:
            self._last = record.created
            record.msg, record.args = (
                "no file descriptor is left: new connections wait; raise ulimit -n",
                None,
            )
            record.exc_info = record.exc_text = None
        return is_due


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address. Raises ConfigError if that is not possible."""
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        remedy = "choose another --port, or another --host"
        raise ConfigError(
            f"--host {host} --port {port}: cannot listen there ({error.strerror}); {remedy}"
        ) from error
    # Connections inherit it. Without it an answer waits 40 ms for the client to acknowledge its
    # header (Nagle), and asyncio sets it only on sockets that name their protocol, which this one
    # does not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _on_hangup(service: Service, on_terminal: bool) -> None:
    """Reloads the model, or ends the server if its terminal is gone."""
    if on_terminal and not sys.stdin.isatty():
        signal.raise_signal(signal.SIGTERM)
        return
    Thread(target=service.reload, daemon=True).start()
