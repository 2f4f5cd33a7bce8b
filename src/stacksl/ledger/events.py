"""Rows of the ledger: before and after they are chained, their encoding, and the chain of hashes.

Each row carries the hash of the one before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

from stacksl.errors import LedgerCorrupt, LedgerError
from stacksl.ledger.purchases import Head
from stacksl.types import Decision, Label

EVENTS: Final = (
    "round",
    "reserved",
    "answered",
    "released",
    "late",
    "corrected",
    "learnt",
    "relabelled",
    "set_aside",
    "kept",
    "shown",
    "refit",
    "refreshed",
    "class_added",
    "budget",
    "settings",
    "forgotten",
)
STANDINGS: Final = ("set_aside", "kept")
PURPOSES: Final = ("train", "audit", "owned")

_FLOATS: Final = ("statistic", "threshold", "score", "lower", "upper", "probability", "gate_score")


@dataclass(frozen=True)
class Entry:
    """A row not yet chained: what happened, without its place in the chain.

    Attributes:
        time: microseconds since the epoch.
        event: one of `EVENTS`.
        round: the 1-based round it belongs to, or None.
        item: the item's surrogate, never its id.
        slot, token: the purchase and its fencing token.
        number: of a correction or of an epoch that begins, 1-based.
        purpose, labeler: as in a purchase and its answer.
        price: micro-units of money; reserved at most, or paid.
        payload: canonical JSON of everything else.
    """

    time: int
    event: str
    round: int | None = None
    item: str | None = None
    slot: int | None = None
    token: int | None = None
    number: int | None = None
    purpose: str | None = None
    labeler: str | None = None
    price: int | None = None
    payload: str = "{}"

    @cached_property
    def data(self) -> dict[str, Any]:
        """The payload, parsed.

        Raises:
            LedgerCorrupt: it is not a JSON object.
        """
        try:
            parsed = json.loads(self.payload)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise LedgerCorrupt(
                f"a row of event '{self.event}' should carry a JSON object, got "
                f"{self.payload[:40]!r}: the ledger was edited, restore it from a copy"
            )
        return parsed


COLUMNS: Final = tuple(Entry.__dataclass_fields__)
"""The columns of an entry, in the order in which they are hashed."""
values_of = attrgetter(*COLUMNS)


def payloads_of(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The payload of each entry, parsed; see `Entry.data`."""
    return [entry.data for entry in entries]


