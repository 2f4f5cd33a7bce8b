"""Replay: the learner is rebuilt by applying the ledger's rows in their order.

Rows of `round`, `learnt`, `refit` and `refreshed` change the learner, `relabelled` changes what
refits learn from, `budget` and `class_added` change budget, horizon and classes. Answers of an
audit and answers that name no candidate have no `learnt` row. Each decision of a stream is computed
again and compared with its row; rounds that need a forgotten item are noted as unreplayable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stacksl.errors import RunError
from stacksl.ledger.events import Row
from stacksl.runs.loop.choosers import decision_of
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.trainer import BESIDE
from stacksl.types import Decision

# Rows that may stand between a refit beside which answers are entered and the purchase it is for.
_MEANWHILE = ("answered", "learnt", "relabelled", "late", "released", "reserved")


@dataclass(slots=True)
class UnreplayableRounds:
    """The unreplayable rounds of a replay, and whether the learner's state is lost.

    The round of a forgotten item is unreplayable, since its features were erased. If the learner
    learnt from such an item, its state is lost until the next row with saved arrays.

    Attributes:
        moves: whether rounds without a label change the learner.
        renews: whether renewed features rebuild the head from forgotten items.
        restore_at: called with a row's number while the state is lost; True if it restored the
            learner from the arrays of that row.
        rounds: the unreplayable rounds, in order.
        lost: whether the learner's state is lost.
    """

    moves: bool = False
    renews: bool = False
    restore_at: Callable[[int], bool] = lambda seq: False
    rounds: list[int] = field(default_factory=list)
    lost: bool = False

    def replayable(self, row: Row) -> bool:
        """Whether the certificate in `row` can be computed again; if not, its round is noted."""
        whole = not (self.lost or row.forgotten)
        if not whole and row.round is not None:
            self.rounds.append(row.round)
        self.lost |= row.forgotten and self.moves
        return whole

    def renewed(self) -> None:
        """Note that the features were renewed and the head was rebuilt from all learnt items."""
        self.lost |= self.renews

    def passed(self, seq: int) -> None:
        """Note that row `seq` was replayed."""
        if self.lost and self.restore_at(seq):
            self.lost = False


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of each run of consecutive ones.

    >>> spans([3, 7, 8, 9])
    [(3, 3), (7, 9)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


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
            game.examples.note(decision)
        elif row.event == "answered" and row.purpose == "owned":
            certificates[str(row.item)] = row.decision()
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
        elif row.event == "budget":  # all of them: the arrays hold no budget and no horizon
            game.reschedule(row.payload)
        if row.event not in _MEANWHILE:
            refitted = row.event in ("refit", "refreshed")
            game.ahead = refitted and bool(row.payload.get(BESIDE))
        unreplayable.passed(row.seq)
    return effects


def _adopt(recorded: Decision, game: Game, asked: int, compare: bool) -> None:
    if compare:
        again = decision_of(game, game.corpus.row[recorded.item], asked)
        if not _same(again, recorded):
            raise RunError(
                f"round {recorded.round} was recorded as {_described(recorded)}, but the replay got"
                f" {_described(again)}: the run was made by other versions or on another machine"
                " (see `stacksl status RUN --settings`)"
            )
    game.learner.adopt([recorded], [game.examples.inputs(recorded.item)])


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
