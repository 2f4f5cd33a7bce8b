"""Runs over synthetic streams under a gate, and their regret."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stacksl.core import Gate
from stacksl.core.blocks import Array
from stacksl.core.confidence import radius
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.engines import StreamResult, run_stream
from stacksl_lab.gradient import StudySettings
from stacksl_lab.synthetic.streams import SyntheticStream


def play(
    stream: SyntheticStream,
    gate: Gate | Mapping[str, Any],
    budget: int,
    *,
    scorer: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> StreamResult:
    """The stream under a gate: ridge on rewards, newton on labels by default.

    The scorer is given σ and S = `norm_bound`. `gate` may be a mapping with its `name` and its
    parameters; `settings` are the scorer's, with `asked` as a third action, which is `greedy` with
    `asks_ucb`; `options` are those of `run_stream`.
    """
    if isinstance(gate, Mapping):
        gate = make_gate(**gate)
    known = {"noise": stream.noise, "norm_bound": stream.norm_bound, **(settings or {})}
    if known.get("action") == "asked":
        known, options = {**known, "action": "greedy"}, {**options, "asks_ucb": True}
    return run_stream(
        scorer or ("newton" if stream.rewards is None else "ridge"),
        stream.features,
        gate=gate,
        budget=budget,
        settings=StudySettings(**known),
        seed=seed,
        **{"certificates": False, **_feedback(stream), **options},
    )


def _feedback(stream: SyntheticStream) -> dict[str, Any]:
    """The feedback and the follower, as arguments of `run_stream`."""
    follows = stream.present < stream.features.shape[1]
    present = {"present": stream.present} if follows else {}
    if stream.rewards is not None:
        return {"rewards": stream.rewards, **present}
    return {"utilities": stream.utilities, **present} if follows else {"labels": stream.labels}


def regrets(stream: SyntheticStream, played: StreamResult) -> Array:
    """Of each round, (T,): the best presented candidate's true score less the choice's."""
    rounds = np.arange(stream.horizon)
    shown = stream.values
    if played.presented is not None:
        shown = np.take_along_axis(stream.values, played.presented, axis=1)
    gap: Array = shown.max(axis=1) - stream.values[rounds, played.choices]
    return gap


def outcome(stream: SyntheticStream, played: StreamResult) -> dict[str, float | None]:
    """Regret a round on the way and of the last estimate, and the share of labels asked."""
    return {
        "regret_per_round": float(regrets(stream, played).mean()),
        "final_regret": final_regret(stream, played.theta),
        "asked_fraction": float(played.asked.mean()),
    }


def final_regret(stream: SyntheticStream, theta: Array) -> float:
    """Mean regret of choosing by `theta`, (d,), in the test rounds, where nothing is learned.

    A follower shows the best under `theta`, so that the best of those shown is what it loses to.
    """
    scores = stream.test_features @ theta
    rounds = np.arange(len(scores))
    choices = scores.argmax(axis=1)
    values = stream.test_values
    if stream.present < scores.shape[1]:
        shown = np.argpartition(-scores, stream.present - 1, axis=1)[:, : stream.present]
        values = np.take_along_axis(values, shown, axis=1)
    return float((values.max(axis=1) - stream.test_values[rounds, choices]).mean())


def first_spread(stream: SyntheticStream, ridge: float = 1.0) -> float:
    """Δ₁ = 2β₀/√λ: at θ = 0 and V = λI every score is 0 and every width of a unit row 1/√λ."""
    dim = stream.features.shape[2]
    first = radius(stream.noise, dim, 0, ridge, 0.05, stream.norm_bound)
    return 2.0 * first / math.sqrt(ridge)
