"""The engine `loop`: a `StudyLearner` over an array stream, round by round."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from stacksl.core.blocks import Array, Inputs, PairFeatures, SharedFeatures
from stacksl.core.learner import presented
from stacksl.core.scorers import Bounds, Scorer
from stacksl.types import Decision, Label
from stacksl_lab.baselines.statistics import contested_statistic
from stacksl_lab.drift import gram_inv_of
from stacksl_lab.engines.arrays import Mark, Stream, StreamResult, expect_finite
from stacksl_lab.engines.plan import Terms, by_widths
from stacksl_lab.gradient import make_study_scorer
from stacksl_lab.learner import StudyLearner
from stacksl_lab.rewards import Feedback, Reward, RewardRidge


def play(stream: Stream, terms: Terms) -> StreamResult:
    """The stream played by a `StudyLearner`; certificates are taken and left out at the end."""
    learner = _learner(stream, terms)
    decisions: list[Decision] = []
    certified: list[tuple[float, float]] = []
    marks: list[Mark] = []
    resets: list[int] = []
    asked = 0
    for start, stop, rows in stream.chunks(terms.marks):
        for t, row in enumerate(rows, start):
            if not np.isfinite(row).all():
                expect_finite(rows, t, start)
            before = learner.resets
            decision, numbers = _round(learner, stream, row, t, asked, terms)
            decisions.append(decision)
            certified.append(numbers)
            asked += decisions[-1].asked
            if learner.resets > before:
                resets.append(t + 1)
        if stop in terms.marks:
            marks.append(_mark(stop, learner.scorer))
    return _result(learner, decisions, np.array(certified), terms, tuple(marks), resets)


def _inputs(stream: Stream, row: Array) -> Inputs:
    """The features of one round, from its float64 row of `Stream.features`."""
    return PairFeatures(row) if stream.classes is None else SharedFeatures(row, stream.classes)


def _learner(stream: Stream, terms: Terms) -> StudyLearner:
    """The learner of these terms, before round 1."""
    kind: dict[str, Any] = {"dim": stream.dim, "settings": terms.settings}
    scorer = (
        RewardRidge(**kind)
        if len(stream.rewards)
        else make_study_scorer(terms.scorer, classes=stream.classes, **kind)
    )
    return StudyLearner(
        scorer,
        terms.gate,
        budget=terms.budget,
        horizon=stream.rounds,
        seed=terms.seed,
        top_k=None if terms.present is None else terms.present - 1,
        kl_on_skips=terms.kl_on_skips,
        asks_ucb=terms.asks_ucb,
        drift=terms.drift,
    )


def _round(
    learner: StudyLearner, stream: Stream, row: Array, t: int, asked: int, terms: Terms
) -> tuple[Decision, tuple[float, float]]:
    """The decision of round t + 1, with the gate score and the reach of its choice."""
    inputs = _inputs(stream, row)
    shown = presented([inputs], learner.scorer, learner.top_k)
    view = learner.scorer.bounds(inputs, shown[0])
    decision = learner.decide([str(t)], [inputs], shown, asked=asked)[0]
    if decision.status == "wanted":
        decision = decision.reserved()
    learner.adopt([decision], [inputs])
    if decision.asked:
        _learn(learner, stream, row, t, decision)
    return decision, _certificate(view, decision, terms)


def _certificate(view: Bounds, decision: Decision, terms: Terms) -> tuple[float, float]:
    """The statistic of `contested` at the action of the view, and the reach of what was played."""
    if not terms.certificates:
        return math.nan, math.nan
    alpha = math.sqrt(view.dim) if terms.width_scale is None else terms.width_scale
    played = view.presented.index(decision.choice)
    gate_score = contested_statistic(view.scores, view.pair_widths, view.choice, alpha)
    return gate_score, view.radius * float(view.widths[played])


def _learn(learner: StudyLearner, stream: Stream, row: Array, t: int, decision: Decision) -> None:
    """Learn what the purchase in round t + 1 brings.

    The labels of `utilities` are choices among the presented: the item has no other candidates.
    """
    shown = list(decision.presented)
    if len(stream.rewards):
        feedback: Feedback = Reward(float(stream.rewards[t, decision.choice]))
    elif len(stream.labels):
        feedback = Label(int(stream.labels[t]))
    else:
        feedback = Label(int(np.argmax(stream.utilities[t, shown])))
        if len(shown) < stream.candidates:
            every = tuple(range(len(shown)))
            decision = replace(decision, presented=every, choice=shown.index(decision.choice))
            row = row[shown]
    learner.learn(decision, _inputs(stream, row), feedback)


def _mark(round_: int, scorer: Scorer) -> Mark:
    state = scorer.state()
    return Mark(round_, state["theta"], gram_inv_of(state), scorer.learned)


def _result(
    learner: StudyLearner,
    decisions: list[Decision],
    certified: Array,
    terms: Terms,
    marks: tuple[Mark, ...],
    resets: list[int],
) -> StreamResult:
    def column(name: str) -> Array:
        return np.array([getattr(decision, name) for decision in decisions], dtype=np.float64)

    scores, statistics, thresholds = column("score"), column("statistic"), column("threshold")
    gate_scores, reaches = certified.reshape(-1, 2).T.copy()
    if not terms.certificates:
        spent = np.array([decision.reason == "spent" for decision in decisions])
        if by_widths(terms.gate):
            statistics[spent] = math.nan
            if terms.gate.name != "llf":
                thresholds[spent] = math.nan
    state = learner.scorer.state()
    shown = [decision.presented for decision in decisions]
    return StreamResult(
        choices=np.array([decision.choice for decision in decisions], dtype=np.int64),
        asked=np.array([decision.asked for decision in decisions], dtype=np.bool_),
        statistics=statistics,
        thresholds=thresholds,
        gate_scores=gate_scores,
        scores=scores,
        reaches=reaches,
        theta=state["theta"],
        gram_inv=gram_inv_of(state),
        learned=learner.scorer.learned,
        clipped=int(getattr(learner.scorer, "clipped", 0)),
        engine="loop",
        marks=marks,
        presented=None if terms.present is None else np.array(shown, dtype=np.int32),
        resets=np.array(resets, dtype=np.int64),
    )
