"""Until when leases run, on an injected clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stacksl.ledger.purchases import Purchase


class Deadlines:
    """When each open lease may expire; never, where `seconds` is None.

    They are kept in memory: a ledger that is opened lets every open lease run anew, since nobody
    was listening before.
    """

    def __init__(self, clock: Callable[[], float], seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._until: dict[tuple[str, int, int], float] = {}

    def clear(self) -> None:
        """Forget all deadlines; `note` sets them anew."""
        self._until.clear()

    def note(self, purchases: Iterable[Purchase]) -> None:
        """Give those that have none a deadline from now, and drop those that are not open."""
        if self._seconds is None:
            return
        until = self._clock() + self._seconds
        keys = [(p.item, p.slot, p.token) for p in purchases]
        self._until = {key: self._until.get(key, until) for key in keys}

    def over(self, purchases: Iterable[Purchase]) -> list[Purchase]:
        """Those whose time is over."""
        now = self._clock()
        return [p for p in purchases if self._until.get((p.item, p.slot, p.token), now + 1) <= now]
