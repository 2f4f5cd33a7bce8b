"""A chat-completions server on loopback that answers, or misbehaves, as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behavior = Callable[["Handler", dict[str, Any], int], None]


@dataclass
class Server:
    """What a test sees of the server: its `url`, the requests so far, and how it behaves."""

    url: str
    behave: Behavior
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most: int = 0
    now: int = 0
    closing: threading.Event = field(default_factory=threading.Event)
    other: Callable[[Handler, str, bytes], None] | None = None


class Handler(BaseHTTPRequestHandler):
    server_version = "fake"

    def do_POST(self) -> None:
        mine: Server = self.server.mine  # type: ignore[attr-defined]
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if mine.other is not None and not self.path.endswith("/chat/completions"):
            return mine.other(self, f"POST {self.path}", content)
        body = json.loads(content)
        with self.server.lock:  # type: ignore[attr-defined]
            mine.bodies.append(body)
            mine.headers.append({**self.headers})
            number = len(mine.bodies)
            mine.now += 1
            mine.most = max(mine.most, mine.now)
        try:
            mine.behave(self, body, number)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            mine.now -= 1

    def do_GET(self) -> None:
        mine: Server = self.server.mine  # type: ignore[attr-defined]
        assert mine.other is not None
        mine.other(self, f"{self.command} {self.path}", b"")

    do_DELETE = do_GET

    def send(self, status: int, payload: bytes = b"{}", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(behave: Behavior) -> Iterator[Server]:
    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    web.lock = threading.Lock()  # type: ignore[attr-defined]
    server = Server(f"http://127.0.0.1:{web.server_port}/v1", behave)
    web.mine = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        web.shutdown()
        web.server_close()


def completion(
    said: str | None, *, usage: tuple[int, int] | None = (100, 1), ended: str = "stop", **more: Any
) -> bytes:
    message = {"role": "assistant", "content": said, **more}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": ended}
    found: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
    if usage is not None:
        found["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return json.dumps(found).encode()


def options_of(body: dict[str, Any]) -> list[str]:
    """The options in a request by the default template, in the order shown."""
    block = body["messages"][0]["content"].split("Options:\n")[1].split("\n\n")[0]
    return [line.split(" ", 1)[1] for line in block.splitlines()]


def letter_of(body: dict[str, Any], option: str) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[options_of(body).index(option)]


def wanted_of(body: dict[str, Any]) -> str:
    """The class whose name is in the text: `text 7 of green`."""
    asked: str = body["messages"][0]["content"].split("Options:\n")[0]
    return asked.split(" of ")[-1].split()[0]


def right(handler: Handler, body: dict[str, Any], number: int) -> None:
    """Answer with the class whose name is in the text, in the form of the schema if one is sent."""
    wanted = wanted_of(body)
    said = letter_of(body, wanted) if by_letters(body) else wanted
    handler.send(200, completion(f'{{"answer": "{said}"}}' if "response_format" in body else said))


def by_letters(body: dict[str, Any]) -> bool:
    """Whether a request shows its options with letters."""
    return "letter" in body["messages"][0]["content"].rsplit("\n\n", 1)[-1]


def broken(handler: Handler, body: dict[str, Any], number: int) -> None:
    handler.send(500)


def hang(handler: Handler, body: dict[str, Any], number: int) -> None:
    """Say nothing for longer than anybody waits."""
    handler.server.mine.closing.wait(60)  # type: ignore[attr-defined]
