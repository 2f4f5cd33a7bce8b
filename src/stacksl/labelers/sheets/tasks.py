"""Questions as tasks of Label Studio, and the annotations of its exports as answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stacksl.data.exchange.label_studio import ANSWER, NOTE, PROMPT, annotations_of, author, task
from stacksl.data.values import RowFault
from stacksl.errors import DataError
from stacksl.labelers.sheets.cells import visible
from stacksl.labelers.sheets.keys import clean_key
from stacksl.labelers.sheets.rows import Asked, Fault, Reply
from stacksl.labelers.sheets.workbook_writing import offered

CONFIG_FILE = "label-studio.xml"

_EXPORT = "export the project again as JSON"


def tasks(rows: Sequence[Asked]) -> str:
    """The questions as a list of tasks to import, which the configuration beside them shows."""
    made = [
        task({"key": row.key, PROMPT: visible(row.prompt)}, offered(row.options, whole=True))
        for row in rows
    ]
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def without_tasks(path: Path, keys: Collection[str]) -> bytes | None:
    """A file of tasks without those of `keys`; None where it has none of them, or no tasks."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    kept = [each for each in found if clean_key(_text(_shown(each).get("key"))) not in keys]
    if len(kept) == len(found):
        return None
    return (json.dumps(kept, ensure_ascii=False, indent=1) + "\n").encode(errors="replace")


def lines_of_tasks(path: Path, data: bytes) -> Iterator[tuple[int, Mapping[str, str], str | None]]:
    """A line for each annotation in an export, as JSON or JSON-MIN, of Label Studio.

    Its number is that of the task in the file, from 1; the cell `annotator` says who answered. A
    task without an annotation, or with skipped ones alone, has one line without an answer.

    Raises:
        DataError: the file is no list of tasks.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DataError(f"'{path}' is not valid JSON: {_EXPORT}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise DataError(f"'{path}' was expected to hold a list of Label Studio's tasks: {_EXPORT}")
    if not any("key" in _shown(each) for each in found):
        raise DataError(
            f"no task in '{path}' has a 'key' in its data: give an export of a project into which"
            " the sheets of this run were imported"
        )
    for number, each in enumerate(found, 1):
        shown = _shown(each)
        cells = {"key": _text(shown.get("key")), "prompt": _text(shown.get(PROMPT))}
        try:
            answers = _answers(each)
        except RowFault as fault:
            yield number, {**cells, "answer": "?"}, f"{fault}; {_EXPORT}"
            continue
        for answer in answers or [{"answer": ""}]:
            yield number, {**cells, **answer}, None


def _shown(found: Any) -> Mapping[str, Any]:
    """The data of a task; of JSON-MIN the task itself."""
    data = found.get("data", found) if isinstance(found, dict) else {}
    return data if isinstance(data, dict) else {}


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _answers(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """The cells `answer`, `note` and `annotator` of each annotation that was not skipped.

    Raises:
        RowFault: the task is not in Label Studio's format, or several choices were made.
    """
    if "data" not in found:
        said = found.get(ANSWER)
        if isinstance(said, dict | list):
            raise RowFault("one choice was expected, got several")
        who = author(found.get("annotator"))
        return [{"answer": _text(said), "note": _text(found.get(NOTE)), "annotator": who}]
    answers = []
    for each in annotations_of(found):
        chosen = each.choices.get(ANSWER) or tuple(
            text for texts in each.choices.values() for text in texts
        )
        if len(chosen) > 1:
            raise RowFault(f"one choice was expected, got {len(chosen)}")
        answers.append({"answer": "".join(chosen), "note": each.note, "annotator": each.by})
    return answers


def own_replies(
    replies: Sequence[Reply], known: Mapping[str, Asked]
) -> tuple[list[Reply], list[Fault]]:
    """The replies of each row's own annotator, and faults where only others have answered it.

    Who answered is known by the e-mail address, its part before the @, or the id, where that is
    the name of an annotator. Anybody else stands for an annotator of whom the file names nobody,
    if all the rows that they have answered are that one's.
    """
    names = {shown.annotator.casefold(): shown.annotator for shown in known.values()}
    said = {reply.by.casefold() for reply in replies} - {""}
    named = {by: names.get(by) or names.get(by.partition("@")[0]) for by in said}
    rows_of: dict[str, set[str]] = {}
    for reply in replies:
        rows_of.setdefault(reply.by.casefold(), set()).add(known[reply.key].annotator)

    def is_own(reply: Reply) -> bool:
        by, owner = reply.by.casefold(), known[reply.key].annotator
        if not by or named[by] is not None:
            return not by or named[by] == owner
        return rows_of[by] == {owner} and owner not in named.values()

    own = [reply for reply in replies if is_own(reply)]
    answered = {reply.key for reply in own}
    others = [each for each in replies if each.key not in answered]
    return own, [Fault(each.row, "annotator", _why(known[each.key])) for each in others]


def _why(shown: Asked) -> str:
    return (
        f"the row is {shown.annotator}'s, and somebody else has answered it: name the annotators of"
        " a run as their e-mail addresses begin or by their ids, or use a project for each"
    )
