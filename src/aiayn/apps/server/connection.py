"""Connections of HTTP/1.1, with limits that uvicorn's own do not have."""

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # in which the head of the next request must be complete
SMALL, MANY = 1000, 2000  # bytes of a small piece of a body, and how many of them one may have

log = logging.getLogger(__name__)


class Connection(H11Protocol):
    """Ends if the head of a request does not come, for it takes one of the places of all, or if a
    body comes in many small pieces: each of them takes as long to parse as a large one.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._small_pieces = 0
        self._parsed, self.conn.next_event = self.conn.next_event, self._checked
        self._head_due: asyncio.TimerHandle | None = None
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._head_due is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_due = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_came(self) -> None:
        if self._head_due:
            self._head_due.cancel()
            self._head_due = None

    def _checked(self) -> Any:
        """Returns the next event of the connection."""
        event = self._parsed()
        if isinstance(event, h11.Request):
            self._head_came()
            self._small_pieces = 0
        elif isinstance(event, h11.Data) and len(event.data) < SMALL:
            self._small_pieces += 1
            if self._small_pieces > MANY:
                log.warning("a body came in more than %d small pieces: connection closed", MANY)
                self.transport.close()
                return h11.NEED_DATA
        return event
