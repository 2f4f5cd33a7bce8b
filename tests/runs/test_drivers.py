"""Stream and pool over a real ledger, with labelers that answer at once, late, twice or never."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.core.learner import presented
from stacksl.errors import LabelerError, RunError
from stacksl.labelers.protocol import Pending
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.runs.loop.game import Game, play
from stacksl.types import Decision

from .conftest import class_items, game_of, pair_items, pooled, streamed


@dataclass
class Slow:
    """Someone who answers out of order, some twice, some later, some never.

    Nothing is answered while `closed`; `never` names items that stay open.
    """

    gold: dict[str, int]
    closed: bool = False
    never: frozenset[str] = frozenset()
    twice: bool = False
    name: str = "slow"
    repeatable: bool = False
    asked: dict[tuple[str, int, int], Purchase] = field(default_factory=dict)
    given: set[tuple[str, int, int]] = field(default_factory=set)
    patience: int = 3

    def ask(self, purchases: Sequence[Purchase]) -> None:
        for p in purchases:
            self.asked[p.item, p.slot, p.token] = p

    def answers(self) -> list[Answer]:
        if self.closed:
            return []
        ready = [key for key in self.asked if key not in self.given and key[0] not in self.never]
        if len(ready) < self.patience and self.patience > 0:
            return []
        random.Random(len(ready)).shuffle(ready)
        self.given.update(ready)
        found = [Answer(*key, self.gold[key[0]], self.name) for key in ready]
        return [*found, *reversed(found)] if self.twice else found

    def pending(self) -> list[Pending]:
        return []


class AtOnce:
    """Wants everything that it is given, in one batch."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def next(self, game: Game) -> list[Decision]:
        rows, self.rows = self.rows, 0
        ids, inputs = game.corpus.ids[:rows], [game.examples.block[row] for row in range(rows)]
        shown = presented(inputs, game.learner.scorer, game.learner.top_k)
        return game.learner.decide(ids, inputs, shown, asked=game.ledger.accounts.asked)


def test_a_refused_want_skips_and_the_budget_is_never_exceeded(tmp_path) -> None:
    game = game_of(tmp_path, class_items(40), budget=2, gate="always")
    game.learner.budget = 40  # the learner believes in more than the ledger has
    (posted,) = play(game, AtOnce(10))
    assert [d.status for d in posted] == ["reserved"] * 2 + ["refused"] * 8
    assert game.ledger.accounts.asked == 2


