"""What a run tells of its model's accuracy on the way, without its audit: level, growth, stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.heads.logistic import folds_of
from stacksl.core.scorers import Head
from stacksl.data import Dataset
from stacksl.models.audit import Audit
from stacksl.models.forecast import (
    FEWEST,
    Estimate,
    Growth,
    Normal,
    from_training,
    gain,
    growth,
    random_equivalent,
    scenarios,
    with_sample,
)
from stacksl.runs.loop.batch_selection import surest
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer, covering_of, linear_trainer
from stacksl.runs.session.build_learner import fresh_scorer
from stacksl.runs.settings.budget import parse_until, time_limit
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec

RANDOM = 60  # random labels from which others are compared with them
PARTS = (0.3, 0.6, 1.0)  # of the random labels that train
EVERY = 25  # labels of a stream after which the stop rule is looked at, and of a run that waits


def evidence(game: Game, labels: int) -> tuple[Array, Array, Array]:
    """`sure`, `right` and `pool` of `models.forecast.carried_over`, from the first `labels` learnt.

    The rest of a pool has the probabilities of the current head; a stream has no such head on the
    way, and those of the last quarter of its rounds take their place.
    """
    corpus, head = game.corpus, _ranking(game)
    rounds = {row.item: row.decision() for row in game.ledger.rows() if row.event == "round"}
    learnt = [each for each in game.examples.bought[:labels] if each[2] >= 0]  # owned: no choice
    bought = [(corpus.ids[row], label) for row, label, _ in learnt]
    pairs = [(rounds[name], label) for name, label in bought if name in rounds]
    sure = np.array([decision.probability for decision, _ in pairs])
    right = np.array([float(decision.choice == label) for decision, label in pairs])
    if head is not None:
        rest = corpus.unbought(name for name, _ in bought)
        now = surest(head, game.examples.block, rest)
        return sure, right, np.concatenate([sure, now])
    last = max((decision.round for decision, _ in pairs), default=0)
    seen = [decision.probability for decision in rounds.values() if decision.round <= last]
    return sure, right, np.array(seen[-max(25, len(seen) // 4) :])


def sample_right(spec: RunSpec, game: Game, labels: int) -> tuple[int, int]:
    """(correct, n): the model of the first `labels` on the answered items of the progress sample.

    Answers that name no candidate count as wrong, as those of an audit do; ambiguous and broken
    items are left out. Where no head ranks the items, one is fitted for this; the online head of a
    language model's stream answers for it.
    """
    said = game.ledger.audited("progress")
    known = {item: each.index for item, each in said.items() if each.said in ("label", "none")}
    rows = [game.corpus.row[item] for item in known]
    head, block = _ranking(game), game.examples.block
    if head is None and isinstance(game.trainer, LinearTrainer) and rows:
        head = game.trainer.as_if(labels, fresh_scorer(spec.settings, block))
    if head is not None and rows:
        chosen = [int(np.argmax(policy)) for policy in head.probabilities(block.take(rows))]
    else:
        chosen = [int(np.argmax(game.learner.scorer.scores(block[row]))) for row in rows]
    return sum(a == b for a, b in zip(chosen, known.values(), strict=True)), len(rows)


def _ranking(game: Game) -> Head | None:
    """The head on all labels so far; that of a stream on its way lags behind them."""
    lags = covering_of(game) is not None and not linear_trainer(game).final
    return None if lags else game.trainer.head


@dataclass(slots=True, eq=False)
class Forecaster:
    """The forecast of a run as it is now, and the rule of `--until`.

    It reads training labels and the progress sample, and nothing of the audit.
    """

    spec: RunSpec
    game: Game
    stopped: str = ""
    _seen: int = -1

    def level(self, labels: int) -> Normal | None:
        """The logit of the accuracy at the first `labels`; None where nothing can be estimated."""
        known = self._known()
        if known is None:
            return None
        found = evidence(self.game, labels)
        if len(found[0]) < FEWEST:
            return None
        return with_sample(
            from_training(known, *found), *sample_right(self.spec, self.game, labels)
        )

    def facts(self, *, ended: bool) -> dict[str, Any]:
        """What `stacksl plan RUN` reads: labels learnt, level and progress sample.

        Before the run has `ended` in steps of 25 labels, since a count after each answer would show
        which of them are of the audit.
        """
        labels = len(self.game.examples.bought)
        labels -= 0 if ended else labels % EVERY
        level, (correct, n) = self.level(labels), sample_right(self.spec, self.game, labels)
        learnt = self.game.examples.bought[:labels]
        pairs = [(label, choice) for _, label, choice in learnt if choice >= 0]
        right = sum(a == b for a, b in pairs) / len(pairs) if pairs else None
        found = {"labels": labels, "level": level and asdict(level), "right": right}
        return {**found, "correct": correct, "n": n}

    def enough(self) -> bool:
        """Whether the next labels are estimated to gain less than `--until` asks for.

        Computed anew where a batch of a pool, or 25 labels of a stream, were learnt; `stopped` is
        then the sentence of the report.
        """
        settings, learnt = self.spec.settings, len(self.game.examples.bought)
        if settings.mode == "stream":
            learnt -= learnt % EVERY
        if settings.until is None or learnt == self._seen or time_limit(settings.until):
            return bool(self.stopped)
        self._seen, self.stopped = learnt, ""
        least, more = parse_until(settings.until)
        known, level = self._known(), self.level(learnt)
        if known is None or level is None:
            return False
        found = gain(known, level, learnt, more, options_of(self.spec))
        if found.value is not None and found.value < least:
            self.stopped = stop_sentence(settings.until, learnt, more, found)
        return bool(self.stopped)

    def _known(self) -> Growth | None:
        return known_of(self.spec.settings, self.spec.dataset)


def compared_with_random(
    spec: RunSpec, game: Game, audit: Audit | None, policies: Callable[[Sequence[int]], list[Array]]
) -> str:
    """How many random labels would have made a model as accurate as the final one.

    Progress sample and audit are random labels: models of growing parts of them, made as the final
    model is, are judged on the rest, three folds in turn, and thrown away. Empty without a progress
    sample; `policies` are the final model's.
    """
    said = game.ledger.audited("progress")
    if not said:
        return ""
    known = {game.corpus.row[item]: each.index for item, each in said.items()}
    labels = [] if audit is None else audit.labels(game.corpus.ids)
    found = [(row, at) for row, at in (*known.items(), *labels) if at is not None]
    found = [(row, at) for row, at in found if row not in spec.sources.forgotten]
    trainer = game.trainer
    if not isinstance(trainer, LinearTrainer) or len(found) < RANDOM:
        reason = f"progress sample and audit have {len(found)} labels, and {RANDOM} are needed"
        if not isinstance(trainer, LinearTrainer):
            reason = "a language model is not trained again for it"
        return equivalent_sentence(len(game.examples.bought), Estimate(None, reason=reason))
    bought = [(row, at, at) for row, at in found]
    random = replace(
        trainer, examples=replace(game.examples, bought=bought), kept=None, _source=None
    )
    untouched, block = fresh_scorer(spec.settings, game.examples.block), game.examples.block
    rows, gold = [row for row, _ in found], np.array([at for _, at in found])
    final = np.array([int(np.argmax(policy)) for policy in policies(rows)]) == gold
    right = np.zeros((len(PARTS), len(found)))
    sizes = np.zeros(len(PARTS))
    for train, held in folds_of(len(found), spec.settings.seed):
        for at, part in enumerate(PARTS):
            some = train[: round(part * len(train))]
            without = np.setdiff1d(np.arange(len(found)), some)
            head = random.without(without, np.zeros(0, dtype=np.int64), untouched)
            sizes[at] += len(some) / 3
            if head is not None:
                chosen = head.probabilities(block.take([rows[n] for n in held]))
                right[at, held] = [int(np.argmax(policy)) for policy in chosen] == gold[held]
    result = random_equivalent(sizes, right, final.astype(np.float64), spec.settings.seed)
    return equivalent_sentence(len(game.examples.bought), result)


def equivalent_sentence(labels: int, found: Estimate) -> str:
    """How many random labels the bought ones are worth, in words."""
    if found.value is None or found.low is None or found.high is None:
        return (
            f"How many random labels these {labels:,} are worth cannot be estimated:"
            f" {found.reason}."
        )
    return (
        f"These {labels:,} labels are worth some {found.value:,.0f} random ones (90% interval"
        f" {found.low:,.0f} to {found.high:,.0f}), judged on progress sample and audit."
    )


def known_of(settings: Settings, data: Dataset) -> Growth | None:
    """What the scenarios say; None for language models and options of their own: there is none."""
    return None if settings.adapts or data.classes is None else growth(scenarios())


def options_of(spec: RunSpec) -> int:
    """K: the classes, or the rounded mean number of options."""
    return round(float(np.mean([len(item.candidates) for item in spec.dataset.items])))


def stop_sentence(until: str, learnt: int, more: int, found: Estimate) -> str:
    """Why buying stopped."""
    points = [f"{100 * (each or 0):.1f}" for each in (found.value, found.low, found.high)]
    return (
        f"Buying stopped after {learnt:,} training labels by until {until}: the next {more:,} were"
        f" estimated to gain {points[0]} points of accuracy (90% interval {points[1]} to"
        f" {points[2]})."
    )
