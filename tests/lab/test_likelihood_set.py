"""The set of the mixture against sums of losses, integrals and a general solver."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from stacksl.core.blocks import Array, PairFeatures
from stacksl.core.losses import cross_entropy
from stacksl_lab.likelihood import LabelLoss, LikelihoodSet, label_loss, mixture_loss, refuted

from ..core.scorer_cases import pair_inputs


def drawn(seed: int, count: int, dim: int, norm: float) -> tuple[LabelLoss, Array]:
    """Softmax labels of items of two to four candidates, and their θ*."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=dim)
    truth *= norm / np.linalg.norm(truth)
    block = [pair_inputs(rng, int(rng.integers(2, 5)), dim) for _ in range(count)]
    golds = [int((each.phi @ truth + rng.gumbel(size=each.size)).argmax()) for each in block]
    return label_loss(block, [tuple(range(each.size)) for each in block], golds), truth


def test_a_loss_is_the_sum_of_cross_entropies_over_loss_sets() -> None:
    rng = np.random.default_rng(1)
    sets = [(0, 1, 2, 3), (1, 3), (3, 0, 2)]
    golds = [2, 3, 0]
    block = [PairFeatures(pair_inputs(rng).phi, rng.normal(size=4)) for _ in sets]
    block[1] = PairFeatures(block[1].phi)
    theta, expected, slope = rng.normal(size=5), 0.0, np.zeros(5)
    for inputs, shown, gold in zip(block, sets, golds, strict=True):
        rows = inputs.phi[list(shown)]
        fixed = 0.0 if inputs.offset is None else inputs.offset[list(shown)]
        value, gradient = cross_entropy(rows @ theta + fixed, shown.index(gold))
        expected, slope = expected + value, slope + gradient @ rows
    loss = label_loss(block, sets, golds)
    assert loss.value(theta) == pytest.approx(expected)
    assert loss.derivatives(theta)[0] == pytest.approx(slope)


def test_derivatives_are_those_of_the_value() -> None:
    loss = LabelLoss(*_arrays(drawn(2, 30, 4, 3.0)[0]), ridge=0.3)
    theta, step = np.array([0.4, -1.0, 2.0, 0.1]), 1e-5
    gradient, hessian = loss.derivatives(theta)
    for axis in np.eye(4):
        ahead, behind = theta + step * axis, theta - step * axis
        assert (loss.value(ahead) - loss.value(behind)) / (2 * step) == pytest.approx(
            float(axis @ gradient), abs=1e-6
        )
        slopes = (loss.derivatives(ahead)[0] - loss.derivatives(behind)[0]) / (2 * step)
        assert slopes == pytest.approx(axis @ hessian, abs=1e-6)
    pull = np.array([0.5, 0.0, -1.0, 0.2])
    assert loss.derivatives(loss.least(pull))[0] == pytest.approx(pull, abs=1e-4)


@pytest.mark.parametrize(("norm", "count"), [(1.0, 0), (2.0, 5), (9.0, 60)])
def test_the_mixture_is_bounded_from_above_and_closely(norm: float, count: int) -> None:
    loss, _ = drawn(3, max(count, 1), 1, norm)
    loss = LabelLoss(loss.pairs[:count], loss.offset[:count])
    mode = float(LabelLoss(loss.pairs, loss.offset, norm**-2.0).least()[0])
    least = float(loss.value(np.array([mode])))

    def density(theta: float) -> float:
        prior = math.exp(-0.5 * (theta / norm) ** 2) / (norm * math.sqrt(2.0 * math.pi))
        return prior * math.exp(least - float(loss.value(np.array([theta]))))

    points = np.linspace(mode - 9 * norm, mode + 9 * norm, 40)
    total = sum(quad(density, a, b)[0] for a, b in itertools.pairwise(points))
    exact = least - math.log(total)
    found = float(mixture_loss(loss, norm))
    assert exact - 1e-6 <= found <= exact + (0.5 if norm < 9 else 3.0)


