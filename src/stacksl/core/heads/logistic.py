"""Fits to convergence: logistic regression for class heads, conditional logit for pair features.

Both minimize C·Σ_i −log π(gold_i) + ½‖θ‖² by L-BFGS. C = 20, or from 60 labels up the C of
{1, 5, 20, 100} with the least log-loss over three shuffled folds of the labels given
(`docs/paper.md`, D15). Everything is divided by C·n, so that one tolerance on the gradient serves
every C and n.

Soft examples (class names, labels spread over a graph) are used with the bought labels in a refit
of class heads, each with a weight and a distribution over the classes; they enter no matrix and no
count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.core.rng import generator

DEFAULT = 20.0
CHOICES = (1.0, 5.0, 20.0, 100.0)
ENOUGH = 60
_FOLDS = 3
_FINAL = 1e-6  # of the mean loss per label: the largest entry of its gradient
_TRIAL = 1e-5  # the same while C is chosen: only the order of the losses matters there
_STEPS = 10_000
_SURER = 0.1  # of that curvature: of 0.03, 0.1 and 0.3 it took the fewest steps on three sets

Rows: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Strength:
    """C, the weight of the log-loss against ½‖θ‖².

    `tried` is the held-out log-loss per label (nats) of each of `CHOICES`, empty where C was not
    chosen by folds; held-out labels of a class that its fit had not seen count as 0 under every C.
    Over a column of labels it is the share of labels that held-out heads do not give.
    """

    value: float
    tried: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The options of a fit of class heads.

    Attributes:
        strength: C; None for one chosen by folds, or 20 below 60 labels.
        soft: soft examples in addition to the labels.
        start: coefficients, (K, d), and intercepts, (K,), to begin at; zeros if None.
        tolerance: the largest entry of the gradient of the mean loss at which it ends.
    """

    strength: Strength | None = Strength(DEFAULT)
    soft: Soft | None = None
    start: tuple[Array, Array] | None = None
    tolerance: float = _FINAL


def fit_classes(
    h: NDArray[Any], labels: Rows, seed: int, fit: Fit
) -> tuple[Rows, Array, Array, Strength] | None:
    """The k classes seen, (k,), their coefficients, (k, d), and intercepts, (k,), and C.

    Multinomial logistic regression; intercepts are not penalized. `h` is (n, d), `labels` is
    (n,), `seed` draws the folds. A class is seen where a label or a soft example is of it. None
    with fewer than two classes.
    """
    classes = np.unique(labels)
    if fit.soft is not None:
        classes = np.union1d(classes, fit.soft.named())
    if len(classes) < 2:
        return None
    rows = np.asarray(h, dtype=np.float64)
    strength = choose_strength(rows, labels, seed) if fit.strength is None else fit.strength
    soft = None if fit.soft is None else SoftLoss(fit.soft, classes)
    problem = _Classes(rows, np.searchsorted(classes, labels), len(classes), soft)
    start = None
    if fit.start is not None:
        start = np.column_stack([array[classes] for array in fit.start]).ravel()
    theta = _minimize(problem, strength.value, fit.tolerance, start)
    fitted = theta.reshape(len(classes), -1)
    return classes, fitted[:, :-1].copy(), fitted[:, -1].copy(), strength


def choose_strength(h: NDArray[Any], labels: Rows, seed: int) -> Strength:
    """C of class heads by the held-out log-loss of folds, 20 below 60 labels."""
    rows = np.asarray(h, dtype=np.float64)
    return _choose(len(labels), seed, lambda a, b: _class_losses(rows, labels, a, b))


