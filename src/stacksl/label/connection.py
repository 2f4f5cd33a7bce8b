"""Connections to the page: who keeps a request back leaves room for those who send theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 20.0  # for a whole request, its body included
MOST = 250  # connections without a whole request, of all addresses


class Connection(H11Protocol):  # type: ignore[misc]  # uvicorn is an extra
    """A connection that is closed where its request is not there in time.

    Beyond `MOST` that wait, the oldest one of the address that has most of them is closed: browsers
    send a request as soon as they are connected, and connect again.
    """

    waiting: ClassVar[dict[Connection, asyncio.TimerHandle]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        """Read what has arrived; a whole request is answered, and no longer waited for."""
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and not (cycle.more_body or cycle.response_complete):
            self._end_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._end_wait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._end_wait()
        self.waiting[self] = self.loop.call_later(SECONDS, self.transport.abort)
        if len(self.waiting) > MOST:
            [(address, _)] = Counter(peer.client[0] for peer in self.waiting).most_common(1)
            oldest = next(peer for peer in self.waiting if peer.client[0] == address)
            oldest._end_wait()
            oldest.transport.abort()

    def _end_wait(self) -> None:
        if (timer := self.waiting.pop(self, None)) is not None:
            timer.cancel()
