"""The first day of a user without labels, lived through as they would; its page tells today's."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections import defaultdict
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
    import first_day
    from day_desk import Desk
finally:
    sys.path.remove(str(ROOT / "scripts"))

SOMETIMES = {"Warning"}  # not printed of every model
SOMETIMES |= {"Labels learned", "Accuracy now", "Rests on"}  # a forecast: not of so few items
SOMETIMES |= {"Training labels", "N"}  # its table
SOMETIMES |= {"N rows"}  # classes that a run proposes
SOMETIMES |= {"Rows of the run"}  # with the text of a new one: the small day has none
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
def desk(shared_data: Path, tmp_path_factory, worker: Worker) -> Iterator[Desk]:
    """The day, lived through once: every command had the exit code that it should have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forked, "worker", worker, raising=False)
        patch.setattr(first_day, "Desk", Forked)
        yield first_day.play(shared_data / "banking77", tmp_path_factory.mktemp("day"), SCALE)


@pytest.fixture(scope="module")
def facts(desk: Desk) -> dict[str, Any]:
    return dict(json.loads((desk.folder / "runs/intents/facts.json").read_text()))


@pytest.fixture(scope="module")
def answers(desk: Desk) -> list[dict[str, str]]:
    with (desk.folder / "answers.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def printed(desk: Desk, start: str) -> list[str]:
    """What each command that begins so printed."""
    return [typed.printed for typed in desk.typed if typed.command.startswith(start)]


def test_all_the_money_is_spent_and_not_a_cent_more(
    desk: Desk, answers: list[dict[str, str]]
) -> None:
    [shown] = re.findall(
        r"^Cost +\$([\d.]+) of \$([\d.]+)$", printed(desk, "stacksl answer")[-1], re.M
    )
    assert shown == (f"{SCALE.money:.2f}", f"{SCALE.money:.2f}")
    paid = [row for row in answers if row["purpose"] != "owned"]
    assert len(paid) == BUDGET
    assert {row["price"] for row in paid} == {str(first_day.PRICE)}
    assert {row["labeler"] for row in paid} == {"anna", "ben"}


def test_who_is_forgotten_is_gone(desk: Desk) -> None:
    [command] = [t.command for t in desk.typed if t.command.startswith("stacksl forget")]
    name = command.split()[-1]
    with (desk.folder / "questions.csv").open(encoding="utf-8", newline="") as file:
        texts = {row["id"]: row["text"].encode() for row in csv.DictReader(file)}
    ours = [*(desk.folder / "runs").rglob("*"), *(desk.folder / "sheets").iterdir()]
    held = {path.name: path.read_bytes() for path in ours if path.is_file()}
    gone = texts.pop(name)
    assert [file for file, found in held.items() if gone in found] == []
    assert any(text in found for text in texts.values() for found in held.values())


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
        r"audit said ([\d.]+), with an interval from ([\d.]+) to ([\d.]+)\. By the hidden labels"
        r" the accuracy is ([\d.]+), which is\s+(\w+)",
        text,
    )
    accuracy, low, high, true = map(float, told[:4])
    assert low <= accuracy <= high
    assert told[4] == ("inside" if low <= true <= high else "outside")
    assert re.search(rf"Accuracy +{true:.3f}", text)


def test_a_folder_without_the_set_is_told_in_one_sentence(tmp_path, monkeypatch, capsys) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["day", "--data", str(tmp_path), "--page", str(page)])
    with pytest.raises(SystemExit, match="2"):
        first_day.main()
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"day: error: {tmp_path} has no train.csv: give --data the folder of Banking77"
    assert not page.exists()
