"""The budget holds and the counters are what the rows say, under any interleaving.

A machine posts, answers (in any order, late, twice, never, wrongly), releases, leases again and
crashes; a second, plain account of the rows is kept beside the ledger and compared at every step.
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

from stacksl.errors import LabelerError
from stacksl.items import Decision
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, ItemRecord, Purchase

ITEMS, SIZE, PRICE = 12, 3, 4
MEMORY = Path("/dev/shm")  # thousands of commits, and no power to fail


def decision(round: int, wanted: bool) -> Decision:
    return Decision(
        round, f"q{round - 1}", (0, 1, 2), 1, 0.5, 0.25, "gate", 0.5, 0.0, 1.0, 0.4,
        float("nan"), (1.0,), (2.0,), "wanted" if wanted else "skipped",
    )  # fmt: skip


def count(rows):
    """The sums by the words of the specification, from the rows alone."""
    open_at: dict[tuple, int] = {}
    answered, paid, learnt = {}, 0, []
    for row in rows:
        key = (row.item, row.slot)
        if row.event == "reserved":
            assert key not in open_at
            assert key not in answered
            open_at[key] = row.price
        elif row.event == "released":
            del open_at[key]
        elif row.event == "answered":
            assert key not in answered
            answered[key] = row.label()
            open_at.pop(key, None)
            paid += row.price
        elif row.event == "learnt":
            assert row.label() == answered[key]
            learnt.append(key)
    assert len(set(learnt)) == len(learnt) == len(answered)
    return len(answered) + len(open_at), paid + sum(open_at.values()), learnt, set(open_at)


class Buying(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self.folder.name) / "ledger.db"
        self.round = 0
        self.lessons: list[tuple[str, int]] = []
        self.heads: list = []

    @initialize(
        budget=st.integers(0, 6),
        money=st.none() | st.integers(0, 6 * PRICE),
    )
    def begin(self, budget, money):
        items = [ItemRecord(f"q{i}", str(i), SIZE) for i in range(ITEMS)]
        self.ledger = Ledger.create(
            self.path, run="law", budget=budget, money=money, price=PRICE, items=items
        )

    @precondition(lambda self: self.round < ITEMS)
    @rule(target=leases, wants=st.lists(st.booleans(), min_size=1, max_size=4))
    def post(self, wants):
        wants = wants[: ITEMS - self.round]
        could, left = self.ledger.open_purchases(), self.ledger.left
        decisions = [decision(self.round + n + 1, want) for n, want in enumerate(wants)]
        posted = self.ledger.post(decisions)
        self.round += len(wants)
        assert [d.status == "skipped" for d in posted] == [not want for want in wants]
        assert sum(d.asked for d in posted) == min(left, sum(wants))
        return multiple(*(p for p in self.ledger.open_purchases() if p not in could))

    @rule(
        given=st.lists(
            st.tuples(leases, st.integers(0, SIZE - 1), st.integers(0, PRICE)), max_size=4
        ),
        durable=st.booleans(),
    )
    def answer(self, given, durable):
        answers = [Answer(p.item, p.slot, p.token, i, "fake", c) for p, i, c in given]
        taken = self.ledger.take(answers, durable=durable)
        self.lessons += [(d.item, label.index) for d, label in taken]
        assert all(d.asked and d.item == f"q{d.round - 1}" for d, _ in taken)

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
        states = {r["item"]: r["state"] for r in self.ledger.export()}
        try:
            assert self.ledger.take([answer]) == []
        except LabelerError:
            assert states[lease.item] != "answered"

    @rule(lease=leases, reason=st.sampled_from(["expired", "refused"]))
    def release(self, lease: Purchase, reason):
        was_open = lease in self.ledger.open_purchases()
        assert self.ledger.release(lease, reason) == was_open

    @rule(target=leases, lease=consumes(leases))
    def lease_again(self, lease: Purchase):
        states = {r["item"]: r["state"] for r in self.ledger.export()}
        if states.get(lease.item) not in ("released", "late"):
            return lease
        left = self.ledger.left
        again = self.ledger.lease(lease.item)
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
        kept = [(r.item, r.label().index) for r in rows if r.event == "learnt"]
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
        assert self.ledger.spent <= self.ledger.budget
        assert self.ledger.asked == self.ledger.spent
        if self.ledger.money is not None:
            assert self.ledger.spent_money <= self.ledger.money

    @rule()
    def the_counters_are_what_the_rows_say(self):
        before = (self.ledger.spent, self.ledger.spent_money, self.ledger.learnt)
        open_before = [(p.item, p.slot) for p in self.ledger.open_purchases()]
        rows = list(self.ledger.rows())
        spent, money, learnt, open_now = count(rows)
        assert before == (spent, money, len(learnt))
        assert set(open_before) == open_now
        assert sum(row.charge for row in rows) == spent
        with Ledger.open(self.path, readonly=True) as again:
            assert (again.spent, again.spent_money, again.learnt) == before
            assert again.open_purchases() == self.ledger.open_purchases()
            assert again.export() == self.ledger.export()
            again.verify(self.heads)

    def teardown(self):
        if hasattr(self, "ledger"):
            self.the_counters_are_what_the_rows_say()
            assert [(k[0]) for k in count(self.ledger.rows())[2]] == [i for i, _ in self.lessons]
            self.ledger.close()
        self.folder.cleanup()


TestBuying = Buying.TestCase
TestBuying.settings = settings(max_examples=40, stateful_step_count=20)
