"""The learner's arrays as they were after a row of the chain, each row with a digest."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from stacksl.files.arrays import from_bytes
from stacksl.ledger.events import STORED, canonical
from stacksl.ledger.purchases import Head
from stacksl.ledger.store.database import Digests, Store, digests_of, insert_stored
from stacksl.ledger.store.schema import ARRAYS

SAVED_STATES: Final = 2  # the newest, and one to fall back on where that is damaged


class Saved(NamedTuple):
    """Arrays as bytes, the `head` of the chain that they belong to, and the learner's round.

    `whole` is false where they do not match their digest, or that in the chain.
    """

    head: Head
    round: int
    data: bytes
    whole: bool = True

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return from_bytes(self.data)

    @property
    def digest(self) -> str:
        """The SHA-256, hexadecimal, of all of it."""
        return sha256(canonical([*self.head, self.round]).encode() + self.data).hexdigest()


def write_arrays(store: Store, saved: Saved, since: int) -> Digests:
    """Add arrays in place of the oldest, and of those after row `since`, in the open transaction.

    Nothing was learned since that row. Gives their digest for the chain.
    """
    row = (*saved.head, saved.round, saved.data, saved.digest)
    store.connection.execute("DELETE FROM arrays WHERE seq >= ?", (since,))
    digests = insert_stored(store, ARRAYS, [row])
    newest = "SELECT seq FROM arrays ORDER BY seq DESC LIMIT ?"
    store.connection.execute(f"DELETE FROM arrays WHERE seq NOT IN ({newest})", (SAVED_STATES,))
    return digests


def read_arrays(store: Store, seq: int | None = None) -> Iterator[Saved]:
    """The arrays from the newest to the oldest, or those after row `seq`."""
    which = ("",) if seq is None else ("WHERE seq = ?", seq)
    for row in store.select(ARRAYS, (), f"{which[0]} ORDER BY seq DESC", *which[1:]):
        count, _, tip, round, data, digest = row
        saved = Saved(Head(count, tip), round, data)
        # their digest is in the next row of the chain; one that was cut accuses no arrays
        pages = store.pages(count, upto=count + 1)
        noted = [entry.payload.get(STORED) for page in pages for entry in page]
        intact = saved.digest == digest and noted in ([], [digests_of(ARRAYS, [row])])
        yield saved._replace(whole=intact)


def array_heads(store: Store) -> dict[str, Head]:
    """The heads of whole arrays, by what names them; a damaged row accuses no chain.

    The row after each has the digest of the arrays: where it is missing, it is reported as missing.
    """
    heads = [saved.head for saved in read_arrays(store) if saved.whole]
    end = store.tail() or Head(0, "")
    return {
        f"the row of the learner's arrays after row {head.count}": (
            head if head.count < end.count else Head(head.count + 1, "")
        )
        for head in heads
    }
