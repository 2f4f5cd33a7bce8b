"""A set that holds the θ* of softmax labels at all times at once, with probability 1 − δ.

For labels drawn from the softmax of linear scores, L(θ) = Σ −log π_θ(y_s), and a law ν of θ fixed
beforehand, M_s = ∫ exp(L(θ*) − L(θ)) ν(dθ) is a positive martingale that starts at 1, however
items are chosen. By Ville's inequality no s ever has L(θ*) > −log ∫ e^(−L) dν + log 1/δ, but for a
probability of δ. So {θ : L(θ) ≤ mixture + log 1/δ} is such a set; it is convex, and no ellipsoid.

Labels are arrays of what their loss needs: `pairs`, (..., n, K, d), are φ_x − φ_gold of the
candidates of each loss set, and `offset`, (..., n, K), what a candidate's fixed score is above the
gold's, −inf where a loss set has fewer than K candidates. The gold's own row is among them. The
leading dimensions are runs, which are treated apart.

Source: Robbins (1970) for the mixture, `docs/theory.md` section 4; not in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, PairFeatures

_STEPS = 100  # of Newton's method; some ten are used
_TOLERANCE = 1e-9  # of its decrement, in nats
_ROUNDS, _SETTLED = 30, 0.01  # of the mixture's search, and nats at which it ends
_SCALES = 40  # of the multiplier; some six are used
_NEAR = 0.01  # of the level, to which the multiplier is found: the bound's error is its square


@dataclass(frozen=True, slots=True, eq=False)
class LabelLoss:
    """F(θ) = L(θ) + ½·ridge·‖θ‖² of bought labels, in nats.

    Attributes:
        pairs: (..., n, K, d); see the module.
        offset: (..., n, K).
        ridge: of the square; 0 for L itself.
    """

    pairs: Array
    offset: Array
    ridge: float = 0.0

    def scores(self, theta: Array) -> Array:
        """What each candidate's score is above the gold's, (..., n, K), for `theta`, (..., d)."""
        lifted: Array = np.einsum("...nkd,...d->...nk", self.pairs, theta) + self.offset
        return lifted

    def value(self, theta: Array) -> Array:
        """F(θ), (...,)."""
        square = np.einsum("...d,...d->...", theta, theta)
        total: Array = _log_sums(self.scores(theta)).sum(axis=-1) + 0.5 * self.ridge * square
        return total

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        """Gradient, (..., d), and Hessian, (..., d, d)."""
        policy = _softmax(self.scores(theta))
        means = np.einsum("...nk,...nkd->...nd", policy, self.pairs)
        hessian = _weighted_gram(self.pairs, policy) - _gram(means)
        return (
            means.sum(axis=-2) + self.ridge * theta,
            hessian + self.ridge * np.eye(theta.shape[-1]),
        )

    def least(self, pull: Array | float = 0.0, start: Array | None = None) -> Array:
        """Where F(θ) − pullᵀθ is least, (..., d), for a ridge above 0.

        By damped Newton steps from `start`, 100 at most, until decrements are below 1e-9 nats.
        """
        shape = (*self.pairs.shape[:-3], self.pairs.shape[-1])
        pull = np.broadcast_to(np.asarray(pull, dtype=np.float64), shape)
        theta = np.zeros(shape) if start is None else start
        value = self.value(theta) - np.einsum("...d,...d->...", pull, theta)
        for _ in range(_STEPS):
            gradient, hessian = self.derivatives(theta)
            gradient = gradient - pull
            step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
            falls = np.einsum("...d,...d->...", step, gradient)
            if (falls <= _TOLERANCE).all():
                break
            length = np.ones(shape[:-1])
            for _ in range(40):
                moved = theta - length[..., None] * step
                after = self.value(moved) - np.einsum("...d,...d->...", pull, moved)
                short = after <= value - 0.25 * length * falls + 1e-9 * (1.0 + np.abs(value))
                if short.all():
                    break
                length = np.where(short, length, 0.5 * length)
            theta, value = moved, after
        return theta


def label_loss(
    block: Sequence[PairFeatures], loss_sets: Sequence[tuple[int, ...]], golds: Sequence[int]
) -> LabelLoss:
    """L of labels over their loss sets.

    Args:
        block: the features of n ≥ 1 labeled items.
        loss_sets: the candidates of each, among which is the gold. They may depend on the past and
            on whether the gold was shown, and on nothing else of it.
        golds: the label of each, an index into the item's candidates.
    """
    most = max(len(shown) for shown in loss_sets)
    pairs = np.zeros((len(block), most, block[0].dim))
    offset = np.full((len(block), most), -np.inf)
    for place, (inputs, shown, gold) in enumerate(zip(block, loss_sets, golds, strict=True)):
        picked = list(shown)
        pairs[place, : len(picked)] = inputs.phi[picked] - inputs.phi[gold]
        fixed = np.zeros(inputs.size) if inputs.offset is None else inputs.offset
        offset[place, : len(picked)] = fixed[picked] - fixed[gold]
    return LabelLoss(pairs, offset)


def mixture_loss(labels: LabelLoss, spread: float) -> Array:
    """At least −log ∫ e^(−L(θ)) N(θ; 0, spread²·I) dθ, (...,), in nats.

    Some tenths more than that where the labels decide θ, a few nats where they do not. For any
    Gaussian N(m, C) the evidence is bounded by the mean of L under it and its divergence from the
    prior, and for any weights p of a label's candidates E log Σ exp s_x is at most
    E Σ p_x s_x + log E Σ exp(s_x − Σ p_y s_y). So every round of the search for m, C and p gives a
    bound; the least is taken. `labels.ridge` plays no part.

    Source: Knowles and Minka (NeurIPS 2011), the tilted bound.
    """
    dim, ridge = labels.pairs.shape[-1], spread**-2.0
    posterior = LabelLoss(labels.pairs, labels.offset, ridge)
    mean = posterior.least()
    precision = posterior.derivatives(mean)[1]
    weights = _softmax(labels.scores(mean))
    least, before = (np.full(mean.shape[:-1], np.inf) for _ in range(2))
    for _ in range(_ROUNDS):
        scores = labels.scores(mean)
        common = (weights * np.where(weights > 0.0, scores, 0.0)).sum(axis=-1)
        center = np.einsum("...nk,...nkd->...nd", weights, labels.pairs)
        apart = labels.pairs - center[..., None, :]
        spreads = np.linalg.inv(precision)
        variances = np.einsum("...nkd,...nkd->...nk", apart @ spreads[..., None, :, :], apart)
        tilted = scores - common[..., None] + 0.5 * variances
        square = np.trace(spreads, axis1=-2, axis2=-1) + np.einsum("...d,...d->...", mean, mean)
        volume = np.linalg.slogdet(precision)[1] - dim * math.log(ridge)
        bound = (common + _log_sums(tilted)).sum(axis=-1)
        bound = bound + 0.5 * (ridge * square - dim + volume)
        least = np.fmin(least, bound)
        if (np.abs(bound - before) < _SETTLED).all():
            break
        before, weights = bound, _softmax(tilted)
        slope = np.einsum("...nk,...nkd->...d", weights, labels.pairs) + ridge * mean
        wanted = _weighted_gram(apart, weights) + ridge * np.eye(dim)
        precision = 0.5 * (precision + wanted)  # half of the way: the whole of it can go round
        mean = mean - np.linalg.solve(precision, slope[..., None])[..., 0]
    return least


@dataclass(frozen=True, slots=True, eq=False)
class LikelihoodSet:
    """{θ : L(θ) + ‖θ‖²/(2S²) ≤ mixture + log 1/δ + ½}: convex, bounded, never empty.

    It holds every θ of norm at most S that has L(θ) ≤ mixture + log 1/δ. So a θ* of norm at most S
    is in it, at all times at once, with probability 1 − δ, if labels are softmax ones. Whatever the
    labels are, F is somewhere log 1/δ + ½ below the level: a mean of L + ‖θ‖²/(2S²) under a law is
    at least its value at the law's mean, and at most the mixture's bound.

    Attributes:
        loss: F, with the ridge 1/S².
        level: what F is at most, (...,), in nats.
        center: where F is least, (..., d).
        slack: level − F(center), (...,).
    """

    loss: LabelLoss
    level: Array
    center: Array
    slack: Array

    @classmethod
    def of(cls, labels: LabelLoss, norm_bound: float, delta: float) -> LikelihoodSet:
        """The set of these labels for S = `norm_bound` > 0; the mixture is N(0, S²/d·I)."""
        level = mixture_loss(labels, norm_bound / math.sqrt(labels.pairs.shape[-1]))
        level = level + math.log(1.0 / delta) + 0.5
        loss = LabelLoss(labels.pairs, labels.offset, norm_bound**-2.0)
        center = loss.least()
        return cls(loss, level, center, level - loss.value(center))

    def contains(self, theta: Array) -> NDArray[np.bool_]:
        """Whether each run's set holds its `theta`, (..., d)."""
        inside: NDArray[np.bool_] = np.asarray(self.loss.value(theta) <= self.level)
        return inside

    def highest(self, direction: Array) -> tuple[Array, Array]:
        """The largest directionᵀθ in each run's set, (...,), from above, and its θ, (..., d).

        With θ_t = argmin F(θ) − t·directionᵀθ, no θ of the set has more than directionᵀθ_t +
        (level − F(θ_t))/t, for any t > 0; of some t the least is taken.
        """
        direction = np.broadcast_to(direction, self.center.shape)
        hessian = self.loss.derivatives(self.center)[1]
        image = np.linalg.solve(hessian, direction[..., None])[..., 0]
        curvature = np.einsum("...d,...d->...", direction, image)
        moves = curvature > 0.0  # not where the direction is 0
        scale = np.sqrt(2.0 * self.slack / np.where(moves, curvature, 1.0))
        root, least = _Root(np.log(scale)), self.level - self.slack
        theta, bound = self.center, np.full_like(scale, np.inf)
        for _ in range(_SCALES):
            theta = self.loss.least(scale[..., None] * direction, theta)
            used = self.loss.value(theta) - least
            reached = np.einsum("...d,...d->...", direction, theta)
            bound = np.fmin(bound, reached + (self.slack - used) / scale)
            far = moves & (np.abs(used - self.slack) > _NEAR * self.slack)
            if not far.any():
                break
            scale = np.exp(root.next(np.log(np.maximum(used / self.slack, 1e-12)), far))
        return np.where(moves, bound, 0.0), theta

    def below(self, directions: Array) -> NDArray[np.bool_]:
        """Which of the (m, d) `directions` are proved to have directionᵀθ < 0 in all of one set.

        No θ with directionᵀθ ≥ 0 has F below the least of F(θ) − t·directionᵀθ, for any t ≥ 0.
        """
        hessian = self.loss.derivatives(self.center)[1]
        images = np.linalg.solve(hessian, directions.T).T
        proved = np.zeros(len(directions), dtype=bool)
        for place, (direction, image) in enumerate(zip(directions, images, strict=True)):
            lift = float(direction @ self.center)
            if lift >= 0.0:
                continue
            pull = -lift / float(direction @ image)
            if self.loss.value(self.center + pull * image) <= self.level:  # there it is 0
                continue
            theta = self.loss.least(pull * direction, self.center)
            least = float(self.loss.value(theta)) - pull * float(direction @ theta)
            proved[place] = least > float(self.level)
        return proved


