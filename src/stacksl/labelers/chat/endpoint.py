"""One HTTP request to a chat-completions endpoint: bounded in time and size, never redirected."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from socket import SHUT_RDWR, socket
from typing import Any
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
        import ssl

        import httpx2

        self.url = address(url)
        self._timeout = timeout
        self._open: set[socket] = set()
        headers = {"User-Agent": "stacksl", "Accept-Encoding": "identity"}
        if key:
            if not re.fullmatch(r"[!-~]+", key):
                raise SettingsError(
                    f"the key in {KEY} should be printable ASCII without spaces, got other"
                    " characters: set it again"
                )
            headers["Authorization"] = f"Bearer {key}"
        # A kept connection may have been closed by the server, which would look like a lost answer.
        self._client = httpx2.Client(
            headers=headers,
            timeout=timeout,
            trust_env=False,
            verify=ssl.create_default_context(),  # with the certificates of the machine
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    def send(self, call: str, body: bytes, kind: str = JSON, largest: int = LARGEST) -> HttpReply:
        """Send a `call`, such as `GET /files` below the base, with a `body` of a `kind`.

        An answer has `largest` bytes at most.

        Raises:
            NotSent: there was no connection.
            Lost: the connection broke, or the answer is not whole, in time, or small enough.
        """
        import httpx2

        method, path = call.split(" ", 1)
        wires: list[socket] = []

        def note(event: str, details: Mapping[str, Any]) -> None:
            if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                wires.append(details["return_value"].get_extra_info("socket"))
                self._open.add(wires[-1])
                if len(wires) == 1:
                    timer.start()

        # A time-out of the client is one for each read: slow bytes would keep it open for ever.
        timer = threading.Timer(self._timeout, lambda: _shut(wires[-1]))
        timer.daemon = True
        start = time.monotonic()  # before the timer starts, so that its end is known from a break
        url, headers = self.url.removesuffix(COMPLETIONS) + path, {"Content-Type": kind}
        try:
            with self._client.stream(
                method, url, content=body, headers=headers, extensions={"trace": note}
            ) as response:
                payload = bytearray()
                for chunk in response.iter_raw():
                    payload += chunk
                    if len(payload) > largest:
                        raise Lost(f"an answer of more than {largest} bytes")
                retry_after = _seconds(response.headers.get("Retry-After"))
                return HttpReply(response.status_code, retry_after, bytes(payload))
        except (httpx2.TransportError, httpx2.InvalidURL, UnicodeError) as fault:
            if not wires or isinstance(fault, httpx2.ConnectError | httpx2.ConnectTimeout):
                raise NotSent(f"no connection ({_word(fault)})") from None
            timed_out = time.monotonic() - start >= self._timeout
            limit = f"{self._timeout:g} s (server.timeout: a model that thinks before it answers"
            limit += f" may need {10 * self._timeout:g} s, set in a new run)"
            broken = isinstance(fault, httpx2.RemoteProtocolError)
            why = "a broken answer" if broken else _word(fault)
            raise Lost(f"no answer within {limit}" if timed_out else why) from None
        finally:
            timer.cancel()
            self._open.difference_update(wires)

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
    """A fault in a word or two, without texts of the server: the system's own, if it has one."""
    system = getattr(fault.__cause__, "args", ())  # what httpcore2 raises has it as its argument
    reasons = (getattr(each, "strerror", None) for each in (fault, *system))
    return next((reason for reason in reasons if reason), type(fault).__name__)
