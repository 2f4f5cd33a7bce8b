"""Refits of an adapter beside the entry of answers, and the choice of a normalization."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.lm.model import LanguageModel
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.loop.language_trainer import Adapters, LanguageTrainer
from stacksl.runs.settings.budget import due_at

from ..ledgers import items_bought, rows_of
from ..runs.lm_cases import QUICK, questions, sentences, tiny_model
from .conftest import Opened, Page, wait_for
from .test_refits import Held, copy_of, decided, news

ITEMS, ANSWERS = 30, 14
AT_EACH = ",".join(str((n + 0.5) / ANSWERS) for n in range(ANSWERS - 1))  # a refit after each


def begin_adapting(folder: Path, items: Any, **settings: Any) -> Run:
    model = folder / "model"
    given = {
        "budget": ANSWERS,
        "mode": "pool",
        "open_questions": 2,
        "lm.epochs": 1,
        "lm.refit_at": AT_EACH,
    }
    return run(
        items,
        out=folder / f"run-{len(list(folder.iterdir()))}",
        **{"lm.model": str(model if model.is_dir() else tiny_model(model)), "lm.adapt": "lora"},
        labeler="file",
        annotators="anna",
        sheets="csv",
        **{**QUICK, **given, **settings},
    )


def answer_next(page: Page, corpus: Any, *, none: bool = False) -> str:
    """Answer the question that comes first in the alphabet; the item's id."""
    items, gold = corpus
    anna = page.browser("anna")
    first = min(page.player.view.rows.get("anna", ()), key=lambda asked: asked.prompt)
    item = next(each for each in items if each.prompt == first.prompt)
    place = first.options.index(item.candidates[gold[item.id]])
    answer = {"kind": "none"} if none else {"position": place}
    assert anna.post(anna.given(first.key, **answer)).json()["state"] == "taken"
    return str(item.id)


def keys(page: Page) -> set[str]:
    return {asked.key for asked in page.player.view.rows.get("anna", ())}


def answer_some(page: Page, corpus: Any, count: int) -> None:
    """Answer as many questions, each once the next one has come."""
    shown = keys(page)
    for _ in range(count):
        answer_next(page, corpus)
        wait_for(partial(news, page, shown))
        shown |= keys(page)


