"""What a compiled loop is told, what it carries from round to round, and what it writes down.

All three are named tuples of numbers and arrays, since those are what numba passes by value.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.game.drift import DriftGuard
from stacksl.game.gates import ADPO, LLF, LUCB, Avoided, Contested, Gate, Margin
from stacksl.game.inputs import Array
from stacksl.game.scorers import ScorerSettings

__all__ = [
    "ALL",
    "EMA",
    "LEARNT",
    "LITERAL_CLIP",
    "NEWTON",
    "NO_CLIP",
    "PREVIOUS",
    "RIDGE",
    "ROUNDS",
    "SGD",
    "THETA",
    "WINDOW",
    "Certificates",
    "Heads",
    "Memory",
    "Plan",
    "Space",
    "make_certificates",
    "make_heads",
    "make_memory",
    "make_plan",
    "make_space",
]

WINDOW = 200  # losses that sgd's clip level is a quantile of
SGD, RIDGE, NEWTON = 0, 1, 2
LABELLED, ALL, THETA = 0, 1, 2
FROZEN, EMA, PREVIOUS = 0, 1, 2
NO_CLIP, LITERAL_CLIP, SCALE_CLIP = 0, 1, 2
LEARNT, ROUNDS, CLIPPED, ASKED = 0, 1, 2, 3  # the places in Memory.counts


class Plan(NamedTuple):
    """The constants of one run: scorer, gate, clock, and which numbers are wanted.

    `gate` and the numbers after it are the gate's code and parameters; those of other gates are
    there too, at values that nobody reads.
    """

    scorer: int
    ridge: float
    delta: float
    noise: float
    norm_bound: float
    feature_norm: float
    learning_rate: float
    kl_target: float  # NaN: the weight stays
    reference: int
    ema_decay: float
    clip: int
    clip_level: float  # NaN: from the window
    clip_multiple: float  # NaN: the window's quantile; else so many times its median
    inner_steps: int
    track: int
    counting: int  # LEARNT or ROUNDS, the n of the radius
    ucb: bool  # the largest UCB is played in every round
    hopeful: bool  # the largest UCB is played in asked rounds
    gate: int
    exact_spend: bool
    literal: bool
    gate_scale: float
    pace: float
    adaptive: bool
    gate_width: float
    reserve: float
    floor: float
    level: float  # NaN: the level that keeps the pace
    tolerance: float
    bound_scale: float
    exponent: float  # NaN: the width that the budget can reach
    gate_dim: int
    gate_ridge: float
    gate_delta: float
    budget: int
    horizon: int
    kl_on_skips: bool
    width_scale: float
    certificates: bool
    present: int  # the candidates a follower shows; 0: all of them
    kl_weight: float  # at the start, and again after a reset
    guarded: bool  # the numbers below are a drift guard's
    alarm_level: float
    allowance: float
    surprise_cap: float
    leverage: float
    warm: float


class Memory(NamedTuple):
    """Everything that rounds change.

    `theta` is (d,) for pairs and (K, d) for classes; `reference` (sgd) and `moment` (ridge on
    pairs) are (d,); `kl_weight` (sgd) is (1,); `gram_inv` is (d, d), or (0, 0) where none is kept;
    `counts` holds labels learnt, rounds, losses clipped and labels asked; `losses` is the ring of
    the last losses and `ordered` the same sorted; `suspicion` is the drift guard's S, (1,).
    """

    theta: Array
    reference: Array
    kl_weight: Array
    moment: Array
    gram_inv: Array
    counts: NDArray[np.int64]
    gate_state: Array
    losses: Array
    ordered: Array
    suspicion: Array


class Space(NamedTuple):
    """Room for the numbers of one round of pairs: (m,), (m, d), (d,) and (m, m) arrays.

    `current[0]` says that `scores` are those of the present θ. Under a follower m candidates are
    shown: `everyone` has the (M,) scores of all, `shown` the (m,) indices and `rows` the (m, d)
    features of those shown.
    """

    scores: Array
    values: Array
    widths: Array
    pairs: Array
    policy: Array
    slope: Array
    anchor: Array
    powers: Array
    products: Array
    factors: Array
    spare: Array
    mean: Array
    direction: Array
    small: Array
    current: NDArray[np.bool_]
    everyone: Array
    shown: NDArray[np.int64]
    rows: Array


class Heads(NamedTuple):
    """Room for the numbers of one round of K classes: (K,) each, and the (d,) image of h."""

    scores: Array
    values: Array
    widths: Array
    pairs: Array
    image: Array


class Certificates(NamedTuple):
    """One entry a round, (T,) each; as the fields of the same names in `StreamResult`.

    `resets` says of each round whether the drift guard started over after it; `presented` is
    (T, 0) where all candidates are shown.
    """

    choices: NDArray[np.int64]
    asked: NDArray[np.bool_]
    statistics: Array
    thresholds: Array
    gate_scores: Array
    scores: Array
    reaches: Array
    resets: NDArray[np.bool_]
    presented: NDArray[np.int32]


def make_plan(
    scorer: str,
    settings: ScorerSettings,
    gate: Gate,
    *,
    dim: int,
    budget: int,
    horizon: int,
    kl_on_skips: bool,
    width_scale: float | None,
    certificates: bool,
    present: int | None = None,
    drift: DriftGuard | None = None,
) -> Plan:
    """The plan of a run, from the objects that a `Learner` would be made of; `dim` is d."""
    return Plan(
        scorer=("sgd", "ridge", "newton").index(scorer),
        ridge=float(settings.ridge),
        delta=float(settings.delta),
        noise=float(settings.noise),
        norm_bound=float(settings.norm_bound),
        feature_norm=float(settings.feature_norm),
        learning_rate=float(settings.learning_rate),
        kl_target=_or_nan(settings.kl_target),
        reference=("frozen", "ema", "previous").index(settings.reference),
        ema_decay=float(settings.ema_decay),
        clip=("none", "literal", "scale").index(settings.clip),
        clip_level=_or_nan(settings.clip_level),
        clip_multiple=_or_nan(settings.clip_multiple),
        inner_steps=int(settings.inner_steps),
        track=("labelled", "all", "theta").index(settings.track),
        counting=("learnt", "rounds").index(settings.radius_counts),
        ucb=settings.action == "ucb",
        hopeful=settings.action == "asked",
        gate=int(gate.code),
        exact_spend=bool(gate.exact_spend),
        **_gate_numbers(gate, dim),
        budget=int(budget),
        horizon=int(horizon),
        kl_on_skips=bool(kl_on_skips),
        width_scale=_alpha(width_scale, dim),
        certificates=bool(certificates),
        present=present or 0,
        kl_weight=float(settings.kl_weight),
        **_guard_numbers(drift),
    )


def _guard_numbers(drift: DriftGuard | None) -> dict[str, Any]:
    guard = drift or DriftGuard()
    return {
        "guarded": drift is not None,
        "alarm_level": float(guard.level),
        "allowance": float(guard.allowance),
        "surprise_cap": float(guard.cap),
        "leverage": float(guard.leverage),
        "warm": float(guard.warm),
    }


def _gate_numbers(gate: Gate, dim: int) -> dict[str, Any]:
    llf = gate if isinstance(gate, LLF) else LLF()
    margin = gate if isinstance(gate, Margin) else Margin()
    adpo = gate if isinstance(gate, ADPO) else ADPO()
    return {
        "literal": llf.literal,
        "gate_scale": float(llf.gate_scale),
        "pace": float(gate.pace if isinstance(gate, ADPO) else margin.pace),
        "adaptive": bool(margin.adaptive),
        "gate_width": _gate_width(gate, dim),
        "reserve": float(getattr(gate, "reserve", 1.0)),
        "floor": float(getattr(gate, "floor", 0.5)),
        "level": _or_nan(adpo.level),
        "tolerance": float(getattr(gate, "tolerance", 0.0)),
        "bound_scale": float(getattr(gate, "scale", 1.0)),
        "exponent": _or_nan(getattr(gate, "exponent", None)),
        "gate_dim": int(dim),
        "gate_ridge": float(getattr(gate, "ridge", 1.0)),
        "gate_delta": float(getattr(gate, "delta", 1.0)),
    }


def _gate_width(gate: Gate, dim: int) -> float:
    """The factor on the gate's widths (score units); NaN for the scorer's radius (`lucb`)."""
    if isinstance(gate, LUCB):
        return _or_nan(gate.width_scale)
    if isinstance(gate, Avoided):
        return float(gate.width_scale)
    return _alpha(gate.width_scale if isinstance(gate, Contested) else None, dim)


def _alpha(width_scale: float | None, dim: int) -> float:
    return math.sqrt(dim) if width_scale is None else float(width_scale)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def make_memory(
    plan: Plan, gate: Gate, settings: ScorerSettings, dim: int, classes: int | None
) -> Memory:
    """The memory before round 1: θ = 0 and V = ridge·I."""
    side = 0 if plan.track == THETA else dim
    return Memory(
        theta=np.zeros(dim if classes is None else (classes, dim)),
        reference=np.zeros(dim),
        kl_weight=np.array([float(settings.kl_weight)]),
        moment=np.zeros(dim),
        gram_inv=np.eye(side) / plan.ridge,
        counts=np.zeros(4, dtype=np.int64),
        gate_state=np.array(gate.start(), dtype=np.float64),
        losses=np.zeros(WINDOW),
        ordered=np.zeros(WINDOW),
        suspicion=np.zeros(1),
    )


def make_space(plan: Plan, candidates: int, dim: int) -> Space:
    """Room for rounds of so many candidates in `dim` dimensions, or of those a follower shows."""
    everyone, candidates = candidates, plan.present or candidates
    followed = candidates if plan.present else 0
    rows = candidates if plan.scorer == NEWTON else 0
    side = 0 if plan.scorer == SGD else candidates
    return Space(
        scores=np.zeros(candidates),
        values=np.zeros(candidates),
        widths=np.full(candidates, np.nan),  # what an unknown width reads
        pairs=np.full(candidates, np.nan),
        policy=np.zeros(candidates),
        slope=np.zeros(candidates),
        anchor=np.zeros(candidates),
        powers=np.zeros(candidates),
        products=np.zeros((candidates, dim)),
        factors=np.zeros((rows, dim)),
        spare=np.zeros((rows, dim)),
        mean=np.zeros(dim),
        direction=np.zeros(dim),
        small=np.zeros((side, side)),
        current=np.zeros(1, dtype=np.bool_),
        everyone=np.zeros(everyone if plan.present else 0),
        shown=np.zeros(followed, dtype=np.int64),
        rows=np.zeros((followed, dim)),
    )


def make_heads(classes: int, dim: int) -> Heads:
    """Room for rounds of so many classes in `dim` dimensions."""
    return Heads._make([*np.zeros((4, classes)), np.zeros(dim)])


def make_certificates(rounds: int, present: int = 0) -> Certificates:
    """Certificates of so many rounds, all numbers NaN."""
    return Certificates._make(
        [
            np.zeros(rounds, dtype=np.int64),
            np.zeros(rounds, dtype=np.bool_),
            *np.full((5, rounds), np.nan),
            np.zeros(rounds, dtype=np.bool_),
            np.zeros((rounds, present), dtype=np.int32),
        ]
    )
