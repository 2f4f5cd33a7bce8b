"""What changes a ledger besides the rounds: audits, owned labels, terms, classes, corrections.

Each function records entries in a `Drafts`, as those of `exchange` do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stacksl.errors import LedgerError
from stacksl.ledger.events import canonical
from stacksl.ledger.pending import Drafts
from stacksl.ledger.purchases import Handed, Purchase
from stacksl.ledger.state import State
from stacksl.ledger.transactions import lease, release, reserve_one, teach
from stacksl.ledger.validation import expect_candidate, whole
from stacksl.types import Label

_COUNTED = "labels, classes and micro-units are counted"


def reserve(drafts: Drafts, items: Sequence[str], purpose: str) -> list[Purchase]:
    """Leases of all the items, or of none; see `Ledger.reserve`."""
    if purpose not in ("audit", "train"):
        raise LedgerError(
            f"labels are reserved for an audit or as a further slot of train, not for '{purpose}'"
        )
    accounts = drafts.accounts
    if len(items) * accounts.price > _money_left(drafts) or len(items) > _labels_left(drafts):
        raise LedgerError(
            f"{len(items)} labels were to be reserved for '{purpose}', but the budget has "
            f"{accounts.left} left: reserve fewer, or raise the budget"
        )
    return [_reserve(drafts, item, purpose) for item in items]


def _reserve(drafts: Drafts, item: str, purpose: str) -> Purchase:
    slot, round = 0, None
    if purpose == "train":
        first, slot = drafts.state(item, 0), drafts.slots(item)
        if first is None or first.purpose != "train":
            raise LedgerError(
                f"a further slot belongs to an item that was bought before, '{item}' was not"
            )
        round = first.round
    key = (drafts.register.surrogate(item), slot)
    reserve_one(drafts, key, round, purpose)
    purchase = drafts.purchase(key)
    assert purchase is not None  # its item was just looked up
    return purchase


def _labels_left(drafts: Drafts) -> int:
    return drafts.accounts.budget - drafts.accounts.spent


def _money_left(drafts: Drafts) -> float:
    money = drafts.accounts.money
    return float("inf") if money is None else money - drafts.accounts.spent_money


def own(
    drafts: Drafts, labels: Sequence[tuple[str, int]], source: str
) -> list[tuple[str, Label, int]]:
    """`reserved`, `answered` and `learnt` of labels held before; gives (item, label, K) of each."""
    code = drafts.annex.enrol(source, "source") if labels else source
    return [
        _own(drafts, item, whole(i, f"the owned label of '{item}'"), code) for item, i in labels
    ]


def _own(drafts: Drafts, item: str, index: int, code: str) -> tuple[str, Label, int]:
    size = drafts.size(item)
    expect_candidate(item, index, size)
    shown = index + 1 if size is None else size
    key = (drafts.register.surrogate(item), 0)
    reserve_one(drafts, key, None, "owned", price=0)
    drafts.record(
        "answered",
        item=key[0],
        slot=0,
        token=1,
        purpose="owned",
        labeler=code,
        price=0,
        payload=canonical({"index": index, "size": shown}),
    )
    teach(drafts, item, 0)
    return item, Label(index), shown


def set_budget(
    drafts: Drafts, labels: int, money: int | None, detail: Mapping[str, object]
) -> None:
    """A `budget` row; see `Ledger.set_budget`."""
    accounts = drafts.accounts
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
    payload = canonical({**detail, "budget": labels, "money": money})
    drafts.record("budget", payload=payload)


def add_class(drafts: Drafts, name: str, size: int) -> None:
    """A `class_added` row; see `Ledger.add_class`."""
    size = whole(size, "the number of classes", _COUNTED)
    before = drafts.accounts.classes or drafts.register.largest
    if before and size != before + 1:
        raise LedgerError(
            f"one more class makes {before + 1} of them, came {size}: add classes one by one"
        )
    payload = canonical({"name": name, "size": size})
    drafts.record("class_added", number=drafts.accounts.classes_added + 1, payload=payload)


def correct(
    drafts: Drafts, item: str, slot: int, index: int, labeler: str
) -> tuple[State, Label] | None:
    """A numbered `corrected` row for an accepted answer, and `learnt` where it teaches now."""
    state = drafts.state(item, slot)
    if state is None or state.stage != "answered":
        raise LedgerError(f"only an accepted answer is corrected, item '{item}' has none")
    index = whole(index, f"the correction of item '{item}'")
    expect_candidate(item, index, drafts.size(item))
    drafts.record(
        "corrected",
        round=state.round,
        item=drafts.register.surrogate(item),
        slot=slot,
        token=state.token,
        number=state.corrections + 1,
        purpose=state.purpose,
        labeler=drafts.annex.code(labeler),
        price=0,
        payload=canonical({"index": index}),
    )
    return (state, Label(index)) if teach(drafts, item, slot) else None


def hand_out(drafts: Drafts, rows: Sequence[Handed]) -> None:
    """Note rows of a sheet; see `Ledger.hand_out`."""
    drafts.annex.expect_new([row.key for row in rows])
    for row in rows:
        state = drafts.state(row.item, row.slot)
        if state is None or not 1 <= row.token <= state.token:
            raise LedgerError(
                f"the row '{row.key}' hands out lease {row.token} of item '{row.item}', which was "
                "never made: hand out what `open_purchases` gave"
            )
        if len(set(row.order)) < len(row.order):
            raise LedgerError(f"the row '{row.key}' shows a candidate twice: show each once")
        for index in row.order:
            expect_candidate(row.item, index, drafts.size(row.item))
        drafts.annex.note_handed(row)


def free(drafts: Drafts, leases: Sequence[Purchase], dropped: Collection[Purchase]) -> None:
    """Leases given up, each leased anew unless it is dropped; see `Ledger.free`."""
    for each in leases:
        if release(drafts, each, "refused") and each not in dropped:
            lease(drafts, each.item, each.slot)


def let_go(drafts: Drafts, item: str) -> None:
    """Release every open lease of an item that is to be forgotten."""
    surrogate = drafts.register.surrogate(item)
    for key in [key for key in drafts.accounts.open if key[0] == surrogate]:
        purchase = drafts.purchase(key)
        if purchase is not None:
            release(drafts, purchase, "forgotten")
