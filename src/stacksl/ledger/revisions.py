"""Ledger entries that revise answers: corrections, and whose answers are held or set aside.

Each function records entries in a `Pending`, as those of `transactions` do. Where refits learn
another label of an item from then on, a `relabelled` row follows, or `learnt` if it is the first.
"""

from __future__ import annotations

from collections.abc import Mapping

from stacksl.errors import LedgerError
from stacksl.ledger.events import canonical
from stacksl.ledger.pending import Pending
from stacksl.ledger.purchases import Answer
from stacksl.ledger.state import Key, State
from stacksl.ledger.transactions import record_answer, relabel, said_of, teach
from stacksl.ledger.validation import expect_candidate, whole_answer
from stacksl.types import Label


def correct(pending: Pending, answer: Answer, named: bool) -> tuple[State, Label] | None:
    """Record a numbered `corrected` row; what is to be learnt where nothing of the item was.

    `named` says that the answer before named the class, by the right text of a none-of-these.
    """
    state = pending.state(answer.item, answer.slot)
    if state is None or state.stage != "answered":
        raise LedgerError(f"only an accepted answer is corrected, item '{answer.item}' has none")
    answer = whole_answer(answer)
    if answer.index is not None:
        expect_candidate(answer.item, answer.index, pending.size(answer.item))
    said = said_of(pending, answer) | ({"named": True} if named else {})
    number = state.corrections + 1
    record_answer(pending, state, answer, "corrected", said, number=number, price=0)
    key = _revise(pending, answer.item)
    index = None if key is None else pending.accounts.purchases[key].index
    return None if index is None else (state, Label(index))


def stand(pending: Pending, event: str, name: str, detail: Mapping[str, object]) -> None:
    """Record that the answers of a labeler are `held`, `set_aside`, or `kept` again."""
    code = pending.private.code(name)
    pending.record(event, labeler=code, payload=canonical(dict(detail)))
    if event == "held":  # what was learnt before stays
        return
    purchases = pending.accounts.purchases.items()
    for item in dict.fromkeys(key[0] for key, state in purchases if state.labeler == code):
        if pending.items.commitment(item) is not None:  # else it was forgotten
            _revise(pending, str(pending.items.id(item)))


def show(pending: Pending) -> None:
    """Record that the audit's answers are about to be shown, unless all of them were."""
    purchases = pending.accounts.purchases.values()
    if any(s.purpose == "audit" and s.stage == "answered" and not s.shown for s in purchases):
        pending.record("shown")


def _revise(pending: Pending, item: str) -> Key | None:
    """Record the label that is learnt of an item from now on; its purchase if it is the first."""
    relabel(pending, item)
    slots = pending.accounts.slots(pending.items.surrogate(item))
    return next((key for key, _ in slots if teach(pending, item, key[1])), None)
