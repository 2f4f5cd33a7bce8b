"""A scorer that takes on a class goes on as one that had it all along and never saw it."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.blocks import SharedFeatures
from stacksl.core.scorers import SCORERS, Scorer, ScorerSettings, make_scorer, widened
from stacksl.types import Label

DIM, CLASSES = 5, 3
RNG = np.random.default_rng(4)
ROWS = RNG.normal(size=(40, DIM)) / 4
GOLD = RNG.integers(0, CLASSES, 40).tolist()


def taught(scorer: Scorer, rows: range, classes: int, gold: list[int] = GOLD) -> Scorer:
    everything = tuple(range(classes))
    for n in rows:
        inputs = SharedFeatures(ROWS[n], classes)
        choice = scorer.bounds(inputs, everything).choice
        if n % 4 == 3:
            scorer.skip(inputs, everything, choice)
        else:
            scorer.step(inputs, everything, choice, Label(gold[n]))
    return scorer


def made(name: str, classes: int, **settings: object) -> Scorer:
    return make_scorer(name, dim=DIM, classes=classes, settings=ScorerSettings(**settings), seed=7)


@pytest.mark.parametrize("name", sorted(SCORERS))
@pytest.mark.parametrize("track", ["labelled", "all"])
def test_what_was_learnt_stays_and_the_new_head_is_zero(name: str, track: str) -> None:
    before = taught(made(name, CLASSES, track=track), range(20), CLASSES)
    state = before.state()
    after = widened(before, CLASSES + 2, 7)
    assert np.array_equal(after.state()["theta"][:CLASSES], state["theta"])
    assert not after.state()["theta"][CLASSES:].any()
    assert after.learnt == before.learnt
    old = SharedFeatures(ROWS[30], CLASSES)
    new = SharedFeatures(ROWS[30], CLASSES + 2)
    assert np.array_equal(after.scores(new)[:CLASSES], before.scores(old))
    for key, array in before.state().items():
        assert np.array_equal(array, state[key]), "the scorer that was widened is left as it was"


def test_ridge_is_as_one_that_had_the_class_from_the_start() -> None:
    """One-hot regressions do not know of each other: a class without a label is at zero."""
    grown = widened(taught(made("ridge", CLASSES), range(20), CLASSES), CLASSES + 1, 7)
    ever = taught(made("ridge", CLASSES + 1), range(20), CLASSES + 1)
    gold = [CLASSES if n % 5 == 0 else label for n, label in enumerate(GOLD)]
    for scorer in (grown, ever):
        taught(scorer, range(20, 40), CLASSES + 1, gold)
    for key, array in ever.state().items():
        assert np.array_equal(array, grown.state()[key]), key


def test_the_moving_reference_of_sgd_grows_too() -> None:
    grown = widened(taught(made("sgd", CLASSES, reference="ema"), range(20), CLASSES), 4, 7)
    reference = grown.state()["reference"]
    assert reference.shape == (4, DIM)
    assert reference[:CLASSES].any()
    assert not reference[CLASSES:].any()
