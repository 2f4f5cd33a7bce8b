"""Who may open the page: links that are good for one exchange, sessions, and limits of requests.

Secrets have 256 random bits. Only their SHA-256 is kept, and that of sessions alone is in the run's
database, so that a restarted server knows its annotators again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from stacksl.ledger.store.database import opened
from stacksl.ledger.store.schema import SESSIONS

LINK_SECONDS = 24 * 3600
OWNER = ",owner"  # no annotator's name has a comma
SESSION_SECONDS = 12 * 3600


class Access:
    """The links and the sessions of one run.

    Args:
        database: of the run, which keeps the sessions.
        clock: gives seconds since the epoch.
    """

    def __init__(self, database: Path, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock
        self._links: dict[str, tuple[str, float]] = {}
        with opened(database, readonly=True) as store:
            self._sessions = {
                digest: (name, float(until)) for digest, name, until in store.select(SESSIONS)
            }

    def link(self, name: str) -> str:
        """A new secret of `name`; the links and the sessions it had before stay valid."""
        secret = secrets.token_urlsafe(32)
        self._links[_digest(secret)] = name, self._clock() + LINK_SECONDS
        return secret

    def exchange(self, secret: str) -> str | None:
        """The token of a new session for a link's secret, once; None if it is used or expired."""
        name, until = self._links.pop(_digest(secret), ("", 0.0))
        if until <= self._clock():
            return None
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = name, self._clock() + SESSION_SECONDS
        self._write()
        return token

    def who(self, token: str | None) -> str | None:
        """The name of a session's owner; None if there is no such session any more."""
        name, until = self._sessions.get(_digest(token or ""), ("", 0.0))
        return name if until > self._clock() else None

    def leave(self, token: str) -> None:
        """End a session."""
        if self._sessions.pop(_digest(token), None) is not None:
            self._write()

    def revoke(self, name: str) -> None:
        """End all sessions and links of `name`."""
        self._links = {key: each for key, each in self._links.items() if each[0] != name}
        self._sessions = {key: each for key, each in self._sessions.items() if each[0] != name}
        self._write()

    def _write(self) -> None:
        now = self._clock()
        self._sessions = {key: each for key, each in self._sessions.items() if each[1] > now}
        rows = [
            {"digest": digest, "name": name, "until": int(until)}
            for digest, (name, until) in self._sessions.items()
        ]
        with opened(self._database) as store, store.writing():
            store.connection.execute("DELETE FROM sessions")
            store.insert(SESSIONS, rows)
            store.commit()


def csrf_of(token: str) -> str:
    """The value that a page of this session sends with each POST."""
    return hmac.new(token.encode(), b"stacksl csrf", hashlib.sha256).hexdigest()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class Limit:
    """At most `count` events of one key in `seconds`."""

    def __init__(
        self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._seconds, self._clock = count, seconds, clock
        self._times: dict[str, deque[float]] = {}

    def allows(self, key: str) -> bool:
        """Whether one more event is allowed now; if so, it is counted."""
        now = self._clock()
        if len(self._times) > 1000:
            self._times = {k: t for k, t in self._times.items() if t[-1] > now - self._seconds}
        times = self._times.setdefault(key, deque())
        while times and times[0] <= now - self._seconds:
            times.popleft()
        if len(times) >= self._count:
            return False
        times.append(now)
        return True
