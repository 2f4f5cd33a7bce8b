"""What a request says of itself where no whole answer came: nothing sent, or lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from stacksl.labelers.chat.endpoint import COMPLETIONS, Endpoint, Lost, NotSent

CALL = f"POST {COMPLETIONS}"


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that reads one request, sends `answer` and closes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with closing(connection):
                while b"{}" not in connection.recv(65_536):
                    pass
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        thread.join(10)


@pytest.mark.parametrize(
    ("host", "reason"),
    [("127.0.0.1:1", "Connection refused"), (f"{'a' * 70}.invalid", "UnicodeError")],
)
def test_a_request_without_a_connection_was_not_sent(host: str, reason: str) -> None:
    with pytest.raises(NotSent, match=f"no connection \\({reason}\\)"):
        Endpoint(f"http://{host}/v1", None, 5).send(CALL, b"{}")


@pytest.mark.parametrize(
    "answer",
    [b"", b"no HTTP secret\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"],
    ids=["none", "other", "cut"],
)
def test_an_answer_that_breaks_off_is_lost_and_never_quoted(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(Lost, match=r"^a broken answer$"):
        Endpoint(url, None, 5).send(CALL, b"{}")


def test_an_answer_is_as_the_server_sent_it() -> None:
    sent = b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nwait"
    with answering(sent) as url:
        reply = Endpoint(url, "key", 5).send(CALL, b"{}")
    assert (reply.status, reply.retry_after, reply.payload) == (429, 7.0, b"wait")
