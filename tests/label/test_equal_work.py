"""What a language model computes between questions does not tell what answers were for."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `label` is not installed")
pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

from stacksl.api import Run, run
from stacksl.lm import LanguageModel, Likelihood
from stacksl.runs.loop.language_trainer import LanguageTrainer
from stacksl.runs.loop.trainer import AGAIN
from stacksl.runs.loop.trainer import ANSWERS as REACHED

from ..runs.lm_cases import QUICK, questions, sentences, tiny_model
from ..runs.people_cases import Row, answer_all
from .conftest import Opened, Page
from .test_refits import bought, copy_of, news, rows_of, wait_for

ITEMS, ANSWERS = 30, 14
AT_EACH = ",".join(str((n + 0.5) / ANSWERS) for n in range(ANSWERS - 1))  # a refit after each


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts items that pass with gradients, these forwards, and items whose features are made."""
    import torch

    counts = {"passed": 0, "forwards": 0, "renewed": 0}
    sums, transform = Likelihood.sums, LanguageModel.transform

    def counted(self: Likelihood, items: Any) -> Any:
        if torch.is_grad_enabled():
            counts["passed"] += len(items)
            counts["forwards"] += 1
        return sums(self, items)

    def renewed(self: LanguageModel, items: Any, progress: Any = None) -> Any:
        counts["renewed"] += len(items)
        return transform(self, items, progress)

    monkeypatch.setattr(Likelihood, "sums", counted)
    monkeypatch.setattr(LanguageModel, "transform", renewed)
    return counts


def begun(folder: Path, items: Any, **settings: Any) -> Run:
    model = folder / "model"
    given = {"budget": ANSWERS, "mode": "pool", "batch": 2, "epochs": 1, "refit_at": AT_EACH}
    return run(
        items,
        out=folder / f"run-{len(list(folder.iterdir()))}",
        model=str(model if model.is_dir() else tiny_model(model)),
        adapt="lora",
        labeler="file",
        annotators="anna",
        sheets="csv",
        **{**QUICK, **given, **settings},
    )


def answer_next(page: Page, corpus: Any, *, none: bool = False) -> str:
    """Answer the question that comes first in the alphabet; the item's id."""
    items, gold = corpus
    anna = page.browser("anna")
    first = min(page.player.questions("anna"), key=lambda asked: asked.prompt)
    item = next(each for each in items if each.prompt == first.prompt)
    place = first.options.index(item.candidates[gold[item.id]])
    answer = {"said": "none"} if none else {"position": place}
    assert anna.post(anna.given(first.key, **answer)).json()["state"] == "taken"
    return str(item.id)


def keys(page: Page) -> set[str]:
    return {asked.key for asked in page.player.questions("anna")}


def answer_some(page: Page, corpus: Any, count: int) -> None:
    """Answer as many questions, each once the next one has come."""
    shown = keys(page)
    for _ in range(count):
        answer_next(page, corpus)
        wait_for(partial(news, page, shown))
        shown |= keys(page)


