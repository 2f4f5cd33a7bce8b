"""The arrays of a compiled loop: its state, its buffers for one round, the certificates it writes.

Named tuples of arrays, since those are what numba passes by value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.calibration import WINDOW
from stacksl.core.gates.registry import Gate
from stacksl_lab.baselines.gates import Width
from stacksl_lab.baselines.registry import CODES
from stacksl_lab.engines.plan import NEWTON, SGD, Plan

LEARNED, ROUNDS, CLIPPED, ASKED = 0, 1, 2, 3  # the places in Memory.counts


class Memory(NamedTuple):
    """Everything that rounds change.

    `theta` is (d,) for pairs and (K, d) for classes; `reference` (sgd) and `moment` (ridge on
    pairs) are (d,); `kl_weight` (sgd) is (1,); `gram_inv` is (d, d);
    `counts` holds labels learned, rounds, losses clipped and labels asked; `losses` is the ring of
    the last losses and `ordered` the same sorted; `suspicion` is the drift guard's S, (1,), and
    `volume` log det(V/λI), (1,).
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
    volume: Array


class Space(NamedTuple):
    """Buffers of one round of pairs: (m,), (m, d), (d,) and (m, m) arrays.

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
    """Buffers of one round of K classes: (K,) each, and the (d,) image of h."""

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


def make_memory(plan: Plan, gate: Gate, classes: int | None) -> Memory:
    """The memory before round 1: θ = 0 and V = ridge·I."""
    dim = plan.dim
    return Memory(
        theta=np.zeros(dim if classes is None else (classes, dim)),
        reference=np.zeros(dim),
        kl_weight=np.array([plan.kl_weight]),
        moment=np.zeros(dim),
        gram_inv=np.eye(dim) / plan.ridge,
        counts=np.zeros(4, dtype=np.int64),
        gate_state=np.array(gate.start(), dtype=np.float64),
        losses=np.zeros(WINDOW),
        ordered=np.zeros(WINDOW),
        suspicion=np.zeros(1),
        volume=np.zeros(1),
    )


def make_space(plan: Plan, candidates: int) -> Space:
    """Buffers for rounds of so many candidates, or of those of them that a follower shows."""
    dim = plan.dim
    everyone, candidates = candidates, plan.present or candidates
    followed = candidates if plan.present else 0
    rows = candidates if plan.scorer == NEWTON else 0
    side = 0 if plan.scorer == SGD and plan.gate != CODES[Width] else candidates
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
    """Buffers for rounds of so many classes in `dim` dimensions."""
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
