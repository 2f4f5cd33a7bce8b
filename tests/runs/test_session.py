"""An open run: opened once for a label, put back where nothing came of it, its items held once."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import LedgerCorrupt
from stacksl.labelers.protocol import Request
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.runs.items import reading

from .changing_cases import POOL
from .conftest import class_items
from .people_cases import begin, expect_sound, fill, play, sheets


@POOL
def test_a_label_opens_the_run_once(tmp_path, mode: str, monkeypatch) -> None:
    waiting = begin(tmp_path, mode=mode)
    opened: list[str] = []

    def counted(of: Any, name: str) -> Any:
        def count(*given: Any, **more: Any) -> Any:
            opened.append(name)
            return of(*given, **more)

        return count

    files = [fill(path) for path in sheets(waiting)]
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "open", counted(Ledger.open, "ledger"))
        patch.setattr(reading, "read", counted(reading.read, "data"))
        waiting.answer(*files)
    assert opened == ["ledger"], "the file was read once, when the run was made"


def test_a_labeler_is_asked_with_prompt_and_candidates(tmp_path: Path) -> None:
    items, answers = class_items(30)
    seen: list[Request] = []

    def reading(request: Request) -> int:
        seen.append(request)
        return answers[request.item]

    run(items, budget=5, labeler=reading, out=tmp_path / "run")
    texts = {item.id: (item.prompt, item.candidates) for item in items}
    assert [(each.prompt, each.candidates) for each in seen] == [texts[each.item] for each in seen]
    assert len(seen) == 5
    assert seen[0].answer(2, "me") == Answer(seen[0].item, 0, 1, 2, "me")


# The user's file ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["edited", "moved"])
def test_a_file_that_changed_changes_nothing_and_is_named(tmp_path: Path, change: str) -> None:
    waiting = begin(tmp_path)
    assert not waiting.status()["warnings"]
    pool = next(tmp_path.glob("pool-*.csv"))
    text = pool.read_text(encoding="utf-8")
    if change == "edited":
        pool.write_text(text.replace(" ", "  "), encoding="utf-8")
    else:
        pool.rename(pool.with_name("elsewhere.csv"))
    (warning,) = waiting.status()["warnings"]
    assert str(pool) in warning
    assert {"edited": "was changed", "moved": "was moved or deleted"}[change] in warning
    expect_sound(play(waiting))


def test_an_item_that_was_edited_by_hand_is_found(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    for column in ("prompt", "answer", "unknown", "part"):
        copy = Run(shutil.copytree(waiting.path, tmp_path / column))
        with closing(sqlite3.connect(copy.path / "run.db")) as database, database:
            database.execute(f"UPDATE items SET {column} = 1 WHERE place = 3")
        with pytest.raises(LedgerCorrupt, match="row 4 of the table 'items'"):
            copy.resume()
    with closing(sqlite3.connect(waiting.path / "run.db")) as database, database:
        database.execute("DELETE FROM items WHERE place = 3")
    with pytest.raises(LedgerCorrupt, match="added, removed or edited"):
        waiting.resume()
