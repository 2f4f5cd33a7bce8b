"""Ledger entries besides the rounds: audits, owned labels, terms, classes, and revised answers.

Each function records entries in a `Pending`, as those of `transactions` do. Where refits learn
another label of an item from then on, a `relabelled` row follows, or `learnt` if it is the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stacksl.errors import LedgerError
from stacksl.ledger.accounts import Key, Pending, State
from stacksl.ledger.events import canonical
from stacksl.ledger.purchases import (
    Answer,
    Handed,
    Purchase,
    expect_candidate,
    whole,
    whole_answer,
)
from stacksl.ledger.transactions import (
    lease,
    record_answer,
    relabel,
    release,
    reserve_one,
    said_of,
    teach,
)
from stacksl.types import Label

_COUNTED = "labels, classes and micro-units are counted"


def reserve(pending: Pending, items: Sequence[str], purpose: str) -> list[Purchase]:
    """Lease all the items, or none; see `Ledger.reserve`."""
    if purpose not in ("audit", "train"):
        raise LedgerError(
            f"labels are reserved for 'audit', or as a further slot for 'train', got '{purpose}'"
        )
    left = pending.accounts.left
    if len(items) > left:
        raise LedgerError(
            f"the budget has {left} labels left, got {len(items)} to reserve for "
            f"'{purpose}': reserve fewer, or raise the budget"
        )
    return [_reserve(pending, item, purpose) for item in items]


def _reserve(pending: Pending, item: str, purpose: str) -> Purchase:
    first, slot, round = pending.state(item, 0), 0, None
    if purpose == "train":
        if first is None or first.purpose != "train":
            raise LedgerError(
                f"a further slot belongs to an item that was bought before, '{item}' was not"
            )
        slot, round = pending.slots(item), first.round
    elif first is not None and pending.accounts.is_aside(first):
        slot = pending.slots(item)
    key = (pending.items.surrogate(item), slot)
    reserve_one(pending, key, round, purpose)
    purchase = pending.purchase(key)
    assert purchase is not None  # its item was just looked up
    return purchase


def own(
    pending: Pending, labels: Sequence[tuple[str, int]], source: str
) -> list[tuple[str, Label, int]]:
    """Record labels owned before; gives (item, label, K) of each."""
    code = pending.private.enrol(source, "source") if labels else source
    return [
        _own(pending, item, whole(i, f"the owned label of '{item}'"), code) for item, i in labels
    ]


def _own(pending: Pending, item: str, index: int, code: str) -> tuple[str, Label, int]:
    size = pending.size(item)
    expect_candidate(item, index, size)
    shown = index + 1 if size is None else size
    key = (pending.items.surrogate(item), 0)
    reserve_one(pending, key, None, "owned")
    pending.record(
        "answered",
        item=key[0],
        slot=0,
        token=1,
        purpose="owned",
        labeler=code,
        price=0,
        payload=canonical({"index": index, "size": shown}),
    )
    teach(pending, item, 0)
    return item, Label(index), shown


def set_budget(
    pending: Pending, labels: int, money: int | None, detail: Mapping[str, object]
) -> None:
    """Record a `budget` row; see `Ledger.set_budget`."""
    accounts = pending.accounts
    labels = whole(labels, "the budget", _COUNTED)
    money = None if money is None else whole(money, "the budget in money", _COUNTED)
    if clash := sorted({"budget", "money"}.intersection(detail)):
        raise LedgerError(f"the detail of a budget may not name {' or '.join(clash)} again")
    if labels < accounts.spent:
        raise LedgerError(
            f"the budget cannot be {labels} labels, {accounts.spent} are spent or reserved: give "
            f"{accounts.spent} or more"
        )
    if money is not None and money < accounts.spent_money:
        raise LedgerError(
            f"the budget cannot be {money} micro-units, {accounts.spent_money} are paid or "
            f"promised: give {accounts.spent_money} or more"
        )
    if "price" in detail:
        detail = {**detail, "price": whole(detail["price"], "the price of a label", _COUNTED)}
    payload = canonical({**detail, "budget": labels, "money": money})
    pending.record("budget", payload=payload)


def add_class(pending: Pending, name: str, size: int) -> None:
    """Record a `class_added` row; see `Ledger.add_class`."""
    size = whole(size, "the number of classes", _COUNTED)
    before = pending.accounts.classes or pending.items.largest
    if before and size != before + 1:
        raise LedgerError(
            f"one more class makes {before + 1} of them, got {size}: add classes one by one"
        )
    payload = canonical({"name": name, "size": size})
    pending.record("class_added", number=pending.accounts.classes_added + 1, payload=payload)


def hand_out(pending: Pending, rows: Sequence[Handed]) -> None:
    """Record rows of a sheet; see `Ledger.hand_out`."""
    pending.private.expect_new([row.key for row in rows])
    for row in rows:
        state = pending.state(row.item, row.slot)
        if state is None or not 1 <= row.token <= state.token:
            raise LedgerError(
                f"the row '{row.key}' assigns lease {row.token} of item '{row.item}', which was "
                "never made: hand out leases of `open_purchases`"
            )
        if len(set(row.order)) < len(row.order):
            raise LedgerError(f"the row '{row.key}' shows a candidate twice: show each once")
        size = pending.size(row.item)
        for index in (min(row.order, default=0), max(row.order, default=0)):
            expect_candidate(row.item, index, size)
        pending.private.note_handed(row)


def free(pending: Pending, leases: Sequence[Purchase], dropped: Collection[Purchase]) -> None:
    """Release leases, and lease each again unless it is dropped; see `Ledger.free`."""
    for each in leases:
        if release(pending, each, "refused") and each not in dropped:
            lease(pending, each.item, each.slot)


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


def stand(pending: Pending, event: str, name: str) -> None:
    """Record that the answers of a labeler are `set_aside`, or `kept` again."""
    code = pending.private.code(name)
    pending.record(event, labeler=code)
    purchases = pending.accounts.purchases.items()
    for item in dict.fromkeys(key[0] for key, state in purchases if state.labeler == code):
        if pending.items.commitment(item) is not None:  # else nothing is left to learn
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
