"""Nothing is left of an item that people were asked for, on sheets and in notes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger
from stacksl.runs.changes.forgetting import forget

from .forgetting_cases import (
    ID,
    NOTE,
    PROMPT,
    RIGHT,
    asked_by_people,
    drop,
    fill,
    holding,
    verify,
)


def test_nothing_is_left_of_an_item_that_people_answered(tmp_path: Path, cache: Path) -> None:
    data, made = asked_by_people(tmp_path, until="finished")
    path = made.path
    made.report(text=False)
    rounds = made.status()["rounds"]
    keep = (path / "ask" / "0001-ben.csv").read_bytes()
    before = holding(path)
    assert {"run.db", "0001-anna.csv", "0001-ben.csv"} <= before
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        texts = ledger.texts(ID)
    assert {(RIGHT, NOTE), (None, NOTE)} == {(a.text, a.note) for a in texts}

    told = forget(path, ID)
    assert holding(path, cache) == set()
    assert told.learnt
    assert any("learnt its label" in sentence for sentence in told.remains)
    rows = [row for row in keep.split(b"\r\n") if PROMPT.encode() not in row]
    assert (path / "ask" / "0001-ben.csv").read_bytes() == b"\r\n".join(rows)
    for state in ("the row still there", "the row deleted"):
        verify(path)
        again = made.replay()
        assert again["rounds"] == rounds, state
        assert made.resume().status()["state"] == "finished"
        assert holding(path, cache) == set(), state
        assert len([*made.predict(data)]) in (23, 24)
        if "still" in state:
            drop(data)


def test_a_run_that_waits_goes_on_without_the_item(tmp_path: Path) -> None:
    data, made = asked_by_people(tmp_path, until="waiting")
    kept = {path: path.read_bytes() for path in sorted((made.path / "ask").glob("0*.csv"))}
    spent = made.status()["asked"]
    with made.ledger as ledger:
        leases = [each for each in ledger.open_purchases() if each.item == ID]
    told = forget(made.path, ID)
    drop(data)
    assert not told.learnt
    assert holding(made.path) == set()
    assert any("copies of sheets" in sentence for sentence in told.remains)
    assert made.status()["asked"] == spent - len(leases) == spent - 2
    for path, before in kept.items():
        rows = [row for row in before.split(b"\r\n") if PROMPT.encode() not in row]
        assert path.read_bytes() == b"\r\n".join(rows)
    made.resume()
    assert holding(made.path) == set()
    while made.status()["state"] == "waiting":
        made.answer(*map(fill, sorted((made.path / "ask").glob("0*.csv"))))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    assert json.loads((made.path / "facts.json").read_text())["budget"]["answered"] > 0
    verify(made.path)


def test_an_answer_in_a_sheet_is_entered_before_its_row_is_taken_out(tmp_path: Path) -> None:
    _, made = asked_by_people(tmp_path, until="waiting")
    sheets = sorted((made.path / "ask").glob("0*.csv"))
    first = next(sheet for sheet in sheets if PROMPT.encode() in sheet.read_bytes())
    first.write_bytes(fill(first).read_bytes())
    held = holding(made.path)

    def uses(item: str = ID) -> Counter[object]:
        with made.ledger as ledger:
            return Counter(each["state"] for each in ledger.export() if each["item"] == item)

    with pytest.raises(RunError, match=f"`stacksl answer {made.path} {first}` first, or empty"):
        forget(made.path, ID)
    assert holding(made.path) == held, "nothing was erased"
    made.answer(first)
    assert uses() == {"answered": 1, "open": 1}
    name = forget(made.path, ID).name
    assert holding(made.path) == set()
    assert uses(name) == {"answered": 1, "released": 1}, "who answered is paid all the same"
