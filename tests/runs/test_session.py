"""An open run: opened once for a label, put back where nothing came of it, its items held once."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import DataError, LedgerCorrupt
from stacksl.labelers.oracle import OracleLabeler
from stacksl.labelers.protocol import Request
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer
from stacksl.runs.items import reading
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec

from .conftest import class_items
from .people_cases import begin, expect_sound, fill, play, sheets


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_a_label_opens_the_run_once(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_sheet_that_cannot_be_read_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    before = waiting.status()
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError):
        waiting.answer(tmp_path / "bad.csv")
    assert waiting.status() == before
    expect_sound(play(waiting))


def test_a_session_says_what_it_came_to(tmp_path: Path) -> None:
    waiting = begin(tmp_path, budget=12, batch=12, audit=0)
    with Session.open(RunSpec.open(waiting.folder)) as session:
        assert session.play() == "waiting"
    state = waiting.folder.read_state()
    assert state["state"] == "waiting"
    assert state["sheets"] == [{"file": str(path), "open": 12} for path in sheets(waiting)]
    files = [fill(path) for path in sheets(waiting)]
    with Session.open(RunSpec.open(waiting.folder)) as session:
        session.labeler.read(files)  # type: ignore[attr-defined]  # people answer this run
        assert session.play() == "finished"
    state = waiting.folder.read_state()
    assert state["state"] == "finished"
    assert "sheets" not in state
    assert [receipt.outcome for receipt in session.receipts] == ["accepted"] * 12


class Reader(OracleLabeler):
    """The oracle, which looks at what it is asked."""

    def __init__(self, answers: dict[str, int], sizes: dict[str, int]) -> None:
        super().__init__(answers, sizes)
        self.seen: list[Request] = []

    def ask(self, requests: Sequence[Any]) -> None:
        self.seen += requests
        super().ask(requests)


def test_a_labeler_is_asked_with_prompt_and_candidates(tmp_path: Path) -> None:
    items, answers = class_items(30)
    reader = Reader(answers, dict.fromkeys(answers, 3))
    run(items, answers, budget=5, labeler=reader, out=tmp_path / "run")
    texts = {item.id: (item.prompt, item.candidates) for item in items}
    assert len(reader.seen) == 5
    for request in reader.seen:
        assert (request.prompt, request.candidates) == texts[request.item]
    request = reader.seen[0]
    shown = Request.of(request, items[0], (2, 0, 1))
    assert shown.candidates == tuple(items[0].candidates[index] for index in (2, 0, 1))
    assert shown.answer(0, "me") == Answer(request.item, 0, 1, 2, "me")


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


def test_a_file_with_the_same_bytes_is_the_same(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    pool = next(tmp_path.glob("pool-*.csv"))
    pool.write_bytes(pool.read_bytes())
    os.utime(pool, (1, 1))
    assert not waiting.status()["warnings"]


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
