"""The chain: each row carries the hash of the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.events import canonical
from stacksl.ledger.purchases import Head

if TYPE_CHECKING:
    from stacksl.ledger.events import Entry


@dataclass(frozen=True, slots=True)
class Link:
    """An entry in its place: `seq` from 1, the previous row's hash and its own."""

    seq: int
    entry: Entry
    previous: str
    hash: str


def genesis(terms: Sequence[object]) -> str:
    """The hash that row 1 follows; it covers the `terms` of the run."""
    terms = ["stacksl ledger", *terms]
    return sha256(canonical(terms).encode()).hexdigest()


def link_hash(seq: int, entry: Entry, previous: str) -> str:
    """SHA-256 of the previous hash and the canonical JSON of the row, hexadecimal."""
    fields = [
        previous,
        seq,
        entry.time,
        entry.event,
        entry.round,
        entry.item,
        entry.slot,
        entry.token,
        entry.number,
        entry.purpose,
        entry.labeler,
        entry.price,
        entry.payload,
    ]
    return sha256(canonical(fields).encode()).hexdigest()


def chain(head: Head, entries: Iterable[Entry]) -> list[Link]:
    """The entries as links that follow `head`."""
    links = []
    seq, previous = head
    for entry in entries:
        seq += 1
        own = link_hash(seq, entry, previous)
        links.append(Link(seq, entry, previous, own))
        previous = own
    return links


_Mark = tuple[Head, str]


def walk(first: str, links: Iterable[Link], heads: Mapping[str, Head]) -> Iterator[Link]:
    """Yield the links, each after it was verified.

    `first` is the hash that row 1 must follow, `heads` are ends that the chain once had, by the
    name of what stores each.

    Raises:
        LedgerCorrupt: naming the first bad row, what it should hold and what it holds.
    """
    marks = sorted((head, name) for name, head in heads.items())
    end = Head(0, first)
    marks = _passed(marks, end)
    for link in links:
        _check(end, link)
        end = Head(link.seq, link.hash)
        marks = _passed(marks, end)
        yield link
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
