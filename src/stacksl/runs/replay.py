"""Replay: the ledger's rows, played again in their order of effects, rebuild the learner.

Rows of `round`, `learnt`, `refit` and `refreshed` have effects on the learner, `corrected` on what
refits learn from, `budget` and `class_added` on its terms; the others only count. Audits are never
learnt from, nor are answers that name no candidate, so neither has a `learnt` row. Every decision
of a stream is computed again and compared with what was recorded; what items forgotten since take
with them is noted as `Gaps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from stacksl.errors import LedgerError, RunError
from stacksl.items import Decision
from stacksl.labels.rows import LATER_EVENTS, Row
from stacksl.runs.gaps import Gaps
from stacksl.runs.rounds import Table

__all__ = ["replay"]

_Effect = TypeVar("_Effect")


def replay(
    rows: Iterable[Row],
    table: Table,
    *,
    after: int,
    refit: Callable[[Row], None],
    refreshed: Callable[[Row, bool], None] | None = None,
    budget: Callable[[Row], None] | None = None,
    class_added: Callable[[Row, bool], None] | None = None,
    compare: bool,
    gaps: Gaps | None = None,
) -> int:
    """Give `table.learner` the effects of the `rows` behind number `after`; how many there were.

    Args:
        rows: the whole chain; those up to `after` are only counted.
        after: the row the learner's state belongs to already (0 for a fresh learner).
        refit: what a `refit` row does.
        refreshed: what a `refreshed` row does, told every one of them in order: with True where
            it lies behind `after`, so that the learner must be rebuilt on the renewed features;
            with False where the learner's state is that of the new epoch already and the
            features alone are missing. None where the run has no features to renew.
        budget: what a `budget` row does, told every one of them in order, since no checkpoint
            holds the learner's budget and horizon; the payload has both.
        class_added: what a `class_added` row does, told every one of them as `refreshed` is.
        compare: whether decisions can be computed again one by one (a stream's can).
        gaps: told what cannot be rebuilt, since items were forgotten.

    Raises:
        RunError: a decision differs from the recorded one.
        LedgerError: a row of an event that this version cannot replay, or that nothing was given
            to replay with.
    """
    asked, effects = 0, 0
    gaps = Gaps() if gaps is None else gaps
    certificates: dict[str, Decision] = {}
    taught: dict[str | None, int | None] = {}  # the slot that an item was learnt from
    for row in rows:
        _refuse_later(row)
        asked += row.charge if row.purpose == "train" else 0
        if row.event == "round":
            decision = row.decision()
            certificates[decision.item] = decision
            if row.seq > after:
                _adopt(decision, table, asked, gaps.rebuilds(row) and compare)
                effects += 1
        elif row.event == "answered" and row.purpose == "owned":
            certificates[str(row.item)] = row.decision()
        elif row.event == "learnt":
            decision = certificates[str(row.item)]
            taught[row.item] = row.slot
            if row.forgotten:  # its features are gone, and no refit learns from it again
                gaps.lost |= row.seq > after
            elif row.seq > after:
                table.learn(decision, row.label())
                effects += 1
            else:
                table.record(decision, row.label())
        elif row.event == "corrected" and taught.get(row.item) == row.slot:
            table.correct(str(row.item), row.label())
        elif row.event == "refit" and row.seq > after:
            refit(row)
            effects += 1
        elif row.event == "refreshed":
            _expect_renewal(row, refreshed)(row, row.seq > after)
            effects += row.seq > after
            if row.seq > after:
                gaps.renewed()
        elif row.event == "budget":
            _expect(row, budget, "the budget was changed")(row)
        elif row.event == "class_added":
            _expect(row, class_added, "a class was added")(row, row.seq > after)
        gaps.passed(row.seq)
    return effects


def _adopt(recorded: Decision, table: Table, asked: int, compare: bool) -> None:
    inputs = [table.inputs_of(recorded)]
    if compare:
        learner = table.learner
        presented = table.follower.respond(inputs, learner.scorer)
        again = learner.decide([recorded.item], inputs, presented, asked=asked)[0]
        if not _same(again, recorded):
            raise RunError(
                f"round {recorded.round} was recorded as {_told(recorded)} but is {_told(again)}"
                " when played again: the run was made by other versions or on another machine"
                " (see resolved.toml)"
            )
    table.learner.adopt([recorded], inputs)


def _same(again: Decision, recorded: Decision) -> bool:
    told = again.refused() if recorded.status == "refused" else again
    return (
        (told.item, told.choice, told.presented, told.state)
        == (recorded.item, recorded.choice, recorded.presented, recorded.state)
        and told.statistic == recorded.statistic
        and told.threshold == recorded.threshold
        and (again.status == "wanted") == (recorded.status != "skipped")
    )


def _told(decision: Decision) -> str:
    return (
        f"'{decision.status}' with choice {decision.choice}, statistic {decision.statistic!r}"
        f" and threshold {decision.threshold!r}"
    )


def _expect_renewal(
    row: Row, refreshed: Callable[[Row, bool], None] | None
) -> Callable[[Row, bool], None]:
    if refreshed is None:
        raise LedgerError(
            f"row {row.seq} says that a language model was refitted and the features renewed, but"
            " the run has no model to refit: resume it with the settings it began with"
        )
    return refreshed


def _expect(row: Row, effect: _Effect | None, what: str) -> _Effect:
    if effect is None:
        raise LedgerError(
            f"row {row.seq} says that {what}, which is not replayed here: use `stacksl ledger"
            " replay` on the run's folder"
        )
    return effect


def _refuse_later(row: Row) -> None:
    if row.event in LATER_EVENTS:
        raise LedgerError(
            f"row {row.seq} is '{row.event}', which this version of stacksl cannot replay: use the"
            " version that wrote it"
        )
