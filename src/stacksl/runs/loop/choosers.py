"""Which items the next rounds are about: those of a stream in order, those of a pool by rank.

A stream's gate decides about each item; under the query strategy `coverage`, by what a label would
cover of the items seen (`covering`). In a pool a batch of `coverage`, the default for fixed
classes, covers the items in doubt (`core.heads.coverage`), from the first one on. Under a gate a
pool is ranked by its statistic alone, never by its threshold: of the head refitted on the labels so
far, with widths from the online state, or of a language model's own scores; labels that choose how
these are made are drawn before. Such a batch is spread over the pool (`batch_selection`; under a
language model, by their texts), and the first batch of a linear model follows the order of the
items, unless class names give a head before the first label. A pool posts purchases alone: the
ledger has no row of an item that was not asked. Audited rows that would have been chosen are noted
(`models.audit.WouldBuy`): only the others are like the rows that a run leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.gates.registry import COVERAGE, Margin
from stacksl.core.heads.coverage import gains_outside, most_covering
from stacksl.core.learner import presented
from stacksl.runs.items.corpus import Role
from stacksl.runs.loop.batch_selection import margins, spread_out
from stacksl.runs.loop.game import DRAWN, Game
from stacksl.runs.loop.head_fitting import Doubt
from stacksl.runs.loop.language_trainer import LanguageTrainer
from stacksl.runs.loop.linear_trainer import (
    LinearTrainer,
    draw_keys,
    linear_trainer,
)
from stacksl.runs.settings.fields import Settings
from stacksl.types import Decision

DRAWN_FIRST, DRAWN_SHARE = 25, 0.1  # labels that show how often a model is right


def chooser_of(settings: Settings) -> Stream | Pool:
    """The chooser of a run."""
    if settings.mode == "stream":
        return Stream()
    return Pool(settings.seed, settings.gate.name == COVERAGE)


class Stream:
    """Each item once, in the order of the corpus, while fewer purchases are open than a batch."""

    def next(self, game: Game) -> list[Decision]:
        """The decision about the next item."""
        order, round_number = game.corpus.order, game.learner.round
        if round_number >= len(order) or game.batches.room(game.ledger) <= 0 or game.enough():
            return []
        _compare_audited(game, round_number)
        return [_decision_of(game, order[round_number])]

    def repeat(self, game: Game, recorded: Sequence[Decision]) -> list[Decision]:
        """The decisions about the items of those `recorded`: an item may have left the order."""
        for decision in recorded:
            _compare_audited(game, decision.round - 1)
        return [_decision_of(game, game.corpus.row[decision.item]) for decision in recorded]


def _compare_audited(game: Game, round_number: int) -> None:
    """Note the audited row that a round of a stream has, if the gate would ask about it.

    The rows of the first audit are spread evenly over the rounds.
    """
    rows, rounds = game.corpus.drawn, len(game.corpus.order)
    number = round_number * len(rows) // rounds
    has_one = (round_number + 1) * len(rows) // rounds > number
    if not has_one:
        return
    row, noted = rows[number], game.would_buy.rows
    if game.corpus.roles[row] != Role.AUDIT or row in noted:
        return
    if _decision_of(game, row).status == "wanted":
        noted.append(row)


def _decision_of(game: Game, row: int) -> Decision:
    """The decision of a stream about the item of a row, in the next round.

    It changes nothing but the gate's start.
    """
    learner, covering, accounts = game.learner, game.trainer.covering, game.ledger.accounts
    ids, inputs = [game.corpus.ids[row]], [game.examples.block[row]]
    candidates = presented(inputs, learner.scorer, learner.top_k)  # C_t
    statistics = None
    if covering is not None:
        statistics = [covering.statistic(learner, game.trainer.head, row, accounts.asked)]
    return learner.decide(ids, inputs, candidates, asked=accounts.asked, statistics=statistics)[0]


class Pool:
    """Batches of the best items not yet bought.

    A batch fills up the open purchases and is ranked by all answers so far. It is posted in one
    transaction, so that an interruption never splits it. The pool has ended when nothing is left to
    buy and no answer is awaited.

    Args:
        seed: of the draws of the gate `random`.
        coverage: whether items are chosen by `coverage`, which needs fixed classes, or ranked.
    """

    def __init__(self, seed: int = 0, coverage: bool = False) -> None:
        self._seed, self._coverage = seed, coverage

    def next(self, game: Game) -> list[Decision]:
        """A batch of purchases; empty where nothing can be bought now."""
        ledger = game.ledger
        # the ledger has less left than the learner where further slots of items were bought
        count = min(
            game.batches.picks(ledger),
            game.learner.budget - ledger.accounts.asked,
            ledger.accounts.left,
        )
        if (draws := game.trainer.draws) > ledger.accounts.asked:
            count = min(count, draws - ledger.accounts.asked)
        elif draws:  # nothing else is bought before they are answered
            open_labels = sum(lease.purpose == "train" for lease in ledger.open_purchases())
            count = 0 if ledger.accounts.asked - open_labels < draws else count
        return [] if count <= 0 or game.enough() else self._batch(game, count)

    def repeat(self, game: Game, recorded: Sequence[Decision]) -> list[Decision]:
        """A batch of as many purchases as were recorded."""
        return self._batch(game, len(recorded))

    def _batch(self, game: Game, count: int) -> list[Decision]:
        best = self._best(game, count)
        return [replace(decision, round=decision.round + n) for n, decision in enumerate(best)]

    def _best(self, game: Game, count: int) -> list[Decision]:
        """`count` items that cover the others, or with large statistics and spread over the pool.

        Without a head or coverage they are the first ones; the gate `random` draws them. An item
        that covers has its gain as its statistic, and the best gain left out as its threshold. The
        threshold of ranked items is the largest statistic of the others, or the smallest of the
        batch where spreading went below it.
        """
        unbought = game.corpus.unbought(game.ledger.bought())
        if (doubt := game.trainer.doubt) is not None:
            return _doubtful(game, doubt, unbought, count)
        head, at_random = game.trainer.head, game.learner.gate.name == "random"
        at_random = at_random or game.trainer.draws > 0
        if at_random:
            keys = draw_keys(self._seed, len(game.corpus.ids))
            unbought = [unbought[index] for index in np.argsort(keys[unbought])]
        if at_random or (head is None and not self._coverage):
            reason = DRAWN if at_random else "order"
            return _picked(game, _different(game, unbought, count), reason)
        drawn_rows = _drawn(game, self._seed, unbought, count)
        drawn_set, count = set(drawn_rows), count - len(drawn_rows)
        unbought = [row for row in unbought if row not in drawn_set]
        pick = _covering if self._coverage else _ranked
        decisions = pick(game, unbought, count) if count and unbought else []
        return [*decisions, *_picked(game, drawn_rows, DRAWN)]


def _different(game: Game, rows: list[int], count: int) -> list[int]:
    """The first `count` of `rows`; under a language model none nearly the same as another bought.

    Its features are less an item's mean, so that they compare no items: the texts are compared.
    """
    if not isinstance(game.trainer, LanguageTrainer):
        return rows[:count]
    return game.trainer.near_duplicates.without(rows, game.examples.taken, count)


def _drawn(game: Game, seed: int, unbought: Sequence[int], count: int) -> list[int]:
    """The part of a batch that is drawn, where the labels of a model are to be compared."""
    if game.trainer.model_labels is None:
        return []
    labels_asked = game.ledger.accounts.asked
    draw_count = max(0, _to_draw(labels_asked + count) - _to_draw(labels_asked))
    keys = draw_keys(seed, len(game.corpus.ids))
    return sorted(unbought, key=lambda row: keys[row])[:draw_count]


def _to_draw(labels: int) -> int:
    """How many of the first `labels` labels are drawn, where a model's are to be compared."""
    return min(labels, max(DRAWN_FIRST, math.ceil(DRAWN_SHARE * labels)))