# A pool ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "batch"), [(25, 3), (30, 3), (7, 1), (40, 4), (12, 25)])
def test_a_pool_buys_exactly_its_budget_in_batches(tmp_path, budget, batch) -> None:
    game = game_of(tmp_path, class_items(40), budget=budget, ranks=True, batch=batch)
    blocks = list(pooled(game))
    bought = [block for block in blocks if block[0].asked]
    assert [len(block) for block in bought[:-1]] == [batch] * ((budget - 1) // batch)
    assert all(d.asked for block in bought for d in block)
    assert game.ledger.accounts.asked == len(game.examples.bought) == budget
    refitted = [row.payload["labels"] for row in game.ledger.rows() if row.event == "refit"]
    sizes = [len(block) for block in bought]
    assert refitted == [sum(sizes[: n + 1]) for n in range(len(sizes))]


def test_a_pool_has_a_record_of_each_question_and_no_row_of_another_item(tmp_path) -> None:
    game = game_of(tmp_path, class_items(40), budget=11, ranks=True, batch=4)
    list(pooled(game))
    rows = list(game.ledger.rows())
    decisions = [row.decision() for row in rows if row.event == "round"]
    assert [d.round for d in decisions] == list(range(1, 12))
    assert {(d.status, d.reason) for d in decisions} == {("reserved", "coverage")}
    assert all(d.statistic >= d.threshold > 0.0 for d in decisions), "the gain, and that left out"
    assert len({d.statistic for d in decisions}) == 11
    asked = game.ledger.bought("train")
    assert [d.item for d in decisions] == asked
    assert {row.item for row in rows if row.item is not None} == set(asked)


def test_a_pool_at_random_draws_by_the_seed_whatever_the_order(tmp_path) -> None:
    found = []
    for name, seed, backwards in (("a", 0, False), ("b", 0, True), ("c", 1, False)):
        (tmp_path / name).mkdir()
        game = game_of(
            tmp_path / name, class_items(40), budget=12, gate="random", ranks=True, batch=4
        )
        order = sorted(range(40), reverse=backwards)
        blocks = pooled(game, order, seed)
        found.append([d.item for block in blocks for d in block if d.asked])
    assert found[0] == found[1]
    assert set(found[0]) != set(found[2])
    assert max(game.corpus.ids.index(item) for item in found[0]) >= 12, "not the first of the file"


# Who answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("twice", [False, True])
def test_late_answers_are_learned_once_each_in_the_order_they_came(tmp_path, twice) -> None:
    corpus = class_items(40)
    slow = Slow(corpus[1], twice=twice)
    game = game_of(tmp_path, corpus, budget=12, gate="always", labeler=slow)
    list(streamed(game))
    slow.patience = 0
    game.learn(game.take_answers())
    order = [row.item for row in game.ledger.rows() if row.event == "learned"]
    assert sorted(order) == sorted(game.corpus.ids[:12])
    assert order != game.corpus.ids[:12], "they came out of order"
    assert [game.corpus.ids[r] for r, _, _ in game.examples.bought] == order
    assert game.learner.scorer.learned == 12
    assert game.ledger.open_purchases() == []


def status(done: Any, *names: str) -> list[Any]:
    return [done.status()[name] for name in names]


@pytest.mark.parametrize(("mode", "make"), [("stream", pair_items), ("pool", class_items)])
def test_a_run_waits_for_answers_and_goes_on_when_they_come(tmp_path, mode, make) -> None:
    items, answers = make(30)
    out = tmp_path / "run"
    slow = Slow(answers, closed=True, twice=True, patience=0)
    settings = {"mode": mode, "budget": 6, "open_questions": 2, "out": out, "gate": "margin"}
    done = run(items, answers, labeler=slow, **settings)
    asked = 2  # no more are open at a time
    assert status(done, "state", "asked", "answered") == ["waiting", asked, 0]
    assert done.status()["resume"].startswith(f"stacksl change {out} --labeler NAME, or in Python")
    assert not (out / "report.html").exists()
    with pytest.raises(RunError, match=r"come from the labeler 'slow'.*resume\(labeler="):
        done.resume()  # the oracle would mix its answers with those of another
    assert status(done, "state", "asked", "answered") == ["waiting", asked, 0]

    missing = next(iter(slow.asked))[0]
    later = Slow(answers, never=frozenset([missing]), patience=0)
    done.resume(labeler=later)
    assert status(done, "state", "asked", "answered") == ["waiting", 6, 5]
    assert {key[0] for key in later.asked} >= {key[0] for key in slow.asked}, "asked for again"

    done.resume(labeler=Slow(answers, patience=0))
    assert status(done, "state", "asked", "answered") == ["finished", 6, 6]
    assert done.replay()["labels"] == 6
    rows = list(done.ledger.rows())
    assert sum(row.event == "answered" for row in rows) == 6
    assert [*done.predict(items)]


class Liar(Slow):
    """Answers what nobody asked."""

    def answers(self) -> list[Answer]:
        return [Answer("i0", 0, 7, 0, "liar")]


def test_an_answer_to_nothing_is_a_sentence_and_the_run_is_kept(tmp_path) -> None:
    items, answers = class_items(30)
    with pytest.raises(LabelerError, match="liar"):
        run(items, answers, budget=6, out=tmp_path / "run", labeler=Liar(answers))
    failed = Run.open(tmp_path / "run")
    assert failed.status()["state"] == "failed"
    assert "liar" in failed.status()["sentence"]
    honest = Slow(answers, patience=0)
    assert failed.resume(labeler=honest).status()["state"] == "finished"
