"""The rows of a chain after the one where a ledger stands, to be made again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from stacksl.errors import RunError
from stacksl.ledger.events import Entry, Row, read_decision, values_of

_COMPUTED = ("round", "refit", "refreshed")  # events of what a run decides or computes


class Recorded:
    """Rows in their order, each taken once.

    Attributes:
        changed: whether settings, items or classes change behind a decision among the rows.
        stream: whether decisions are those of a stream, which takes items one by one.
    """

    def __init__(self, pages: Iterator[list[Row]], *, changed: bool, stream: bool) -> None:
        self._pages, self.changed, self.stream = pages, changed, stream
        self._blurred = False
        self._rows: deque[Row] = deque()

    @property
    def next(self) -> Row | None:
        """The next row; None behind the last one."""
        return next(self.upcoming(), None)

    @property
    def comparable(self) -> bool:
        """Whether what the next row records comes out the same to the bit.

        Where settings, items or classes have changed since, it does not: a pool chose from other
        items, and a final model was made of others, from which the next refit starts. A stream's
        rounds before such a model do.
        """
        row = self.next
        streamed = self.stream and row is not None and row.event == "round" and not self._blurred
        return not self.changed or streamed

    def upcoming(self) -> Iterator[Row]:
        """The next row and those after it; none of them is taken."""
        number = 0
        while number < len(self._rows) or self._more():
            yield self._rows[number]
            number += 1

    def take(self) -> Row:
        """Take the `next` row, which there should be."""
        return self._rows.popleft()

    def same(self, entry: Entry) -> Row:
        """Take the next row, which should be the `entry` that was made again.

        Raises:
            RunError: it is another one.
        """
        row = next(self.upcoming())
        if self._differ(entry, row):
            place = f"round {row.round}" if row.event == "round" else f"row {row.seq} of the ledger"
            other_item = entry.event == row.event and entry.surrogate != row.surrogate
            raise RunError(
                f"{place} was recorded as {_described(row)}, but the replay got"
                f" {'a decision about another item' if other_item else _described(entry)}: the run"
                " was made by other versions or on another machine (see `stacksl status RUN"
                " --settings`)"
            )
        self._blurred |= self.changed and bool(row.payload.get("tune"))
        return self._rows.popleft()

    def _differ(self, entry: Entry, row: Row) -> bool:
        if self.comparable or entry.event not in _COMPUTED:
            return values_of(entry)[1:] != values_of(row)[1:]  # all but the time
        return (entry.event, entry.round, entry.surrogate) != (row.event, row.round, row.surrogate)

    def _more(self) -> bool:
        """Read further rows; False where there are none."""
        rows = next(self._pages, [])
        self._rows.extend(rows)
        return bool(rows)


def _described(entry: Entry) -> str:
    """An entry in words; no text of an item is quoted."""
    if entry.event != "round":
        return f"the event '{entry.event}' with {entry.text}"
    decision = read_decision(entry.round or 0, str(entry.surrogate), entry.payload)
    return (
        f"'{decision.status}' with choice {decision.choice}, statistic {decision.statistic!r}"
        f" and threshold {decision.threshold!r}"
    )
