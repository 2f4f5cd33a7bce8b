"""The state of a purchase, and the fields of a row that change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stacksl.errors import LedgerCorrupt
from stacksl.ledger.events import EVENTS, PURPOSES, Entry, word_in
from stacksl.ledger.purchases import Word

Key = tuple[str, int]
"""A purchase: the item's surrogate and the slot."""

_KNOWN: Final = (None, *PURPOSES)


@dataclass(frozen=True, slots=True)
class State:
    """The current state of one purchase.

    Attributes:
        stage: `open` (leased), `released` (leased before, not now), `answered`.
        token: of its last lease.
        round: the round of its last lease; None where no certificate justifies it.
        price: micro-units, the most it may cost while open, what it cost once answered.
        words: (token, content, hash of the free texts) of every answer, to recognise one that is
            repeated.
        late: answers kept without being charged.
        word, labeler, learnt_at: of the accepted answer; the word follows corrections.
        corrections: how often the answer was corrected.
        shown: of an audit: whether a result with this answer was shown; `measured` is the answer
            that it was measured by, None where it was left out.
    """

    stage: Literal["open", "released", "answered"]
    token: int
    round: int | None
    purpose: str
    price: int
    words: frozenset[tuple[int, Word, str | None]] = frozenset()
    late: int = 0
    word: Word | None = None
    labeler: str | None = None
    learnt_at: int | None = None
    corrections: int = 0
    shown: bool = False
    measured: Word | None = None

    @property
    def index(self) -> int | None:
        """The candidate that the accepted answer names; None where it names none."""
        return self.word if isinstance(self.word, int) else None

    @property
    def said(self) -> str | None:
        """The kind of the accepted answer; None where there is none."""
        return "label" if isinstance(self.word, int) else self.word


def expect_known(event: str, purpose: str | None) -> None:
    """Refuse events and purposes that are not the ledger's.

    Raises:
        LedgerCorrupt: no version writes such an event or purpose.
    """
    if event not in EVENTS:
        raise LedgerCorrupt(
            f"the ledger of a run has the events {', '.join(EVENTS)}; got '{event}'"
        )
    if purpose not in _KNOWN:
        raise LedgerCorrupt(
            f"the ledger of a run has the purposes {', '.join(PURPOSES)}; got another"
        )


def price_of(entry: Entry) -> int:
    """The price of a row, in micro-units.

    Raises:
        LedgerCorrupt: it is negative, or no whole number.
    """
    price = entry.price or 0
    if not isinstance(price, int) or price < 0:
        raise impossible(entry, f"its price is {price!r}, not 0 micro-units or more")
    return price


def whole_of(entry: Entry, name: str, otherwise: int | None = None) -> int:
    """An integer of the row's payload.

    Raises:
        LedgerCorrupt: it is not an integer.
    """
    number = entry.data().get(name, otherwise)
    if not isinstance(number, int):
        raise impossible(entry, f"its {name} is {number!r}, not a whole number")
    return number


def word_of(entry: Entry) -> tuple[int, Word, str | None]:
    """The lease of an answer, its content, and the hash of its free texts.

    Raises:
        LedgerCorrupt: the row holds no valid answer.
    """
    data = entry.data()
    given, texts = data.get("given", entry.token), data.get("words")
    if not isinstance(given, int):
        raise impossible(entry, f"its given is {given!r}, not a whole number")
    try:
        return given, word_in(data), texts if isinstance(texts, str) else None
    except ValueError:
        index = data.get("index")
        raise impossible(entry, f"its index is {index!r}, not a whole number") from None


def impossible(entry: Entry, why: str) -> LedgerCorrupt:
    """The error for a row that the rows before it do not allow."""
    return LedgerCorrupt(
        f"the ledger cannot hold the event '{entry.event}' of round {entry.round}, "
        f"token {entry.token}: {why}; restore the file from a copy"
    )
