"""Several processes on one ledger, and processes that are killed: nothing lost or exceeded."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest

from stacksl.errors import LabelerError, LedgerCorrupt, LedgerError
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, ItemRecord

from ..saved_arrays import edit
from .conftest import sums
from .fault_cases import kill_after


def test_a_ledger_that_is_held_is_one_sentence(book, decision, path):
    ledger = book()
    ledger._store.connection.execute("PRAGMA busy_timeout = 20")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="held by another process"):
        ledger.post([decision(1)])
    assert ledger.accounts.spent == 0
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.post([decision(1)])[0].asked


def test_an_answer_is_in_the_file_and_not_in_its_log(book, decision, path, tmp_path):
    """A flipped bit in a write-ahead log ends it unseen; one in the file is found."""
    ledger = book()
    ledger.post([decision(1), decision(2)])
    for item in ("q0", "q1"):
        ledger.take([Answer(item, 0, 1, 2, "me")])
        alone = tmp_path / f"{item}.db"
        shutil.copy(path, alone)  # without its log
        with Ledger.open(alone, readonly=True) as copy:
            copy.verify({"a file": ledger.head})
            assert copy.export()[-2:] == ledger.export()[-2:]
        assert path.with_name("run.db-wal").stat().st_size == 0


def test_a_reader_in_the_way_keeps_no_answer_out(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    ledger.take([Answer("q0", 0, 1, 2, "me")])
    ledger.close()  # the reader is still there
    reader.execute("COMMIT")
    reader.close()
    with Ledger.open(path) as again:
        assert (len(again.accounts.learned_labels), again.open_purchases()) == (1, [])
        again.verify({"a file": ledger.head})


@pytest.mark.parametrize("seed", range(40))
def test_two_open_ledgers_of_one_process_pay_each_label_once(book, decision, path, seed):
    """Whatever the two do in turn; what one keeps in memory is refused if the other was first."""
    rng, budget, money = random.Random(seed), 6, 25
    book(budget=budget, money=money, price=5)

    def again() -> Ledger:
        ledger = Ledger.open(path)
        ledger._store.connection.execute("PRAGMA synchronous = OFF")
        return ledger

    def act(ledger: Ledger) -> None:
        number, kind = rng.randint(1, 12), rng.randint(1, 20)
        if kind <= 7:
            ledger.post([decision(number, rng.choice(("wanted", "skipped")))])
        elif kind <= 16:
            price, lease = rng.choice((0, 3, 5)), rng.choice((1, 1, 2))
            answer = Answer(f"q{number - 1}", 0, lease, rng.randrange(2), "me", price)
            ledger.take([answer], durable=rng.random() < 0.5)
        elif kind <= 18:
            for purchase in ledger.open_purchases()[:1]:
                ledger.release(purchase, rng.choice(("expired", "refused")))
        elif f"q{number - 1}" in ledger.bought():
            ledger.lease(f"q{number - 1}")

    ledgers = [again(), again()]
    ledgers[0].post([decision(13)])
    same = [Answer("q12", 0, 1, 1, "me", 5)]
    receipts = [ledger.take(same)[0] for ledger in ledgers]
    assert [receipt.outcome for receipt in receipts] == ["accepted", "repeated"]
    for _ in range(60):
        place = rng.randrange(2)
        try:
            act(ledgers[place])
            _ = ledgers[place].accounts
        except LedgerError:  # or what it keeps in memory contradicts what the other wrote
            ledgers[place]._store.close()
            ledgers[place] = again()
        except LabelerError:
            pass
    for ledger in ledgers:
        with suppress(LedgerError):
            ledger.close()
    with Ledger.open(path) as ledger:
        ledger.verify()
        rows = list(ledger.rows())
        assert ledger.accounts.spent <= budget
        assert ledger.accounts.spent_money <= money
    paid = [row for row in rows if row.event == "answered"]
    assert 0 < len(paid) <= budget
    assert sum(row.price for row in paid) <= money
    for event, of in (("answered", "surrogate"), ("learned", "surrogate"), ("round", "round")):
        once = Counter(getattr(row, of) for row in rows if row.event == event)
        assert max(once.values(), default=1) == 1


RACER = """
import sys
from stacksl.types import Decision
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer

path, me, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ledger = Ledger.open(path)
print("ready", flush=True)
sys.stdin.readline()
won = 0
for n in range(rounds):
    number = me * rounds + n
    status = "wanted" if n % 3 else "skipped"
    decision = Decision(
        number + 1, f"q{number}", (0, 1), 0, 1.0, 0.0, "gate", 0.0, 0.5,
        (0.0,), (1.0,), status)
    (posted,) = ledger.post([decision])
    if posted.asked:
        won += 1
        ledger.take([Answer(posted.item, 0, 1, 1, f"p{me}")], durable=bool(n % 2))
    assert ledger.accounts.spent <= ledger.accounts.budget
ledger.close()
print(won)
"""


def test_processes_that_race_never_exceed_the_budget(path):
    racers, rounds, budget = 3, 24, 20
    items = [ItemRecord(f"q{i}", "", 2) for i in range(racers * rounds)]
    Ledger.create(path, run="race", budget=budget, items=items).close()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), str(me), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(racers)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(process.communicate(timeout=120)[0]) for process in started]
    assert all(process.returncode == 0 for process in started)
    assert sum(won) == budget  # of 48 wants
    with Ledger.open(path) as ledger:
        ledger.verify({"a file": ledger.head})
        assert sums(ledger, "spent", "learned", "left") == (budget, budget, 0)
        assert sum(row.event == "round" for row in ledger.rows()) == racers * rounds


def test_another_process_is_noticed(book, decision, path):
    ledger = book(budget=2)
    ledger.post([decision(1, "skipped")])  # waits while the other writes
    with Ledger.open(path) as other:
        other.post([decision(2)])
        other.take([Answer("q1", 0, 1, 0, "other")])
        other.post([decision(3)])
    assert ledger.accounts.left == 2  # not looked yet
    (posted,) = ledger.post([decision(4)])
    assert posted.status == "refused"
    assert (*sums(ledger, "spent", "learned"), len(ledger.open_purchases())) == (2, 1, 1)
    ledger.verify({"a file": ledger.head})


def test_a_ledger_cut_under_a_running_process_is_noticed(book, decision, path):
    ledger = book()
    ledger.post([decision(1)])
    edit(path, "DELETE FROM events WHERE seq = 2")
    with pytest.raises(LedgerCorrupt, match="was cut or replaced"):
        ledger.post([decision(2)])


def test_nothing_of_a_killed_process_is_half_written(path, records):
    """Killed without any farewell, a ledger holds what `post` and `take` had returned."""
    Ledger.create(path, run="r", budget=30, items=records).close()
    body = RACER.replace('print("ready", flush=True)\nsys.stdin.readline()\n', "").replace(
        "    assert ledger.accounts.spent",
        "    print(ledger.accounts.spent, flush=True)\n    assert ledger.accounts.spent",
    )
    body = body.replace("durable=bool(n % 2)", "durable=True")
    kill_after(7, body, path, 0, 30)
    with Ledger.open(path) as ledger:
        ledger.verify({"a file": ledger.head})
        assert ledger.accounts.spent >= 7
        assert (
            len(ledger.accounts.learned_labels) + len(ledger.open_purchases())
            == ledger.accounts.spent
        )


TALKER = """
import sys
from stacksl.types import Decision
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed

ledger = Ledger.open(sys.argv[1])
ledger.own([("q29", 1)], "held before")
for n, audit in enumerate(ledger.reserve([f"q{i}" for i in range(20, 29)])):
    decision = Decision(
        n + 1, f"q{n}", (0, 1), 0, 1.0, 0.0, "gate", 0.0, 0.5, (0.0,), (1.0,),
        "wanted")
    ledger.post([decision], {f"q{n}": 2})
    rows = [Handed(f"{n}-{slot}", f"q{n}", slot, 1, f"person {slot}", n, (1, 0)) for slot in (0, 1)]
    ledger.hand_out(rows)
    ledger.take([
        Answer(f"q{n}", 0, 1, None, "person 0", kind="none", text=f"text {n}"),
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