def fit_pairs(
    phi: NDArray[Any],
    offsets: Rows,
    labels: Rows,
    seed: int,
    tune: bool,
    base: NDArray[Any] | None = None,
) -> tuple[Array, Strength] | None:
    """θ, (d,), of the conditional logit over each item's own candidates, and C.

    `phi` is (ΣK, d), item i owning the rows `offsets`[i] to `offsets`[i + 1]; `labels` are gold
    indices within an item, (n,). `base`, (ΣK,), is the fixed part of the scores, so that
    π(x) ∝ exp(base_x + θᵀφ_x). None without a label.
    """
    if len(labels) == 0:
        return None
    items = [np.asarray(phi[start:stop], dtype=np.float64) for start, stop in pairwise(offsets)]
    fixed = None
    if base is not None:
        fixed = [np.asarray(base[a:b], dtype=np.float64) for a, b in pairwise(offsets)]
    strength = Strength(DEFAULT)
    if tune:
        strength = _choose(len(labels), seed, lambda a, b: _pair_losses(items, labels, a, b, fixed))
    return _minimize(_Choices(items, labels, fixed), strength.value, _FINAL), strength


def _choose(count: int, seed: int, losses: Callable[[Rows, Rows], Array]) -> Strength:
    """The C with the least held-out loss; `losses` maps (fit on, held out) to one loss a C.

    The default is kept where all losses are equal: where no held-out label could be judged.
    """
    if count < ENOUGH:
        return Strength(DEFAULT)
    total = np.zeros(len(CHOICES))
    for train, held_out in folds_of(count, seed):
        total += losses(train, held_out)
    best = DEFAULT if np.ptp(total) == 0.0 else CHOICES[int(np.argmin(total))]
    return Strength(best, tuple((total / count).tolist()))


