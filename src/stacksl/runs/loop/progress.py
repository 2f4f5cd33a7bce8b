"""Progress of a run, as reported to its caller, and when its arrays are saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stacksl.report.wording import MICRO
from stacksl.runs.loop.game import Game
from stacksl.types import Decision

OFTEN = 0.1  # seconds between two reports of progress


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` in a phase, and what was `spent` of the `budget`.

    A stream plays `rounds`. A pool buys `labels`: `done` and `total` count all, `spent` and
    `budget` those to train on. `accuracy` is the share of right choices before each label was seen,
    on asked items, None where people answer; `money` what labels cost so far.
    `refitted` says that the model was refitted. At the end `accuracy` is the final model's, if it
    was measured.
    """

    phase: Literal["features", "rounds", "labels", "refit", "test", "report", "topics"]
    done: int
    total: int
    spent: int = 0
    budget: int = 0
    accuracy: float | None = None
    money: float | None = None
    refitted: bool = False


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


def throttled(report: Report) -> Report:
    """`report`, called ten times a second at most, and at each beginning, end and refit."""
    last, phase = 0.0, ""

    def limited(step: Progress) -> None:
        nonlocal last, phase
        now = time.monotonic()
        always = step.phase != phase or step.done == step.total or step.refitted
        if always or now - last >= OFTEN:
            last, phase = now, step.phase
            report(step)

    return limited


class Watch:
    """Reports progress, and saves the arrays: of a pool after each batch, else `every` so often."""

    def __init__(self, every: int, game: Game, report: Report, *, streams: bool) -> None:
        self._every, self._game, self._report, self._streams = every, game, report, streams
        self._learned_before = 0
        self._right = self._counted = 0
        self._count()

    def __call__(self, posted: list[Decision]) -> None:
        """Report a batch of rounds that was just played."""
        self._report(self.state())
        learner = self._game.learner
        before = learner.round - len(posted)
        if not self._streams or learner.round // self._every > before // self._every:
            self._game.save()

    def state(self) -> Progress:
        """How far the run is now."""
        learner, accounts = self._game.learner, self._game.ledger.accounts
        self._count()
        # Of people it would tell which of a few answers were of the audit.
        measured = self._counted and self._game.labeler.repeatable
        accuracy = self._right / self._counted if measured else None
        asked, budget = accounts.asked, learner.budget
        money = None if accounts.money is None else accounts.spent_money / MICRO
        if not self._streams:
            bought = accounts.answered + accounts.reserved
            return Progress("labels", bought, accounts.budget, asked, budget, accuracy, money=money)
        played = learner.round, learner.horizon
        return Progress("rounds", *played, asked, budget, accuracy, money)

    def _count(self) -> None:
        """Count the labels learned since the last call; owned labels had no prediction before."""
        bought = self._game.examples.bought
        learned = [pair for pair in bought[self._learned_before :] if pair[2] >= 0]
        self._learned_before = len(bought)
        self._right += sum(label == choice for _, label, choice in learned)
        self._counted += len(learned)
