"""Synthetic streams whose truth is known: the data of every study of the laboratory.

φ(z, x) is uniform on the unit sphere of R^d, fresh each round, and the true score of a candidate is
θ*ᵀφ. Under `scalar` feedback a reward of the played candidate comes back, the score plus
noise·N(0, 1), with θ* ~ N(0, I); under `softmax` a label drawn from the softmax of the scores,
with θ* ~ 2·N(0, I), so that scores have a standard deviation of 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl.errors import unknown_name

Feedback = Literal["scalar", "softmax"]
Kind = Literal["iid", "follower", "near-tie", "rare", "shift-2", "shift-4", "concept"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""`iid`; `follower`: of three to four times as many candidates the best under the present θ are
shown; `near-tie`: in half of the rounds the scores of all candidates are within some .05; `rare`:
3% of the rounds have ten dimensions that no other round has; `shift-2`, `shift-4`: each half
(quarter) of the rounds has dimensions of its own; `concept`: a new θ* from the second half on."""

TESTS = 2000
RARE = 0.03
NEAR = 0.0125  # of a candidate's own direction in a near tie: scores are then within some .05


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticStream:
    """T rounds of M candidates, and test rounds that follow the same law.

    Attributes:
        features: φ, (T, M, d).
        values: true scores, (T, M).
        rewards: (T, M) what each candidate would pay; None under labels.
        utilities: (T, M) true scores with Gumbel noise, whose argmax is a softmax label; None
            under rewards.
        truth: θ* of the last round, (d,).
        noise: σ of the feedback; 1 for labels.
        present: how many candidates are shown, M but for the follower.
        test_features, test_values: (n, M, d) and (n, M), drawn from all rounds' law (with the last
            θ* where it moves).
        truth_before: θ* of the first round, (d,), where it moves; else None.
    """

    features: Array
    values: Array
    rewards: Array | None
    utilities: Array | None
    truth: Array
    noise: float
    present: int
    test_features: Array
    test_values: Array
    truth_before: Array | None = None

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.features)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The softmax labels among all candidates, (T,).

        Raises:
            AssertionError: feedback is scalar.
        """
        assert self.utilities is not None
        best: NDArray[np.int64] = self.utilities.argmax(axis=1)
        return best

    @property
    def norm_bound(self) -> float:
        """S = max ‖θ*‖ over the rounds, which holds before and after θ* moves."""
        truths = [self.truth] if self.truth_before is None else [self.truth, self.truth_before]
        return max(float(np.linalg.norm(truth)) for truth in truths)


def make_stream(
    kind: Kind,
    feedback: Feedback,
    seed: int,
    *,
    rounds: int = 20_000,
    dim: int = 20,
    candidates: int | None = None,
    noise: float = 0.3,
    purpose: str = "lab",
) -> SyntheticStream:
    """The stream of `kind` under `seed`; `candidates` are shown (20 under rewards, 5 of labels).

    Raises:
        SettingsError: no such kind or feedback.
    """
    shown, pool = _sizes(kind, feedback, candidates)
    rng = generator(seed, f"{purpose}/{kind}/{feedback}", rounds, dim, pool)
    truths = (1.0 if feedback == "scalar" else 2.0) * rng.normal(size=(2, dim))
    moves = kind == "concept"
    first, last = truths[0], truths[1] if moves else truths[0]
    features = _features(kind, rng, np.arange(rounds) / rounds, pool, dim)
    values = features @ first
    if moves:
        values[rounds // 2 :] = features[rounds // 2 :] @ last
    tests = _features(kind, rng, rng.random(TESTS), pool, dim)
    rewards, utilities = _answers(feedback, rng, values, noise)
    sigma = 1.0 if rewards is None else noise
    before = first if moves else None
    judged = (tests, tests @ last)
    return SyntheticStream(
        features, values, rewards, utilities, last, sigma, shown, *judged, before
    )


def _sizes(kind: Kind, feedback: Feedback, candidates: int | None) -> tuple[int, int]:
    """How many candidates are shown, and of how many."""
    if kind not in KINDS:
        raise unknown_name("kind of stream", kind, KINDS)
    if feedback not in get_args(Feedback):
        raise unknown_name("feedback", feedback, get_args(Feedback))
    shown, times = (20, 3) if feedback == "scalar" else (5, 4)
    shown = candidates or shown
    return shown, times * shown if kind == "follower" else shown


def _answers(
    feedback: Feedback, rng: np.random.Generator, values: Array, noise: float
) -> tuple[Array | None, Array | None]:
    """Rewards or utilities, (T, M): under rewards all candidates of a round share its noise."""
    if feedback == "scalar":
        return values + noise * rng.normal(size=(len(values), 1)), None
    return None, values + rng.gumbel(size=values.shape)


def sphere(rng: np.random.Generator, *shape: int) -> Array:
    """Vectors uniform on the unit sphere of the last dimension of `shape`."""
    rows = rng.normal(size=shape)
    rows /= np.sqrt(np.einsum("...i,...i->...", rows, rows))[..., None]
    return rows


def _features(kind: Kind, rng: np.random.Generator, clock: Array, pool: int, dim: int) -> Array:
    """φ of rounds at the times `clock` in [0, 1), (n, pool, dim)."""
    count = len(clock)
    if kind in ("iid", "follower", "concept"):
        return sphere(rng, count, pool, dim)
    if kind == "near-tie":
        rows = sphere(rng, count, pool, dim)
        near = rng.random(count) < 0.5
        rows[near] = sphere(rng, int(near.sum()), 1, dim) + NEAR * rows[near]
        rows[near] /= np.linalg.norm(rows[near], axis=-1, keepdims=True)
        return rows
    if kind == "rare":
        return _blocks(rng, (rng.random(count) < RARE).astype(int), 2, pool, dim)
    parts = 2 if kind == "shift-2" else 4
    return _blocks(rng, (clock * parts).astype(int), parts, pool, dim)


def _blocks(
    rng: np.random.Generator, block: NDArray[Any], parts: int, pool: int, dim: int
) -> Array:
    """φ on the sphere of the dimensions of each round's own block, of `parts` equal ones."""
    size = dim // parts
    rows = np.zeros((len(block), pool, dim))
    for part in range(parts):
        mine = np.flatnonzero(block == part)
        rows[mine, :, part * size : (part + 1) * size] = sphere(rng, len(mine), pool, size)
    return rows