def refuted(labels: LabelLoss, norm_bound: float, delta: float) -> bool:
    """Whether no θ of norm at most S = `norm_bound` explains the n labels of one run.

    Where such a θ* draws them, this is ever true with probability at most δ: e^(−`rival`) is at
    most a law of the labels, half of it a θ of norm some 8 S, half two independent θ, before and
    after label 2^k, of weight 1/((k + 1)(k + 2)). So θ that moves is found, and S that is too
    small, but no other fault of the softmax.
    """
    count = labels.pairs.shape[0]
    spread = norm_bound / math.sqrt(labels.pairs.shape[-1])
    rivals = [float(mixture_loss(labels, 8.0 * spread))]
    if count > 1:
        power = round(math.log2(count)) - 1  # near the middle
        parts = (slice(2**power), slice(2**power, None))
        pieces = (LabelLoss(labels.pairs[part], labels.offset[part]) for part in parts)
        apart = sum(float(mixture_loss(piece, spread)) for piece in pieces)
        rivals.append(apart + math.log((power + 1) * (power + 2)))
    rival = min(rivals) + math.log(2.0)
    loss = LabelLoss(labels.pairs, labels.offset, norm_bound**-2.0)
    return rival + math.log(1.0 / delta) < float(loss.value(loss.least())) - 0.5


