"""Refuses unknown Host headers, with which pages of other sites could read the server (DNS rebinding)."""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
FOR_ALL = ("/health",)  # probes call a server by its address, and learn nothing else here


class KnownHosts:
    """Middleware that refuses requests for hosts not in `names`; *.example.org matches all subdomains."""

    def __init__(self, app: ASGIApp, names: list[str]):
        self.app = app
        self.names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in FOR_ALL:
            await self.app(scope, receive, send)
            return
        host = _name(Headers(scope=scope).get("host", ""))
        if any(host == name or name == "*" or (name[:2] == "*." and host.endswith(name[1:])) for name in self.names):
            await self.app(scope, receive, send)
            return
        message = f"this server is not called {host!r:.80}: start it with --allow-host and the name that clients use"
        await JSONResponse({"error": message}, 400)(scope, receive, send)


def _name(host: str) -> str:
    """Returns a host without its port; addresses of version 6 keep their brackets."""
    name, bracket, _ = host.partition("]")
    return (name + bracket if bracket else host.partition(":")[0]).lower()
