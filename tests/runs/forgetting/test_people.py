"""Nothing is left of an item that people were asked for, on sheets and in notes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

from stacksl.api import Run, run
from stacksl.labels.ledger import Ledger
from stacksl.runs.forgetting import forget

from .forgetting_cases import ID, NOTE, PROMPT, RIGHT, drop, holding, verify, write_items


def fill(sheet: Path) -> Path:
    """The colleague's copy of a sheet: notes everywhere, and of the canary none is right once."""
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        mine = PROMPT in row["prompt"]
        wrong = mine and sheet.name.endswith("anna.csv")
        row["answer"] = f"[none]: {RIGHT}" if wrong else "a"
        row["note"] = NOTE if mine else "fine"
    copy = sheet.parents[2] / "answers" / sheet.name
    copy.parent.mkdir(exist_ok=True)
    with copy.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return copy


def asked_by_people(folder: Path, *, until: str) -> tuple[Path, Run]:
    """A run whose people were asked for the canary, both of them, and the data."""
    plan: dict[str, Any] = {"mode": "pool", "batch": 6, "budget": 16, "audit": 0, "labeler": "file"}
    for canary in range(24):  # the one whose item is in the first sheets is as good as any other
        data = write_items(folder / "data.jsonl", 24, canary)
        made = run(data, out=folder / "r", annotators="anna,ben", overlap=3, **plan)
        sheets = sorted((folder / "r" / "ask").glob("*-*.csv"))
        if sum(PROMPT in sheet.read_text(encoding="utf-8") for sheet in sheets) == 2:
            break
        shutil.rmtree(folder / "r")
    done: set[Path] = set()
    while until == "finished" and made.status()["state"] == "waiting":
        new = [s for s in sorted((folder / "r" / "ask").glob("0*.csv")) if s not in done]
        assert new, "the run waits, and nobody is asked"
        done.update(new)
        made.answer(*map(fill, new))
    assert made.status()["state"] == until
    return data, made


def test_nothing_is_left_of_an_item_that_people_answered(tmp_path: Path, cache: Path) -> None:
    data, made = asked_by_people(tmp_path, until="finished")
    path = made.path
    made.report(text=False)
    keep = (path / "ask" / "0001-ben.csv").read_bytes()
    before = holding(path)
    assert {"ledger.db", "rounds.parquet", "0001-anna.csv", "0001-ben.csv"} <= before
    with Ledger.open(path / "ledger.db", readonly=True) as ledger:
        texts = ledger.texts(ID)
    assert {(RIGHT, NOTE), (None, NOTE)} == {(a.text, a.note) for a in texts}

    told = forget(path, ID)
    assert holding(path, cache) == set()
    assert told.learnt
    assert {"rounds.parquet", "ask/0001-anna.csv", "ask/0001-ben.csv"} <= set(told.changed)
    assert any("learnt its label" in sentence for sentence in told.models)
    assert any(str(data) in sentence for sentence in told.yours)
    rows = [row for row in keep.split(b"\r\n") if PROMPT.encode() not in row]
    assert (path / "ask" / "0001-ben.csv").read_bytes() == b"\r\n".join(rows)
    for state in ("the row still there", "the row deleted"):
        verify(path)
        again = made.replay()
        assert again["rounds"] == 24, state
        assert made.resume().status()["state"] == "finished"
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
    assert any("files of answers" in sentence for sentence in told.yours)
    assert made.status()["asked"] == spent - len(leases) == spent - 2
    made.resume()
    assert holding(made.path) == set()
    while made.status()["state"] == "waiting":
        made.answer(*map(fill, sorted((made.path / "ask").glob("0*.csv"))))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    assert json.loads((made.path / "facts.json").read_text())["budget"]["answered"] > 0
    verify(made.path)