def _doubtful(game: Game, doubt: Doubt, unbought: list[int], count: int) -> list[Decision]:
    """`count` of the rows in `unbought` whose labels are most in doubt; the choice is the label."""
    rows = sorted(unbought, key=lambda row: doubt.sure[row])
    confidence, labels = doubt.sure[rows].tolist(), doubt.label[rows].tolist()
    threshold = 1.0 - confidence[count] if count < len(rows) else -math.inf
    return [
        replace(record, choice=labels[n], probability=confidence[n], statistic=1.0 - confidence[n])
        for n, record in enumerate(_picked(game, rows[:count], "doubt", threshold))
    ]


def _covering(game: Game, unbought: Sequence[int], count: int) -> list[Decision]:
    """`count` of the rows in `unbought`, which cover the most doubt; of a sample of a huge pool."""
    trainer, head = linear_trainer(game), game.trainer.head
    source, unnamed_rows = trainer.source(), trainer.unnamed()
    kernel, members = source.kernel()
    rows, sampled = np.array(unbought, dtype=np.int64), np.zeros(len(source.block), dtype=np.bool_)
    sampled[members] = True
    rows = rows[sampled[rows]]
    doubt, buyable = np.ones(len(members)), np.zeros(len(members), dtype=np.bool_)
    positions = np.searchsorted(members, rows)
    if head is not None:
        doubt[positions] += margins(head, source.block, rows.tolist())[0]
    if unnamed_rows:  # no label removes a doubt that nobody can answer
        labeled_rows = np.array([row for row, _, _ in game.examples.bought], dtype=np.int64)
        doubt *= source.answerable(labeled_rows, np.array(sorted(unnamed_rows), dtype=np.int64))
    buyable[positions] = True
    cover = most_covering(kernel, doubt, buyable, count)
    if audited := _audited(game):
        buyable[cover.items] = False
        doubts = np.ones(len(audited))
        if head is not None:
            doubts += margins(head, source.block, audited)[0]
        gains = gains_outside(cover, source.outside(audited), doubts, ~buyable)
        _note_audited(game, audited, gains, len(cover.items), len(unbought))
    records = _picked(game, members[cover.items].tolist(), COVERAGE, cover.left_out)
    decisions = [
        replace(record, statistic=gain) for record, gain in zip(records, cover.gains, strict=True)
    ]
    if len(decisions) < count:
        member_set = set(members.tolist())
        other_rows = (row for row in unbought if row not in member_set)
        decisions += _picked(game, list(islice(other_rows, count - len(decisions))), "order")
    return decisions