def test_answers_that_teach_nothing_train_and_renew_nothing(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of an audit, and those that name no option."""
    renewed, transform = list[int](), LanguageModel.transform

    def counted(self: LanguageModel, items: Any, progress: Any = None) -> Any:
        renewed.append(len(items))
        return transform(self, items, progress)

    monkeypatch.setattr(LanguageModel, "transform", counted)
    corpus, count = sentences(ITEMS), ANSWERS - 3
    page = opened(begin_adapting(tmp_path, corpus[0], audit=5))
    renewed.clear()
    shown, answered = keys(page), []
    for n in range(count):
        answered.append(answer_next(page, corpus, none=n in (3, 4, 8, 9)))
        wait_for(partial(news, page, shown))
        shown |= keys(page)
    rows = rows_of(page.run)
    audit = items_bought(page.run, "audit") & set(answered)
    learned = sum(row.event == "learned" for row in rows)
    assert 2 <= len(audit) < count - learned, "both kinds that teach nothing are there"
    trained = [row.payload["adapter"] for row in rows if "adapter" in row.payload]
    refits = len(due_at(AT_EACH, ANSWERS - 5))
    assert trained == list(range(1, min(learned, refits) + 1))
    assert sum(renewed) == ITEMS * len(trained), "features are renewed after a refit alone"


@pytest.mark.parametrize(
    ("mode", "gate", "none", "renewed"),
    [  # every two of the three choices together
        pytest.param("pool", "margin", False, False, marks=pytest.mark.slow),
        ("pool", "margin", True, True),
        pytest.param("stream", "always", False, True, marks=pytest.mark.slow),
        pytest.param("stream", "always", True, False, marks=pytest.mark.slow),
    ],
)
def test_a_page_killed_after_a_refit_buys_first_what_the_refit_was_for(
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    gate: str,
    none: bool,
    renewed: bool,
) -> None:
    """An answer was entered during the refit, which makes the next one due.

    It is killed before the features are renewed, or right after that.
    """
    corpus = sentences(ITEMS)
    page, killed = opened(begin_adapting(tmp_path, corpus[0], mode=mode, gate=gate)), []
    refresh = LanguageTrainer._refresh

    def cut(self: LanguageTrainer) -> None:
        if renewed:
            refresh(self)
        if not killed:
            killed.append(copy_of(page.run, tmp_path))
        if not renewed:
            refresh(self)

    held = Held(monkeypatch, Adapters, "refit")
    monkeypatch.setattr(LanguageTrainer, "_refresh", cut)
    shown = keys(page)
    answer_next(page, corpus)
    wait_for(held.begun.is_set)
    answer_next(page, corpus, none=none)
    held.free.set()
    wait_for(partial(news, page, shown))
    last = rows_of(killed[0])[-1]
    assert last.event == "refreshed" if renewed else last.payload["adapter"] == 1
    again = opened(killed[0])
    for each in (page, again):
        answer_some(each, corpus, 3)
    rows = [rows_of(each.run) for each in (page, again)]
    assert decided(rows[0]) == decided(rows[1])
    weights = [[r.payload["weights"] for r in each if "adapter" in r.payload] for each in rows]
    assert weights[0] == weights[1]
    killed[0].replay()


def test_a_refit_under_way_outlasts_a_forgotten_item(opened: Opened, tmp_path, monkeypatch) -> None:
    """It is made on the labels before it, though forgetting saves the arrays in its midst."""
    corpus = sentences(ITEMS)
    page = opened(begin_adapting(tmp_path, corpus[0]))
    with monkeypatch.context() as patched:
        held = Held(patched, Adapters, "refit")
        shown = keys(page)
        answer_next(page, corpus)
        wait_for(held.begun.is_set)
        answer_next(page, corpus)
        killed = copy_of(page.run, tmp_path)
        held.free.set()
        wait_for(partial(news, page, shown))
    asked = {row.item for row in rows_of(killed)}
    forget(killed.path, next(item.id for item in corpus[0] if item.id not in asked))
    opened(killed)
    first = [
        next(r for r in rows_of(each) if "weights" in r.payload) for each in (page.run, killed)
    ]
    assert first[0].payload["labels"] == first[1].payload["labels"] == 1
    assert first[0].payload["weights"] == first[1].payload["weights"]


FIRST = 4


@pytest.mark.parametrize("refit_at", ["0.1,1", pytest.param("1", marks=pytest.mark.slow)])
def test_a_normalization_is_chosen_beside_the_entry_of_answers(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refit_at: str
) -> None:
    """With a refit that is due by then, and without. A kill before its row changes nothing."""
    monkeypatch.setattr("stacksl.runs.session.language.CHOOSE_BY", FIRST)
    monkeypatch.setattr("stacksl.runs.loop.language_trainer.CHOOSE_BY", FIRST)
    corpus: Any = questions(ITEMS)
    given = {
        "lm.normalization": "auto",
        "lm.refit_at": refit_at,
        "open_questions": 8,
        "budget": 12,
        "audit": 6,
    }
    made = begin_adapting(tmp_path, corpus[0], **given)
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
    before = decided(rows_of(killed))
    assert len(before) == FIRST, "nothing else is bought before"
    held.free.set()
    wait_for(partial(news, page, shown))
    again = opened(killed)
    wait_for(partial(news, again, shown))
    rows = [rows_of(each.run) for each in (page, again)]
    chosen = [[r.payload for r in each if "normalization" in r.payload] for each in rows]
    assert len(chosen[0]) == 1
    assert chosen[0] == chosen[1]
    assert decided(rows[0])[FIRST:] == decided(rows[1])[FIRST:] != []
    while not page.player.over.is_set():
        assert time.monotonic() < until + 60
        if keys(page):
            answer_next(page, corpus)
        page.player.over.wait(0.02)
    assert page.run.replay()["labels"] == 6
