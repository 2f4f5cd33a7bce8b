"""Replay: the ledger's rows, played again in their order of effects, rebuild the learner.

Rows of `round`, `learnt`, `refit` and `refreshed` have effects on the learner, `corrected` on what
refits learn from, `budget` and `class_added` on its terms; the others only count. Audits are never
learnt from, nor are answers that name no candidate, so neither has a `learnt` row. Every decision
of a stream is computed again and compared with what was recorded; what items forgotten since take
with them is noted as `Gaps`.
"""

from __future__ import annotations

from collections.abc import Iterable

from stacksl.errors import LedgerError, RunError
from stacksl.ledger.events import LATER_EVENTS, Row
from stacksl.runs.loop.game import Game
from stacksl.runs.session.unreplayable import Gaps
from stacksl.types import Decision


def replay(
    rows: Iterable[Row],
    game: Game,
    *,
    after: int,
    compare: bool,
    gaps: Gaps | None = None,
) -> int:
    """Give a game the effects of the `rows` behind number `after`; how many there were.

    Args:
        rows: the whole chain; those up to `after` are only counted.
        game: its learner and trainer have the state that they had after row `after`.
        after: the last row that had its effect already; 0 for the initial state.
        compare: whether decisions can be computed again one by one (a stream's can).
        gaps: told what cannot be rebuilt, since items were forgotten.

    Raises:
        RunError: a decision differs from the recorded one.
        LedgerError: a row of an event that this version, or this kind of model, cannot replay.
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
                _adopt(decision, game, asked, gaps.rebuilds(row) and compare)
                effects += 1
        elif row.event == "answered" and row.purpose == "owned":
            certificates[str(row.item)] = row.decision()
        elif row.event == "learnt":
            decision = certificates[str(row.item)]
            taught[row.item] = row.slot
            if row.forgotten:  # its features are gone, and no refit learns from it again
                gaps.lost |= row.seq > after
            elif row.seq > after:
                game.teach(decision, row.label())
                effects += 1
            else:
                game.examples.record(decision, row.label())
        elif row.event == "corrected" and taught.get(row.item) == row.slot:
            game.examples.correct(str(row.item), row.label())
        elif row.event in ("refit", "refreshed", "class_added"):
            game.trainer.replay(row, after)
            effects += row.event != "class_added" and row.seq > after
            if row.event == "refreshed" and row.seq > after:
                gaps.renewed()
        elif row.event == "budget":  # all of them: no checkpoint holds budget and horizon
            game.reschedule(row.payload)
        gaps.passed(row.seq)
    return effects


def _adopt(recorded: Decision, game: Game, asked: int, compare: bool) -> None:
    learner, inputs = game.learner, [game.examples.inputs(recorded.item)]
    if compare:
        presented = learner.follower.respond(inputs, learner.scorer)
        again = learner.decide([recorded.item], inputs, presented, asked=asked)[0]
        if not _same(again, recorded):
            raise RunError(
                f"round {recorded.round} was recorded as {_told(recorded)} but is {_told(again)}"
                " when played again: the run was made by other versions or on another machine"
                " (see resolved.toml)"
            )
    learner.adopt([recorded], inputs)


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


def _refuse_later(row: Row) -> None:
    if row.event in LATER_EVENTS:
        raise LedgerError(
            f"row {row.seq} is '{row.event}', which this version of stacksl cannot replay: use the"
            " version that wrote it"
        )
