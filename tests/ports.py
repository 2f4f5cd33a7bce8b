"""A port of this machine for a server that is told which to take."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that refuses connections until a server listens, and that nobody else is given.

    Linux lets a server that reuses addresses listen where this socket is bound; elsewhere the port
    is only free.
    """
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        port = int(bound.getsockname()[1])
        if sys.platform != "linux":
            bound.close()
        yield port
