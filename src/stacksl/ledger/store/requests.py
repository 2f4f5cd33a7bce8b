"""The calls of a run to a model that answers: two rows each, of a request and of its end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.events import STORED, Entry, canonical, chain
from stacksl.ledger.store.schema import REQUESTS
from stacksl.ledger.store.stored import Digests, digests_of

if TYPE_CHECKING:
    from stacksl.ledger.store.database import Store


def write_request(store: Store, row: Mapping[str, Any]) -> None:
    """Append a row, and its digest to the chain, in the open transaction of any thread."""
    last = store.select(REQUESTS, ("place",), "ORDER BY place DESC LIMIT 1")
    written = (last[0][0] + 1 if last else 1, os.urandom(16).hex(), json.dumps(row))
    store.insert(REQUESTS, [written])
    end = store.tail()
    assert end is not None, "a request belongs to a lease"
    text = canonical({STORED: {REQUESTS.name: digests_of([written])}})
    store.append(chain(end, [Entry(int(time.time() * 1e6), STORED, text=text)]))


def erase_requests(store: Store, item: str) -> Digests:
    """Remove the calls about an item, and the content of those that had it as an example.

    The cost of the latter stays. In the open transaction; gives the digests from now on.
    """
    rows, digests = read_requests(store), Digests()
    shown = {row["call"] for _, row in rows if item in row.get("shots", ())}
    for place, row in rows:
        if row["item"] != item and row["call"] not in shown:
            continue
        store.connection.execute("DELETE FROM requests WHERE place = ?", (place,))
        digests[str(place)] = None
        if row["item"] != item:
            if "request" in row:
                row |= {"request": {}, "shots": [each for each in row["shots"] if each != item]}
            else:
                row |= {"answer": "", "why": "an example in it was erased"}
            left = (place, os.urandom(16).hex(), json.dumps(row))
            store.insert(REQUESTS, [left])
            digests |= digests_of([left])
    return digests


def read_requests(store: Store) -> list[tuple[int, dict[str, Any]]]:
    """All rows with their places, in the order in which they happened.

    Raises:
        LedgerCorrupt: one is damaged.
    """
    found = []
    for place, content in store.select(REQUESTS, ("place", "content"), "ORDER BY place"):
        try:
            row = json.loads(content)
            (row["call"], row["item"], row["slot"])
            (row["order"], row["way"], row["shots"]) if "request" in row else row["answer"]
        except (ValueError, KeyError, TypeError) as fault:
            raise LedgerCorrupt(
                f"row {place} of the requests in {store.name} is damaged: restore the file from a"
                " copy"
            ) from fault
        found.append((place, row))
    return found