@pytest.mark.parametrize(("mode", "gate"), [("pool", "margin"), ("stream", "always")])
def test_the_work_after_an_answer_follows_the_number_of_answers_alone(
    opened: Opened, work: dict[str, int], tmp_path: Path, mode: str, gate: str
) -> None:
    """Some answers name no option, which teaches nothing either."""
    corpus, count = sentences(ITEMS), ANSWERS - 3
    page = opened(begun(tmp_path, corpus[0], audit=5, mode=mode, gate=gate))
    shown, found, answered = keys(page), [], []
    for n in range(count):
        before = list(work.values())
        answered.append(answer_next(page, corpus, none=n in (3, 4, 8, 9)))
        wait_for(partial(news, page, shown))
        found.append([now - then for now, then in zip(work.values(), before, strict=True)])
        shown |= keys(page)
    rows = rows_of(page.run)
    with page.run.ledger as ledger:
        audit = set(ledger.bought("audit")) & set(answered)
    learnt = sum(row.event == "learnt" for row in rows)
    assert 2 <= len(audit) < count - learnt, "both kinds that teach nothing are there"
    assert [passed for passed, _, _ in found] == list(range(1, count + 1))
    for passed, forwards, renewed in found:
        assert forwards - -(-passed // QUICK["batch_size"]) in (0, 1)
        assert renewed == ITEMS
    adapters = [row.payload["adapter"] for row in rows if "adapter" in row.payload]
    assert adapters == list(range(1, learnt + 1)), "an answer that teaches nothing trains none"
    discarded = [row for row in rows if AGAIN in row.payload and "answers" in row.payload]
    assert len(discarded) == count - learnt


def test_the_adapters_are_those_of_a_page_that_passes_nothing_besides(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, weights = questions(ITEMS), []
    for besides in (True, False):
        if not besides:
            monkeypatch.setattr(LanguageModel, "rehearse", lambda *words: None)
        made = begun(tmp_path, corpus[0], audit=5, refit_at="0.2,0.4,0.6,1", normalisation="pmi")
        answer_some(opened(made), corpus, ANSWERS - 3)
        weights.append([r.payload["weights"] for r in rows_of(made) if "adapter" in r.payload])
        made.replay()
    assert len(weights[0]) >= 2
    assert weights[0] == weights[1]


@pytest.mark.parametrize("discarded", [False, True])
def test_a_page_killed_while_examples_are_passed_buys_what_it_would_have_bought(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discarded: bool
) -> None:
    corpus, begins, free = sentences(ITEMS), threading.Event(), threading.Event()
    page, original = opened(begun(tmp_path, corpus[0], audit=5)), LanguageModel.rehearse

    def held(self: LanguageModel, lessons: Any, learnt: int = 0) -> None:
        if discarded == (learnt == 0) and lessons:
            begins.set()
            assert free.wait(60)
        original(self, lessons, learnt)

    monkeypatch.setattr(LanguageModel, "rehearse", held)
    shown = keys(page)
    while not begins.is_set():
        answer_next(page, corpus)
        wait_for(lambda shown=shown: begins.is_set() or news(page, shown))
        shown |= keys(page)
    killed = copy_of(page.run, tmp_path)
    free.set()
    wait_for(partial(news, page, shown))
    again = opened(killed)
    for each in (page, again):
        answer_some(each, corpus, 4)
    rows = [rows_of(each.run) for each in (page, again)]
    assert bought(rows[0]) == bought(rows[1])
    weights = [[r.payload["weights"] for r in each if "adapter" in r.payload] for each in rows]
    assert weights[0] == weights[1]
    killed.replay()


@pytest.mark.parametrize("renewed", [False, True])
@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize(("mode", "gate"), [("pool", "margin"), ("stream", "always")])
def test_a_page_killed_after_a_refit_buys_first_what_the_refit_was_for(
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    renewed: bool,
    none: bool,
    mode: str,
    gate: str,
) -> None:
    """An answer was entered during the refit, which makes the next one due.

    It is killed before the features are renewed, or right after that.
    """
    corpus, begins, free = sentences(ITEMS), threading.Event(), threading.Event()
    page, killed = opened(begun(tmp_path, corpus[0], mode=mode, gate=gate)), []
    rehearse, refresh = LanguageModel.rehearse, LanguageTrainer._refresh

    def held(self: LanguageModel, *words: Any) -> None:
        begins.set()
        assert free.wait(60)
        rehearse(self, *words)

    def cut(self: LanguageTrainer) -> None:
        if renewed:
            refresh(self)
        if not killed:
            killed.append(copy_of(page.run, tmp_path))
        if not renewed:
            refresh(self)

    monkeypatch.setattr(LanguageModel, "rehearse", held)
    monkeypatch.setattr(LanguageTrainer, "_refresh", cut)
    shown = keys(page)
    answer_next(page, corpus)
    wait_for(begins.is_set)
    answer_next(page, corpus, none=none)
    free.set()
    wait_for(partial(news, page, shown))
    last = rows_of(killed[0])[-1]
    assert last.event == "refreshed" if renewed else last.payload["adapter"] == 1
    again = opened(killed[0])
    for each in (page, again):
        answer_some(each, corpus, 3)
    rows = [rows_of(each.run) for each in (page, again)]
    assert bought(rows[0]) == bought(rows[1])
    weights = [[r.payload["weights"] for r in each if "adapter" in r.payload] for each in rows]
    assert weights[0] == weights[1]
    killed[0].replay()


@pytest.mark.parametrize("audit", [0, 5])
@pytest.mark.parametrize("sheets", [2, 3])
def test_a_page_goes_on_from_the_refits_that_sheets_made(
    opened: Opened, tmp_path: Path, audit: int, sheets: int
) -> None:
    """The count of their answers was reached, whether or not labels are new since then."""
    corpus = sentences(ITEMS)
    items, gold = corpus

    def right(row: Row) -> str:
        item = next(each for each in items if each.prompt == row["prompt"].strip())
        return str(item.candidates[gold[item.id]])

    made = begun(tmp_path, items, audit=audit, refit_at="0.2,0.9")
    for _ in range(sheets):
        answer_all(made, right)
    before = rows_of(made)
    assert sum("adapter" in row.payload for row in before) == 1
    page = opened(made)
    answer_some(page, corpus, 2)
    later = rows_of(made)[len(before) :]
    assert [row.payload for row in later if REACHED in row.payload] == []
    made.replay()