class _Root:
    """Where increasing functions are 0, (...,): steps of slope 2, then regula falsi (Illinois).

    Near its least F grows as the square of the multiplier, so that its logarithm has the slope 2.
    """

    def __init__(self, place: Array) -> None:
        self.place = place
        self._ends = np.stack([np.full_like(place, -np.inf), np.full_like(place, np.inf)])
        self._values = np.zeros_like(self._ends)
        self._last = np.full(place.shape, -1)

    def next(self, value: Array, far: NDArray[np.bool_]) -> Array:
        """The next place for the `value` at the last one; the same where it is not `far` from 0."""
        side = (value > 0.0).astype(int)
        for end in (0, 1):
            mine = side == end
            again = mine & (self._last == end)
            self._ends[end] = np.where(mine, self.place, self._ends[end])
            self._values[end] = np.where(mine, value, self._values[end])
            self._values[1 - end] = np.where(again, 0.5, 1.0) * self._values[1 - end]
        self._last = side
        low, high = self._ends
        inside = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(inside, low, 0.0), np.where(inside, high, 0.0)
        slope = np.where(inside, self._values[1] - self._values[0], 1.0)
        between = (low * self._values[1] - high * self._values[0]) / slope
        step = np.clip(-0.5 * value, -3.0, 3.0)
        moved = np.where(inside, between, self.place + step)
        self.place = np.where(far, moved, self.place)
        return self.place


def _weighted_gram(rows: Array, weights: Array) -> Array:
    """Σ w_x φ_x φ_xᵀ over the (..., n, K, d) `rows` and (..., n, K) `weights`, (..., d, d)."""
    return _gram((rows * np.sqrt(weights)[..., None]).reshape(*rows.shape[:-3], -1, rows.shape[-1]))


def _gram(rows: Array) -> Array:
    gram: Array = np.swapaxes(rows, -1, -2) @ rows
    return gram


def _log_sums(scores: Array) -> Array:
    top = scores.max(axis=-1)
    sums: Array = top + np.log(np.exp(scores - top[..., None]).sum(axis=-1))
    return sums


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = weights / weights.sum(axis=-1, keepdims=True)
    return shares
