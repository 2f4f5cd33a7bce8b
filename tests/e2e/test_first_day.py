"""The first day of a user without labels, lived through as they would; its page tells today's."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from .conftest import Worker

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-day.md"
TYPED = re.compile(r"^```sh\n(.*?)\n```\n(?:\n```text\n(.*?)\n```\n)?", re.MULTILINE | re.DOTALL)

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import colleagues
    import first_day
    from day_desk import Desk
finally:
    sys.path.remove(str(ROOT / "scripts"))

SOMETIMES = {"Warning", "Abstains on", "Accuracy on the rest"}  # not printed of every model
SOMETIMES |= {"Labels learnt", "Accuracy now", "Rests on", "N"}  # a forecast: not of so few items
SCALE = first_day.SMALL
BUDGET = int(SCALE.money / first_day.PRICE)


class Forked(Desk):
    """A desk whose `stacksl` is a fork of one process, which has loaded the libraries once."""

    worker: Worker

    def _call(self, command: str, code: int) -> CompletedProcess[str]:
        if not command.startswith("stacksl ") or ">" in command:
            return super()._call(command, code)
        done = self.worker.command(
            shlex.split(command.replace("\\\n", ""))[1:], self.folder, COLUMNS="110"
        )
        assert done.returncode == code, f"{command} ended with {done}"
        return done


@pytest.fixture(scope="module")
def desk(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory, worker: Worker
) -> Iterator[Desk]:
    """The day, lived through once: every command had the exit code that it should have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forked, "worker", worker, raising=False)
        patch.setattr(first_day, "Desk", Forked)
        yield first_day.play(shared_data / "banking77", tmp_path_factory.mktemp("day"), SCALE)


@pytest.fixture(scope="module")
def facts(desk: Desk) -> dict[str, Any]:
    return dict(json.loads((desk.folder / "runs/intents/facts.json").read_text()))


