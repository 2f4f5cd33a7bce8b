"""Replay: the ledger's rows, played again in their order of effects, rebuild the learner.

Rows of `round`, `learnt`, `refit` and `refreshed` have effects on the learner, and `corrected` on
what refits learn from; the others only count. Every decision of a stream is computed again and
compared with what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stacksl.errors import LedgerError, RunError
from stacksl.items import Decision
from stacksl.labels.rows import LATER_EVENTS, LATER_PURPOSES, Row
from stacksl.runs.rounds import Table

__all__ = ["replay"]


def replay(
    rows: Iterable[Row],
    table: Table,
    *,
    after: int,
    refit: Callable[[Row], None],
    refreshed: Callable[[Row, bool], None] | None = None,
    compare: bool,
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
        compare: whether decisions can be computed again one by one (a stream's can).

    Raises:
        RunError: a decision differs from the recorded one.
        LedgerError: a row of an event or purpose that this version cannot replay.
    """
    asked, effects = 0, 0
    certificates: dict[str, Decision] = {}
    for row in rows:
        _refuse_later(row)
        asked += row.charge
        if row.event == "round":
            decision = row.decision()
            certificates[decision.item] = decision
            if row.seq > after:
                _adopt(decision, table, asked, compare)
                effects += 1
        elif row.event == "learnt":
            decision = certificates[str(row.item)]
            if row.seq > after:
                table.learn(decision, row.label())
                effects += 1
            else:
                table.record(decision, row.label())
        elif row.event == "corrected":
            table.correct(str(row.item), row.label())
        elif row.event == "refit" and row.seq > after:
            refit(row)
            effects += 1
        elif row.event == "refreshed":
            _expect_renewal(row, refreshed)(row, row.seq > after)
            effects += row.seq > after
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


def _refuse_later(row: Row) -> None:
    if row.event in LATER_EVENTS or row.purpose in LATER_PURPOSES:
        raise LedgerError(
            f"row {row.seq} is '{row.event}' for '{row.purpose}', which this version of stacksl"
            " cannot replay: use the version that wrote it"
        )
