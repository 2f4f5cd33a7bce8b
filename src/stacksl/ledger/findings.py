"""Queries on the answers in a journal: kinds, disputes, agreement, the audit's answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, get_args

from stacksl.ledger.events import Row, word_in
from stacksl.ledger.purchases import Answer, Dispute, Said

if TYPE_CHECKING:
    from stacksl.ledger.journal import Journal
    from stacksl.ledger.state import State


Found = tuple[Row, Answer]


def said(journal: Journal, purpose: str | None) -> dict[str, int]:
    """How many accepted answers of each kind were charged; see `Ledger.said`."""
    counts = Counter(
        state.said
        for state in journal.pending.accounts.purchases.values()
        if state.stage == "answered" and state.purpose in ((purpose,) if purpose else _CHARGED)
    )
    return {kind: counts[kind] for kind in get_args(Said)}


def texts(journal: Journal, item: str | None) -> list[Answer]:
    """The answers with free texts; see `Ledger.texts`."""
    return [
        answer
        for _, answer in _answers(journal, with_texts=True)
        if (answer.text is not None or answer.note is not None) and item in (None, answer.item)
    ]


def audited(journal: Journal) -> dict[str, Answer]:
    """Each audited item's answer, as corrected; see `Ledger.audited`."""
    return {
        answer.item: _corrected(answer, _state(journal, answer))
        for row, answer in _answers(journal, with_texts=True)
        if row.event == "answered" and row.purpose == "audit"
    }


def agreement(journal: Journal) -> list[tuple[Answer, Answer]]:
    """Each two accepted answers to one item, uncorrected; see `Ledger.agreement`."""
    offered = _offered(journal)
    alike: dict[tuple[str, int], list[Answer]] = {}
    for row, answer in _answers(journal):
        if row.event == "answered" and row.purpose in _CHARGED:
            key = (answer.item, offered.get((row.surrogate, answer.slot), 0))
            alike.setdefault(key, []).append(answer)
    pairs = []
    for found in alike.values():
        pairs += list(combinations(sorted(found, key=lambda answer: answer.slot), 2))
    return pairs


def _offered(journal: Journal) -> dict[tuple[str | None, int], int]:
    """How many classes had been added when a purchase was first made, where any had.

    An item that was asked again with more classes says nothing of agreement: the question has
    changed.
    """
    if not journal.pending.accounts.classes_added:
        return {}
    offered: dict[tuple[str | None, int], int] = {}
    added = 0
    for row in journal.rows(only=("class_added", "reserved")):
        added += row.event == "class_added"
        if row.event == "reserved":
            offered.setdefault((row.surrogate, row.slot or 0), added)
    return offered


def disputes(journal: Journal) -> list[Dispute]:
    """The uncharged answers that differ from the accepted one; see `Ledger.disputes`."""
    accepted: dict[tuple[str, int], Answer] = {}
    uncharged: list[Answer] = []
    for row, answer in _answers(journal, with_texts=True):
        if row.event == "answered":
            accepted[answer.item, answer.slot] = answer
        else:
            uncharged.append(answer)
    found: dict[tuple[object, ...], Dispute] = {}
    for answer in uncharged:
        first, state = accepted.get((answer.item, answer.slot)), _state(journal, answer)
        if first is None or state is None or state.word != answer.word:
            own = None if first is None else _corrected(first, state)
            key = (answer.item, answer.slot, answer.labeler, answer.word)
            found.setdefault(key, Dispute(own, answer))
    return list(found.values())


def exported(journal: Journal) -> list[dict[str, object]]:
    """One row a purchase; see `Ledger.export`."""
    return [
        {
            "item": journal.items.id(key[0]),
            "slot": key[1],
            "state": "late" if state.stage == "released" and state.late else state.stage,
            "answer": state.index,
            "said": state.said,
            "learnt_at": None if state.learnt_at is None else state.learnt_at / 1e6,
            "price": 0 if state.stage == "released" else state.price,
            "labeler": journal.private.name(state.labeler),
            "purpose": state.purpose,
        }
        for key, state in journal.pending.accounts.purchases.items()
    ]


_CHARGED = ("train", "audit")


def _answers(journal: Journal, *, with_texts: bool = False) -> Iterator[Found]:
    """Every `answered` and `late` row with its answer, in order."""
    beside = journal.private.texts() if with_texts else {}
    for row in journal.rows(only=("answered", "late")):
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


def _state(journal: Journal, answer: Answer) -> State | None:
    return journal.pending.state(answer.item, answer.slot)


def _corrected(answer: Answer, state: State | None) -> Answer:
    """An accepted answer after its corrections."""
    if state is None or not state.corrections:
        return answer
    who, token = answer.labeler, answer.token
    return Answer(answer.item, answer.slot, token, state.index, who, answer.price, note=answer.note)
