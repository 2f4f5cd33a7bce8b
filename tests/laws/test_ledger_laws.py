"""The budget holds and the counters are what the rows say, under any interleaving.

A machine posts, reserves audits, owns, answers (in any order, late, twice, never, wrongly, with no
candidate), corrects, offers again, releases, leases again, changes the budget and crashes; a
second, plain account of the rows is kept beside the ledger and compared at every step.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from stacksl.errors import LabelerError, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord, Purchase
from stacksl.types import Decision

from ..ledger.conftest import charge, sums

ITEMS, SIZE, PRICE = 12, 3, 4
AUDITS = [f"a{i}" for i in range(4)]
OWNED = [f"o{i}" for i in range(3)]
OTHER = ("none", "ambiguous", "broken")
MEMORY = Path("/dev/shm")  # thousands of commits, and no power to fail


def decision(round: int, wanted: bool) -> Decision:
    return Decision(
        round, f"q{round - 1}", (0, 1, 2), 1, 0.5, 0.25, "gate", 0.5,
        float("nan"), (1.0,), (2.0,), "wanted" if wanted else "skipped",
    )  # fmt: skip


def count(rows):
    """The sums by the words of the specification, from the rows alone.

    Gives labels spent, money spent, the items learned in order, the open purchases, labels asked.
    """
    open_at: dict[tuple, int] = {}
    answered, paid, learned, asked = {}, 0, [], set()
    for row in rows:
        key = (row.item, row.slot)
        if row.purpose == "owned":
            assert not row.price
            if row.event == "learned":
                learned.append(row.item)
            continue
        if row.event == "reserved":
            assert key not in open_at
            assert key not in answered
            open_at[key] = row.price
            asked |= {key} if row.purpose == "train" else set()
        elif row.event == "released":
            del open_at[key]
        elif row.event == "answered":
            assert key not in answered
            answered[key] = row.payload.get("index")
            open_at.pop(key, None)
            paid += row.price
        elif row.event == "corrected":
            answered[key] = row.label().index
        elif row.event == "learned":
            assert row.purpose == "train"
            assert row.label().index == answered[key]
            learned.append(row.item)
    assert len(set(learned)) == len(learned)
    named = {key[0] for key in asked if answered.get(key) is not None}
    assert named == {item for item in learned if item not in OWNED}
    standing = set(answered) | set(open_at)
    spent, money = len(standing), paid + sum(open_at.values())
    return spent, money, learned, set(open_at), len(asked & standing)


class Buying(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self.folder.name) / "run.db"
        self.round = 0
        self.lessons: list[tuple[str, int]] = []
        self.heads: list = []
        self.audits, self.owned = list(AUDITS), list(OWNED)

    @initialize(budget=st.integers(0, 8), money=st.none() | st.integers(0, 6 * PRICE))
    def begin(self, budget, money):
        names = [*(f"q{i}" for i in range(ITEMS)), *AUDITS, *OWNED]
        items = [ItemRecord(name, name, SIZE) for name in names]
        self.ledger = Ledger.create(
            self.path, run="law", budget=budget, money=money, price=PRICE, items=items
        )

    @precondition(lambda self: self.round < ITEMS)
    @rule(
        target=leases,
        wants=st.lists(st.booleans(), min_size=1, max_size=4),
        slots=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    )
    def post(self, wants, slots):
        wants = wants[: ITEMS - self.round]
        could, left = self.ledger.open_purchases(), self.ledger.accounts.left
        decisions = [decision(self.round + n + 1, want) for n, want in enumerate(wants)]
        more = {d.item: n for d, n in zip(decisions, slots, strict=False)}
        posted = self.ledger.post(decisions, more)
        self.round += len(wants)
        assert [d.status == "skipped" for d in posted] == [not want for want in wants]
        assert sum(d.asked for d in posted) == min(left, sum(wants))
        fresh = [p for p in self.ledger.open_purchases() if p not in could]
        assert len(fresh) == min(left, sum(more[d.item] for d in posted if d.asked))
        return multiple(*fresh)

    @precondition(lambda self: self.audits)
    @rule(target=leases, count=st.integers(1, 3))
    def reserve_an_audit(self, count):
        items, left = self.audits[:count], self.ledger.accounts.left
        if len(items) > left:
            with pytest.raises(LedgerError, match="the budget is spent"):
                self.ledger.reserve(items)
            return multiple()
        del self.audits[:count]
        fresh = self.ledger.reserve(items)
        assert [p.item for p in fresh] == items
        return multiple(*fresh)

    @rule(target=leases, lease=leases)
    def offer_again(self, lease: Purchase):
        """One more slot of an item, whatever was said of it."""
        if lease.purpose != "train" or not self.ledger.accounts.left:
            with pytest.raises(LedgerError):
                self.ledger.reserve([lease.item], "train")
            return multiple()
        (fresh,) = self.ledger.reserve([lease.item], "train")
        assert (fresh.item, fresh.token, fresh.round) == (lease.item, 1, lease.round)
        assert fresh.slot > lease.slot
        return fresh

    @rule(target=leases, lease=leases)
    def look_again(self, lease: Purchase):
        """One more slot of an item of an audit, which is charged and never learned."""
        if lease.purpose != "audit" or not self.ledger.accounts.left:
            with pytest.raises(LedgerError):
                self.ledger.reserve([lease.item], "further")
            return multiple()
        before = self.ledger.accounts.further
        (fresh,) = self.ledger.reserve([lease.item], "further")
        assert (fresh.item, fresh.token, fresh.purpose) == (lease.item, 1, "audit")
        assert fresh.slot > lease.slot
        assert self.ledger.accounts.further == before + 1
        return fresh

    @precondition(lambda self: self.owned)
    @rule(index=st.integers(0, SIZE - 1))
    def own(self, index):
        item = self.owned.pop()
        before = sums(self.ledger, "asked", "spent", "spent_money", "left")
        ((made, label),) = self.ledger.own([(item, index)], "held before")
        self.lessons.append((made.item, label.index))
        assert sums(self.ledger, "asked", "spent", "spent_money", "left") == before

    @rule(labels=st.integers(0, 12), money=st.none() | st.integers(0, 8 * PRICE))
    def change_the_budget(self, labels, money):
        spent, paid = self.ledger.accounts.spent, self.ledger.accounts.spent_money
        if labels < spent or (money is not None and money < paid):
            with pytest.raises(LedgerError, match="it is below what is spent"):
                self.ledger.set_budget(labels, money, {})
        else:
            self.ledger.set_budget(labels, money, {"train": labels})
            assert (self.ledger.accounts.budget, self.ledger.accounts.money) == (labels, money)

    @rule(lease=leases, index=st.integers(0, SIZE - 1))
    def correct(self, lease: Purchase, index):
        if self.state_of(lease) == "answered":
            lesson = self.ledger.correct(lease.item, index, "fake", slot=lease.slot)
            if lesson is not None:
                self.lessons.append((lesson[0].item, lesson[1].index))

    def state_of(self, lease: Purchase):
        rows = {(r["item"], r["slot"]): r["state"] for r in self.ledger.export()}
        return rows.get((lease.item, lease.slot))

    @rule(
        given=st.lists(
            st.tuples(
                leases,
                st.integers(0, SIZE - 1) | st.sampled_from(OTHER),
                st.integers(0, PRICE),
                st.sampled_from([None, "a note"]),
            ),
            max_size=4,
        ),
        durable=st.booleans(),
    )
    def answer(self, given, durable):
        answers = [
            Answer(p.item, p.slot, p.token, None, "fake", c, kind=word, note=note)
            if isinstance(word, str)
            else Answer(p.item, p.slot, p.token, word, "fake", c, note=note)
            for p, word, c, note in given
        ]
        receipts = self.ledger.take(answers, durable=durable)
        taken = [receipt.example for receipt in receipts if receipt.example is not None]
        self.lessons += [(d.item, label.index) for d, label in taken]
        assert all(d.asked and d.item == f"q{d.round - 1}" for d, _ in taken)
        assert [receipt.answer for receipt in receipts] == answers
        assert {receipt.outcome for receipt in self.ledger.take(answers)} <= {"repeated"}

    @rule(
        lease=leases,
        index=st.integers(0, SIZE - 1),
        price=st.integers(-2 * PRICE, -1) | st.just(0.5),
    )
    def answer_at_no_price_there_is(self, lease: Purchase, index, price):
        with pytest.raises(LabelerError):
            self.ledger.take([Answer(lease.item, lease.slot, lease.token, index, "fake", price)])

    @rule(lease=leases, over=st.integers(1, 10 * PRICE))
    def answer_too_dear(self, lease: Purchase, over):
        """Open or released, a dearer answer is refused; an answered purchase only keeps it."""
        answer = Answer(lease.item, lease.slot, lease.token, 0, "fake", PRICE + over)
        state = self.state_of(lease)
        try:
            assert [receipt.example for receipt in self.ledger.take([answer])] == [None]
        except LabelerError:
            assert state != "answered"

    @rule(lease=leases, reason=st.sampled_from(["expired", "refused"]))
    def release(self, lease: Purchase, reason):
        was_open = lease in self.ledger.open_purchases()
        assert self.ledger.release(lease, reason) == was_open

    @rule(target=leases, lease=consumes(leases))
    def lease_again(self, lease: Purchase):
        if self.state_of(lease) not in ("released", "late"):
            return lease
        left = self.ledger.accounts.left
        again = self.ledger.lease(lease.item, slot=lease.slot)
        assert (again is None) == (left == 0)
        if again is None:
            return lease
        assert again.token > lease.token or again.token > 1
        return multiple(lease, again)

    @rule(gently=st.booleans())
    def reopen(self, gently):
        """A clean end, or a crash: what waited is lost, and nothing that was promised."""
        if gently:
            self.ledger.close()
        else:
            self.ledger._store.close()
        self.ledger = Ledger.open(self.path)
        rows = list(self.ledger.rows())
        self.round = max((r.round for r in rows if r.event == "round"), default=0)
        kept = [(r.item, r.label().index) for r in rows if r.event == "learned"]
        assert kept == self.lessons[: len(kept)]
        if gently:
            assert kept == self.lessons
        self.lessons = kept

    @rule()
    def remember_the_head(self):
        self.ledger.flush()
        self.heads.append(self.ledger.head)

    @invariant()
    def the_budget_holds(self):
        if not hasattr(self, "ledger"):
            return
        assert self.ledger.accounts.spent <= self.ledger.accounts.budget
        assert self.ledger.accounts.asked <= self.ledger.accounts.spent
        if self.ledger.accounts.money is not None:
            assert self.ledger.accounts.spent_money <= self.ledger.accounts.money

    @rule()
    def the_counters_are_what_the_rows_say(self):
        ledger = self.ledger
        counted = ("spent", "spent_money", "learned", "asked")
        before = sums(ledger, *counted)
        open_before = [(p.item, p.slot) for p in self.ledger.open_purchases()]
        rows = list(self.ledger.rows())
        spent, money, learned, open_now, asked = count(rows)
        assert before == (spent, money, len(learned), asked)
        assert set(open_before) == open_now
        assert sum(charge(row) for row in rows) == spent
        with Ledger.open(self.path, readonly=True) as again:
            assert sums(again, *counted) == before
            for name in ("budget", "money", "further"):
                assert getattr(again.accounts, name) == getattr(ledger.accounts, name)
            assert again.counts_by_kind() == ledger.counts_by_kind()
            assert again.audited_by_all() == ledger.audited_by_all()
            assert again.uncharged() == ledger.uncharged()
            assert again.open_purchases() == self.ledger.open_purchases()
            assert again.export() == self.ledger.export()
            again.verify({f"file {n}": head for n, head in enumerate(self.heads)})

    def teardown(self):
        if hasattr(self, "ledger"):
            self.the_counters_are_what_the_rows_say()
            assert count(self.ledger.rows())[2] == [item for item, _ in self.lessons]
            self.ledger.close()
        self.folder.cleanup()


TestBuying = Buying.TestCase
TestBuying.settings = settings(max_examples=40, stateful_step_count=20)
