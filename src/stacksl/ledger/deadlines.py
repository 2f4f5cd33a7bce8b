"""The deadlines of leases, on an injected clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stacksl.ledger.purchases import Purchase


class Deadlines:
    """When each open lease may expire; never, where `seconds` is None.

    They are kept in memory: opening a ledger restarts the deadline of every open lease, since no
    answer could be taken before.
    """

    def __init__(self, clock: Callable[[], float], seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._until: dict[tuple[str, int, int], float] = {}

    def clear(self) -> None:
        """Remove all deadlines."""
        self._until.clear()

    def note(self, purchases: Iterable[Purchase]) -> None:
        """Set a deadline for purchases without one, and drop those no longer open."""
        if self._seconds is None:
            return
        until = self._clock() + self._seconds
        keys = [(p.item, p.slot, p.token) for p in purchases]
        self._until = {key: self._until.get(key, until) for key in keys}

    def over(self, purchases: Iterable[Purchase]) -> list[Purchase]:
        """The purchases past their deadline."""
        now = self._clock()
        return [p for p in purchases if self._until.get((p.item, p.slot, p.token), now + 1) <= now]
