"""A fixed part of the score, as a language model gives it: the head learns around it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

from stacksl.core import PairBlock
from stacksl.core.blocks import PairFeatures
from stacksl.core.heads.linear import refit
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.types import Label

ALL = (0, 1, 2, 3)


def items(count: int, seed: int = 0, dim: int = 5) -> list[PairFeatures]:
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(count, 4, dim))
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    return [PairFeatures(rows, 2.0 * rng.normal(size=4)) for rows in phi]


def newton(dim: int = 5, **settings):
    return make_scorer("newton", dim=dim, classes=None, settings=ScorerSettings(**settings))


def taught(stream: list[PairFeatures], **settings):
    scorer = newton(**settings)
    for number, inputs in enumerate(stream):
        scorer.step(inputs, (0, 2, 3) if number % 3 == 0 else ALL, 0, Label(number % 2 * 2))
    return scorer


def test_a_step_is_the_newton_step_of_the_full_score() -> None:
    """θ by central differences of the loss at offset + θᵀφ; H by the policy of the full score."""
    stream = items(12)
    scorer, gram = newton(ridge=0.5), 0.5 * np.eye(5)
    theta = np.zeros(5)

    def loss(at: np.ndarray, inputs: PairFeatures, gold: int) -> float:
        scores = inputs.offset + inputs.phi @ at
        return float(np.log(np.exp(scores).sum()) - scores[gold])

    def curvature(at: np.ndarray, inputs: PairFeatures, gold: int) -> np.ndarray:
        moves = np.eye(5) * 1e-4
        return np.array(
            [
                [
                    loss(at + a + b, inputs, gold) - loss(at + a - b, inputs, gold)
                    - loss(at - a + b, inputs, gold) + loss(at - a - b, inputs, gold)
                    for a in moves
                ]
                for b in moves
            ]
        ) / 4e-8  # fmt: skip

    for number, inputs in enumerate(stream):
        gold = number % 4
        slope = np.array(
            [
                (loss(theta + e, inputs, gold) - loss(theta - e, inputs, gold)) / 2e-6
                for e in np.eye(5) * 1e-6
            ]
        )
        theta = theta - np.linalg.solve(gram + curvature(theta, inputs, gold), slope)
        gram += curvature(theta, inputs, gold)
        scorer.step(inputs, ALL, 0, Label(gold))
        np.testing.assert_allclose(scorer.theta, theta, atol=2e-5)
    np.testing.assert_allclose(np.linalg.inv(scorer.confidence.gram_inv), gram, atol=1e-4)


@pytest.mark.parametrize("track", ["labeled", "all"])
def test_an_offset_of_zero_equals_none_bit_for_bit(track: str) -> None:
    plain = [PairFeatures(x.phi) for x in items(30)]
    zero = [PairFeatures(x.phi, np.zeros(4)) for x in plain]
    mine, theirs = taught(zero, track=track), taught(plain, track=track)
    for inputs, other in zip(zero, plain, strict=True):
        mine.skip(inputs, ALL, 0)
        theirs.skip(other, ALL, 0)
    for name, array in theirs.state().items():
        assert mine.state()[name].tobytes() == array.tobytes()
    view, other = mine.bounds(zero[0], (3, 0, 1)), theirs.bounds(plain[0], (3, 0, 1))
    for name in ("scores", "probabilities", "widths", "pair_widths"):
        assert getattr(view, name).tobytes() == getattr(other, name).tobytes()
    assert view.information == other.information


def block_of(count: int, seed: int = 0, scale: float = 2.0) -> tuple[PairBlock, np.ndarray]:
    """Items of 2 to 5 candidates, golds drawn from the softmax of base + truth·φ."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(2, 6, size=count))])
    phi = rng.normal(size=(offsets[-1], 4))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    base = scale * rng.normal(size=offsets[-1])
    heard = base + phi @ np.array([3.0, -2.0, 0.0, 1.0]) + rng.gumbel(size=len(base))
    golds = np.array([int(np.argmax(heard[a:b])) for a, b in pairwise(offsets)])
    return PairBlock(phi.astype(np.float32), offsets.astype(np.int64), base), golds


def test_the_refit_is_the_conditional_logit_around_the_base() -> None:
    block, golds = block_of(40)
    head = refit(block, golds, newton(4).theta, tune=False)

    def objective(theta: np.ndarray) -> float:
        total = 0.5 * theta @ theta
        for (a, b), gold in zip(pairwise(block.offsets), golds, strict=True):
            scores = block.base[a:b] + block.phi[a:b].astype(float) @ theta
            total += 20.0 * (np.log(np.exp(scores).sum()) - scores[gold])
        return total

    expected = minimize(objective, np.zeros(4), method="Powell", options={"ftol": 1e-14}).x
    np.testing.assert_allclose(head.theta, expected, atol=2e-3)
    bare = refit(PairBlock(block.phi, block.offsets), golds, newton(4).theta, tune=False)
    assert np.abs(bare.theta - expected).max() > 0.1
    for policy, (a, b) in zip(head.probabilities(block), pairwise(block.offsets), strict=True):
        weights = np.exp(block.base[a:b] + block.phi[a:b].astype(float) @ head.theta)
        np.testing.assert_allclose(policy, weights / weights.sum(), atol=1e-12)


def test_a_block_carries_its_base() -> None:
    block, golds = block_of(8)
    picked = block.take([6, 0, 6])
    for place, item in enumerate((6, 0, 6)):
        np.testing.assert_array_equal(picked[place].offset, block[item].offset)
    assert [x.offset.tolist() for x in block] == [block[i].offset.tolist() for i in range(8)]
    assert block[-1].offset.tolist() == block.base[block.offsets[7] :].tolist()
    assert block.take([]).base.shape == (0,)
    assert PairBlock(block.phi, block.offsets).take([1]).base is None
    again = refit(block.take(range(8)), golds, newton(4).theta, tune=False)
    np.testing.assert_array_equal(
        again.theta, refit(block, golds, newton(4).theta, tune=False).theta
    )


def test_the_strength_is_chosen_around_the_base_too() -> None:
    """A base that explains the labels leaves θ nothing, so the strongest pull to 0 is chosen."""
    rng = np.random.default_rng(5)
    block, _ = block_of(150, seed=5, scale=4.0)
    heard = block.base + rng.gumbel(size=len(block.base))
    golds = np.array([int(np.argmax(heard[a:b])) for a, b in pairwise(block.offsets)])
    head = refit(block, golds, newton(4).theta)
    assert len(head.strength.tried) == 4
    assert head.strength.value == 1.0
    bare = refit(PairBlock(block.phi, block.offsets), golds, newton(4).theta)
    assert min(head.strength.tried) < 0.7 * min(bare.strength.tried)
