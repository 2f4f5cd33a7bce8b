"""The pool: all items are known, the gate ranks them, labels are bought in batches.

Scores come from the refit on the labels so far, widths from the online state; the first batch, when
there is no refit yet, follows the shuffled order. Each purchase leaves a certificate when it is
made, and each item that was never asked leaves one at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stacksl.game.gates import Clock, contested_score
from stacksl.game.inputs import Array
from stacksl.game.scorers import Head
from stacksl.items import Decision
from stacksl.runs.refits import Refits
from stacksl.runs.rounds import Table, settle

__all__ = ["pool"]


def pool(
    order: Sequence[int],
    table: Table,
    *,
    batch: int,
    refits: Refits,
) -> Iterator[list[Decision]]:
    """Buy the budget in batches, refitting before each; then certify what was never asked.

    A batch tops the open purchases up to `batch`. It is posted in one transaction, so an
    interrupted run never splits one, and ranks by all answers so far: the pool ends early where
    they are still out.
    """
    learner = table.learner
    while True:
        if refits.labels < len(table.bought):
            refits.again()
        room = batch - len(table.ledger.open_purchases())
        count = min(room, learner.budget - table.ledger.asked)
        picked = _rank(order, table, refits.head, count) if count > 0 else []
        if not picked:
            break
        yield _buy(picked, table)
    if table.ledger.open_purchases():
        return
    while rest := _unseen(order, table)[:256]:
        head = refits.head
        yield _buy([_certificate(r, table, head, n + 1) for n, r in enumerate(rest)], table)


def _buy(decisions: list[Decision], table: Table) -> list[Decision]:
    posted = table.ledger.post(decisions)
    table.learner.adopt(posted, [table.inputs_of(d) for d in posted])
    table.labeler.ask(table.ledger.open_purchases())
    settle(table)
    return posted


def _unseen(order: Sequence[int], table: Table) -> list[int]:
    return [r for r in order if r not in table.aside and not table.ledger.seen(table.ids[r])]


def _rank(order: Sequence[int], table: Table, head: Head | None, count: int) -> list[Decision]:
    """The `count` items with the largest statistic, wanted; ties keep the shuffled order."""
    rest = _unseen(order, table)
    ranks_by_order = head is None or table.learner.gate.name == "random"
    if ranks_by_order:
        picked, cut = rest[:count], float("-inf")
        found = [_certificate(r, table, head, n + 1) for n, r in enumerate(picked)]
    else:
        every = [_certificate(r, table, head, 1) for r in rest]
        best = np.argsort([-d.statistic for d in every], kind="stable")
        cut = every[best[count]].statistic if count < len(best) else float("-inf")
        found = [every[b] for b in best[:count]]
    first = table.learner.round + 1
    reason = "order" if ranks_by_order else "rank"
    return [
        replace(d, round=first + n, status="wanted", threshold=cut, reason=reason)
        for n, d in enumerate(found)
    ]


def _certificate(row: int, table: Table, head: Head | None, ahead: int) -> Decision:
    """The numbers of one item under the refit's scores and the online state's widths."""
    learner, inputs = table.learner, table.block[row]
    presented = table.follower.respond([inputs], learner.scorer)[0]
    scores = None if head is None else _policy(head, row, table)
    view = learner.scorer.bounds(inputs, presented, scores)
    policy = view.probabilities if scores is None else view.scores
    position = view.choice
    clock = Clock(table.ledger.asked, learner.budget, learner.round + ahead, learner.horizon)
    reach = view.radius * view.widths[position]
    return Decision(
        round=learner.round + ahead,
        item=table.ids[row],
        presented=presented,
        choice=presented[position],
        statistic=learner.gate.statistic(view, clock, learner.gate_state),
        threshold=float("inf"),
        reason="spent",
        score=float(view.scores[position]),
        lower=float(view.scores[position] - reach),
        upper=float(view.scores[position] + reach),
        probability=float(policy[position]),
        gate_score=contested_score(view, learner.width_scale),
        state=learner.gate_state,
        skip_state=learner.gate_state,
        status="skipped",
    )


def _policy(head: Head, row: int, table: Table) -> Array:
    """The refit's probabilities of the item's candidates, (K,): the scores of a pool."""
    return np.asarray(head.probabilities(table.block.take([row]))[0], dtype=np.float64)
