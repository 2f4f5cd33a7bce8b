"""Rows of the ledger: before and after they are chained, their encoding, and the chain of hashes.

Each row carries the hash of the one before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.purchases import Head
from stacksl.types import Decision, Label

EVENTS: Final = (
    "round",
    "reserved",
    "answered",
    "released",
    "late",
    "corrected",
    "learned",
    "relabeled",
    "set_aside",
    "kept",
    "away",
    "back",
    "shown",
    "looked",
    "refit",
    "refreshed",
    "class_added",
    "budget",
    "settings",
    "derived",
    "stored",
    "forgotten",
)
STORED: Final = "stored"  # also the name of the digests in a payload: see `store/stored.py`
NOTES: Final = ("derived", STORED)
"""The events that say what was written outside the chain; they change nothing else."""
PURPOSES: Final = ("train", "audit", "owned")

_FLOATS: Final = ("statistic", "threshold", "score", "probability")


@dataclass(frozen=True)
class Entry:
    """A row not yet chained: what happened, without its place in the chain.

    Attributes:
        micros: microseconds since the epoch.
        event: one of `EVENTS`.
        round: the 1-based round it belongs to, or None.
        surrogate: the random name of the item in the chain, or None.
        slot, token: the purchase and its fencing token.
        number: of a correction or of an epoch that begins, 1-based.
        purpose: as in a purchase.
        code: of who answered, or a name that needs none.
        price: micro-units of money; reserved at most, or paid.
        text: canonical JSON of everything else.
    """

    micros: int
    event: str
    round: int | None = None
    surrogate: str | None = None
    slot: int | None = None
    token: int | None = None
    number: int | None = None
    purpose: str | None = None
    code: str | None = None
    price: int | None = None
    text: str = "{}"

    @cached_property
    def payload(self) -> dict[str, Any]:
        """The JSON object that the text is.

        Raises:
            LedgerCorrupt: it is not a JSON object.
        """
        try:
            parsed = json.loads(self.text)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise LedgerCorrupt(
                f"a row of event '{self.event}' should carry a JSON object, got "
                f"{self.text[:40]!r}: the ledger was edited, restore it from a copy"
            )
        return parsed


values_of = attrgetter(*Entry.__dataclass_fields__)
"""The values of an entry, in the order in which the chain has them and they are hashed."""


@dataclass(frozen=True)
class Row(Entry):
    """An entry in its place in the chain.

    Attributes:
        seq: its place, from 1.
        previous, hash: of the row before and of this one, hexadecimal SHA-256.
        item: the item's id, as the table of items has it; None where the row has no item.
        labeler: by name.
    """

    seq: int = 0
    previous: str = ""
    hash: str = ""
    item: str | None = None
    labeler: str | None = None

    @property
    def time(self) -> float:
        """Seconds since the epoch."""
        return self.micros / 1e6

    @property
    def erased(self) -> bool:
        """Whether the row belongs to an erased item, of which only numbers remain."""
        return self.surrogate is not None and self.item == erased_name(self.surrogate)

    def decision(self) -> Decision:
        """The decision of a `round` row, bit for bit as it was posted.

        For the `answered` row of an owned label it is `owned_decision`.
        """
        if self.purpose == "owned":
            return owned_decision(str(self.item), int(self.payload["size"]))
        return read_decision(self, str(self.item))

    def label(self) -> Label:
        """The label of an `answered`, `learned`, `relabeled`, `late` or `corrected` row."""
        return Label(int(self.payload["index"]))


def parsed(rows: list[Row]) -> list[Row]:
    """The same rows, with their payloads parsed; see `Entry.payload`."""
    for row in rows:
        _ = row.payload
    return rows


def erased_name(surrogate: str) -> str:
    """What replaces the id of an erased item; it reveals nothing of the item."""
    return f"forgotten-{surrogate}"


def owned_decision(item: str, size: int) -> Decision:
    """The decision under which an owned label is learned: no choice was made.

    Its round is 0, its choice −1 (no candidate was played), all `size` candidates are presented,
    and every number that a decision record would hold is NaN.
    """
    nan = math.nan
    return Decision(0, item, _first(size), -1, nan, nan, "owned", nan, nan, (), (), "reserved")


def canonical(value: object) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, ASCII, no NaN.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def decision_payload(decision: Decision) -> str:
    """The payload of a `round` row: everything but the round and the item, which have columns.

    Floats are written so that they are read back bit for bit; NaN and infinities, which JSON
    does not have, as strings. Presented candidates 0 to K − 1 are written as K.
    """
    presented = tuple(int(i) for i in decision.presented)
    presents_all = presented == _first(len(presented))
    data: dict[str, object] = {name: _write(getattr(decision, name)) for name in _FLOATS}
    data.update(
        presented=len(presented) if presents_all else presented,
        choice=int(decision.choice),
        reason=decision.reason,
        state=[_write(x) for x in decision.state],
        skip_state=[_write(x) for x in decision.skip_state],
        status=decision.status,
    )
    return canonical(data)


def read_decision(entry: Entry, item: str) -> Decision:
    """The decision about an item that `decision_payload` wrote for a `round` row.

    Raises:
        LedgerCorrupt: the payload is not one of a decision.
    """
    data = entry.payload
    try:
        presented = data["presented"]
        return Decision(
            round=entry.round or 0,
            item=item,
            presented=_first(presented) if isinstance(presented, int) else tuple(presented),
            choice=int(data["choice"]),
            reason=data["reason"],
            state=tuple(float(x) for x in data["state"]),
            skip_state=tuple(float(x) for x in data["skip_state"]),
            status=data["status"],
            **{name: float(data[name]) for name in _FLOATS},
        )
    except (KeyError, TypeError, ValueError):
        raise LedgerCorrupt(
            f"the row of round {entry.round} should hold a decision, but does not: the ledger "
            "was edited or damaged, restore the file from a copy"
        ) from None


@lru_cache(maxsize=256)
def _first(count: int) -> tuple[int, ...]:
    """0 to `count` − 1: one tuple shared by all decisions with so many candidates."""
    return tuple(range(count))


def _write(value: float) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else repr(number)


# The chain of hashes ---------------------------------------------------------------------------


def link_hash(seq: int, entry: Entry, previous: str) -> str:
    """SHA-256 of the previous hash and the canonical JSON of the row, hexadecimal."""
    return sha256(canonical([previous, seq, *values_of(entry)]).encode()).hexdigest()


def chain(head: Head, entries: Iterable[Entry]) -> list[Row]:
    """The entries as rows that follow `head`."""
    rows: list[Row] = []
    seq, previous = head
    for entry in entries:
        seq += 1
        link = link_hash(seq, entry, previous)
        rows.append(Row(*(*values_of(entry), seq, previous, link)))
        previous = link
    return rows


def walk(genesis: str, pages: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """Yield the rows page by page, each page after it was verified.

    `genesis` is the hash that row 1 must follow.

    Raises:
        LedgerCorrupt: naming the first bad row, what it should hold and what it holds.
    """
    head = Head(0, genesis)
    for page in pages:
        for row in page:
            if row.seq != head.count + 1:
                raise LedgerCorrupt(
                    f"row {head.count + 1} of the ledger is missing, got row {row.seq} instead: "
                    "a row was removed, restore the file from a copy"
                )
            if (row.previous, row.hash) != (head.hash, link_hash(row.seq, row, head.hash)):
                raise LedgerCorrupt(
                    f"row {row.seq} of the ledger should have the hash of its content and of the"
                    " row before, but has another: it was edited, restore the file from a copy"
                )
            head = Head(row.seq, row.hash)
        yield page
