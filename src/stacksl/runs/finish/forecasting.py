"""What a run tells of its model's accuracy on the way, without its audit: level, growth, stop.

The stop rule `accuracy=A` looks at the audit instead. Buying pauses at each quarter of the labels
to train on, until every answer is in. The model is then refitted as it is at the end, and judged on
the whole audit, where people answer after a second look (`second_look`). If the lower bound of its
accuracy reaches A, the run ends with that model; else it buys on. Models learn labels to train on
alone, so each of them is as new to the audit as the first, and the levels of all looks add up to
.05 (`z_of_look`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.data import Dataset
from stacksl.errors import SettingsError
from stacksl.ledger.accounts import Accounts
from stacksl.models.forecast import FEWEST, GROWTH, Growth, Normal, carried_over, gain, level_of
from stacksl.models.metrics import z_of_look
from stacksl.models.promise import Look
from stacksl.runs.finish.promising import (
    expect_promise,
    looked_enough,
    next_look,
    unpayable,
    unreachable,
)
from stacksl.runs.items.sources import Sources
from stacksl.runs.loop.batch_selection import surest
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.settings.budget import stop_rule
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec

LOOKS = 4  # in a budget: one for each quarter of its labels to train on
NEAR = 0.1  # how far below the mark an agreement may be that gets a second look
COMPARED = 100  # labels after which the model is compared with class names alone
EVERY = 25  # labels of a stream after which the stop rule is looked at, and of a run that waits

UNIMPROVED = (
    "A model of the first {:,} labels and the class names is not shown to be better than the names"
    " alone: on held-out labels its log-loss is {:.2f} {}, with a standard error of {:.2f}. The"
    " names may say nearly all, some answers may be wrong, or people may mean something else by"
    " the classes: look at some answers before you buy more. The final model is a mixture with"
    " names alone, and may be better than both"
)


def evidence(game: Game, labels: int) -> tuple[Array, Array, Array]:
    """`sure`, `right` and `pool` of `models.forecast.carried_over`, from the first `labels` labels.

    The rest of a pool has the probabilities of the current head; a stream has no such head on the
    way, and those of the last quarter of its rounds take their place.
    """
    corpus, head = game.corpus, game.trainer.head
    if game.trainer.covering is not None and not linear_trainer(game).final:
        head = None  # that of a stream on its way lags behind the labels
    rounds = {row.item: row for row in game.ledger.rows(only=("round",))}
    learned = game.examples.bought[:labels]  # those that were owned have no choice
    bought = [(corpus.ids[row], label) for row, label, choice in learned if choice >= 0]
    pairs = [(rounds[name].decision(), label) for name, label in bought if name in rounds]
    sure = np.array([decision.probability for decision, _ in pairs])
    right = np.array([float(decision.choice == label) for decision, label in pairs])
    if head is not None:
        unbought = corpus.unbought([name for name, _ in bought])
        return sure, right, np.concatenate([sure, surest(head, game.examples.block, unbought)])
    last_round = max((decision.round for decision, _ in pairs), default=0)
    rounds_seen = [row for row in rounds.values() if (row.round or 0) <= last_round]
    latest = [row.decision().probability for row in rounds_seen[-max(25, len(rounds_seen) // 4) :]]
    return sure, right, np.array(latest)


@dataclass(slots=True, eq=False)
class Forecaster:
    """The forecast of a run as it is now, and the rule of `--stop-when`.

    It reads training labels, and nothing of the audit.
    """

    spec: RunSpec
    game: Game
    stopped: str = ""
    look: Look | None = None
    _estimated_at: int = -1
    _stages: int = -1
    _out_of_reach: bool = False

    def level(self, labels: int) -> Normal | None:
        """The logit of the accuracy at the first `labels`; None where nothing can be estimated."""
        growth = known_of(self.spec.settings, self.spec.dataset)
        if growth is None:
            return None
        sure, right, pool = evidence(self.game, labels)
        if len(sure) < FEWEST:
            return None
        return level_of(growth, carried_over(sure, right, pool), labels, options_of(self.spec))

    def facts(self, *, ended: bool) -> dict[str, Any]:
        """What `stacksl status` forecasts from: labels learned, level, share right before, sizes.

        Before the run has `ended` in steps of 25 labels, since a count after each answer would show
        which of them are of the audit.
        """
        labels = len(self.game.examples.bought)
        labels -= 0 if ended else labels % EVERY
        level, bought = self.level(labels), self.game.examples.bought[:labels]
        were_right = [label == choice for _, label, choice in bought if choice >= 0]
        right = sum(were_right) / len(were_right) if were_right else None
        facts = {"labels": labels, "level": level and asdict(level), "right": right}
        facts["chosen"] = len(were_right)
        counts = self.game.ledger.counts_by_kind()
        facts |= {"none": counts["none"], "answers": sum(counts.values())}
        most = self.spec.sources.available + len(self.spec.sources.owned)
        return {**facts, "options": options_of(self.spec), "most": most}

    def over_names(self, last_facts: dict[str, Any], *, ended: bool) -> dict[str, Any]:
        """Whether labels have improved on class names: at how many, and a sentence if not.

        Before the run has `ended` it is looked at in a pool, once in a hundred labels; `last_facts`
        are what this returned last.
        """
        settings, labels = self.spec.settings, len(self.game.examples.bought)
        labels -= 0 if ended else labels % COMPARED
        if settings.adapts or labels < COMPARED or not (ended or settings.mode == "pool"):
            return {}
        if last_facts.get("labels") == labels and not ended:
            return last_facts
        improvement = linear_trainer(self.game).over_names(labels)
        if improvement is None or improvement[0] >= improvement[1]:
            return {"labels": labels, "sentence": ""}
        way = "lower" if improvement[0] >= 0 else "higher"
        parts = labels, abs(improvement[0]), way, improvement[1]
        return {"labels": labels, "sentence": UNIMPROVED.format(*parts)}

    def enough(self) -> bool:
        """Whether buying stops or pauses by the rule of `--stop-when`."""
        match stop_rule(self.spec.settings.stop_when):
            case "accuracy", _, _:  # it is not estimated: buying pauses for its looks
                return look_due(self.spec, self.game.ledger.accounts)
            case "right", _, _:
                return self._looks_at_the_table()
            case "gain", least, labels:
                return self._gains_too_little(least, labels)
        return False

    def _looks_at_the_table(self) -> bool:
        """Whether buying pauses or ends for a look that is open, that is to be drawn, or for good.

        Computed again where a model was fitted.
        """
        stages = len(linear_trainer(self.game).stages)
        looked = looked_enough(self.spec, self.game.ledger)
        if stages != self._stages:
            out_of_reach = unreachable(self.spec, self.game) or unpayable(self.spec, self.game)
            self._stages, self._out_of_reach = stages, out_of_reach
            self.look = None if looked or out_of_reach else next_look(self.spec, self.game)
        return looked or self._out_of_reach or self.look is not None

    def _gains_too_little(self, least_gain: float, labels: int) -> bool:
        """Whether the next `labels` are estimated to gain less than `least_gain`.

        Computed again where a batch of a pool, or 25 labels of a stream, were learned; `stopped` is
        then the sentence of the report.
        """
        settings, learned = self.spec.settings, len(self.game.examples.bought)
        if settings.mode == "stream":
            learned -= learned % EVERY
        if learned == self._estimated_at:
            return bool(self.stopped)
        self._estimated_at, self.stopped = learned, ""
        growth, level = known_of(settings, self.spec.dataset), self.level(learned)
        if growth is None or level is None:
            return False
        forecast = gain(growth, level, learned, labels, options_of(self.spec))
        if forecast.value < least_gain:
            points = [f"{100 * x:.1f}" for x in (forecast.value, forecast.low, forecast.high)]
            self.stopped = (
                f"Buying stopped after {learned:,} training labels by stop_when"
                f" {settings.stop_when}: the next {labels:,} were estimated to gain {points[0]}"
                f" points of accuracy (90% interval {points[1]} to {points[2]}). This rests on how"
                " many of these the model had right before each was bought, and on the gain of"
                f" labels as it was measured on {growth.sources} public sets."
            )
        return bool(self.stopped)


def look_due(spec: RunSpec, accounts: Accounts) -> bool:
    """Whether nothing is bought: a look is due, or the last one showed the accuracy wanted.

    One is due where a quarter more was asked for, or the model is another without a further label.
    """
    if spec.settings.accuracy_mark is None:
        return False
    asked, looked_at, train = accounts.asked, accounts.looked_at, max(1, spec.terms.train)
    another_model = accounts.looks > 0 and accounts.reached is None and asked <= looked_at
    quarter = LOOKS * asked // train > LOOKS * looked_at // train
    return bool(accounts.reached) or another_model or quarter


def known_of(settings: Settings, data: Dataset) -> Growth | None:
    """What the scenarios say; None for language models and options of their own: there is none."""
    unknown = settings.adapts or data.classes is None or settings.column is not None
    return None if unknown else GROWTH


def expect_stop_rule(settings: Settings, sources: Sources, audit: int, further: int) -> None:
    """Check that a run can keep its stop rule, if any.

    Raises:
        SettingsError: it cannot, with an `audit` of so many items and labels for `further` answers.
    """
    (kind, mark, _), column = stop_rule(settings.stop_when), settings.column is not None
    if kind == "right":
        expect_promise(settings, owned=bool(sources.owned))
        if sources.pool.classes is None:
            raise SettingsError(
                "stop_when with right=R is for items that share their classes, and these have"
                " options of their own: give only a budget"
            )
    looks = kind == "accuracy"
    if looks and (settings.mode != "pool" or settings.adapts or not settings.refit or column):
        raise SettingsError(
            "stop_when with an accuracy refits the final model at each look, as a linear model of a"
            " pool is: give --mode pool without --model, refit=false or a column, or a budget"
        )
    if looks and audit < fewest_audited(mark):
        raise SettingsError(
            f"stop_when accuracy={mark:g} needs an audit of {fewest_audited(mark)} items even if"
            f" the model has all of them right, and this run has {audit}: start one with"
            " --audit N, three times as many or more"
        )
    if looks and settings.labeler == "file" and not further:
        raise SettingsError(
            "stop_when with an accuracy needs labels for second looks, and this run keeps none:"
            " leave out --no-second-look, or give `change` --budget B with it"
        )
    if kind == "time" and settings.labeler == "file":
        raise SettingsError(
            "stop_when with a time is for the file's own answers or a model's, since a run of"
            " people waits between commands: give a budget"
        )
    if kind == "gain" and known_of(settings, sources.pool) is None:
        raise SettingsError(
            "stop_when needs a forecast, which only runs have that train a linear model for fixed"
            " classes, and not those that judge a column of labels: give a budget"
        )


def fewest_audited(mark: float) -> int:
    """The rows of an audit that show an accuracy at the first look if all of them are right."""
    z = z_of_look(1)
    return ceil(z * z * mark / (1 - mark))


def rarely_shown(settings: Settings, audit: int) -> str:
    """A warning where an audit is too small to show the accuracy of the stop rule; else empty."""
    mark = settings.accuracy_mark
    if mark is None or audit >= (wanted := 3 * fewest_audited(mark)):
        return ""
    return (
        f"an audit of {audit} items rarely shows an accuracy of {mark:g}, even if the model is"
        f" several points better, and the run then buys all its labels: start one with --audit"
        f" {wanted} or more"
    )


def options_of(spec: RunSpec) -> int:
    """K: the classes, or the rounded mean number of options."""
    return round(float(np.mean([len(item.candidates) for item in spec.dataset.items])))
