"""The engine `loop`: a `Learner` over an array stream, round by round."""

from __future__ import annotations

import math

import numpy as np

from stacksl.game.engines.streams import Stream, StreamResult, expect_finite
from stacksl.game.followers import Given
from stacksl.game.gates import Gate
from stacksl.game.inputs import Array, Inputs, PairFeatures, SharedFeatures
from stacksl.game.learner import Learner
from stacksl.game.scorers import ScorerSettings, make_scorer
from stacksl.items import Decision, Feedback, Label, Reward

__all__ = ["play"]


def play(
    scorer: str,
    stream: Stream,
    settings: ScorerSettings,
    gate: Gate,
    seed: int,
    kl_on_skips: bool,
    width_scale: float | None,
    budget: int,
    certificates: bool,
) -> StreamResult:
    """The stream played by a `Learner`; certificates are taken and left out at the end."""
    learner = Learner(
        make_scorer(scorer, dim=stream.dim, classes=stream.classes, settings=settings, seed=seed),
        gate,
        budget=budget,
        horizon=stream.rounds,
        seed=seed,
        kl_on_skips=kl_on_skips,
        width_scale=width_scale,
    )
    decisions: list[Decision] = []
    for start, _, rows in stream.chunks():
        for offset, row in enumerate(rows):
            if not np.isfinite(row).all():
                expect_finite(rows, start + offset, start)
            decisions.append(_round(learner, stream, row, start + offset))
    return _result(learner, decisions, gate, certificates)


def _round(learner: Learner, stream: Stream, row: Array, t: int) -> Decision:
    inputs: Inputs = (
        PairFeatures(row) if stream.classes is None else SharedFeatures(row, stream.classes)
    )
    presented = Given().respond([inputs], learner.scorer)
    decision = learner.decide([str(t)], [inputs], presented, asked=learner.scorer.learnt)[0]
    if decision.status == "wanted":
        decision = decision.reserved()
    learner.adopt([decision], [inputs])
    if decision.asked:
        learner.learn(decision, inputs, _feedback(stream, t, decision.choice))
    return decision


def _feedback(stream: Stream, t: int, choice: int) -> Feedback:
    if len(stream.labels):
        return Label(int(stream.labels[t]))
    return Reward(float(stream.rewards[t, choice]))


def _result(
    learner: Learner, decisions: list[Decision], gate: Gate, certificates: bool
) -> StreamResult:
    def column(name: str) -> Array:
        return np.array([getattr(decision, name) for decision in decisions], dtype=np.float64)

    scores, statistics, thresholds = column("score"), column("statistic"), column("threshold")
    gate_scores, reaches = column("gate_score"), column("upper") - scores
    if not certificates:
        gate_scores[:] = reaches[:] = math.nan
        spent = np.array([decision.reason == "spent" for decision in decisions])
        if gate.name in ("llf", "contested", "adpo"):
            statistics[spent] = math.nan
        if gate.name in ("contested", "adpo"):
            thresholds[spent] = math.nan
    state = learner.scorer.state()
    return StreamResult(
        np.array([decision.choice for decision in decisions], dtype=np.int64),
        np.array([decision.asked for decision in decisions], dtype=np.bool_),
        statistics,
        thresholds,
        gate_scores,
        scores,
        reaches,
        state["theta"],
        state.get("gram_inv"),
        learner.scorer.learnt,
        int(getattr(learner.scorer, "clipped", 0)),
        "loop",
    )
