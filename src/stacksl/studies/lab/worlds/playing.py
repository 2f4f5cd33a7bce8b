"""One line on one world: the stream played, and its regret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stacksl.game import Gate, ScorerSettings, make_gate
from stacksl.game.engines import StreamResult, run_stream
from stacksl.game.inputs import Array
from stacksl.studies.lab.worlds.streams import World


def play(
    world: World,
    gate: Gate | Mapping[str, Any],
    budget: int,
    *,
    scorer: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> StreamResult:
    """The stream of `world` under a gate: ridge on rewards, newton on labels unless told otherwise.

    The scorer knows σ and S = `World.norm_bound`. `gate` may be a mapping with its `name` and its
    parameters; `settings` are the scorer's, `options` those of `run_stream`.
    """
    if isinstance(gate, Mapping):
        gate = make_gate(**gate)
    known = {"noise": world.noise, "norm_bound": world.norm_bound, **(settings or {})}
    return run_stream(
        scorer or ("newton" if world.rewards is None else "ridge"),
        world.features,
        gate=gate,
        budget=budget,
        settings=ScorerSettings(**known),
        seed=seed,
        **{"certificates": False, **_feedback(world), **options},
    )


def _feedback(world: World) -> dict[str, Any]:
    """What `run_stream` is to know of the answers, and of who presents the candidates."""
    follows = world.present < world.features.shape[1]
    present = {"present": world.present} if follows else {}
    if world.rewards is not None:
        return {"rewards": world.rewards, **present}
    return {"utilities": world.utilities, **present} if follows else {"labels": world.labels}


def regrets(world: World, played: StreamResult) -> Array:
    """Of each round, (T,): the best presented candidate's true score less the choice's."""
    rounds = np.arange(world.horizon)
    shown = world.values
    if played.presented is not None:
        shown = np.take_along_axis(world.values, played.presented, axis=1)
    gap: Array = shown.max(axis=1) - world.values[rounds, played.choices]
    return gap


def outcome(world: World, played: StreamResult) -> dict[str, float | None]:
    """Regret a round on the way and of the last estimate, and the share of labels asked."""
    return {
        "regret_per_round": float(regrets(world, played).mean()),
        "final_regret": final_regret(world, played.theta),
        "asked_fraction": float(played.asked.mean()),
    }


def final_regret(world: World, theta: Array) -> float:
    """Mean regret of choosing by `theta`, (d,), in the test rounds, where nothing is learnt.

    A follower shows the best under `theta`, so that the best of those shown is what it loses to.
    """
    scores = world.test_features @ theta
    rounds = np.arange(len(scores))
    choices = scores.argmax(axis=1)
    values = world.test_values
    if world.present < scores.shape[1]:
        shown = np.argpartition(-scores, world.present - 1, axis=1)[:, : world.present]
        values = np.take_along_axis(values, shown, axis=1)
    return float((values.max(axis=1) - world.test_values[rounds, choices]).mean())
