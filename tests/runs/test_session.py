"""An open run: opened once for a label, its order, and what is said of a file that changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.ledger.ledger import Ledger
from stacksl.runs.items import reading
from stacksl.runs.items.roles import order_of

from .changing_cases import POOL
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


def test_an_order_is_the_seeds_or_the_files() -> None:
    assert order_of("file", 3, 5) == [0, 1, 2, 3, 4]
    one, other = order_of("shuffled", 3, 50), order_of("shuffled", 4, 50)
    assert sorted(one) == sorted(other) == list(range(50))
    assert one != other
    assert order_of("shuffled", 3, 50) == one
    assert order_of("shuffled", 3, 50, 1) != one


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
