"""One HTTP request to a chat-completions endpoint: bounded in time and size, never redirected."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from socket import SHUT_RDWR, socket
from urllib.parse import urlsplit

from stacksl.errors import SettingsError

KEY = "STACKSL_API_KEY"  # the environment variable of the key
LARGEST = 4_000_000  # bytes of an answer
COMPLETIONS, JSON = "/chat/completions", "application/json"


class NotSent(Exception):
    """The request did not reach the server, or was refused as a whole: it costs nothing."""


class Lost(Exception):
    """The request was sent and no whole answer was received: it may have been billed."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What the server sent: status, seconds of `Retry-After`, 0 if it named none, and content."""

    status: int
    retry_after: float
    payload: bytes


class Endpoint:
    """The address of a server. Proxies of the environment are not used.

    Args:
        url: its base, such as `http://127.0.0.1:8000/v1`.
        key: sent as a bearer token, if there is one.
        timeout: seconds for a request, from the connection to the last byte of the answer.

    Raises:
        SettingsError: the address or the key cannot be used; the key is never quoted.
    """

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self.url = address(url)
        parts = urlsplit(self.url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.removesuffix(COMPLETIONS)
        self._timeout = timeout
        self._open: set[socket] = set()
        self._headers = {"User-Agent": "stacksl"}
        if key:
            if not re.fullmatch(r"[!-~]+", key):
                raise SettingsError(
                    f"the key in {KEY} should be printable ASCII without spaces, got other"
                    " characters: set it again"
                )
            self._headers["Authorization"] = f"Bearer {key}"

    def send(self, call: str, body: bytes, kind: str = JSON, largest: int = LARGEST) -> HttpReply:
        """Send a `call`, such as `GET /files` below the base, with a `body` of a `kind`.

        An answer has `largest` bytes at most.

        Raises:
            NotSent: there was no connection.
            Lost: the connection broke, or the answer is not whole, in time, or small enough.
        """
        method, path = call.split(" ", 1)
        connection_type = HTTPSConnection if self._secure else HTTPConnection
        connection = connection_type(self._host or "", self._port, timeout=self._timeout)
        try:
            connection.connect()
        except (OSError, HTTPException, ValueError) as fault:
            connection.close()
            raise NotSent(f"no connection ({_word(fault)})") from None
        wire = connection.sock
        self._open.add(wire)
        # A time-out of the socket is one for each read: slow bytes would keep it open for ever.
        timer = threading.Timer(self._timeout, _shut, (wire,))
        timer.daemon = True
        start = time.monotonic()  # before the timer starts, so that its end is known from a break
        timer.start()
        try:
            headers = self._headers | {"Content-Type": kind}
            connection.request(method, self._path + path, body, headers)
            with connection.getresponse() as response:
                payload = response.read(largest + 1)
                if len(payload) > largest:
                    raise Lost(f"an answer of more than {largest} bytes")
                if response.length:
                    raise OSError(0, "a truncated answer")
                retry_after = _seconds(response.headers.get("Retry-After"))
                return HttpReply(response.status, retry_after, payload)
        except (OSError, HTTPException, ValueError) as fault:
            timed_out = time.monotonic() - start >= self._timeout
            limit = f"{self._timeout:g} s (server.timeout: a model that thinks before it answers"
            limit += f" may need {10 * self._timeout:g} s, set in a new run)"
            raise Lost(f"no answer within {limit}" if timed_out else _word(fault)) from None
        finally:
            timer.cancel()
            self._open.discard(wire)
            connection.close()

    def abort(self) -> None:
        """End every request that is under way."""
        for wire in list(self._open):
            _shut(wire)


def address(url: str) -> str:
    """The address of chat completions below the base `url`.

    Raises:
        SettingsError: it is no http address, or has a user, a password or a query in it.

    >>> address("http://127.0.0.1:8000/v1/")
    'http://127.0.0.1:8000/v1/chat/completions'
    """
    fault = SettingsError(
        "the url should be http://HOST[:PORT][/PATH] or https://..., without user, password and"
        f" query (a key goes into the environment as {KEY}), such as http://127.0.0.1:8000/v1"
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise fault from None
    has_host = re.fullmatch(r"[!-~]+", url) and parts.hostname and port != 0
    extras = parts.username is not None or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not has_host or extras:
        raise fault
    return url.rstrip("/").removesuffix(COMPLETIONS) + COMPLETIONS


def is_loopback(url: str) -> bool:
    """Whether the host of an address is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shut(wire: socket) -> None:
    with suppress(OSError):
        wire.shutdown(SHUT_RDWR)


def _seconds(text: str | None) -> float:
    """The seconds of a `Retry-After` header; 0 where it has none, or a date."""
    text = (text or "").strip()
    return float(text[:12]) if text.isascii() and text.isdigit() else 0.0


def _word(fault: Exception) -> str:
    """A fault in a word or two, without texts of the server."""
    reason = getattr(fault, "strerror", None)
    return reason if isinstance(reason, str) and reason else type(fault).__name__
