"""Objectives on tensors against `core.losses`: values, and gradients through autograd."""

import math

import numpy as np
import pytest

from stacksl.core import losses
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.training.refit import OBJECTIVES, Example, clip, cross_entropy

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")

SCORES = np.array([0.3, -1.2, 2.0, 0.3, -4.0])
ITEM = TokenItem("q", (1, 2, 3), ((4, 5), (6,), (7, 8, 9)), (2, 1, 3))
ALONE = TokenItem("q", (1,), ((4, 5), (6,), (7, 8, 9)), (2, 1, 3))


def slope(value, scores):
    """Value and gradient of a function of scores (m,) in float64."""
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    found = value(leaf)
    found.backward()
    return float(found.detach()), leaf.grad.numpy()


@pytest.mark.parametrize("reading", ["none", "literal", "scale"])
@pytest.mark.parametrize("level", [0.0, 0.4, 1.9, 2.0, 50.0, math.inf])
def test_clip_is_that_of_the_game(reading, level):
    gold = 3  # a loss of 1.99 nats, between the levels
    expected = losses.clip(*losses.cross_entropy(SCORES, gold), level, reading)
    value, gradient = slope(lambda s: clip(cross_entropy(s, gold), level, reading), SCORES)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-14)


def test_what_each_objective_reads():
    example = Example(ITEM, ALONE, 2, (2, 0), (0.1, 0.2, 0.3))
    assert set(OBJECTIVES) == {"sft", "ce", "ce-hard", "stacksl"}
    sft = example.read_by("sft")
    assert (sft.item.options, sft.item.lengths, sft.gold) == (((7, 8, 9),), (3,), 0)
    assert sft.alone is None
    assert sft.reference == (0.3,)
    ce = example.read_by("ce")
    assert (ce.item, ce.alone, ce.gold, ce.reference) == (ITEM, ALONE, 2, (0.1, 0.2, 0.3))
    assert ce.tokens == (3 + 1 + 0 + 2) + (1 + 1 + 0 + 2)
    for objective in ("ce-hard", "stacksl"):
        hard = example.read_by(objective)
        assert hard.item.options == ((7, 8, 9), (4, 5))
        assert hard.alone.options == hard.item.options
        assert hard.item.lengths == (3, 2)
        assert (hard.gold, hard.reference) == (0, (0.3, 0.1))
    assert Example(ITEM, None, 2, (2, 0)).read_by("stacksl").alone is None
    assert Example(ITEM, None, None, (1, 2)).read_by("stacksl").gold is None
