"""Tasks of Label Studio, JSON with annotations: read as rows of items, and written.

Source: Label Studio's pages "Label Studio Task Format" and "Choices"; what is written is checked
against `label-studio-sdk` (tests/data/test_label_studio.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stacksl.data.values import RowFault

ANSWER, PROMPT = "answer", "prompt"  # the names of the tags in `CONFIG`
CONFIG = f"""\
<View>
  <Text name="{PROMPT}" value="${PROMPT}"/>
  <Choices name="{ANSWER}" toName="{PROMPT}" choice="single" value="$options"/>
  <TextArea name="note" toName="{PROMPT}" maxSubmissions="1"/>
</View>
"""
"""The labeling configuration of written tasks: the choices are those that each task lists."""


def is_task(row: object) -> bool:
    """Whether a row of JSON is a task of Label Studio: its items are in the object `data`."""
    if not isinstance(row, Mapping) or "data" not in row:
        return False
    bare = isinstance(row["data"], Mapping) and set(row) <= {"id", "data", "meta"}
    return bare or "annotations" in row or "predictions" in row


def _choices_of(task: Mapping[str, Any]) -> list[dict[str, tuple[str, ...]]]:
    """What was chosen in each annotation that was not skipped, by the name of the tag.

    Raises:
        RowFault: the task is not in Label Studio's format.
    """
    found = []
    for each in _listed(task.get("annotations"), "annotations"):
        if each.get("was_cancelled"):
            continue
        choices: dict[str, tuple[str, ...]] = {}
        for region in _listed(each.get("result"), "the result of an annotation"):
            value = region.get("value")
            if not isinstance(value, Mapping):
                continue  # a relation
            if region.get("type") == "choices":
                name = str(region.get("from_name"))
                choices[name] = (*choices.get(name, ()), *_texts(value.get("choices")))
        found.append(choices)
    return found


def _listed(value: object, what: str) -> Sequence[Mapping[str, Any]]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise RowFault(f"bad task: {what} should be a list of objects")
    return value


def _texts(value: object) -> tuple[str, ...]:
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise RowFault("bad task: choices should be a list of strings")
    return tuple(value)


def item_values(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task as a row of items: its data, its id where the data has none, and what was chosen.

    What was chosen is in a column with the name of its tag: the choice of most annotations, of
    equal ones that of the first; a list where an annotation has several.

    Raises:
        RowFault: the task is not in Label Studio's format.
    """
    if not isinstance(task["data"], Mapping):
        raise RowFault(f"bad task: 'data' should be an object, got {type(task['data']).__name__}")
    said: dict[str, list[tuple[str, ...]]] = {}
    for choices in _choices_of(task):
        for name, chosen in choices.items():
            if chosen:
                said.setdefault(name, []).append(chosen)
    columns: dict[str, Any] = {}
    for name, given in said.items():
        [(chosen, _)] = Counter(given).most_common(1)  # of equal ones the first counted
        columns[name] = chosen[0] if len(chosen) == 1 else list(chosen)
    own = {} if task.get("id") is None else {"id": task["id"]}
    return {**own, **{name: _plain(value) for name, value in task["data"].items()}, **columns}


def _plain(value: Any) -> Any:
    """A list of choices, objects with `value`, as the list of their texts."""
    listed = value if isinstance(value, list) else []
    texts = [each.get("value") for each in listed if isinstance(each, Mapping)]
    own = texts and len(texts) == len(listed) and all(isinstance(text, str) for text in texts)
    return texts if own else value


def task(
    data: Mapping[str, Any], options: Iterable[str], answers: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """A task with its choices, and with its answers as annotations.

    Args:
        data: what the task shows or carries: at least `prompt`.
        options: what can be chosen.
        answers: each with `label`, the choice or None, `time` in ISO 8601, and perhaps `set_aside`.
            An annotation without a label, or set aside, is a skipped one. All that they hold is
            kept in the task's `meta`, in the order of the annotations.
    """
    made: dict[str, Any] = {"data": {**data, "options": [{"value": each} for each in options]}}
    if answers:
        made["meta"] = {"answers": [dict(each) for each in answers]}
        made["annotations"] = [_annotation(each) for each in answers]
    return made


def _annotation(answer: Mapping[str, Any]) -> dict[str, Any]:
    label = answer["label"]
    chosen = {
        "from_name": ANSWER,
        "to_name": PROMPT,
        "type": "choices",
        "value": {"choices": [label]},
    }
    return {
        "result": [] if label is None else [chosen],
        "was_cancelled": label is None or bool(answer.get("set_aside")),
        "created_at": answer["time"],
    }
