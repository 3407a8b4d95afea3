"""Connections that wait for their client are closed: after a while, or to make room for others."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds from a new connection to the closing of others: by then what their clients have sent already is read, even
# where hundreds of connections come at once.
SETTLE = 0.05


class Limits(NamedTuple):
    connections: int
    seconds: float  # until a client must have sent the head of a request, or read what it was sent
    on_close: Callable[[], None]  # called for every connection that is closed for a limit


class Connection(H11Protocol):
    """A connection of uvicorn that an idle client cannot hold open (slowloris).

    uvicorn has no time limit before the first request, nor for an answer that is not read, and with its own limit of
    connections idle ones lock everybody out. Here those that have waited longest for their clients are closed.
    """

    limits: Limits  # set by `limited_connection`

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.closed = False  # because it reached a limit
        self.waiting_since = self.loop.time()  # or at work
        self.overdue = self.loop.call_later(self.limits.seconds, self._close_if_overdue)
        self.loop.call_later(SETTLE, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        self.overdue.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.waiting_since = self.loop.time()
        super().pause_writing()

    def waits_for_client(self) -> bool:
        """True until a request is complete, while an answer is not read, and after it."""
        return not self._is_answering() or self.cycle.more_body

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused

    def close_for_limit(self) -> None:
        self.closed = True
        self.limits.on_close()
        self.transport.abort()  # close() would wait until the client has read what was sent

    def _make_room(self) -> None:
        """Closes as many connections as there are too many."""
        there = [one for one in self.connections if isinstance(one, Connection) and not one.closed]
        if len(there) > self.limits.connections:
            waiting = sorted((one for one in there if one.waits_for_client()), key=lambda one: one.waiting_since)
            for one in waiting[: len(there) - self.limits.connections]:
                one.close_for_limit()

    def _close_if_overdue(self) -> None:
        """A request that has begun has a time limit of its own, and is answered even if that is over."""
        seconds = self.limits.seconds
        wait = seconds if self._is_answering() else self.waiting_since + seconds - self.loop.time()
        if wait > 0:
            self.overdue = self.loop.call_later(wait, self._close_if_overdue)
        else:
            self.close_for_limit()


def limited_connection(limits: Limits) -> type[Connection]:
    """Returns the class of a server's connections, which uvicorn makes by itself."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