SHORTEST, TAIL = 0.1, 1.5
SCALE = 8.0


def heavy_stream(
    seed: int, *, rounds: int, share: float, dim: int = 20, candidates: int = 4
) -> SyntheticStream:
    """T rounds whose rows have length min(1, 0.1·u^(−1/1.5)), u uniform, and θ* ~ 8·N(0, I).

    Most scores are then near each other, a loss near log K, and some 3% of rounds have rows of
    length 1, scores that are 8 apart, and losses as large where the label is a surprise. Labels
    follow the softmax of the scores; in a `share` of the rounds, drawn independently, the label is
    the candidate of the lowest score instead, as of a mistaken or adversarial labeler.
    The test rounds follow the same law and are judged by the true scores.
    """
    rng = generator(seed, "heavy", rounds, dim, candidates)
    truth = SCALE * rng.normal(size=dim)
    features = _rows(rng, rounds, candidates, dim)
    values = features @ truth
    drawn = values + rng.gumbel(size=values.shape)
    flipped = rng.random(rounds) < share
    tests = _rows(rng, TESTS, candidates, dim)
    return SyntheticStream(
        features,
        values,
        None,
        np.where(flipped[:, None], -values, drawn),
        truth,
        1.0,
        candidates,
        tests,
        tests @ truth,
    )


def _rows(rng: np.random.Generator, count: int, candidates: int, dim: int) -> Array:
    lengths = np.minimum(1.0, SHORTEST * (1.0 - rng.random(count)) ** (-1.0 / TAIL))
    return sphere(rng, count, candidates, dim) * lengths[:, None, None]
