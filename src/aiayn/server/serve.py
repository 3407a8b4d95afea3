"""Runs the web application until a signal ends it."""

import socket

import uvicorn

from aiayn.config.schema import ServeConfig
from aiayn.errors import ConfigError
from aiayn.inference.translator import Translator
from aiayn.server.app import make_app

# Scripts and styles come from this server only, so text that looks like HTML can run nothing.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
GRACE = 5  # seconds beyond the time limit of a request until a server that was told to end does so anyway


def serve(translator: Translator, run: str, options: ServeConfig) -> None:
    """Answers requests until SIGTERM or Ctrl-C, after which accepted requests are still finished.

    The address is printed once the server listens. Raises ConfigError if it cannot listen there.
    """
    config = uvicorn.Config(
        make_app(translator, run, options),
        headers=list(HEADERS.items()),
        server_header=False,
        proxy_headers=False,
        limit_concurrency=options.max_connections,
        timeout_graceful_shutdown=int(options.time_limit) + GRACE,
        log_level="warning",
        access_log=False,
        ws="none",
    )
    with listen(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        uvicorn.Server(config).run([listener])


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address. Raises ConfigError if that is not possible."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        remedy = "choose another --port, or another --host"
        raise ConfigError(f"--host {host} --port {port}: cannot listen there ({error.strerror}); {remedy}") from error
