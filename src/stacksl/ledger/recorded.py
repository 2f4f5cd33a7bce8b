"""The rows of a chain after the one where a ledger stands, to be made again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from stacksl.errors import RunError
from stacksl.ledger.events import Entry, Row, read_certificate

_MADE = ("round", "refit", "refreshed")  # events of what a run decides or computes


class Recorded:
    """Rows in their order, each taken once.

    Args:
        pages: the rows, and their entries in the chain.

    Attributes:
        changed: whether settings, items or classes change behind a decision among the rows.
        stream: whether decisions are those of a stream, which takes items one by one.
    """

    def __init__(
        self, pages: Iterator[tuple[list[Row], list[Entry]]], *, changed: bool, stream: bool
    ) -> None:
        self._pages, self.changed, self.stream = pages, changed, stream
        self._blurred = False
        self._rows: deque[tuple[Row, Entry]] = deque()

    @property
    def next(self) -> Row | None:
        """The next row; None behind the last one."""
        return next((row for row, _ in self.ahead()), None)

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

    def ahead(self) -> Iterator[tuple[Row, Entry]]:
        """The next row and those after it; none of them is taken."""
        number = 0
        while number < len(self._rows) or self._more():
            yield self._rows[number]
            number += 1

    def take(self) -> tuple[Row, Entry]:
        """Take the next row."""
        if not self._rows and not self._more():
            raise RunError("the ledger has no further row to take")
        return self._rows.popleft()

    def same(self, made: Entry) -> Entry:
        """Take the next row, which should be the one that was `made` again.

        Raises:
            RunError: it is another one.
        """
        row, entry = next(self.ahead())
        if self._differ(made, entry):
            raise RunError(
                f"{_described(entry, row)}, but the replay got {_got(made, entry)}: the run was"
                " made by other versions or on another machine (see `stacksl status RUN"
                " --settings`)"
            )
        self._blurred |= self.changed and bool(row.payload.get("tune"))
        return self._rows.popleft()[1]

    def _differ(self, made: Entry, entry: Entry) -> bool:
        if self.comparable or made.event not in _MADE:
            return replace(made, time=entry.time) != entry
        return (made.event, made.round, made.item) != (entry.event, entry.round, entry.item)

    def _more(self) -> bool:
        """Read further rows; False where there are none."""
        rows, entries = next(self._pages, ((), ()))
        self._rows.extend(zip(rows, entries, strict=True))
        return bool(rows)


def _described(entry: Entry, row: Row) -> str:
    what = f"round {entry.round}" if entry.event == "round" else f"row {row.seq} of the ledger"
    return f"{what} was recorded as {_told(entry)}"


def _got(made: Entry, entry: Entry) -> str:
    if made.event == entry.event and made.item != entry.item:
        return "a decision about another item"
    return _told(made)


def _told(entry: Entry) -> str:
    """An entry in words; no text of an item is quoted."""
    if entry.event != "round":
        return f"the event '{entry.event}' with {entry.payload}"
    decision = read_certificate(entry.round or 0, str(entry.item), entry.data)
    return (
        f"'{decision.status}' with choice {decision.choice}, statistic {decision.statistic!r}"
        f" and threshold {decision.threshold!r}"
    )
