"""The choice of a normalisation, made beside the entry of answers."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")
pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

from stacksl.lm import LanguageModel

from ..runs.lm_cases import questions
from .conftest import Opened
from .test_adapter_refits import ITEMS, answer_next, begun, keys
from .test_refits import Held, bought, copy_of, news, rows_of, wait_for

FIRST = 4


@pytest.mark.parametrize("refit_at", ["0.1,1", pytest.param("1", marks=pytest.mark.slow)])
def test_a_normalisation_is_chosen_beside_the_entry_of_answers(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refit_at: str
) -> None:
    """With a refit that is due by then, and without. A kill before its row changes nothing."""
    monkeypatch.setattr("stacksl.runs.session.language.CHOOSE_BY", FIRST)
    monkeypatch.setattr("stacksl.runs.loop.language_trainer.CHOOSE_BY", FIRST)
    corpus: Any = questions(ITEMS)
    given = {
        "lm.normalisation": "auto",
        "lm.refit_at": refit_at,
        "open_questions": 8,
        "budget": 12,
        "audit": 6,
    }
    made = begun(tmp_path, corpus[0], **given)
    held = Held(monkeypatch, LanguageModel, "choose_among")
    page, until = opened(made), time.monotonic() + 60
    while not held.begun.is_set():
        assert time.monotonic() < until
        if keys(page):
            answer_next(page, corpus)
        held.begun.wait(0.3)
    assert len(keys(page)) > 0, "rows of the audit are left to answer"
    spent = page.spent()[0]
    answer_next(page, corpus)
    assert page.spent()[0] == spent + 1, "an answer is entered while it is made"
    killed, shown = copy_of(page.run, tmp_path), keys(page)
    before = bought(rows_of(killed))
    assert len(before) == FIRST, "nothing else is bought before"
    held.free.set()
    wait_for(partial(news, page, shown))
    again = opened(killed)
    wait_for(partial(news, again, shown))
    rows = [rows_of(each.run) for each in (page, again)]
    chosen = [[r.payload for r in each if "normalisation" in r.payload] for each in rows]
    assert len(chosen[0]) == 1
    assert chosen[0] == chosen[1]
    assert bought(rows[0])[FIRST:] == bought(rows[1])[FIRST:] != []
    while not page.player.over.is_set():
        assert time.monotonic() < until + 60
        if keys(page):
            answer_next(page, corpus)
        page.player.over.wait(0.02)
    assert page.run.replay()["labels"] == 6
