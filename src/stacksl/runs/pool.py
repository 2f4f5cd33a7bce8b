"""The pool: all items are known, the gate ranks them, labels are bought in batches.

Scores come from the refit on the labels so far, widths from the online state. Where class names
are soft examples there is a refit before the first label; where they are not, the first batch
follows the shuffled order. A batch is spread over the pool (`picking`). Each purchase leaves a
certificate when it is made, and each item that was never asked leaves one at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stacksl.game.followers import Given
from stacksl.game.gates import Clock, Margin, contested_score
from stacksl.game.inputs import Array, SharedBlock
from stacksl.game.randomness import generator
from stacksl.game.scorers import Head
from stacksl.items import Decision
from stacksl.runs.picking import margins, spread_out
from stacksl.runs.quotas import rare_picks, share_of
from stacksl.runs.refits import Refits
from stacksl.runs.rounds import Table, settle

__all__ = ["pool"]

_AT_ONCE = 256  # certificates a transaction
_ANY = float("-inf")


def pool(
    order: Sequence[int],
    table: Table,
    *,
    refits: Refits,
) -> Iterator[list[Decision]]:
    """Buy the budget in batches, refitting before each; then certify what was never asked.

    A batch tops the open purchases up to `table.batch`. It is posted in one transaction, so an
    interrupted run never splits one, and ranks by all answers so far: the pool ends early where
    they are still out.
    """
    learner = table.learner
    while True:
        if refits.due:
            refits.again()
        count = min(table.picks, learner.budget - table.ledger.asked)
        picked = _rank(order, table, refits, count) if count > 0 else []
        if not picked:
            break
        yield _buy(picked, table)
    if table.ledger.open_purchases():
        return
    rest = _unseen(order, table)
    for start in range(0, len(rest), _AT_ONCE):
        rows = enumerate(rest[start : start + _AT_ONCE], start=1)
        yield _buy([_certificate(r, table, refits.head, n) for n, r in rows], table)


def _buy(decisions: list[Decision], table: Table) -> list[Decision]:
    posted = table.ledger.post(decisions, table.slots(decisions))
    table.learner.adopt(posted, [table.inputs_of(d) for d in posted])
    table.labeler.ask(table.ledger.open_purchases())
    settle(table)
    return posted


def _unseen(order: Sequence[int], table: Table) -> list[int]:
    return [r for r in order if r not in table.aside and not table.ledger.seen(table.ids[r])]


def _unbought(order: Sequence[int], table: Table) -> list[int]:
    """What can be chosen: an item passed over under an earlier budget, too."""
    bought = {purchase["item"] for purchase in table.ledger.export()}
    return [r for r in order if r not in table.aside and table.ids[r] not in bought]


def _rank(order: Sequence[int], table: Table, refits: Refits, count: int) -> list[Decision]:
    """`count` items with large statistics, spread over the pool, wanted; or the first in order.

    The gate `random` draws them, whatever the order. The threshold is what the items left over do
    not exceed, or the least of the picks where these were spread below it.
    """
    rest = _unbought(order, table)
    head = refits.head
    if table.learner.gate.name == "random":
        drawn = generator(refits.seed, "pool/random").random(len(table.ids))
        rest = [rest[place] for place in np.argsort(drawn[rest])]
    if head is None or table.learner.gate.name == "random":
        reason = "drawn" if table.learner.gate.name == "random" else "order"
        return _wanted([_certificate(r, table, head, 1) for r in rest[:count]], reason, _ANY)
    rare = _rare(rest, table, head, count)
    if rare:
        rest = [row for row in rest if row not in rare]
        count -= len(rare)
    statistics, predicted = _statistics(rest, table, head)
    best = np.argsort(-statistics, kind="stable")
    kinds = None if predicted is None else predicted[best].tolist()
    picked = spread_out([rest[b] for b in best], count, table.block, kinds)
    found = [_certificate(r, table, head, 1) for r in picked]
    cut = float(statistics[best[count]]) if count < len(best) else _ANY
    ranked = _wanted(found, "rank", min([cut, *(d.statistic for d in found)]))
    kept = _wanted([_certificate(r, table, head, 1 + len(ranked)) for r in rare], "class", _ANY)
    return [*ranked, *kept]


def _rare(rest: Sequence[int], table: Table, head: Head, count: int) -> list[int]:
    """The picks that are kept for classes with few labels, where a run keeps some."""
    if not table.min_per_class or not isinstance(table.block, SharedBlock):
        return []
    classes = table.block.classes
    share = share_of(count, table.min_per_class, classes, table.learner.budget)
    labels = [label for _, label, _ in table.bought]
    return rare_picks(
        head, table.block, rest, labels,
        classes=classes, wanted=table.min_per_class, count=share,
    )  # fmt: skip


def _statistics(
    rest: Sequence[int], table: Table, head: Head
) -> tuple[Array, NDArray[np.int64] | None]:
    """The gate's statistic of each item, (n,), and its predicted class where there are classes.

    Margins are taken of whole blocks, which ranks 20,000 items in the time of some hundred
    certificates; they differ from a certificate's in the last bits alone.
    """
    found, predicted = margins(head, table.block, rest)
    if isinstance(table.learner.gate, Margin) and isinstance(table.follower, Given):
        return found, predicted
    return np.array([_certificate(r, table, head, 1).statistic for r in rest]), predicted


def _wanted(found: list[Decision], reason: str, cut: float) -> list[Decision]:
    first = found[0].round if found else 0
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
