"""Connections that keep a request back shut nobody out."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing

from stacksl.label import app

from ..runs.people_cases import begin
from .clients import Client
from .served import Served

HALF = (
    b"GET / HTTP/1.1\r\nHost: 127",
    b"POST /answer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\nx",
    b"GET /web/page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",  # whole, and then nothing more
)


def received(other: socket.socket) -> bytes:
    """What is there to be read; nothing once the connection is closed."""
    try:
        return other.recv(10_000)
    except ConnectionError:
        return b""


def test_half_sent_requests_leave_room_and_end_in_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(app, "WAITING", 20)
    monkeypatch.setattr(app, "WHOLE", 3.0)
    served = Served(begin(tmp_path, annotators="anna", budget=4, open_questions=4, audit=0))
    anna = Client(served.links["anna"])
    with ExitStack() as held:
        others = []
        for sent in HALF * 20:
            other = socket.create_connection((anna.host, anna.port), timeout=60)
            others.append(held.enter_context(closing(other)))
            other.sendall(sent)
        assert len(anna.rows()) == 4
        assert len(app.Connection.waiting) <= 20
        until = time.monotonic() + 60
        for each in others:
            while received(each):  # until the server closes it
                assert time.monotonic() < until
    assert len(anna.rows()) == 4
