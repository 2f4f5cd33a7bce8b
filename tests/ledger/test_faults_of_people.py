"""Full disks and kills, for what people say and were handed."""

from __future__ import annotations

import pytest

from stacksl.errors import LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, ItemRecord

from .conftest import lessons
from .fault_cases import fill, kill_after, state


def test_a_full_disk_takes_nothing_of_what_people_say(book, decision, path):
    """Texts, names and handed rows are in the transaction of the answers, or nowhere."""
    ledger = book(budget=9)
    ledger.post([decision(1), decision(2)])
    long = "x" * 100_000
    said = Answer("q0", 0, 1, None, "Ann", said="none", text=long)
    handed = [Handed("k", "q0", 0, 1, "Ann" + long, 1, (0,))]
    before = state(ledger)
    fill(ledger)
    for attempt in (
        lambda: ledger.take([Answer("q1", 0, 1, 2, "Ann"), said]),
        lambda: ledger.hand_out(handed),
        lambda: ledger.own([("q9", 1)], long),
        lambda: ledger.set_budget(12, None, {"why": long}),
        lambda: ledger.add_items([ItemRecord(long, "")]),
    ):
        with pytest.raises(LedgerError, match="disk is full"):
            attempt()
        assert (state(ledger), ledger.texts(), ledger.private.handed()) == (before, [], [])
    fill(ledger, full=False)
    assert len(lessons(ledger.take([Answer("q1", 0, 1, 2, "Ann"), said]))) == 1
    ledger.hand_out(handed)
    ledger.close()
    with Ledger.open(path) as again:
        again.verify()
        assert (again.texts(), again.private.handed()) == ([said], handed)


TALKER = """
import sys
from stacksl.types import Decision
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed

ledger = Ledger.open(sys.argv[1])
ledger.own([("q29", 1)], "held before")
for n, audit in enumerate(ledger.reserve([f"q{i}" for i in range(20, 29)])):
    decision = Decision(
        n + 1, f"q{n}", (0, 1), 0, 1.0, 0.0, "gate", 0.0, 0.0, 0.0, 0.5, 0.0, (0.0,), (1.0,),
        "wanted")
    ledger.post([decision], {f"q{n}": 2})
    rows = [Handed(f"{n}-{slot}", f"q{n}", slot, 1, f"person {slot}", n, (1, 0)) for slot in (0, 1)]
    ledger.hand_out(rows)
    ledger.take([
        Answer(f"q{n}", 0, 1, None, "person 0", said="none", text=f"text {n}"),
        Answer(f"q{n}", 1, 1, 1, "person 1", note=f"note {n}"),
        Answer(audit.item, 0, 1, 0, "person 0", note=f"audit {n}"),
    ])
    ledger.set_budget(ledger.accounts.budget + 1, None, {"n": n})
    print(n + 1, flush=True)
"""


@pytest.mark.parametrize("last", [1, 4, 7])
def test_nothing_people_said_is_half_written(path, records, last):
    Ledger.create(path, run="r", budget=30, items=records).close()
    kill_after(last, TALKER, path)
    with Ledger.open(path) as ledger:
        ledger.verify({"a file": ledger.head})
        done = len(ledger.audited())
        assert done >= last
        assert ledger.accounts.budget - 30 in (done - 1, done)
        assert (len(ledger.accounts.learned_labels), len(ledger.agreement())) == (done + 1, done)
        assert len(ledger.texts()) == 3 * done
        assert len(ledger.private.handed()) in (2 * done, 2 * done + 2)
        assert ledger.accounts.asked in (2 * done, 2 * done + 2)
        assert ledger.accounts.spent == ledger.accounts.asked + 9
        assert {row["labeler"] for row in ledger.export()} <= {
            "person 0", "person 1", "held before", None,
        }  # fmt: skip
