"""What a row of the ledger adds to the labels that are spent."""

from __future__ import annotations

from stacksl.ledger.events import Row


def charge(row: Row) -> int:
    """How many labels the row adds to what is spent: +1, −1 or 0.

    A reservation adds one and its release subtracts it; its answer only turns the reservation into
    a payment, but an answer after the release is charged anew. An owned label adds nothing.
    """
    if row.purpose == "owned":
        return 0
    if row.event == "answered":
        return int(bool(row.payload.get("unleased")))
    return {"reserved": 1, "released": -1}.get(row.event, 0)
