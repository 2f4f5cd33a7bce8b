"""Replay: the learner is rebuilt by applying the ledger's rows in their order.

Rows of `round`, `learnt`, `refit` and `refreshed` change the learner, `relabelled` changes what
refits learn from, `budget` and `class_added` change budget, horizon and classes. Answers of an
audit and answers that name no candidate have no `learnt` row. Each decision of a stream is computed
again and compared with its row; rounds that need a forgotten item are noted as unreplayable.
"""

from __future__ import annotations

from collections.abc import Iterable

from stacksl.errors import RunError
from stacksl.ledger.events import SOFT, Row
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.trainer import BESIDE
from stacksl.runs.session.unreplayable import UnreplayableRounds
from stacksl.types import Decision

# Rows that may stand between a refit beside which answers are entered and the purchase it is for.
_MEANWHILE = ("answered", "learnt", "relabelled", "late", "released", "reserved")


def replay(
    rows: Iterable[Row],
    game: Game,
    *,
    after: int,
    compare: bool,
    unreplayable: UnreplayableRounds | None = None,
) -> int:
    """Apply the `rows` after number `after` to a game; the number of rows applied.

    Args:
        rows: the whole chain; those up to `after` are read but not applied.
        game: its learner and trainer are in their state after row `after`.
        after: the last row that was applied already; 0 for the initial state.
        compare: whether decisions are computed again and compared, as a stream's can be.
        unreplayable: collects the rounds that cannot be computed again.

    Raises:
        RunError: a decision differs from the recorded one.
        LedgerError: a row of an event that this kind of model cannot replay.
    """
    asked, effects = 0, 0
    unreplayable = UnreplayableRounds() if unreplayable is None else unreplayable
    certificates: dict[str, Decision] = {}
    for row in rows:
        asked += row.charge if row.purpose == "train" else 0
        if row.event == "round":
            decision = row.decision()
            certificates[decision.item] = decision
            if row.seq > after:
                _adopt(decision, game, asked, unreplayable.replayable(row) and compare)
                effects += 1
        elif row.event == "answered" and row.purpose == "owned":
            certificates[str(row.item)] = row.decision()
        elif row.event == "answered" and row.purpose == SOFT:
            if "index" in row.payload and not row.forgotten:
                game.hear(str(row.item), row.label().index)
        elif row.event == "learnt":
            decision = certificates[str(row.item)]
            if row.forgotten:  # its features were erased, and no refit learns from it again
                unreplayable.lost |= row.seq > after
            elif row.seq > after:
                game.teach(decision, row.label())
                effects += 1
            else:
                game.examples.record(decision, row.label())
        elif row.event == "relabelled" and not row.forgotten:
            game.examples.relabel(str(row.item), row.payload.get("index"))
        elif row.event in ("refit", "refreshed", "class_added"):
            game.trainer.replay(row, after)
            effects += row.event != "class_added" and row.seq > after
            if row.event == "refreshed" and row.seq > after:
                unreplayable.renewed()
        elif row.event == "budget":  # all of them: no checkpoint holds budget and horizon
            game.reschedule(row.payload)
        if row.event not in _MEANWHILE:
            refitted = row.event in ("refit", "refreshed")
            game.ahead = refitted and bool(row.payload.get(BESIDE))
        unreplayable.passed(row.seq)
    return effects


def _adopt(recorded: Decision, game: Game, asked: int, compare: bool) -> None:
    learner, inputs = game.learner, [game.examples.inputs(recorded.item)]
    if compare:
        presented = learner.follower.respond(inputs, learner.scorer)
        again = learner.decide([recorded.item], inputs, presented, asked=asked)[0]
        if not _same(again, recorded):
            raise RunError(
                f"round {recorded.round} was recorded as {_described(recorded)}, but the replay got"
                f" {_described(again)}: the run was made by other versions or on another machine"
                " (see resolved.toml)"
            )
    learner.adopt([recorded], inputs)


def _same(again: Decision, recorded: Decision) -> bool:
    expected = again.refused() if recorded.status == "refused" else again
    return (
        (expected.item, expected.choice, expected.presented, expected.state)
        == (recorded.item, recorded.choice, recorded.presented, recorded.state)
        and expected.statistic == recorded.statistic
        and expected.threshold == recorded.threshold
        and (again.status == "wanted") == (recorded.status != "skipped")
    )


def _described(decision: Decision) -> str:
    return (
        f"'{decision.status}' with choice {decision.choice}, statistic {decision.statistic!r}"
        f" and threshold {decision.threshold!r}"
    )