@pytest.fixture(scope="module")
def purchases(desk: Desk) -> list[dict[str, str]]:
    with (desk.folder / "purchases.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def printed(desk: Desk, start: str) -> list[str]:
    """What each command that begins so printed."""
    return [typed.printed for typed in desk.typed if typed.command.startswith(start)]


def test_all_the_money_is_spent_and_not_a_cent_more(
    desk: Desk, purchases: list[dict[str, str]]
) -> None:
    [shown] = re.findall(
        r"^Cost +\$([\d.]+) of \$([\d.]+)$", printed(desk, "stacksl answer")[-1], re.M
    )
    assert shown == (f"{SCALE.money:.2f}", f"{SCALE.money:.2f}")
    paid = [row for row in purchases if row["purpose"] != "owned" and row["state"] == "answered"]
    assert len(paid) == BUDGET
    assert {row["price"] for row in paid} == {str(int(1e6 * first_day.PRICE))}
    assert {row["labeler"] for row in paid} == {"anna", "ben"}


def test_old_labels_are_learnt_and_cost_nothing(purchases: list[dict[str, str]]) -> None:
    owned = [row for row in purchases if row["purpose"] == "owned"]
    assert len(owned) == SCALE.old
    assert {row["price"] for row in owned} == {"0"}
    assert all(row["learnt_at"] for row in owned)


def test_rows_that_two_had_are_two_purchases_and_one_label(
    purchases: list[dict[str, str]],
) -> None:
    slots = defaultdict(list)
    for row in purchases:
        slots[row["item"]].append(row)
    double = [rows for rows in slots.values() if len(rows) == 2]
    assert len(double) == SCALE.overlap
    assert max(map(len, slots.values())) == 2
    for rows in double:
        assert sum(bool(row["learnt_at"]) for row in rows) <= 1
        assert {row["labeler"] for row in rows} == {"anna", "ben"}


def test_the_run_took_what_the_colleagues_had_to_say(desk: Desk, facts: dict[str, Any]) -> None:
    first, again = printed(desk, "stacksl answer")[:2]
    assert "row 2, column answer: the answer 'zz9' is not understood" in first
    assert "Contradict  3, kept but not paid" in again
    assert facts["asking"]["disputes"] >= 3
    said = Counter(
        {name: facts["asking"][name] for name in ("none_of_these", "ambiguous", "broken")}
    )
    assert facts["asking"]["labels"] + said.total() == BUDGET


def test_the_labels_are_what_the_colleagues_knew_but_for_their_slips(
    desk: Desk, purchases: list[dict[str, str]], shared_data: Path
) -> None:
    """The letter, number or text that was typed became the right class, whatever the order."""
    known = first_day.lay_out(shared_data / "banking77", desk.folder, SCALE)
    names = (desk.folder / "intents.txt").read_text(encoding="utf-8").splitlines()
    with (desk.folder / "questions.csv").open(encoding="utf-8", newline="") as file:
        right = {row["id"]: known[colleagues.plain(row["text"])] for row in csv.DictReader(file)}
    said = [row for row in purchases if row["said"] == "label" and row["item"] in right]
    wrong = sum(names[int(row["answer"])] != right[row["item"]] for row in said)
    assert len(said) > 0.9 * BUDGET
    assert wrong < 0.1 * len(said), "a slip in twenty or fifty is the colleagues' own"


def test_the_audit_was_paid_for_and_never_learnt(
    purchases: list[dict[str, str]], facts: dict[str, Any]
) -> None:
    audit = [row for row in purchases if row["purpose"] == "audit"]
    assert len(audit) == facts["audit"]["n"] == BUDGET // 5
    assert not any(row["learnt_at"] for row in audit)
    trained = {row["item"] for row in purchases if row["purpose"] == "train"}
    assert trained.isdisjoint(row["item"] for row in audit)


def wilson(correct: float, n: int) -> tuple[float, float]:
    """The 95 % interval as the roots of (p − p̂)² = z² p (1 − p) / n."""
    z, share = 1.959963984540054, correct / n
    a, b, c = 1 + z * z / n, -(2 * share + z * z / n), share * share
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def test_the_audits_interval_holds_what_the_hidden_labels_say(
    desk: Desk, facts: dict[str, Any]
) -> None:
    audit = facts["audit"]
    low, _ = wilson(audit["correct"], audit["n"])
    _, high = wilson(audit["correct"] + audit["unknown"], audit["n"])
    assert (audit["low"], audit["high"]) == pytest.approx((low, high))
    with (desk.folder / "hidden.csv").open(encoding="utf-8", newline="") as file:
        hidden = {row["id"]: row["intent"] for row in csv.DictReader(file)}
    with (desk.folder / "next-month-labelled.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    right = sum(row["label"] == hidden[row["id"]] for row in rows)
    assert len(rows) == len(hidden) == SCALE.later
    assert audit["low"] <= right / len(hidden) <= audit["high"]
    assert f"{right / len(hidden):.3f}" in printed(desk, "stacksl evaluate")[0]


def test_the_books_hold(desk: Desk, purchases: list[dict[str, str]]) -> None:
    for told in printed(desk, "stacksl ledger verify"):
        assert "the ledger is whole" in told
    learnt = sum(bool(row["learnt_at"]) for row in purchases)
    replayed = dict(
        line.split()[:2] for line in printed(desk, "stacksl ledger replay")[0].splitlines()
    )
    assert replayed["Labels"] == f"{learnt:,}"


def test_who_is_forgotten_is_gone(desk: Desk) -> None:
    [command] = [t.command for t in desk.typed if t.command.startswith("stacksl forget")]
    name = command.split()[-1]
    with (desk.folder / "questions.csv").open(encoding="utf-8", newline="") as file:
        [text] = [row["text"] for row in csv.DictReader(file) if row["id"] == name]
    ours = [*(desk.folder / "runs").rglob("*"), *(desk.folder / "sheets").iterdir()]
    for path in ours:
        if path.is_file():
            assert text.encode() not in path.read_bytes(), path.name


def on_the_page() -> Iterator[tuple[str, str]]:
    """(command, what it printed) of the committed page."""
    for command, shown in TYPED.findall(PAGE.read_text(encoding="utf-8")):
        if not command.startswith("python"):
            yield command, shown


def form(command: str) -> str:
    """A command without its numbers, sheets and item."""
    files = re.sub(r"(?:(?:sheets|mail)/\S+\s*)+", "SHEETS ", command)
    return re.sub(r"\d+(?:\.\d+)?", "N", re.sub(r"--id \S+", "--id X", files))


def labels(shown: str) -> set[str]:
    """The names of facts: what stands before two spaces, without numbers."""
    found = re.findall(r"^(\S(?:.*?\S)?) {2,}\S", shown, re.MULTILINE)
    return {re.sub(r"[\d,]+", "N", each) for each in found}


def test_the_page_types_what_is_typed_today(desk: Desk) -> None:
    assert [form(command) for command, _ in on_the_page()] == [form(t.command) for t in desk.typed]


def test_the_page_shows_what_is_printed_today(desk: Desk) -> None:
    today: dict[str, set[str]] = defaultdict(set)
    for typed in desk.typed:
        today[" ".join(typed.command.split()[:2])] |= labels(typed.printed)
    told = 0
    for command, shown in on_the_page():
        if not command.startswith("stacksl"):
            continue  # texts of the data, not ours
        known = today[" ".join(command.split()[:2])] | SOMETIMES
        assert labels(shown) <= known, command
        told += len(labels(shown))
    assert told > 30


def test_the_page_keeps_its_own_books() -> None:
    """The money, the audit and the verdict on the page agree with each other."""
    text = PAGE.read_text(encoding="utf-8")
    full = first_day.FULL
    assert f"${full.money:,.2f} of ${full.money:,.2f}" in text
    [told] = re.findall(
        r"audit said ([\d.]+), with an interval from ([\d.]+) to ([\d.]+)\. The hidden labels say"
        r" ([\d.]+): (\w+)",
        text,
    )
    accuracy, low, high, true = map(float, told[:4])
    assert low <= accuracy <= high
    assert told[4] == ("inside" if low <= true <= high else "outside")
    assert re.search(rf"Accuracy +{true:.3f}", text)