def _ranked(game: Game, unbought: Sequence[int], count: int) -> list[Decision]:
    """`count` of the rows in `unbought` with large statistics; by a linear model spread out."""
    statistics, predicted_classes = _statistics(game, unbought)
    ranking = np.argsort(-statistics, kind="stable")
    rows = [unbought[n] for n in ranking]
    if audited := _audited(game):
        of_audited = _statistics(game, audited)[0]
        _note_audited(game, audited, of_audited, count, len(unbought))
    if isinstance(game.trainer, LinearTrainer):
        classes = None if predicted_classes is None else predicted_classes[ranking].tolist()
        picked_rows = spread_out(rows, count, game.examples.block, classes)
    else:
        picked_rows = _different(game, rows, count)
    records = _picked(game, picked_rows, "rank")
    threshold = float(statistics[ranking[count]]) if count < len(ranking) else -math.inf
    threshold = min([threshold, *(record.statistic for record in records)])
    return [replace(record, threshold=threshold) for record in records]


def _audited(game: Game) -> list[int]:
    """The rows of an audit, which are compared with those that a batch has."""
    rows: list[int] = np.flatnonzero(game.corpus.roles == Role.AUDIT).tolist()
    return [row for row in rows if row not in game.corpus.looked_at]


def _note_audited(
    game: Game, audited: Sequence[int], statistics: Array, count: int, unbought: int
) -> None:
    """Note which `audited` rows a batch of `count` of the `unbought` ones would have.

    Reference rows are left for the model as well.
    """
    share = min(count, unbought) / (unbought + len(game.corpus.reference_rows))
    game.would_buy.note(audited, statistics, share)


def _statistics(game: Game, rows: Sequence[int]) -> tuple[Array, NDArray[np.int64] | None]:
    """The gate's statistics of the items in `rows`, (n,), and their classes as of `margins`."""
    head, learner = game.trainer.head, game.learner
    assert head is not None
    # in blocks: 20,000 items are ranked in the time of some hundred decision records
    statistics, predicted_classes = margins(head, game.examples.block, rows)
    if not (isinstance(learner.gate, Margin) and learner.top_k is None):
        statistics = np.array([_record(game, row).statistic for row in rows], dtype=np.float64)
    return statistics, predicted_classes


def _record(game: Game, row: int) -> Decision:
    """The decision record of one item in the next round, as the gate ranks it."""
    examples, learner, head = game.examples, game.learner, game.trainer.head
    scores: Array | None = None
    if head is not None:
        scores = np.asarray(head.probabilities(examples.block.take([row]))[0], dtype=np.float64)
    item, labels_asked = examples.corpus.ids[row], game.ledger.accounts.asked
    return learner.rank(item, examples.block[row], scores, asked=labels_asked)


def _picked(
    game: Game, rows: Sequence[int], reason: str, threshold: float = -math.inf
) -> list[Decision]:
    """The decision records of items that are bought for a reason."""
    records = (_record(game, row) for row in rows)
    return [replace(record, threshold=threshold, reason=reason) for record in records]
