"""A class that is added in the middle of a run, from the sheets of people to the final model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.errors import RunError, SettingsError
from stacksl.ledger.ledger import Ledger
from stacksl.runs.changes.forgetting import forget

from ..ledgers import verify
from ..saved_arrays import latest_in, set_of
from .changing_cases import purchases, two_of, unnamed
from .conftest import CLASSES, Finished
from .people_cases import (
    Row,
    answer_all,
    begin,
    facts_of,
    gold,
    play,
    read_rows,
    sheets,
    write_pool,
    write_rows,
)

NEW = "night"


def grudging(row: Row) -> str:
    """What a colleague says who misses a class: every other time by its name, more or less."""
    topic = gold(row["prompt"])
    if topic in row["options"]:
        return topic
    return f"[none]: {' NIGHT ' if len(row['prompt']) % 2 else 'something else'}"


def plainly(row: Row) -> str:
    """The class itself, as a right text where the sheet is from before it was added."""
    topic = gold(row["prompt"])
    return topic if topic in row["options"] else f"[none]: {topic}"


def started(folder: Path, **settings: Any) -> Run:
    """A run over three topics that was given two of them, with one batch answered."""
    plan: dict[str, Any] = {"budget": 38, "open_questions": 16, "audit": 0, "count": 40}
    made = begin(folder, **{**plan, "classes": two_of(folder), **settings})
    answer_all(made, grudging)
    return made


@pytest.fixture(scope="module")
def first_batch(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return started(tmp_path_factory.mktemp("two"), class_names=True)


@pytest.fixture
def made(first_batch: Run, tmp_path: Path) -> Run:
    """A copy of a run that waits for its second batch."""
    shutil.copytree(first_batch.path, tmp_path / "run")
    return Run(tmp_path / "run")


def query(made: Run, what: Callable[[Ledger], Any]) -> Any:
    with made.ledger as ledger:
        return what(ledger)


def none_said(made: Run) -> int:
    return int(query(made, lambda ledger: ledger.counts_by_kind())["none"])


def test_answers_that_name_the_class_are_learned_for_nothing(made: Run) -> None:
    before, none = made.status(), none_said(made)
    learned = query(made, lambda ledger: len(ledger.accounts.learned_labels))
    expected = made.change(classes=NEW, dry_run=True)
    assert made.status() == before, "nothing was written"
    found = made.change(classes=NEW)
    after = made.status()
    assert found == expected
    assert (found.classes, found.cost_again) == (3, "")
    assert 0 < found.mapped < none
    assert found.mapped + len(found.again) == none
    assert query(made, lambda ledger: len(ledger.accounts.learned_labels)) == learned + found.mapped
    assert after["answered"] == before["answered"], "nobody has answered anything else"
    assert after["spent"] == before["spent"]
    assert none_said(made) == none - found.mapped
    wanted = ("class_added", "corrected")
    rows = query(made, lambda ledger: [row for row in ledger.rows() if row.event in wanted])
    assert dict(rows[0].payload) == {"name": NEW, "size": 3}
    assert [row.payload["index"] for row in rows[1:]] == [2] * found.mapped
    assert latest_in(made.path).arrays["scorer/theta"].shape[0] == 3
    assert np.abs(latest_in(made.path).arrays["scorer/theta"][2]).sum() > 0
    verify(made)


def test_the_run_goes_on_with_the_class_and_is_played_again(made: Run) -> None:
    out = [read_rows(sheet) for sheet in sheets(made)]
    found = made.change(classes={NEW: "what is seen in the dark"})
    assert [read_rows(sheet) for sheet in sheets(made)] == out, "sheets that are out stay"
    assert all(NEW not in row["options"] for rows in out for row in rows)
    made.change(budget=40, later=True)
    answer_all(made, plainly)
    assert all(NEW in row["options"] for row in read_rows(sheets(made)[0]))
    play(made, plainly)
    assert made.model.classes == ("bread", "sea", NEW)
    assert none_said(made) == len(found.again), "a right text on an old sheet is mapped as well"
    test = [Item(f"t{n}", f"{NEW[:2]} star moon owl {n}", ()) for n in range(8)]
    choices = [row["choice"] for row in made.predict(test)]
    assert choices.count(NEW) >= 7
    verify(made)
    assert made.replay()["labels"] == made.status()["answered"]


def test_an_old_sheet_takes_the_name_of_the_class(made: Run) -> None:
    found = made.change(classes=NEW, later=True)
    ((who, old),) = found.outdated
    assert (who, Path(old).name) == ("anna", sheets(made)[0].name)
    rows = read_rows(old)
    assert all(NEW not in row["options"] for row in rows)
    says = [NEW, "B", "2", f"[none]: {NEW}", "3"]
    for row, cell in zip(rows, says, strict=False):
        row["answer"] = cell
    received = made.answer(write_rows(old, rows))
    assert (received.faults, received.accepted) == ((), {"label": 4, "none": 1})
    keys = [row["key"] for row in rows[: len(says)]]
    items = {row.key: row.item for row in query(made, lambda ledger: ledger.private.handed())}
    answers = {row[0]: row[4] for row in purchases(made)}
    assert [answers[items[key]] for key in keys] == [2, 1, 1, 2, 2]
    (new,) = sheets(made)
    assert all(NEW in row["options"] for row in read_rows(new)), "older rows have it there, too"
    assert len(read_rows(new)) > len(rows) - len(says) > 0
    verify(made)


def test_items_answered_with_none_are_asked_for_once_more(made: Run) -> None:
    none = none_said(made)
    found = made.change(classes=NEW, reopen=True)
    assert len(found.again) == none - found.mapped > 0
    again = {row[0] for row in purchases(made) if row[1] == 1}
    assert again == set(found.again)
    with pytest.raises(RunError, match="no item to ask about again"):
        made.change(reopen=True)
    play(made, plainly)
    by_slot = {(r[0], r[1]): r[3] for r in purchases(made)}
    assert {by_slot[item, 0] for item in again} == {"none"}
    assert {by_slot[item, 1] for item in again} == {"label"}
    assert query(made, lambda ledger: ledger.agreement()) == [], "it was another question"
    assert made.status()["spent"] == 38
    rows = {row["id"]: row for row in made.table().rows}
    assert {rows[item]["source"] for item in again} == {"human"}, "the later answer counts"
    assert all(rows[item]["label"] for item in again)
    verify(made)
    made.replay()


def test_whoever_is_there_is_asked_again_in_place_of_one_who_is_away(tmp_path: Path) -> None:
    made = started(tmp_path, annotators="anna,ben", budget=38)
    again = made.change(classes=NEW, reopen=True).again
    answer_all(made, plainly)  # rows that were out before
    with made.ledger as ledger:
        leases = {(p.item, p.slot) for p in ledger.open_purchases() if p.slot}
        waiting = [r.annotator for r in ledger.private.handed() if (r.item, r.slot) in leases]
    assert len(waiting) == len(leases) > 0
    assert {item for item, _ in leases} <= set(again)
    made.people(away=waiting[0])
    play(made, plainly)
    by_slot = {(row[0], row[1]): row[3] for row in purchases(made)}
    assert [by_slot[item, 1] for item in again] == ["label"] * len(again)
    made.replay()


def test_no_more_is_asked_for_again_than_was_agreed_to(made: Run) -> None:
    offered = made.change(classes=NEW, reopen=True, dry_run=True)
    before = made.status()
    with pytest.raises(RunError, match="answers were taken since the price was shown"):
        made.change(classes=NEW, reopen=True, agreed=replace(offered, again=offered.again[1:]))
    assert made.status() == before


def test_they_can_be_asked_for_later_and_only_as_far_as_the_budget_goes(tmp_path: Path) -> None:
    made = started(tmp_path, budget=20, open_questions=20)
    found = made.change(classes=NEW)
    assert made.status()["state"] == "finished"
    assert made.change(budget=30, dry_run=True).again == found.again
    before = query(made, lambda ledger: ledger.head)
    with pytest.raises(SettingsError, match="0 labels left to train on: raise it as well"):
        made.change(reopen=True)
    assert query(made, lambda ledger: ledger.head) == before
    assert made.status()["state"] == "finished"
    made.change(budget=20 + len(found.again), reopen=True)
    play(made, plainly)
    assert made.status()["answered"] == 20
    assert none_said(made) == len(found.again), "the first answers stay what they were"
    made.replay()


def test_answers_of_the_audit_are_mapped_and_not_learned(tmp_path: Path) -> None:
    made = started(tmp_path, audit=12, open_questions=38)
    before = made.status()["answered"]
    found = made.change(classes=NEW)
    words = [*query(made, lambda led: led.audited()).values()]
    assert words.count(2) > 0
    assert made.status()["answered"] == before + found.mapped - words.count(2)
    assert made.status()["state"] == "finished"
    made.replay()


def test_a_finished_run_of_a_label_column_takes_a_class_on(classes: Finished, tmp_path) -> None:
    shutil.copytree(classes.run.path, tmp_path / "run")
    made = Run(tmp_path / "run")
    found = made.change(classes="dawn")
    assert (found.classes, found.mapped) == (4, 0)
    assert (found.again, found.left) == ((), 0)
    assert made.status()["state"] == "finished"
    assert made.model.classes == (*CLASSES, "dawn")
    test, answers = classes.test
    wide = [Item(item.id, item.prompt, (*CLASSES, "dawn")) for item in test]
    assert made.evaluate(wide, answers)["accuracy"] > 0.5
    verify(made)
    made.change(classes={"dusk": "the other one"})
    assert made.model.classes == (*CLASSES, "dawn", "dusk")
    made.replay()


def test_more_items_and_forgotten_ones_go_with_it(made: Run, tmp_path: Path) -> None:
    made.change(classes=NEW)
    assert made.change(items=write_pool(tmp_path, 12, seed=3, first=100), later=True).items == 12
    asked = [row[0] for row in purchases(made) if row[2] == "answered"]
    forget(made.path, str(asked[0]))
    made.change(classes="dawn")
    play(made, plainly)
    assert made.model.classes == ("bread", "sea", NEW, "dawn")
    assert f"'{asked[0]}'" not in repr(purchases(made))
    verify(made)
    assert made.replay()["after"] > 0


def test_what_cannot_be_added_is_refused_before_anything_changes(
    made: Run, pairs: Finished, tmp_path: Path
) -> None:
    table = made.folder.settings(), made.folder.classes()
    for name in ("bread", " Bread ", "BREAD"):
        with pytest.raises(SettingsError, match="already has the class, as number 1 of 2"):
            made.change(classes=name)
    with pytest.raises(SettingsError, match="needs a name"):
        made.change(classes="  ")
    for name in ("none", "None of these", "none: night", "[ambiguous]", "?", "broken"):
        with pytest.raises(SettingsError, match="means nothing else as an answer"):
            made.change(classes=name)
    for name, place in (("A", 1), ("b", 2), ("2", 2), ("(1)", 1)):
        with pytest.raises(SettingsError, match=f"means option {place} on a sheet"):
            made.change(classes=name)
    with pytest.raises(RunError, match="no item to ask about again"):
        made.change(reopen=True)
    assert (made.folder.settings(), made.folder.classes()) == table
    with pytest.raises(RunError, match="have their own options"):
        pairs.run.change(classes=NEW)
    shutil.copytree(pairs.run.path, tmp_path / "lm")
    adapted = Run(tmp_path / "lm")
    set_of(adapted.path, "lm.model", "sample")
    set_of(adapted.path, "lm.adapt", "lora")
    with pytest.raises(RunError, match="language model's features"):
        adapted.change(classes=NEW)


def test_many_classes_stand_in_a_list_for_each_number_of_them(tmp_path: Path) -> None:
    names = ["bread", "sea", *(f"topic {n}" for n in range(26))]
    (tmp_path / "many.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    plan = {
        "labeler": "file",
        "sheets.format": "csv",
        "classes": str(tmp_path / "many.txt"),
        "budget": 12,
        "open_questions": 6,
    }
    made = run(write_pool(tmp_path, 30), out=tmp_path / "run", audit=0, mode="pool", **plan)
    made.change(classes=NEW)
    made.answer()
    answer_all(made, plainly_or_none)
    lists = {path.name: read_rows(path) for path in (made.path / "ask").glob("classes*.csv")}
    assert {name: len(rows) for name, rows in lists.items()} == {
        "classes.csv": 28,
        "classes-of-29.csv": 29,
    }
    play(made, plainly_or_none)
    assert made.status()["state"] == "finished"


def plainly_or_none(row: Row) -> str:
    topic = gold(row["prompt"])
    return f"[none]: {topic}" if topic == NEW and "classes-of-29" not in row["options"] else topic


def test_an_added_class_without_a_label_has_advice_that_works(tmp_path: Path) -> None:
    """A promise takes no owned labels, and nothing is reopened where no answer was none."""
    options = {"annotators": "anna", "class_names": True, "stop_when": "right=90%"}
    made = begin(tmp_path, budget=40, **options)
    answer_all(made, lambda row: gold(row["prompt"]))
    made.change(classes=["dusk"], later=True)
    sentence = "no label names the added 'dusk': answers to further rows may name it"
    assert sentence in made.status()["warnings"]
    named = [{**row, "answer": "dusk"} for row in read_rows(sheets(made)[0])]
    made.answer(write_rows(sheets(made)[0], named))
    assert not any("dusk" in words for words in made.status()["warnings"])


@pytest.mark.parametrize("names", ["1 2 3 4", "A B C D", "yes no"])
def test_names_that_are_letters_or_numbers_stay_possible(tmp_path: Path, names: str) -> None:
    (tmp_path / "names.txt").write_text("\n".join(names.split()) + "\n", encoding="utf-8")
    begun = begin(tmp_path, classes=str(tmp_path / "names.txt"), budget=5, audit=0)
    following = {"4": "5", "D": "E"}.get(names[-1], "Z")
    found = begun.change(classes=following, later=True)
    assert found.classes == len(names.split()) + 1


def test_a_class_that_is_called_as_another_answer_is_refused_where_people_answer(
    tmp_path: Path,
) -> None:
    (tmp_path / "three.txt").write_text("bread\nsea\nNone\n", encoding="utf-8")
    plan = {"classes": str(tmp_path / "three.txt"), "budget": 5, "audit": 0}
    with pytest.raises(SettingsError, match="'None' means none of these on a sheet"):
        begin(tmp_path, **plan)
    assert not (tmp_path / "run").exists()
    begun = run(write_pool(tmp_path, 20), out=tmp_path / "run", labeler=lambda asked: 0, **plan)
    assert begun.status()["state"] == "finished"


def audited_none(made: Run) -> set[object]:
    rows = purchases(made)
    return {row[0] for row in rows if row[5] == "audit" and row[3] == "none" and row[1] == 0}


@pytest.mark.parametrize("people", ["anna", "anna,ben"])
def test_audited_rows_are_asked_again_like_the_others(tmp_path: Path, people: str) -> None:
    plan = {"annotators": people, "audit": 12, "open_questions": 38, "second_look": False}
    made = begin(tmp_path, classes=two_of(tmp_path), budget=38, count=90, **plan)
    play(made, unnamed)
    found = made.change(classes=NEW)
    missed = audited_none(made)
    assert 0 < len(missed) < len(found.again)
    assert missed < {*found.again}
    low = made.status()["audit"]
    assert (low["none_before"], low["classes_after"]) == (len(missed), 1)
    made.change(reopen=True, budget=38 + len(found.again))
    learned = labels_learned(made)
    again = {row[0] for row in purchases(made) if row[1] == 1}
    assert again == {*found.again}
    out = [row for sheet in sheets(made) for row in read_rows(sheet)]
    assert len(out) == len(found.again), "all of them come back at once"
    play(made, plainly)
    high = made.status()["audit"]
    assert (high["none_before"], high["classes_after"]) == (0, 0)
    assert high["correct"] > low["correct"]
    words = query(made, lambda led: led.audited())
    assert {words[item] for item in missed} == {2}, "the later answer counts"
    assert labels_learned(made) == learned + len(again) - len(missed), "and is never learned"
    assert facts_of(made).budget.further == 0, "what is kept for a second look is not spent"
    verify(made)
    made.replay()


def labels_learned(made: Run) -> int:
    return int(query(made, lambda ledger: len(ledger.accounts.learned_labels)))


def test_rows_to_ask_again_wait_as_reserved_ones_and_come_among_those_of_the_audit(
    tmp_path: Path,
) -> None:
    plan = {"classes": two_of(tmp_path), "audit": 16, "budget": 60, "open_questions": 20}
    made = begin(tmp_path, count=90, seed=5, **plan)
    answer_all(made, unnamed)
    found = made.change(classes=NEW, reopen=True)
    of = {(row[0], row[1]): row[5] for row in purchases(made)}
    assert {of[item, 1] for item in found.again} == {"train", "audit"}
    status = made.status()
    assert status["asked"] + status["measuring"] == status["spent"]
    kept = status["spent"] - status["answered"] - status["out"]
    assert kept >= len(found.again)
    answer_all(made, plainly)
    handed = query(made, lambda ledger: ledger.private.handed())
    next_out = {(row.item, row.slot) for row in handed if row.sheet == handed[-1].sheet}
    assert {of[item, 1] for item in found.again if (item, 1) in next_out} == {"train", "audit"}
    play(made, plainly)
    assert made.status()["audit"]["none_before"] == 0
    verify(made)
    made.replay()


def test_a_second_look_begins_with_the_answer_that_came_again(tmp_path: Path) -> None:
    plan = {"classes": two_of(tmp_path), "annotators": "anna,ben,carl", "audit": 12}
    made = begin(tmp_path, count=120, budget=40, open_questions=40, second_look=True, **plan)
    play(made, unnamed)
    found, missed = made.change(classes=NEW), audited_none(made)
    made.change(reopen=True, budget=40 + len(found.again) + 12)
    play(made, plainly)
    again = {(row[0], row[1]) for row in purchases(made) if row[1] and row[5] == "audit"}
    assert {item for item, _ in again} >= missed
    words = query(made, lambda ledger: ledger.audited_by_all())
    assert missed
    assert all(answer.word == 2 for item in missed for answer in words[item]), "none is left out"
    second = made.status()["audit"]["second"]
    assert second["agreeing"] + second["differing"] == 12
    verify(made)
    made.replay()