@dataclass(frozen=True, slots=True)
class Link:
    """An entry in its place: `seq` from 1, the previous row's hash and its own."""

    seq: int
    entry: Entry
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the chain, with its item's id resolved.

    Attributes:
        seq: the row's place in the chain, from 1.
        time: seconds since the epoch.
        item: the item's id, as the table of items has it; None where the row has no item.
        surrogate: the random name of the item in the chain.
        previous, hash: of the row before and of this one, hexadecimal SHA-256.

    The other fields are those of `Entry`; the payload is parsed.
    """

    seq: int
    time: float
    event: str
    round: int | None
    item: str | None
    surrogate: str | None
    slot: int | None
    token: int | None
    number: int | None
    purpose: str | None
    labeler: str | None
    price: int | None
    payload: Mapping[str, Any]
    previous: str
    hash: str

    @property
    def erased(self) -> bool:
        """Whether the row belongs to an erased item, of which only numbers remain."""
        return self.surrogate is not None and self.item == erased_name(self.surrogate)

    @property
    def charge(self) -> int:
        """How many labels the row adds to what is spent: +1, −1 or 0.

        A reservation adds one and its release subtracts it; its answer only turns the reservation
        into a payment, but an answer after the release is charged anew. An owned label adds
        nothing.
        """
        if self.purpose == "owned":
            return 0
        if self.event == "answered":
            return int(bool(self.payload.get("unleased")))
        return {"reserved": 1, "released": -1}.get(self.event, 0)

    @property
    def epoch(self) -> int:
        """Of a certificate: how often the features were renewed before it; 0 for other rows."""
        return int(self.payload.get("epoch", 0)) if self.event == "round" else 0

    def decision(self) -> Decision:
        """The certificate of a `round` row, bit for bit as it was posted.

        For the `answered` row of an owned label it is `owned_decision`.

        Raises:
            LedgerError: the row is neither.
        """
        if self.event == "answered" and self.purpose == "owned" and self.item is not None:
            return owned_decision(self.item, int(self.payload["size"]))
        if self.event != "round" or self.item is None or self.round is None:
            raise LedgerError(
                f"row {self.seq} should be the certificate of a known item, "
                f"got event '{self.event}' of item {self.item!r}"
            )
        return read_certificate(self.round, self.item, self.payload)

    def label(self) -> Label:
        """The label of an `answered`, `learnt`, `relabelled`, `late` or `corrected` row.

        Raises:
            LedgerError: the row carries no label; an answer need not name a candidate.
        """
        if "index" not in self.payload:
            raise LedgerError(f"row {self.seq}, of event '{self.event}', carries no label")
        return Label(int(self.payload["index"]))


def erased_name(surrogate: str) -> str:
    """What replaces the id of an erased item; it reveals nothing of the item."""
    return f"forgotten-{surrogate}"


def owned_decision(item: str, size: int) -> Decision:
    """The decision under which an owned label is learnt: no choice was made.

    Its round is 0, its choice −1 (no candidate was played), all `size` candidates are presented,
    and every number that a certificate would hold is NaN.
    """
    nan = math.nan
    return Decision(
        0, item, _first(size), -1, nan, nan, "owned", nan, nan, nan, nan, nan, (), (), "reserved"
    )


def canonical(value: object) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, ASCII, no NaN.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def certificate(decision: Decision, **more: object) -> str:
    """The payload of a `round` row: everything but the round and the item, which have columns.

    Floats are written so that they are read back bit for bit; NaN and infinities, which JSON
    does not have, as strings. Presented candidates 0 to K − 1 are written as K.
    """
    presented = tuple(int(i) for i in decision.presented)
    everything = presented == _first(len(presented))
    data: dict[str, object] = {name: _write(getattr(decision, name)) for name in _FLOATS}
    data.update(
        presented=len(presented) if everything else presented,
        choice=int(decision.choice),
        reason=decision.reason,
        state=[_write(x) for x in decision.state],
        skip_state=[_write(x) for x in decision.skip_state],
        status=decision.status,
        **more,
    )
    return canonical(data)


def read_certificate(round: int, item: str, data: Mapping[str, Any]) -> Decision:
    """The decision that `certificate` wrote.

    Raises:
        LedgerCorrupt: the payload is not one of a certificate.
    """
    try:
        presented = data["presented"]
        return Decision(
            round=round,
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
            f"the certificate of round {round} should hold a decision, but does not: the ledger "
            "was edited or damaged, restore the file from a copy"
        ) from None


@lru_cache(maxsize=256)
def _first(count: int) -> tuple[int, ...]:
    """0 to `count` − 1: one tuple shared by all certificates with so many candidates."""
    return tuple(range(count))


def _write(value: float) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else repr(number)


# The chain of hashes ---------------------------------------------------------------------------


def genesis(terms: Sequence[object]) -> str:
    """The hash that row 1 follows; it covers the `terms` of the run."""
    terms = ["stacksl ledger", *terms]
    return sha256(canonical(terms).encode()).hexdigest()


def link_hash(seq: int, entry: Entry, previous: str) -> str:
    """SHA-256 of the previous hash and the canonical JSON of the row, hexadecimal."""
    return sha256(canonical([previous, seq, *values_of(entry)]).encode()).hexdigest()


def chain(head: Head, entries: Iterable[Entry]) -> list[Link]:
    """The entries as links that follow `head`."""
    links: list[Link] = []
    seq, previous = head
    for entry in entries:
        seq += 1
        own = link_hash(seq, entry, previous)
        links.append(Link(seq, entry, previous, own))
        previous = own
    return links


_Mark = tuple[Head, str]


def walk(
    first: str, pages: Iterable[list[Link]], heads: Mapping[str, Head]
) -> Iterator[list[Link]]:
    """Yield the links page by page, each page after it was verified.

    `first` is the hash that row 1 must follow, `heads` are ends that the chain once had, by the
    name of what stores each.

    Raises:
        LedgerCorrupt: naming the first bad row, what it should hold and what it holds.
    """
    marks = sorted((head, name) for name, head in heads.items())
    end = Head(0, first)
    marks = _passed(marks, end)
    for page in pages:
        for link in page:
            _check(end, link)
            end = Head(link.seq, link.hash)
            marks = _passed(marks, end)
        yield page
    if marks:
        raise LedgerCorrupt(
            f"the ledger should have at least {marks[-1][0].count} rows, as {marks[-1][1]} says, "
            f"but has {end.count}: its tail was cut, restore the file from a copy"
        )


def _check(end: Head, link: Link) -> None:
    if link.seq != end.count + 1:
        raise LedgerCorrupt(
            f"row {end.count + 1} of the ledger is missing, got row {link.seq} instead: "
            "a row was removed, restore the file from a copy"
        )
    if link.previous != end.hash:
        raise LedgerCorrupt(
            f"row {link.seq} of the ledger should follow the hash {end.hash[:12]}, but has "
            f"{link.previous[:12]}: it was edited, restore the file from a copy"
        )
    expected = link_hash(link.seq, link.entry, link.previous)
    if link.hash != expected:
        raise LedgerCorrupt(
            f"row {link.seq} of the ledger should have the hash {expected[:12]}, but has "
            f"{link.hash[:12]}: it was edited, restore the file from a copy"
        )


def _passed(marks: list[_Mark], end: Head) -> list[_Mark]:
    """The marks after `end`; one at the row of `end` must be equal to it."""
    while marks and marks[0][0].count <= end.count:
        mark, name = marks.pop(0)
        if mark.hash != end.hash:
            raise LedgerCorrupt(
                f"row {end.count} of the ledger should have the hash {mark.hash[:12]}, as {name} "
                f"says, but has {end.hash[:12]}: the ledger was rewritten up to there, restore "
                "the file from a copy"
            )
    return marks
