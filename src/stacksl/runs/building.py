"""From settings to players: the scorer, the gate, the follower and the learner of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from stacksl.game.calibration import (
    calibrate_gate_scale,
    gate_scale_warning,
    warmup_length,
    warmup_spreads,
)
from stacksl.game.followers import Follower, make_follower
from stacksl.game.gates import GATES, ONE_HOT_PACE, Gate, Margin, make_gate, require_ranking
from stacksl.game.inputs import Block, PairBlock, SharedBlock
from stacksl.game.learner import Learner
from stacksl.game.rules import margin_statistic
from stacksl.game.scorers import Scorer, ScorerSettings, make_scorer
from stacksl.runs.settings import Settings

__all__ = [
    "Players",
    "assemble",
    "default_scorer",
    "fresh_scorer",
    "prime",
    "scorer_settings",
]


@dataclass(frozen=True, slots=True, eq=False)
class Players:
    """A learner with its follower, and the sentences that calibration has for the user."""

    learner: Learner
    follower: Follower
    warnings: tuple[str, ...]


def default_scorer(classes: int | None) -> str:
    """The scorer where none is named: ridge for a fixed label set, newton for pairs (D5)."""
    return "newton" if classes is None else "ridge"


def scorer_settings(settings: Settings) -> ScorerSettings:
    """The part of the settings that fixes the scorer."""
    return ScorerSettings(
        ridge=settings.ridge,
        delta=settings.delta,
        noise=settings.noise,
        norm_bound=settings.norm_bound,
        learning_rate=settings.learning_rate,
        kl_weight=settings.kl_weight,
        kl_target=settings.kl_target,
        reference=settings.reference,
        ema_decay=settings.ema_decay,
        clip=settings.clip,
        clip_level=settings.clip_level,
        clip_multiple=settings.clip_multiple,
        inner_steps=settings.inner_steps,
        track=settings.track,
        radius_counts=settings.radius_counts,
        action=settings.action,
    )


def fresh_scorer(settings: Settings, block: Block) -> Scorer:
    """The scorer of the settings, which has learnt nothing."""
    classes = block.classes if isinstance(block, SharedBlock) else None
    return make_scorer(
        settings.scorer or default_scorer(classes),  # a language model's block has pairs
        dim=block.dim,
        classes=classes,
        settings=scorer_settings(settings),
        seed=settings.seed,
    )


def assemble(settings: Settings, block: Block, order: Sequence[int], budget: int) -> Players:
    """The players of a run over the items of `block`, seen in `order`, with `budget` labels.

    Raises:
        GateNeverOpens: the gate `llf` could not open at any c.
        SettingsError: a gate, scorer or follower that does not exist or does not fit.
    """
    scorer = fresh_scorer(settings, block)
    follower = make_follower(settings.follower, settings.k)
    gate, warnings = _gate(settings, scorer, follower, block, order)
    if settings.mode == "pool":
        require_ranking(gate)
    learner = Learner(
        scorer,
        gate,
        budget=budget,
        horizon=len(order),
        seed=settings.seed,
        follower=follower,
        kl_on_skips=settings.kl_on_skips,
        width_scale=width_scale(settings, block.dim),
    )
    prime(learner, block, order, budget)
    return Players(learner, follower, tuple(warnings))


def prime(learner: Learner, block: Block, rest: Sequence[int], left: int) -> None:
    """Set the threshold of `margin` by the items to come, where scores are known before labels.

    A language model's are, and a threshold that is left to the first item takes some hundred rounds
    to reach its place, in which labels are bought blindly.

    Args:
        learner: its gate's state is set.
        block: the features of all items.
        rest: the rows of the rounds to come.
        left: labels that can still be bought.
    """
    gate = learner.gate
    if not (isinstance(gate, Margin) and isinstance(block, PairBlock) and len(rest)):
        return
    if block.base is not None:
        scores = (learner.scorer.scores(block[row]) for row in rest)
        statistics = np.array([margin_statistic(each) for each in scores])
        learner.gate_state = gate.primed(statistics, left / len(rest))


def width_scale(settings: Settings, dim: int) -> float:
    """α of `contested` and of the gate score: as given, else σ√d (D8)."""
    return settings.width_scale or settings.noise * math.sqrt(dim)


def _gate(
    settings: Settings,
    scorer: Scorer,
    follower: Follower,
    block: Block,
    order: Sequence[int],
) -> tuple[Gate, list[str]]:
    if settings.gate == "llf":
        scale, warnings = _gate_scale(settings, scorer, follower, block, order)
        return make_gate("llf", gate_scale=scale, reading=settings.reading), warnings
    return make_gate(settings.gate, **_parameters(settings, scorer, block)), []


def _parameters(settings: Settings, scorer: Scorer, block: Block) -> dict[str, Any]:
    if settings.gate == "margin":
        one_hot = scorer.name == "ridge" and isinstance(block, SharedBlock)
        parameters = dict(ONE_HOT_PACE) if one_hot else {"pace": 0.03, "adaptive": True}
        return parameters | ({} if settings.pace is None else {"pace": settings.pace})
    known = {field.name for field in fields(GATES[settings.gate])}
    # What a gate and the scorer both speak of (ridge, delta) is one number.
    shared = [n for n in ("ridge", "delta", "reserve", "floor") if n in known]
    found: dict[str, Any] = {
        n: value for n in shared if (value := getattr(settings, n)) is not None
    }
    if settings.gate == "contested":
        found["width_scale"] = width_scale(settings, block.dim)
    elif settings.gate == "avoided":  # the posterior's own deviation
        found["width_scale"] = settings.width_scale or settings.noise
    return found


def _gate_scale(
    settings: Settings,
    scorer: Scorer,
    follower: Follower,
    block: Block,
    order: Sequence[int],
) -> tuple[float, list[str]]:
    """C by the median rule over the first items of the order, at the starting θ (D16)."""
    inputs = [block[r] for r in order[: settings.warmup or warmup_length(len(order))]]
    spreads = warmup_spreads(scorer, inputs, follower.respond(inputs, scorer))
    if settings.gate_scale is None:
        return calibrate_gate_scale(spreads, settings.kappa, cap=settings.gate_cap).value, []
    warning = gate_scale_warning(settings.gate_scale, spreads)
    return settings.gate_scale, [] if warning is None else [warning]
