"""Runs over standard input, which keep a copy of its items: they are opened again by that copy."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stacksl.api import prepare, run
from stacksl.errors import DataError
from stacksl.runs.spec import RunSpec

from ..ledgers import handed_rows
from .conftest import class_items


@pytest.mark.parametrize("mode", [None, "stream"])
def test_texts_on_standard_input(tmp_path, monkeypatch, mode: str | None) -> None:
    items, _ = class_items(40)
    lines = "".join(f"{item.prompt}, and so on\n\n" for item in items)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines.encode())))
    given: dict[str, Any] = {"mode": mode, "labeler": "file", "budget": 12}
    made = run("-", out=tmp_path / "run", classes=list(items[0].candidates), **given)
    asked = {row.item for row in handed_rows(made)}
    assert asked
    spec = RunSpec.open(made.folder)
    assert [i.prompt for i in spec.dataset.items] == [f"{i.prompt}, and so on" for i in items]
    assert spec.settings.mode == (mode or "pool")


@pytest.mark.parametrize(("column", "settings"), [("text", {}), ("say", {"columns.prompt": "say"})])
def test_a_run_whose_prompts_have_another_name_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, settings: dict[str, str]
) -> None:
    items, answers = class_items(40)
    names = items[0].candidates
    rows = [{"id": i.id, column: i.prompt, "label": names[answers[i.id]]} for i in items]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines.encode())))
    given: dict[str, Any] = {"mode": "stream", "budget": 12, "audit": 0, **settings}
    made = run("-", out=tmp_path / "run", classes=list(names), **given)
    assert made.replay()["rounds"] == 40
    more = tmp_path / "more.jsonl"
    more.write_text(lines.replace('"id": "', '"id": "more-'), encoding="utf-8")
    made.change(items=more, later=True)
    made.change(budget=14, later=True)
    made.resume()
    assert made.status()["answered"] == 14
    assert len(list(made.predict(more))) == 40


@pytest.mark.parametrize("setting", ["classes", "owned"])
def test_a_pipe_is_refused_by_the_name_it_was_given_by(setting: str) -> None:
    """As shells give `<(command)`: the target of its link is no file."""
    items, answers = class_items(40)
    reader, writer = os.pipe()
    try:
        with pytest.raises(DataError, match=rf"'/dev/fd/{reader}' is a pipe .*save it as a file"):
            prepare(items, answers, settings={"budget": "4", setting: f"/dev/fd/{reader}"})
    finally:
        os.close(reader)
        os.close(writer)
