"""A run whose people answer in Label Studio: tasks out, exports of annotations back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.errors import DataError

from .conftest import CLASSES
from .people_cases import begin, bought, expect_sound, gold, sheets

Task = dict[str, Any]


def chosen(task: Task, name: str) -> str:
    """The choice whose text ends in `name`, as Label Studio writes it."""
    return next(o["value"] for o in task["data"]["options"] if o["value"].endswith(name))


def truth(task: Task) -> str:
    return chosen(task, gold(task["data"]["prompt"]))


def other(task: Task) -> str:
    name = gold(task["data"]["prompt"])
    return chosen(task, CLASSES[(CLASSES.index(name) + 1) % len(CLASSES)])


def annotation(choice: str, by: Any = None, **more: Any) -> dict[str, Any]:
    region = {"from_name": "answer", "to_name": "prompt", "type": "choices", "id": "x"}
    made = {"result": [{**region, "value": {"choices": [choice]}}], "was_cancelled": False}
    return {**made, **more} if by is None else {**made, "completed_by": by, **more}


def export(path: Path, say: Callable[[Task], list[dict[str, Any]]], name: str = "back") -> Path:
    """What Label Studio exports after the tasks of a sheet were annotated."""
    tasks = json.loads(path.read_text(encoding="utf-8"))
    made = [{"id": n, **task, "annotations": say(task)} for n, task in enumerate(tasks, 101)]
    out = path.parent.parent / f"{name}-{path.name}"
    out.write_text(json.dumps(made))
    return out


def play(waiting: Run, say: Callable[[Task], list[dict[str, Any]]]) -> Run:
    for _ in range(30):
        if waiting.status()["state"] != "waiting":
            return waiting
        received = waiting.answer(*[export(path, say) for path in sheets(waiting)])
        assert not received.faults
    raise AssertionError("the run still waits")


def test_a_run_is_answered_in_label_studio(tmp_path: Path) -> None:
    waiting = begin(tmp_path, sheets="json", audit=4)
    (path,) = sheets(waiting)
    assert path.name == "0001.json"
    assert "$options" in path.with_name("label-studio.xml").read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    done = play(waiting, lambda task: [annotation(truth(task), 7)])
    assert {(row["said"], row["labeler"]) for row in bought(done)} == {("label", "anna")}
    expect_sound(done)


def test_skipped_noted_and_unlisted_answers(tmp_path: Path) -> None:
    waiting = begin(tmp_path, sheets="json", batch=6)
    (path,) = sheets(waiting)
    note = {"from_name": "note", "to_name": "prompt", "type": "textarea", "value": {"text": ["o"]}}
    said = iter(
        [
            [annotation("none")],
            [annotation("elsewhere")],
            [annotation("ambiguous", was_cancelled=True)],
            [],
            [{"result": [*annotation("broken")["result"], note]}],
            [{"result": [{"type": "choices", "value": {"choices": ["A", "B"]}}]}],
        ]
    )
    received = waiting.answer(export(path, lambda task: next(said)))
    assert received.accepted == {"none": 1, "broken": 1}
    assert received.empty == 2
    assert [line.partition(":")[0].partition("json ")[2] for line in received.faults] == [
        "row 2, column answer",
        "row 6",
    ]
    assert "one choice was expected, got 2" in received.faults[1]
    with waiting.ledger as ledger:
        assert [each.note for each in ledger.texts()] == ["o"]


def test_the_same_export_twice_and_an_edited_copy_change_nothing(tmp_path: Path) -> None:
    waiting = begin(tmp_path, sheets="json")
    (path,) = sheets(waiting)
    first = export(path, lambda task: [annotation(truth(task))])
    edited = export(path, lambda task: [annotation(other(task))], "edited")
    waiting.answer(first)
    before = bought(waiting, state="answered")
    again = waiting.answer(first)
    assert (again.accepted, again.repeated) == ({}, 6)
    reverted = waiting.answer(edited)
    assert (reverted.accepted, reverted.disputed) == ({}, 6)
    assert bought(waiting, state="answered") == before
    assert len(waiting.corrections(edited)) == 6


@pytest.mark.parametrize(
    "people", [{"anna": "anna@x.org", "ben": "Ben"}, {"anna": {"id": 3}, "ben": {"id": 4}}]
)
def test_each_row_takes_the_annotation_of_its_own_annotator(
    tmp_path: Path, people: dict[str, Any]
) -> None:
    waiting = begin(tmp_path, sheets="json", annotators="anna,ben", budget=12)
    for path in sheets(waiting):
        who = path.stem.partition("-")[2]
        back = export(path, lambda task, who=who: [annotation(truth(task), people[who])])
        assert not waiting.answer(back).faults
    rows = bought(waiting, state="answered")
    assert {row["labeler"] for row in rows} == {"anna", "ben"}


def test_somebody_elses_annotation_is_no_answer_of_a_row(tmp_path: Path) -> None:
    waiting = begin(tmp_path, sheets="json", annotators="anna,ben", overlap=2, audit=0)
    paths = sheets(waiting)

    def both(task: Task) -> list[dict[str, Any]]:
        emails = ("anna@x.org", "ben@x.org")
        return [annotation(truth(task), {"id": 1, "email": each}) for each in emails]

    alone = [export(path, lambda task: [annotation(other(task), "ben@x.org")]) for path in paths]
    received = waiting.answer(*alone)
    mine = sum(received.accepted.values())
    assert mine
    assert len(received.faults) == 6 - mine
    assert all("the row is anna's" in line for line in received.faults)
    received = waiting.answer(*[export(path, both) for path in paths])
    assert not received.faults
    assert sum(received.accepted.values()) == 6 - mine  # of anna's rows; ben's are answered
    unknown = export(sheets(waiting)[0], both, "unknown")
    merged = [task for path in sheets(waiting) for task in json.loads(path.read_text())]
    for task in merged:
        task["annotations"] = [annotation(truth(task), 99)]
    unknown.write_text(json.dumps(merged))
    assert len(waiting.answer(unknown).faults) == len(merged)  # one person, rows of two


def flat(task: Task) -> Task:
    """An annotated task as an export to JSON-MIN has it."""
    note = task["annotations"][0]
    answer = note["result"][0]["value"]["choices"][0]
    return {**task["data"], "id": task["id"], "answer": answer, "annotator": note["completed_by"]}


def test_json_min_is_read(tmp_path: Path) -> None:
    waiting = begin(tmp_path, sheets="json", batch=4)
    (path,) = sheets(waiting)
    back = export(path, lambda task: [annotation(truth(task), 3)])
    back.write_text(json.dumps([flat(task) for task in json.loads(back.read_text())]))
    assert waiting.answer(back).accepted == {"label": 4}


def test_what_the_library_of_label_studio_exports_is_read(tmp_path: Path) -> None:
    pytest.importorskip("label_studio_sdk", reason="label-studio-sdk is not installed")
    from label_studio_sdk.converter import Converter

    waiting = begin(tmp_path, sheets="json", annotators="anna,ben", batch=8)
    anna, ben = sheets(waiting)
    config = anna.with_name("label-studio.xml").read_text()
    said = {anna: ("anna@x.org", truth), ben: ("ben@x.org", truth)}
    for path, (who, say) in said.items():
        back = export(
            path,
            lambda task, who=who, say=say: [
                annotation(say(task), {"id": 1, "email": who}, created_at="2026-01-01T00:00:00Z"),
                annotation(other(task), {"id": 9, "email": "cleo@x.org"}, created_at=""),
            ],
        )
        made = Converter(config, str(tmp_path))
        made.convert_to_csv(str(back), str(tmp_path / "csv"), is_dir=False, sep=",", header=True)
        made.convert_to_json_min(str(back), str(tmp_path / "min"), is_dir=False)
        table, short = tmp_path / "csv" / "result.csv", tmp_path / "min" / "result.json"
        count = len(json.loads(path.read_text()))
        read = waiting.answer(table)
        assert (read.accepted, read.faults) == ({"label": count}, ())
        again = waiting.answer(short)
        assert (again.accepted, again.repeated, again.faults) == ({}, count, ())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "not valid JSON"),
        ("[1]", "a list of Label Studio's tasks"),
        ('{"data": {"key": "a"}}', "a list of Label Studio's tasks"),
        ('[{"data": {"text": "a"}}]', "has a 'key'"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, content: str, said: str) -> None:
    waiting = begin(tmp_path, sheets="json")
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(DataError, match=said) as caught:
        waiting.answer(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)
    assert not bought(waiting, state="answered")
