"""Annotators who differ by the test, are set aside and kept: what is learned and bought anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.errors import RunError
from stacksl.runs.changes import people

from ..ledgers import bought, items_bought, rows_of
from .conftest import CLASSES
from .people_cases import (
    Killed,
    Row,
    begin,
    copy_of,
    expect_sound,
    fill,
    gold,
    killed,
    open_rows,
    sheets,
    truth,
)

TWO: dict[str, Any] = {"annotators": "anna,ben", "price": "2"}


def shifted(row: Row) -> str:
    """The answer of somebody who reads the numbers on another list."""
    return str((CLASSES.index(gold(row["prompt"])) + 1) % len(CLASSES) + 1)


def answer(run: Run, anna: Any = shifted) -> Any:
    said = {"anna": anna}
    return run.answer(
        *[fill(path, said.get(path.stem.split("-")[-1], truth)) for path in sheets(run)]
    )


def to_the_end(run: Run, anna: Any = shifted) -> Run:
    for _ in range(40):
        if run.status()["state"] != "waiting":
            return run
        answer(run, anna)
    raise AssertionError("the run still waits")


def events(run: Run) -> list[str]:
    return [row.event for row in rows_of(run)]


def learned_of(run: Run) -> dict[str, set[str]]:
    """Whose answers refits learn, by item."""
    found: dict[str, set[str]] = {}
    with run.ledger as ledger:
        for row in ledger.export():
            item = str(row["item"])
            learned = row["purpose"] != "audit" and row["answer"] is not None
            if learned and row["answer"] == ledger.label_of(item):
                found.setdefault(item, set()).add(str(row["labeler"]))
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two whose Anna reads another list, when the test has found it."""
    folder = tmp_path_factory.mktemp("found")
    run = begin(folder, count=300, budget=120, open_questions=20, audit=20, class_names=True, **TWO)
    for _ in range(8):
        if run.status()["differing"]:
            return run
        answer(run)
    raise AssertionError("the permuted list was not found")


def test_a_permuted_list_is_found_and_named_and_nothing_else_changes(found: Run, tmp_path) -> None:
    run = copy_of(found, tmp_path)
    (said,) = run.status()["differing"]
    assert (said["name"], said["agreed"] < said["expected"] / 2) == ("anna", True)
    audit = items_bought(run, "audit")
    assert any("anna" in name and n for name, n in open_rows(run).items()), "rows as before"
    assert {each.name: each.standing for each in run.annotators()} == {"anna": "", "ben": ""}
    assert not audit & set(learned_of(run))
    to_the_end(run)
    assert any("anna" in names for names in learned_of(run).values())
    assert "anna differs" in (run.path / "report.html").read_text()
    expect_sound(run)


def test_who_is_set_aside_teaches_nothing_to_the_end(found: Run, tmp_path: Path) -> None:
    run = copy_of(found, tmp_path)
    run.people(set_aside="anna")
    assert all("ben" in names for names in learned_of(run).values())
    alone = {str(row["item"]) for row in bought(run, labeler="anna", purpose="train")}
    assert alone
    assert run.status()["differing"] == []
    expect_sound(run)
    to_the_end(run)
    assert all("ben" in names for names in learned_of(run).values())
    assert not alone & set(learned_of(run)), "no further label is bought of these items"
    expect_sound(run)


def test_the_model_without_somebody_after_the_end_is_that_of_the_others_alone(tmp_path) -> None:
    run = to_the_end(begin(tmp_path, audit=6, budget=30, **TWO), anna=truth)
    accuracy = run.status()["audit"]
    head = (run.path / "model" / "head.safetensors").read_bytes()
    run.people(set_aside="anna")
    assert run.status()["state"] == "finished"
    assert (run.path / "model" / "head.safetensors").read_bytes() != head
    assert run.status()["audit"]["n"] == accuracy["n"]
    assert "set aside after it was first shown" in (run.path / "report.html").read_text()
    expect_sound(run)
    run.people(keep="anna")
    expect_sound(run)


def test_decisions_that_cannot_be(found: Run, tmp_path: Path) -> None:
    run = copy_of(found, tmp_path)
    before = events(run)
    with pytest.raises(RunError, match="'carl' is no annotator"):
        run.people(set_aside="carl")
    with pytest.raises(RunError, match="away or set aside"):
        run.people(set_aside=["anna", "ben"])
    assert events(run) == before


@pytest.mark.parametrize(
    "moment",
    [pytest.param("before it is recorded", marks=pytest.mark.slow), "when it was recorded"],
)
def test_a_decision_that_is_killed_is_completed_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    run = to_the_end(begin(tmp_path, **TWO), anna=truth)
    with monkeypatch.context() as patch:
        if moment == "before it is recorded":
            patch.setattr(people.Ledger, "set_standing", killed)
        else:
            patch.setattr(Run, "resume", killed)
        with pytest.raises(Killed):
            run.people(set_aside="anna")
    run.resume()
    assert run.status()["state"] == "finished"
    if moment == "before it is recorded":
        assert "set_aside" not in events(run)
        run.people(set_aside="anna")
    assert all("ben" in names for names in learned_of(run).values())
    expect_sound(run)
