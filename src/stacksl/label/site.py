"""Who may do what on the page: links that are good for one exchange, sessions, and every request.

Secrets have 256 random bits. Only their SHA-256 is kept, in memory alone: sessions end with the
process, so that a cookie is worth nothing to another server on its port, which gets it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Any
from urllib.parse import SplitResult, urlsplit

from stacksl.label.player import Player

LINK_SECONDS = 24 * 3600
OWNER = ",owner"  # no annotator's name has a comma
SESSION_SECONDS = 12 * 3600
BODY = 65_536  # bytes of a request of a browser
LOOKING = 10.0  # seconds without a look after which an owner's page is no longer open
SHEET = 4 << 20  # bytes of a filled-in sheet
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self';"
    " frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Access:
    """The links and the sessions of one run."""

    def __init__(self) -> None:
        self._links: dict[str, tuple[str, float]] = {}
        self._sessions: dict[str, tuple[str, float]] = {}

    def link(self, name: str) -> str:
        """A new secret of `name`; the links and the sessions it had before stay valid."""
        secret = secrets.token_urlsafe(32)
        self._links[_digest(secret)] = name, time.time() + LINK_SECONDS
        return secret

    def exchange(self, secret: str) -> str | None:
        """The token of a new session for a link's secret, once; None if it is used or expired."""
        name, until = self._links.pop(_digest(secret), ("", 0.0))
        if until <= time.time():
            return None
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = name, time.time() + SESSION_SECONDS
        return token

    def session_owner(self, token: str | None) -> str | None:
        """The name of a session's owner; None if there is no such session any more."""
        name, until = self._sessions.get(_digest(token or ""), ("", 0.0))
        return name if until > time.time() else None

    def leave(self, token: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(token), None)

    def revoke(self, name: str) -> None:
        """End all sessions and links of `name`."""
        self._links = {key: link for key, link in self._links.items() if link[0] != name}
        self._sessions = {key: entry for key, entry in self._sessions.items() if entry[0] != name}


def csrf_of(token: str) -> str:
    """The value that a page of this session sends with each POST."""
    return hmac.new(token.encode(), b"stacksl csrf", hashlib.sha256).hexdigest()


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # such as a bracket that is not closed
        return urlsplit("")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class Refused(Exception):
    """A request that is not served: the sentence and the status of the reply."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.sentence, self.status = sentence, status


@dataclass
class Site:
    """One run's page, with the guidelines that are shown next to each question."""

    player: Player
    access: Access
    hosts: Collection[str]  # by which the page may be reached, without ports
    guidelines: str = ""
    _last_look: float = -inf  # when the owner's page last looked for news

    @property
    def cookie(self) -> str:
        """The name of the run's cookie: cookies are shared by all ports of a host."""
        path = str(self.player.folder.path.resolve())
        return f"stacksl-{hashlib.sha256(path.encode()).hexdigest()[:16]}"

    def check(self, request: Any) -> None:
        """Check host, method, origin and length of a request.

        Raises:
            Refused: one of them is not as the page sends it.
        """
        header = request.headers.get("host", "")
        host = (_split(f"//{header}").hostname or "") if "@" not in header else ""
        if host not in self.hosts:
            raise Refused("the page was opened under another name than it is served by", 421)
        if request.method == "POST":
            origin = _split(request.headers.get("origin", ""))
            if origin.netloc != request.headers.get("host"):
                raise Refused("the request is from another page", 403)
            max_bytes = SHEET if request.url.path == "/sheet" else BODY
            length = request.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > max_bytes:
                raise Refused(f"a request has a length of at most {max_bytes} bytes", 413)

    def caller(self, request: Any) -> str:
        """The name of the owner of the request's session.

        Raises:
            Refused: there is no session, or a POST is not of its page.
        """
        token = str(request.cookies.get(self.cookie, ""))
        if (name := self.access.session_owner(token)) is None:
            raise Refused("the session has expired: open a new link", 401)
        csrf = request.headers.get("x-csrf-token", "").encode()
        if request.method == "POST" and not hmac.compare_digest(csrf, csrf_of(token).encode()):
            raise Refused("the request is not from this session's page", 403)
        if name == OWNER:
            self._last_look = time.monotonic()
        return name

    @property
    def watched(self) -> bool:
        """Whether an owner looks at the page."""
        return time.monotonic() - self._last_look < LOOKING
