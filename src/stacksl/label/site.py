"""Who may do what on the page: the checks of every request."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from stacksl.label.access import OWNER, Access, Limit, csrf_of
from stacksl.label.player import Player
from stacksl.runs.storage.folder import RunFolder

BODY = 65_536  # bytes of a request of a browser
STREAMS = 8  # of one session
SHEET = 4 << 20  # bytes of a filled-in sheet
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is not served: the sentence, the status and further headers of the reply."""

    def __init__(self, sentence: str, status: int, **headers: str) -> None:
        super().__init__(sentence)
        self.sentence, self.status, self.headers = sentence, status, headers


@dataclass
class Site:
    """One run's page.

    Attributes:
        player: of the run.
        access: links and sessions.
        hosts: the host names by which the page may be reached, without ports.
        guidelines: shown beside each question.
    """

    player: Player
    access: Access
    hosts: Collection[str]
    guidelines: str = ""
    streams: Counter[str] = field(default_factory=Counter)  # of news, by token
    closing: Callable[[], bool] = bool  # whether the server is about to end
    _tries: Limit = field(default_factory=lambda: Limit(20, 60.0))
    _requests: Limit = field(default_factory=lambda: Limit(240, 10.0))

    @property
    def cookie(self) -> str:
        """The name of the run's cookie: cookies are shared by all ports of a host."""
        return cookie_of(self.player.folder)

    def check(self, request: Any) -> None:
        """Check host, method, origin and length of a request.

        Raises:
            Refused: one of them is not as the page sends it.
        """
        if _host(request.headers.get("host", "")) not in self.hosts:
            raise Refused("the page was opened under another name than it is served by", 421)
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refused("this method is not served", 405)
        if request.method == "POST":
            origin = urlsplit(request.headers.get("origin", ""))
            if origin.netloc != request.headers.get("host"):
                raise Refused("the request is from another page", 403)
            most = SHEET if request.url.path == "/sheet" else BODY
            length = request.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > most:
                raise Refused(f"a request has a length of at most {most} bytes", 413)

    def who(self, request: Any) -> str | None:
        """The name of the request's session; None without one."""
        return self.access.who(request.cookies.get(self.cookie, ""))

    def token(self, request: Any) -> str:
        """The token of the request's session, within its limit of requests.

        Raises:
            Refused: there is no session, it has made too many requests, or a POST is not of its
                page.
        """
        token = str(request.cookies.get(self.cookie, ""))
        if self.access.who(token) is None:
            raise Refused("the session has expired: open a new link", 401)
        sent = request.headers.get("x-csrf-token", "").encode()
        if request.method == "POST" and not hmac.compare_digest(sent, csrf_of(token).encode()):
            raise Refused("the request is not from this session's page", 403)
        if not self._requests.allows(token):
            raise Refused("too many requests: wait some seconds", 429, **{"Retry-After": "5"})
        return token

    def caller(self, request: Any) -> str:
        """The name of the session's owner; see `token`."""
        return self.access.who(self.token(request)) or ""

    def annotator(self, request: Any) -> str:
        """The annotator who sends a request.

        Raises:
            Refused: see `token`, or it is the owner of the run.
        """
        if (name := self.caller(request)) == OWNER:
            raise Refused("the owner of a run gives no answers", 403)
        return name

    def owner(self, request: Any) -> None:
        """Check that the owner of the run sends a request.

        Raises:
            Refused: see `token`, or it is an annotator.
        """
        if self.caller(request) != OWNER:
            raise Refused("this is for the owner of the run", 403)

    @property
    def watched(self) -> bool:
        """Whether an owner looks at the page."""
        return any(self.access.who(token) == OWNER for token in +self.streams)

    def stream(self, request: Any) -> str:
        """The token of a request for news.

        Raises:
            Refused: see `token`, or the session has too many already.
        """
        token = self.token(request)
        if self.streams[token] >= STREAMS:
            raise Refused("the page is open too often: close a tab", 429)
        return token

    def failed_trial(self) -> None:
        """Count a try to enter that failed: the guesses of one must not keep out the others.

        Raises:
            Refused: there were too many.
        """
        if not self._tries.allows("enter"):
            raise Refused("too many tries: wait a minute", 429)


def cookie_of(folder: RunFolder) -> str:
    """The name of the cookie of a run."""
    path = str(folder.path.resolve())
    return f"stacksl-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    return (urlsplit(f"//{header}").hostname or "") if "@" not in header else ""
