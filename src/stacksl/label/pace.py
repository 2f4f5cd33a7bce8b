"""How fast somebody answers, and who has stopped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

KEPT = 30  # answers that the pace is measured on
BREAK = 300.0  # seconds between two answers beyond which it was a break, which does not count


class Pace:
    """The pace of one annotator, and the time since anything was heard of them.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None  # answer
        self._seen = clock()
        self._gaps: deque[float] = deque(maxlen=KEPT)

    def see(self) -> None:
        """Note that the annotator is there."""
        self._seen = self._clock()

    def answer(self) -> None:
        """Note an answer."""
        self._seen = now = self._clock()
        if self._last is not None and now - self._last < BREAK:
            self._gaps.append(now - self._last)
        self._last = now

    @property
    def idle(self) -> float:
        """Seconds since the annotator was there."""
        return self._clock() - self._seen

    @property
    def an_hour(self) -> float | None:
        """Answers an hour; None before there are three."""
        if len(self._gaps) < 2 or not sum(self._gaps):
            return None
        return 3600 * len(self._gaps) / sum(self._gaps)
