"""From settings to the learner of a run: its scorer and its gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from stacksl.core.blocks import Block, PairBlock, SharedBlock
from stacksl.core.calibration import (
    calibrate_gate_scale,
    warmup_length,
    warmup_spreads,
)
from stacksl.core.gates.registry import GATES, Gate, Margin, gate_type, make_gate
from stacksl.core.gates.rules import margin_statistic
from stacksl.core.learner import Learner, presented
from stacksl.core.scorers import Scorer, ScorerSettings, make_scorer
from stacksl.errors import unknown_name
from stacksl.runs.settings.fields import CalibratedGate, Settings
from stacksl.types import copied


def default_scorer(classes: int | None) -> str:
    """The scorer where none is named: ridge for a fixed label set, newton for pairs (D5)."""
    return "newton" if classes is None else "ridge"


def scorer_settings(settings: Settings) -> ScorerSettings:
    """The part of the settings that fixes the scorer."""
    values = settings.scorer.model_dump(exclude={"name"})
    return copied(ScorerSettings, settings.update, track=values.pop("covariance_rows"), **values)


def fresh_scorer(settings: Settings, block: Block) -> Scorer:
    """The scorer that the settings name, in its initial state.

    Raises:
        SettingsError: no such scorer.
    """
    classes = block.classes if isinstance(block, SharedBlock) else None
    name = settings.scorer.name or default_scorer(classes)  # a language model's block has pairs
    return make_scorer(name, dim=block.dim, classes=classes, settings=scorer_settings(settings))


def build_learner(settings: Settings, block: Block, order: Sequence[int], budget: int) -> Learner:
    """A learner before round 1.

    The `order` has rows of the `block` in the order of the rounds; the `budget` is to train on.

    Raises:
        SettingsError: the gate `llf` could not open at any c.
        SettingsError: a gate or a scorer that does not exist or does not fit.
    """
    scorer = fresh_scorer(settings, block)
    learner = Learner(
        scorer,
        _gate(settings, scorer, block, order),
        budget=budget,
        horizon=len(order),
        seed=settings.seed,
        top_k=settings.top_k,
        kl_on_skips=settings.update.kl_on_skips,
    )
    prime(learner, block, order, budget)
    return learner


def prime(learner: Learner, block: Block, coming_rows: Sequence[int], labels_left: int) -> None:
    """Set the threshold of `margin` from the items to come, where scores precede the first label.

    A language model has such scores. A threshold initialized by the first item alone takes some
    hundred rounds to converge, and the labels of those rounds are chosen poorly.
    """
    gate = learner.gate
    if not (isinstance(gate, Margin) and isinstance(block, PairBlock) and len(coming_rows)):
        return
    if block.base is not None:
        scores = (learner.scorer.scores(block[row]) for row in coming_rows)
        statistics = np.array([*map(margin_statistic, scores)])
        learner.gate_state = gate.primed(statistics, labels_left / len(coming_rows))


def _gate(settings: Settings, scorer: Scorer, block: Block, order: Sequence[int]) -> Gate:
    kind = gate_type(settings.gate.name)
    if kind is None:
        raise unknown_name("gate", settings.gate.name, GATES)
    one_hot = scorer.name == "ridge" and isinstance(block, SharedBlock)
    suited = getattr(kind, "suited", None)  # defaults that depend on the run, if the gate has any
    parameters: dict[str, Any] = (
        suited(dim=block.dim, noise=settings.scorer.noise, one_hot=one_hot) if suited else {}
    )
    gate_settings = settings.gate
    for field in fields(kind):
        if field.name == "pending":  # labels open when another is bought; `oracle` answers at once
            open_labels = 0 if settings.labeler == "oracle" else settings.open_questions - 1
            parameters["pending"] = open_labels
        if (value := getattr(gate_settings, field.name, None)) is not None:
            parameters[field.name] = value
    if isinstance(gate_settings, CalibratedGate) and "gate_scale" not in parameters:
        # c by the median rule over the first items of the order, at the starting θ (D16)
        inputs = [block[r] for r in order[: gate_settings.warmup or warmup_length(len(order))]]
        spreads = warmup_spreads(scorer, inputs, presented(inputs, scorer, settings.top_k))
        parameters["gate_scale"] = calibrate_gate_scale(spreads, gate_settings.kappa)
    return make_gate(kind.name, **parameters)
