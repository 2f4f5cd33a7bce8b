"""Nothing is left of an item that people were asked for, on sheets and in notes."""

from __future__ import annotations

import json
from pathlib import Path

from stacksl.api import run
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
    assert any(str(data) in sentence for sentence in told.remains)
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
    spent = made.status()["asked"]
    with made.ledger as ledger:
        leases = [each for each in ledger.open_purchases() if each.item == ID]
    told = forget(made.path, ID)
    drop(data)
    assert not told.learnt
    assert holding(made.path) == set()
    assert any("copies of sheets" in sentence for sentence in told.remains)
    assert made.status()["asked"] == spent - len(leases) == spent - 2
    made.resume()
    assert holding(made.path) == set()
    while made.status()["state"] == "waiting":
        made.answer(*map(fill, sorted((made.path / "ask").glob("0*.csv"))))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    assert json.loads((made.path / "facts.json").read_text())["budget"]["answered"] > 0
    verify(made.path)


def test_the_file_that_held_the_item_is_named(tmp_path: Path) -> None:
    rows = ["blue sea,sea", "dark night,night", "deep wave,sea", "moon,night"]
    for name in ("data", "owned", "more"):
        lines = ["id,text,label", *(f"{name}{n},{name} {row}" for n, row in enumerate(rows))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    owned, more = tmp_path / "owned.csv", tmp_path / "more.csv"
    made = run(tmp_path / "data.csv", out=tmp_path / "run", owned=str(owned), budget=2, audit=0)
    made.change(items=more)
    for name, item in (("data", "data1"), ("owned", "owned/owned1"), ("more", "more1")):
        wanted = f"delete the row from {tmp_path / name}.csv"
        assert any(each.startswith(wanted) for each in forget(made.path, item).remains)
