"""The calls of a run to a model that answers: two rows each, of a request and of its end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.events import STORED, Entry, canonical, chain
from stacksl.ledger.store.database import Digests, Store, insert_stored
from stacksl.ledger.store.schema import REQUESTS


def write_request(store: Store, row: Mapping[str, Any]) -> None:
    """Append a row, and its digest to the chain, in the open transaction of any thread."""
    last = store.select(REQUESTS, ("place",), "ORDER BY place DESC LIMIT 1")
    place, end = last[0][0] + 1 if last else 1, store.tail()
    text = canonical({STORED: insert_stored(store, REQUESTS, [(place, json.dumps(row))])})
    assert end is not None, "a request belongs to a lease"
    store.append(chain(end, [Entry(int(time.time() * 1e6), STORED, text=text)]))


def erase_requests(store: Store, item: str) -> Digests:
    """Remove the calls about an item, and the content of those that had it as an example.

    The cost of the latter stays, and of calls that another item's label pays for. In the open
    transaction; gives the digests from now on.
    """
    rows, left = read_requests(store), list[tuple[int, str]]()
    calls_that_show_it = {row["call"] for _, row in rows if item in row.get("shots", ())}
    paid = {r["call"]: r["payer"] for _, r in rows if r["item"] == item and "payer" in r}
    about = {r["call"] for _, r in rows if item in (r["item"], r.get("payer", [""])[0])}
    erased = [(place, row) for place, row in rows if row["call"] in calls_that_show_it | about]
    for place, row in erased:
        store.connection.execute("DELETE FROM requests WHERE place = ?", (place,))
        if row["call"] in paid:
            row["item"], row["slot"] = paid[row["call"]]
            row.pop("payer", None)
        elif row["call"] in about:
            continue
        if "request" in row:
            row |= {"request": {}, "shots": [shot for shot in row["shots"] if shot != item]}
        else:
            row |= {"answer": "", "why": "an example in it was erased"}
        left.append((place, json.dumps(row)))
    erased_places = dict.fromkeys(str(place) for place, _ in erased)
    return {REQUESTS.name: erased_places | insert_stored(store, REQUESTS, left)[REQUESTS.name]}


def read_requests(store: Store) -> list[tuple[int, dict[str, Any]]]:
    """All rows with their places, in the order in which they happened.

    Raises:
        LedgerCorrupt: one is damaged.
    """
    rows = []
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
        rows.append((place, row))
    return rows