def folds_of(count: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Three shuffled folds of `count` labels: the places fitted on, and those held out."""
    order = generator(seed, "refit", count).permutation(count)
    folds = np.array_split(order, _FOLDS)
    pairs = []
    for held_out in range(_FOLDS):
        train = np.concatenate([fold for number, fold in enumerate(folds) if number != held_out])
        pairs.append((np.sort(train), np.sort(folds[held_out])))
    return pairs


def _class_losses(rows: Array, labels: Rows, train: Rows, held_out: Rows) -> Array:
    classes = np.unique(labels[train])
    # a held-out class that the fit has not seen costs the same under every C: left out
    held_out = held_out[np.isin(labels[held_out], classes)]
    if len(classes) < 2 or len(held_out) == 0:
        return np.zeros(len(CHOICES))
    sides = [
        _Classes(rows[side], np.searchsorted(classes, labels[side]), len(classes))
        for side in (train, held_out)
    ]
    return _path_losses(*sides)


def _pair_losses(
    items: list[Array], labels: Rows, train: Rows, held_out: Rows, fixed: list[Array] | None = None
) -> Array:
    sides = [
        _Choices(
            [items[i] for i in side],
            labels[side],
            None if fixed is None else [fixed[i] for i in side],
        )
        for side in (train, held_out)
    ]
    return _path_losses(*sides)


def _path_losses(train: _Classes | _Choices, held_out: _Classes | _Choices) -> Array:
    """The held-out loss of each C, every fit starting where the one before ended."""
    losses = np.zeros(len(CHOICES))
    theta = train.start
    for column, strength in enumerate(CHOICES):
        theta = _minimize(train, strength, _TRIAL, theta)
        losses[column] = held_out.loss(theta)[0]
    return losses


def _minimize(
    problem: _Classes | _Choices, strength: float, tolerance: float, start: Array | None = None
) -> Array:
    """The θ that minimizes C·loss + ½‖θ‖² for C = `strength`, from `start` or from zeros.

    L-BFGS moves in coordinates u, θ = u·B, in which the loss is about as curved in one direction as
    in another: it takes half as many steps where a class has many examples.
    """
    from scipy.optimize import minimize

    decay = problem.penalized / (strength * problem.size)
    basis = problem.basis(decay)
    largest = np.inf  # entry of the gradient at the θ that was looked at last

    def times(values: Array, matrix: Array) -> Array:
        return (values.reshape(len(values) // len(matrix), -1) @ matrix).ravel()

    def objective(point: Array) -> tuple[float, Array]:
        nonlocal largest
        theta = point if basis is None else times(point, basis)
        value, gradient = problem.loss(theta)
        pull = decay * theta
        gradient = gradient / problem.size + pull
        largest = float(np.abs(gradient).max())
        value = value / problem.size + 0.5 * float(pull @ theta)
        return value, gradient if basis is None else times(gradient, basis.T)

    def end_where_flat(_: Array) -> None:
        if largest <= tolerance:
            raise StopIteration

    first_theta = problem.start if start is None else start
    if basis is not None:
        first_theta = times(first_theta, np.asarray(np.linalg.inv(basis), dtype=np.float64))
    solution = minimize(
        objective,
        first_theta,
        jac=True,
        method="L-BFGS-B",
        callback=end_where_flat,
        options={"maxiter": _STEPS, "maxfun": 2 * _STEPS, "gtol": 0.0, "ftol": 1e-13},
    )
    theta = solution.x if basis is None else times(solution.x, basis)
    return np.asarray(theta, dtype=np.float64)


class _Classes:
    """Multinomial logistic regression: parameters (k, d + 1), flattened, the intercept last.

    `rows` is (n, d), `gold` is (n,) in 0..k−1; `soft` examples are of the same k classes.
    """

    def __init__(self, rows: Array, gold: Rows, classes: int, soft: SoftLoss | None = None) -> None:
        self.rows = rows
        self.soft = soft
        self.size: float = len(rows) + (0.0 if soft is None else soft.size)  # weight of examples
        self.gold = (np.arange(len(rows)), gold)
        shape = (classes, rows.shape[1] + 1)
        self.start: Array = np.zeros(shape[0] * shape[1])  # the parameters before any label
        penalized: Array = np.ones(shape)
        penalized[:, -1] = 0.0
        self.penalized: Array = penalized.ravel()  # 1 where ½θ² is charged, 0 where not
        self.shape = shape

    def basis(self, decay: Array) -> Array | None:
        """B = L⁻¹, (d + 1, d + 1), L·Lᵀ the mean curvature of a class; None with few examples.

        The curvature is that of classes of equal probability, reduced as a fitted model is surer.
        None also where it is not positive definite in float64, as of large features that are equal.
        """
        examples = self.rows if self.soft is None else self.soft.rows
        if len(examples) < self.shape[1]:
            return None  # its products would take longer than those of the loss
        curved = _second_moment(self.rows, np.ones(len(self.rows)))
        if self.soft is not None:
            curved = curved + _second_moment(self.soft.rows, self.soft.mass)
        curved *= _SURER / (self.size * self.shape[0])
        curved[np.diag_indices_from(curved)] += decay[: self.shape[1]]
        try:
            return np.linalg.inv(np.linalg.cholesky(curved))
        except np.linalg.LinAlgError:
            return None

    def loss(self, theta: Array) -> tuple[float, Array]:
        """Σ −log π(gold), and its gradient, flattened as `theta`."""
        parameters = theta.reshape(self.shape)
        policy = self.rows @ parameters[:, :-1].T
        policy += parameters[:, -1]
        policy -= policy.max(axis=1, keepdims=True)
        golden = float(policy[self.gold].sum())
        np.exp(policy, out=policy)
        totals = policy.sum(axis=1)
        policy /= totals[:, None]
        policy[self.gold] -= 1.0
        gradient = np.empty(self.shape)
        gradient[:, :-1] = policy.T @ self.rows
        gradient[:, -1] = policy.sum(axis=0)
        value = float(np.log(totals).sum()) - golden
        if self.soft is not None:
            soft_value, pull = self.soft.loss(parameters)
            value, gradient = value + soft_value, gradient + pull
        return value, gradient.ravel()


def _second_moment(rows: NDArray[Any], weight: NDArray[Any]) -> Array:
    """Σ weight·x·xᵀ of the `rows`, (n, d), with a last entry of 1: (d + 1, d + 1)."""
    weighted = rows * weight.astype(rows.dtype)[:, None]
    out = np.empty((rows.shape[1] + 1, rows.shape[1] + 1))
    out[:-1, :-1] = weighted.T @ rows
    out[-1, :-1] = out[:-1, -1] = weighted.sum(axis=0, dtype=np.float64)
    out[-1, -1] = weight.sum(dtype=np.float64)
    return out


class _Choices:
    """Conditional logit: parameters (d,), shared by the candidates of all items.

    `items` are (K_i, d) arrays, `gold` their gold rows, (n,), `fixed` the (K_i,) fixed parts of
    their scores, if any.
    """

    def __init__(self, items: list[Array], gold: Rows, fixed: list[Array] | None = None) -> None:
        sizes = np.array([len(item) for item in items])
        self.rows = np.concatenate(items)
        self.fixed = None if fixed is None else np.concatenate(fixed)
        self.size: float = len(items)
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.owners = np.repeat(np.arange(len(items)), sizes)
        self.gold = self.starts + gold
        self.start: Array = np.zeros(self.rows.shape[1])
        self.penalized: Array = np.ones(1)

    def basis(self, decay: Array) -> None:
        """The parameters are fitted as they are."""

    def loss(self, theta: Array) -> tuple[float, Array]:
        """Σ −log π(gold), and its (d,) gradient."""
        scores = self.rows @ theta
        if self.fixed is not None:
            scores += self.fixed
        scores -= np.maximum.reduceat(scores, self.starts)[self.owners]
        policy = np.exp(scores)
        totals = np.add.reduceat(policy, self.starts)
        value = float(np.log(totals).sum() - scores[self.gold].sum())
        policy /= totals[self.owners]
        policy[self.gold] -= 1.0
        return value, policy @ self.rows


Floats: TypeAlias = NDArray[np.float32]

_AT_ONCE = 4096  # rows of a matrix product: the policy of a block stays small


@dataclass(frozen=True, slots=True, eq=False)
class Soft:
    """n examples: `h` is (n, d), `targets` (n, K) ≥ 0, `weight` of each, (n,), in labels.

    An example adds −weight·Σ_x target_x·log π(x) to the loss, so that one of weight 1 with a
    one-hot target counts as a bought label.
    """

    h: NDArray[Any]
    targets: NDArray[Any]
    weight: NDArray[Any]

    def named(self) -> NDArray[np.int64]:
        """The classes with a positive target, in ascending order."""
        return np.flatnonzero((self.targets * self.weight[:, None]).sum(axis=0) > 0)


def together(*groups: Soft) -> Soft:
    """All examples of `groups`, in their order."""
    return Soft(
        np.concatenate([group.h for group in groups]),
        np.concatenate([group.targets for group in groups]),
        np.concatenate([group.weight for group in groups]),
    )


class SoftLoss:
    """The loss of soft examples under parameters (k, d + 1), the intercept last.

    `columns` are the k classes fitted. It is computed in float32, four times as fast on many rows;
    the sum over blocks is taken in float64.
    """

    def __init__(self, soft: Soft, columns: NDArray[np.int64]) -> None:
        self.rows: Floats = np.asarray(soft.h, dtype=np.float32)
        weight = np.asarray(soft.weight, dtype=np.float32)[:, None]
        self.targets: Floats = np.asarray(soft.targets[:, columns], dtype=np.float32) * weight
        self.mass: Floats = self.targets.sum(axis=1)
        self.size = float(self.mass.sum(dtype=np.float64))

    def loss(self, theta: Array) -> tuple[float, Array]:
        """Σ −weight·target·log π, and its gradient, (k, d + 1)."""
        narrow = np.asarray(theta, dtype=np.float32)
        total, gradient = 0.0, np.zeros_like(theta)
        for start in range(0, len(self.rows), _AT_ONCE):
            block = slice(start, start + _AT_ONCE)
            total += self._block(block, narrow, gradient)
        return total, gradient

    def _block(self, block: slice, theta: Floats, gradient: Array) -> float:
        rows, targets, mass = self.rows[block], self.targets[block], self.mass[block]
        scores = rows @ theta[:, :-1].T
        scores += theta[:, -1]
        scores -= scores.max(axis=1, keepdims=True)
        golden = float(np.einsum("nk,nk->", scores, targets, dtype=np.float64))
        np.exp(scores, out=scores)
        totals = scores.sum(axis=1)
        scores *= (mass / totals)[:, None]
        scores -= targets
        gradient[:, :-1] += scores.T @ rows
        gradient[:, -1] += scores.sum(axis=0, dtype=np.float64)
        return float((mass * np.log(totals)).sum(dtype=np.float64)) - golden
