"""What a compiled loop is told, what it carries from round to round, and what it writes down.

All three are named tuples of numbers and arrays, since those are what numba passes by value.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.game.gates import ADPO, LLF, Contested, Gate, Margin
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
    budget: int
    horizon: int
    kl_on_skips: bool
    width_scale: float
    certificates: bool


class Memory(NamedTuple):
    """Everything that rounds change.

    `theta` is (d,) for pairs and (K, d) for classes; `reference` (sgd) and `moment` (ridge on
    pairs) are (d,); `kl_weight` (sgd) is (1,); `gram_inv` is (d, d), or (0, 0) where none is kept;
    `counts` holds labels learnt, rounds, losses clipped and labels asked; `losses` is the ring of
    the last losses and `ordered` the same sorted.
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


class Space(NamedTuple):
    """Room for the numbers of one round of pairs: (m,), (m, d), (d,) and (m, m) arrays.

    `current[0]` says that `scores` are those of the present θ.
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


class Heads(NamedTuple):
    """Room for the numbers of one round of K classes: (K,) each, and the (d,) image of h."""

    scores: Array
    values: Array
    widths: Array
    pairs: Array
    image: Array


class Certificates(NamedTuple):
    """One entry a round, (T,) each; as the fields of the same names in `StreamResult`."""

    choices: NDArray[np.int64]
    asked: NDArray[np.bool_]
    statistics: Array
    thresholds: Array
    gate_scores: Array
    scores: Array
    reaches: Array


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
    )


def _gate_numbers(gate: Gate, dim: int) -> dict[str, Any]:
    llf = gate if isinstance(gate, LLF) else LLF()
    margin = gate if isinstance(gate, Margin) else Margin()
    contested = gate if isinstance(gate, Contested) else Contested()
    adpo = gate if isinstance(gate, ADPO) else ADPO()
    return {
        "literal": llf.literal,
        "gate_scale": float(llf.gate_scale),
        "pace": float(gate.pace if isinstance(gate, ADPO) else margin.pace),
        "adaptive": bool(margin.adaptive),
        "gate_width": _alpha(contested.width_scale, dim),
        "reserve": float(contested.reserve),
        "floor": float(contested.floor),
        "level": _or_nan(adpo.level),
    }


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
    )


def make_space(plan: Plan, candidates: int, dim: int) -> Space:
    """Room for rounds of so many candidates in `dim` dimensions."""
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
    )


def make_heads(classes: int, dim: int) -> Heads:
    """Room for rounds of so many classes in `dim` dimensions."""
    return Heads._make([*np.zeros((4, classes)), np.zeros(dim)])


def make_certificates(rounds: int) -> Certificates:
    """Certificates of so many rounds, all numbers NaN."""
    return Certificates(
        np.zeros(rounds, dtype=np.int64),
        np.zeros(rounds, dtype=np.bool_),
        *(np.full(rounds, np.nan) for _ in range(5)),
    )
