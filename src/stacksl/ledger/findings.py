"""What the answers in a book come to: kinds, disputes, agreement, the audit's answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, get_args

from stacksl.ledger.events import Row, word_in
from stacksl.ledger.purchases import Answer, Dispute, Said

if TYPE_CHECKING:
    from stacksl.ledger.journal import Book
    from stacksl.ledger.state import State


Found = tuple[Row, Answer]


def said(book: Book, purpose: str | None) -> dict[str, int]:
    """How many accepted answers of each kind were charged; see `Ledger.said`."""
    counts = Counter(
        state.said
        for state in book.drafts.accounts.purchases.values()
        if state.stage == "answered" and state.purpose in ((purpose,) if purpose else _CHARGED)
    )
    return {kind: counts[kind] for kind in get_args(Said)}


def texts(book: Book, item: str | None) -> list[Answer]:
    """The answers that came with free texts; see `Ledger.texts`."""
    return [
        answer
        for _, answer in _answers(book, with_texts=True)
        if (answer.text is not None or answer.note is not None) and item in (None, answer.item)
    ]


def audited(book: Book) -> dict[str, Answer]:
    """Each audited item's answer, as corrected; see `Ledger.audited`."""
    return {
        answer.item: _as_it_stands(answer, _state(book, answer))
        for row, answer in _answers(book, with_texts=True)
        if row.event == "answered" and row.purpose == "audit"
    }


def agreement(book: Book) -> list[tuple[Answer, Answer]]:
    """Each two accepted answers to one item, as they came; see `Ledger.agreement`."""
    offered = _offered(book)
    alike: dict[tuple[str, int], list[Answer]] = {}
    for row, answer in _answers(book):
        if row.event == "answered" and row.purpose in _CHARGED:
            key = (answer.item, offered.get((row.surrogate, answer.slot), 0))
            alike.setdefault(key, []).append(answer)
    pairs = []
    for found in alike.values():
        pairs += list(combinations(sorted(found, key=lambda answer: answer.slot), 2))
    return pairs


def _offered(book: Book) -> dict[tuple[str | None, int], int]:
    """How many classes had been added when a purchase was first made, where any had.

    An item that is asked for once more since then says nothing of agreement: the question is
    another one.
    """
    if not book.drafts.accounts.classes_added:
        return {}
    offered: dict[tuple[str | None, int], int] = {}
    added = 0
    for row in book.rows(only=("class_added", "reserved")):
        added += row.event == "class_added"
        if row.event == "reserved":
            offered.setdefault((row.surrogate, row.slot or 0), added)
    return offered


def disputes(book: Book) -> list[Dispute]:
    """The answers kept uncharged that say something else; see `Ledger.disputes`."""
    accepted: dict[tuple[str, int], Answer] = {}
    came: list[Answer] = []
    for row, answer in _answers(book, with_texts=True):
        if row.event == "answered":
            accepted[answer.item, answer.slot] = answer
        else:
            came.append(answer)
    found: dict[tuple[object, ...], Dispute] = {}
    for answer in came:
        first, state = accepted.get((answer.item, answer.slot)), _state(book, answer)
        if first is None or state is None or state.word != answer.word:
            own = None if first is None else _as_it_stands(first, state)
            key = (answer.item, answer.slot, answer.labeler, answer.word)
            found.setdefault(key, Dispute(own, answer))
    return list(found.values())


def exported(book: Book) -> list[dict[str, object]]:
    """One row a purchase; see `Ledger.export`."""
    return [
        {
            "item": book.register.id(key[0]),
            "slot": key[1],
            "state": "late" if state.stage == "released" and state.late else state.stage,
            "answer": state.index,
            "said": state.said,
            "learnt_at": None if state.learnt_at is None else state.learnt_at / 1e6,
            "price": 0 if state.stage == "released" else state.price,
            "labeler": book.annex.name(state.labeler),
            "purpose": state.purpose,
        }
        for key, state in book.drafts.accounts.purchases.items()
    ]


_CHARGED = ("train", "audit")


def _answers(book: Book, *, with_texts: bool = False) -> Iterator[Found]:
    """Every `answered` and `late` row with the answer that it holds, in order."""
    beside = book.annex.texts() if with_texts else {}
    for row in book.rows(only=("answered", "late")):
        if row.item is None:
            continue
        data = row.payload
        word = word_in(data)
        index = word if isinstance(word, int) else None
        kind = next(s for s in get_args(Said) if s == ("label" if index is not None else word))
        text, note = beside.get(str(data.get("words")), (None, None))
        token = int(data.get("given", row.token))
        who, price = str(row.labeler), row.price or 0
        yield row, Answer(row.item, row.slot or 0, token, index, who, price, kind, text, note)


def _state(book: Book, answer: Answer) -> State | None:
    return book.drafts.state(answer.item, answer.slot)


def _as_it_stands(answer: Answer, state: State | None) -> Answer:
    """An accepted answer with what it says after its corrections."""
    if state is None or not state.corrections:
        return answer
    who, token = answer.labeler, answer.token
    return Answer(answer.item, answer.slot, token, state.index, who, answer.price, note=answer.note)