@pytest.mark.parametrize("spread", [0.5, 20.0])
def test_all_answers_together_have_a_mass_of_at_most_one(spread: float) -> None:
    """What Ville's inequality needs: e^(−mixture) is at most a law of the labels."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(4, 3, 2))
    total = 0.0
    for golds in itertools.product(range(3), repeat=4):
        pairs = rows - rows[np.arange(4), list(golds)][:, None]
        total += math.exp(-float(mixture_loss(LabelLoss(pairs, np.zeros((4, 3))), spread)))
    assert (0.7 if spread < 20 else 0.1) < total <= 1.0


def test_a_set_reaches_as_far_as_a_solver_finds() -> None:
    loss, truth = drawn(6, 80, 4, 5.0)
    held = LikelihoodSet.of(loss, 5.0, 0.05)
    assert held.contains(truth)
    assert not held.contains(truth + 40.0)
    for direction in np.random.default_rng(7).normal(size=(5, 4)):
        bound, theta = held.highest(direction)
        solved = minimize(
            lambda at, d=direction: -d @ at,
            held.center,
            jac=lambda _, d=direction: -d,
            constraints={
                "type": "ineq",
                "fun": lambda at: float(held.level - held.loss.value(at)),
                "jac": lambda at: -held.loss.derivatives(at)[0],
            },
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert solved.success
        assert bound >= -solved.fun - 1e-6
        assert bound == pytest.approx(-solved.fun, rel=1e-3)
        assert held.loss.value(theta) == pytest.approx(held.level, rel=0.02)


def test_a_set_is_never_empty() -> None:
    """Also of answers that no softmax gives: every item twice, with either answer."""
    rows = np.random.default_rng(11).normal(size=(40, 1, 3))
    pairs = np.concatenate([np.zeros_like(rows), rows], axis=1)
    contrary = LabelLoss(np.concatenate([pairs, -pairs]), np.zeros((80, 2)))
    for norm in (0.1, 3.0, 100.0):
        assert float(LikelihoodSet.of(contrary, norm, 0.05).slack) >= math.log(20.0) + 0.5


def test_what_is_certified_is_so_under_every_theta_of_the_set() -> None:
    loss, truth = drawn(12, 200, 4, 8.0)
    held = LikelihoodSet.of(loss, 8.0, 0.05)
    directions = np.random.default_rng(13).normal(size=(60, 4))
    proved = held.below(directions)
    assert held.contains(truth)
    assert (directions[proved] @ truth < 0.0).all()
    reach = np.array([float(held.highest(each)[0]) for each in directions])
    possible = reach < 0.0
    assert not (proved & ~possible).any()
    assert 5 <= 0.7 * possible.sum() <= proved.sum(), "most of what can be certified is"


def test_softmax_labels_are_refuted_no_more_often_than_allowed_and_others_are() -> None:
    held, false, moved = 0, 0, 0
    for seed in range(10):
        loss, truth = drawn(100 + seed, 60, 3, 4.0)
        held += bool(LikelihoodSet.of(loss, 4.0, 0.05).contains(truth))
        false += refuted(loss, 4.0, 0.05)
        other, _ = drawn(200 + seed, 60, 3, 4.0)
        both = (np.concatenate(pair) for pair in zip(_arrays(loss), _arrays(other), strict=True))
        moved += refuted(LabelLoss(*both), 4.0, 0.05)
    assert (held, false) == (10, 0)
    assert moved >= 7, "θ changes half-way"
    assert refuted(drawn(15, 60, 3, 8.0)[0], 0.5, 0.05), "S is too small"
    assert not refuted(drawn(16, 1, 3, 1.0)[0], 1.0, 0.05), "one label says little"


def _arrays(loss: LabelLoss) -> tuple[Array, Array]:
    return loss.pairs, loss.offset
