"""What a run tells of its model's accuracy on the way, without its audit: level, growth, stop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.scorers import Head
from stacksl.data import Dataset
from stacksl.models.forecast import (
    FEWEST,
    Estimate,
    Growth,
    Normal,
    fitted_growth,
    from_training,
    gain,
    scenarios,
)
from stacksl.runs.finish.rounds import before_label
from stacksl.runs.loop.batch_selection import surest
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import covering_of, linear_trainer
from stacksl.runs.settings.budget import parse_stop_when, time_limit
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec

COMPARED = 100  # labels after which the model is compared with class names alone
EVERY = 25  # labels of a stream after which the stop rule is looked at, and of a run that waits

UNIMPROVED = (
    "The first {:,} labels have not improved the model on the class names alone: on held-out labels"
    " its log-loss is lower by {:.2f}, with a standard error of {:.2f}. Look at whether the classes"
    " are what people mean by them before you buy more"
)


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


def _ranking(game: Game) -> Head | None:
    """The head on all labels so far; that of a stream on its way lags behind them."""
    lags = covering_of(game) is not None and not linear_trainer(game).final
    return None if lags else game.trainer.head


@dataclass(slots=True, eq=False)
class Forecaster:
    """The forecast of a run as it is now, and the rule of `--stop-when`.

    It reads training labels, and nothing of the audit.
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
        return from_training(known, *found)

    def facts(self, *, ended: bool) -> dict[str, Any]:
        """What `stacksl status` forecasts from: labels learnt, level, share right before, sizes.

        Before the run has `ended` in steps of 25 labels, since a count after each answer would show
        which of them are of the audit.
        """
        labels = len(self.game.examples.bought)
        labels -= 0 if ended else labels % EVERY
        level, before = self.level(labels), before_label(self.game, labels)
        right = None if before is None else before.correct / before.n
        most = len(self.spec.dataset.items) - len(self.spec.sources.aside)
        found = {"labels": labels, "level": level and asdict(level), "right": right}
        return {**found, "options": options_of(self.spec), "most": most}

    def over_names(self, before: dict[str, Any], *, ended: bool) -> dict[str, Any]:
        """Whether labels have improved on class names: at how many, and a sentence if not.

        Before the run has `ended` it is looked at in a pool, once in a hundred labels; `before` is
        what this returned last.
        """
        settings, labels = self.spec.settings, len(self.game.examples.bought)
        labels -= 0 if ended else labels % COMPARED
        if settings.adapts or labels < COMPARED or not (ended or settings.mode == "pool"):
            return {}
        if before.get("labels") == labels and not ended:
            return before
        found = linear_trainer(self.game).over_names(labels)
        if found is None or found[0] >= found[1]:
            return {"labels": labels, "sentence": ""}
        return {"labels": labels, "sentence": UNIMPROVED.format(labels, *found)}

    def enough(self) -> bool:
        """Whether the next labels are estimated to gain less than `--stop-when` asks for.

        Computed anew where a batch of a pool, or 25 labels of a stream, were learnt; `stopped` is
        then the sentence of the report.
        """
        settings, learnt = self.spec.settings, len(self.game.examples.bought)
        if settings.mode == "stream":
            learnt -= learnt % EVERY
        if settings.stop_when is None or learnt == self._seen or time_limit(settings.stop_when):
            return bool(self.stopped)
        self._seen, self.stopped = learnt, ""
        least, more = parse_stop_when(settings.stop_when)
        known, level = self._known(), self.level(learnt)
        if known is None or level is None:
            return False
        found = gain(known, level, learnt, more, options_of(self.spec))
        if found.value < least:
            self.stopped = stop_sentence(settings.stop_when, learnt, more, found)
        return bool(self.stopped)

    def _known(self) -> Growth | None:
        return known_of(self.spec.settings, self.spec.dataset)


def known_of(settings: Settings, data: Dataset) -> Growth | None:
    """What the scenarios say; None for language models and options of their own: there is none."""
    return None if settings.adapts or data.classes is None else fitted_growth(scenarios())


def options_of(spec: RunSpec) -> int:
    """K: the classes, or the rounded mean number of options."""
    return round(float(np.mean([len(item.candidates) for item in spec.dataset.items])))


def stop_sentence(until: str, learnt: int, more: int, found: Estimate) -> str:
    """Why buying stopped."""
    points = [f"{100 * each:.1f}" for each in (found.value, found.low, found.high)]
    return (
        f"Buying stopped after {learnt:,} training labels by stop_when {until}: the next {more:,}"
        f" were estimated to gain {points[0]} points of accuracy (90% interval {points[1]} to"
        f" {points[2]})."
    )
