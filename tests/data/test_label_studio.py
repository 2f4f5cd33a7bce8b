"""Tasks of Label Studio as items, and hostile files of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.data import read
from stacksl.data.label_studio import CONFIG, task
from stacksl.errors import DataError


def annotated(text: str, *choices: str, tag: str = "sentiment", **more: Any) -> dict[str, Any]:
    """A task of a project on sentiment as Label Studio exports it."""
    region = {"from_name": tag, "to_name": "text", "type": "choices"}
    annotations = [
        {"id": n, "completed_by": n, "result": [{**region, "value": {"choices": [each]}}]}
        for n, each in enumerate(choices)
    ]
    return {"data": {"text": text}, "annotations": annotations, "predictions": [], **more}


def saved(folder: Path, rows: Any) -> Path:
    path = folder / "tasks.json"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
    return path


def test_tasks_are_items_and_annotations_their_answers(tmp_path: Path) -> None:
    rows = [annotated(f"text {n}", ("pos", "neg")[n % 2], id=n + 5) for n in range(6)]
    rows += [annotated("two against one", "pos", "neg", "neg"), annotated("a tie", "neg", "pos")]
    skipped = annotated("skipped", "pos")
    skipped["annotations"][0]["was_cancelled"] = True
    data = read(saved(tmp_path, [*rows, skipped, annotated("open")]))
    assert (data.format, data.classes) == ("json:classes", ("neg", "pos"))
    assert data.columns == {"prompt": "text", "label": "sentiment", "id": "id"}
    assert [item.id for item in data.items][:2] == ["5", "6"]
    assert list(data.answers.values()) == [1, 0, 1, 0, 1, 0, 0, 0]
    assert len(data.items) == 10
    assert not data.rejected


def test_options_of_their_own(tmp_path: Path) -> None:
    answer = {"label": "left", "time": "2026-01-01T00:00:00+00:00", "price": 0.5}
    rows = [task({"id": f"q{n}", "prompt": f"p{n}"}, ["left", f"r{n}"], [answer]) for n in range(3)]
    rows += [task({"id": "q3", "prompt": "p3"}, ["x", "y"])]
    data = read(saved(tmp_path, rows))
    assert data.classes is None
    assert [item.candidates for item in data.items][:2] == [("left", "r0"), ("left", "r1")]
    assert data.answers == {"q0": 0, "q1": 0, "q2": 0}


def test_several_choices_are_refused(tmp_path: Path) -> None:
    rows = [annotated(f"text {n}", ("pos", "neg")[n % 2]) for n in range(60)]
    rows[0]["annotations"][0]["result"][0]["value"]["choices"] = ["pos", "neg"]
    with pytest.raises(DataError, match="multi-label"):
        read(saved(tmp_path, rows))


def test_a_bad_task_is_set_aside_with_its_reason(tmp_path: Path) -> None:
    rows: list[Any] = [annotated(f"text {n}", ("pos", "neg")[n % 2]) for n in range(10)]
    rows += [{"data": 1, "annotations": []}, annotated("x", annotations={"result": 3})]
    reasons = [each.reason for each in read(saved(tmp_path, rows)).rejected]
    assert reasons == [
        "bad task: 'data' should be an object, got int",
        "bad task: annotations should be a list of objects",
    ]


def test_an_object_named_data_in_other_files_stays_a_column(tmp_path: Path) -> None:
    rows = [{"text": f"t{n}", "label": "ab"[n % 2], "data": {"n": n}} for n in range(4)]
    assert read(saved(tmp_path, rows)).columns["label"] == "label"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "email", "value", "choices", "text"]), inner)
    ),
    max_leaves=5,
)
REGION = st.dictionaries(st.sampled_from(["from_name", "type", "value"]), JSON)
SPOILT = st.fixed_dictionaries(
    {},
    optional={
        "data": JSON | st.fixed_dictionaries({"key": JSON, "prompt": JSON, "options": JSON}),
        "annotations": JSON
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "result": JSON | st.lists(REGION | JSON, max_size=2),
                    "completed_by": JSON,
                    "was_cancelled": JSON,
                },
            ),
            max_size=2,
        ),
        "id": JSON,
        "meta": JSON,
    },
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(SPOILT | JSON, max_size=3), cut=st.integers(0, 40), torn=st.booleans())
def test_hostile_files_give_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], cut: int, torn: bool
) -> None:
    text = json.dumps(rows)
    path = tmp_path_factory.mktemp("hostile") / "tasks.json"
    path.write_text(text[: max(1, len(text) - cut)] if torn else text)
    said = "no error at all"
    try:
        read(path)
    except DataError as error:
        said = str(error)
    assert "\n" not in said
    assert 10 < len(said) < 700


def test_what_is_written_is_valid_for_the_library_of_label_studio() -> None:
    pytest.importorskip("label_studio_sdk", reason="label-studio-sdk is not installed")
    from label_studio_sdk.label_interface import LabelInterface
    from label_studio_sdk.types import Annotation

    project = LabelInterface(CONFIG)
    project.validate()
    answers = [
        {"label": "a", "time": "2026-01-01T00:00:00+00:00", "labeler": "annotator 1"},
        {"label": None, "time": "2026-01-01T00:00:01+00:00", "labeler": "annotator 2"},
    ]
    made = task({"id": "q", "prompt": "which?"}, ("a", "b"), answers)
    assert project.validate_task({"data": made["data"]})
    for each in made["annotations"]:
        assert project.validate_annotation(each)
        assert Annotation.model_validate({"id": 1, **each}).created_at is not None
    assert not project.validate_annotation({"result": [{"from_name": "other", "value": {}}]})
