"""The scorers: steps by hand, ties, tracking, and classes that are added."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.confidence import radius
from stacksl.core.losses import clip, cross_entropy, kl, softmax
from stacksl.core.scorers import SCORERS, Scorer, ScorerSettings, make_scorer, tie_argmax, widened
from stacksl.core.scorers.base import LEAST_RIDGE
from stacksl.errors import SettingsError
from stacksl.runs.settings.resolve import resolve
from stacksl.types import Label
from stacksl_lab.rewards import Reward, RewardRidge
from stacksl_lab.statistics.estimates import holds

from .scorer_cases import ALL, fisher, fresh, kronecker, pair_inputs, shared_inputs


def test_sgd_step_is_the_printed_update() -> None:
    rng = np.random.default_rng(0)
    settings: dict[str, Any] = {
        "learning_rate": 0.3,
        "kl_weight": 0.2,
        "clip": "scale",
        "clip_level": 1.0,
    }
    scorer = fresh("sgd", **settings)
    theta = np.zeros(5)
    for _ in range(20):
        inputs, gold = pair_inputs(rng), int(rng.integers(4))
        scores = inputs.phi @ theta
        slope = clip(*cross_entropy(scores, gold), 1.0, "scale")[1]
        slope = slope + 0.2 * kl(scores, np.zeros(4))[1]
        theta = theta - 0.3 * inputs.phi.T @ slope
        scorer.step(inputs, ALL, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta, theta, atol=1e-14)
    assert scorer.learned == 20


@pytest.mark.parametrize(
    ("name", "reference"), [("sgd", "frozen"), ("sgd", "previous"), ("ridge", "frozen")]
)
def test_class_heads_are_the_scorer_on_the_kronecker_rows(name: str, reference: str) -> None:
    """Ridge reads every class of a label: those that are not presented are zeros."""
    rng = np.random.default_rng(1)
    heads = fresh(name, classes=4, reference=reference)
    flat = fresh(name, dim=20, reference=reference)
    for turn in range(30):
        inputs = shared_inputs(rng)
        choice, gold = int(rng.integers(3)), int(rng.integers(4))
        feedback = None if turn % 5 == 4 and name == "sgd" else Label(gold)
        shown = ALL if turn % 2 or name == "ridge" else tuple(sorted({0, 2, gold}))
        heads.step(inputs, shown, choice, feedback)
        flat.step(kronecker(inputs), shown, choice, feedback)
    np.testing.assert_allclose(heads.theta.ravel(), flat.theta, atol=1e-12)
    inputs = shared_inputs(rng)
    ours, theirs = heads.bounds(inputs, (2, 0, 3)), flat.bounds(kronecker(inputs), (2, 0, 3))
    for field in ("scores", "probabilities", "widths", "pair_widths", "choice"):
        np.testing.assert_allclose(getattr(ours, field), getattr(theirs, field), atol=1e-12)
    if name == "sgd":
        assert ours.radius == pytest.approx(theirs.radius, abs=1e-12)
        assert set(heads.tracker.blocks) == {0, 1, 2}  # class 3 was never chosen


def test_kl_only_step_pulls_back_to_the_frozen_policy_and_is_no_label() -> None:
    rng = np.random.default_rng(3)
    scorer, inputs = fresh("sgd", kl_weight=1.0), pair_inputs(rng)
    scorer.step(inputs, ALL, 0, Label(1))
    away = kl(scorer.scores(inputs), np.zeros(4))[0]
    for _ in range(10):
        scorer.step(inputs, ALL, 0, None)
    assert kl(scorer.scores(inputs), np.zeros(4))[0] < away
    assert (scorer.learned, scorer.rounds) == (1, 1)


def test_literal_clip_below_the_first_loss_learns_nothing_and_says_so() -> None:
    # At θ = 0 the loss is log K, so a level below has zero gradient (`docs/paper.md`, D10).
    rng = np.random.default_rng(5)
    literal = fresh("sgd", clip="literal", clip_level=math.log(4) - 0.01)
    scaled = fresh("sgd", clip="scale", clip_level=math.log(4) - 0.01)
    for _ in range(10):
        inputs = pair_inputs(rng)
        literal.step(inputs, ALL, 0, Label(1))
        scaled.step(inputs, ALL, 0, Label(1))
    assert not literal.theta.any()
    assert literal.clipped == 10
    assert scaled.theta.any()


def test_quantile_clip_leaves_the_first_labels_alone_then_clips_a_few() -> None:
    rng = np.random.default_rng(6)
    scorer = fresh("sgd", clip="scale", clip_level=None, learning_rate=0.5)
    for turn in range(400):
        scorer.step(pair_inputs(rng), ALL, 0, Label(int(rng.integers(4))))
        if turn == 19:
            assert scorer.clipped == 0
    assert 5 <= scorer.clipped <= 60  # about 5% of 380
    assert scorer._level() == pytest.approx(np.quantile(scorer._losses, 0.95), rel=0.02)


# Ridge against the ridge estimate, solved in full matrices --------------------------------------


def test_ridge_on_rewards_is_the_ridge_estimate() -> None:
    rng = np.random.default_rng(12)
    scorer, rows, values = RewardRidge(5, ScorerSettings(ridge=0.5)), [], []
    for _ in range(40):
        inputs, choice, value = pair_inputs(rng), int(rng.integers(4)), float(rng.normal())
        scorer.reward(inputs, choice, Reward(value))
        rows.append(inputs.phi[choice])
        values.append(value)
    matrix, targets = np.array(rows), np.array(values)
    expected = np.linalg.solve(0.5 * np.eye(5) + matrix.T @ matrix, matrix.T @ targets)
    np.testing.assert_allclose(scorer.theta, expected, atol=1e-13)
    view = scorer.bounds(inputs, ALL)
    np.testing.assert_allclose(view.probabilities, softmax(view.scores))


def test_ridge_on_labels_regresses_on_the_whole_loss_set() -> None:
    rng = np.random.default_rng(13)
    scorer, rows, values = fresh("ridge"), [], []
    for turn in range(25):
        inputs = pair_inputs(rng)
        shown = (0, 1, 3) if turn % 2 else ALL
        scorer.step(inputs, shown, 0, Label(3))
        rows += [inputs.phi[x] for x in shown]
        values += [float(x == 3) for x in shown]
    matrix, targets = np.array(rows), np.array(values)
    expected = np.linalg.solve(np.eye(5) + matrix.T @ matrix, matrix.T @ targets)
    np.testing.assert_allclose(scorer.theta, expected, atol=1e-13)


def test_ridge_class_heads_learn_absent_classes_as_zero() -> None:
    rng = np.random.default_rng(15)
    some, every = fresh("ridge", classes=4), fresh("ridge", classes=4)
    for _ in range(10):
        inputs = shared_inputs(rng)
        some.step(inputs, (1, 2), 1, Label(2))
        every.step(inputs, ALL, 1, Label(2))
    np.testing.assert_array_equal(some.theta, every.theta)


def test_ridge_policy_is_the_share_of_positive_scores() -> None:
    scorer, inputs = fresh("ridge"), PairFeatures(np.eye(5)[:4])
    np.testing.assert_array_equal(scorer.bounds(inputs, ALL).probabilities, 0.25)
    scorer.theta = np.array([0.6, -0.5, 0.2, 0.0, 0.0])
    np.testing.assert_allclose(scorer.bounds(inputs, ALL).probabilities, [0.75, 0, 0.25, 0])
    scorer.theta = -np.ones(5)
    np.testing.assert_array_equal(scorer.bounds(inputs, (1, 2)).probabilities, 0.5)


# The Newton step against the dense recursion, and its bound against the exact information -------


@pytest.mark.parametrize("count", [2, 4, 12])
def test_newton_on_pairs_is_the_dense_recursion(count: int) -> None:
    rng = np.random.default_rng(17)
    scorer, theta, information = fresh("newton", ridge=0.7), np.zeros(5), 0.7 * np.eye(5)
    shown = tuple(range(count))
    for _ in range(40):
        inputs, gold = pair_inputs(rng, count), int(rng.integers(count))
        rows = inputs.phi
        gradient = softmax(rows @ theta) @ rows - rows[gold]
        theta = theta - np.linalg.solve(information + fisher(rows, theta), gradient)
        information = information + fisher(rows, theta)
        scorer.step(inputs, shown, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta, theta, atol=1e-11)
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose(scorer.confidence.gram_inv, inverse, atol=1e-12)
    view = scorer.bounds(inputs, shown)
    assert view.information == pytest.approx(np.trace(fisher(inputs.phi, theta) @ inverse))


def test_newton_class_heads_use_bohnings_bound_exactly() -> None:
    rng = np.random.default_rng(18)
    classes, dim, ridge = 4, 3, 0.6
    scorer = fresh("newton", dim=dim, classes=classes, ridge=ridge)
    centering = np.eye(classes) - 1.0 / classes
    full, theta = ridge * np.eye(classes * dim), np.zeros(classes * dim)
    for turn in range(30):
        inputs, gold = shared_inputs(rng, classes, dim), int(rng.integers(classes))
        shown = tuple(sorted({0, 1, gold})) if turn % 3 == 0 else ALL
        rows = kronecker(inputs).phi[list(shown)]
        full += 0.5 * np.kron(centering, np.outer(inputs.h, inputs.h))
        gradient = softmax(rows @ theta) @ rows - rows[shown.index(gold)]
        theta = theta - np.linalg.solve(full, gradient)
        scorer.step(inputs, shown, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta.ravel(), theta, atol=1e-12)
    inputs = shared_inputs(rng, classes, dim)
    rows, inverse = kronecker(inputs).phi, np.linalg.inv(full)
    view = scorer.bounds(inputs, ALL)
    np.testing.assert_allclose(view.widths, np.sqrt(np.diag(rows @ inverse @ rows.T)), rtol=1e-12)
    apart = rows - rows[view.choice]
    pairs = np.sqrt(np.diag(apart @ inverse @ apart.T))
    np.testing.assert_allclose(view.pair_widths, pairs, atol=1e-12)
    assert view.information == pytest.approx(np.trace(fisher(rows, theta) @ inverse))
    assert view.radius == pytest.approx(radius(1.0, classes * dim, 30, ridge, 0.05, 1.0))


def test_newton_set_covers_a_short_truth_at_ridge_one() -> None:
    """S is some 4.5 here; of a longer θ* or at another λ the set is lost (docs/theory.md)."""
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=5)
    scorer = fresh("newton", norm_bound=float(np.linalg.norm(truth)))
    for _ in range(500):
        inputs = pair_inputs(rng)
        gold = int(rng.choice(4, p=softmax(inputs.phi @ truth)))
        reach = scorer.bounds(inputs, ALL).radius
        assert holds(scorer.confidence, truth, scorer.theta, reach)
        scorer.step(inputs, ALL, 0, Label(gold))


# Which candidate a scorer takes, and by how much: ties, optimism, margin and spread -------------


def test_ties_go_to_the_lowest_candidate_whatever_the_order() -> None:
    values = np.array([1.0, 3.0, 3.0 - 1e-10])
    assert tie_argmax(values, 3.0) == 1
    assert tie_argmax(values, 3.0, (5, 4, 2)) == 2
    assert tie_argmax(values, 1e-3, (5, 4, 2)) == 1
    view = fresh("ridge").bounds(PairFeatures(np.eye(5)), (4, 2, 3))
    assert view.choice == 1


# A scorer that takes on a class goes on as one that had it all along and never saw it -----------


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


def scorer_of(name: str, classes: int, **settings: object) -> Scorer:
    return make_scorer(name, dim=DIM, classes=classes, settings=ScorerSettings(**settings))


@pytest.mark.parametrize("name", sorted(SCORERS))
@pytest.mark.parametrize("track", ["labeled", "all"])
def test_what_was_learned_stays_and_the_new_head_is_zero(name: str, track: str) -> None:
    before = taught(scorer_of(name, CLASSES, track=track), range(20), CLASSES)
    state = before.state()
    after = widened(before, CLASSES + 2)
    assert np.array_equal(after.state()["theta"][:CLASSES], state["theta"])
    assert not after.state()["theta"][CLASSES:].any()
    assert after.learned == before.learned
    old = SharedFeatures(ROWS[30], CLASSES)
    new = SharedFeatures(ROWS[30], CLASSES + 2)
    assert np.array_equal(after.scores(new)[:CLASSES], before.scores(old))
    for key, array in before.state().items():
        assert np.array_equal(array, state[key]), "the scorer that was widened is left as it was"


def test_ridge_is_as_one_that_had_the_class_from_the_start() -> None:
    """One-hot regressions do not know of each other: a class without a label is at zero."""
    grown = widened(taught(scorer_of("ridge", CLASSES), range(20), CLASSES), CLASSES + 1)
    ever = taught(scorer_of("ridge", CLASSES + 1), range(20), CLASSES + 1)
    gold = [CLASSES if n % 5 == 0 else label for n, label in enumerate(GOLD)]
    for scorer in (grown, ever):
        taught(scorer, range(20, 40), CLASSES + 1, gold)
    for key, array in ever.state().items():
        assert np.array_equal(array, grown.state()[key]), key


# What a scorer counts and keeps of a round, labeled or not: its matrix, widths and radius ------


@pytest.mark.parametrize("track", ["labeled", "all"])
def test_sgd_matrix_gets_the_choice(track: str) -> None:
    rng = np.random.default_rng(8)
    scorer, gram = fresh("sgd", track=track), np.eye(5)
    for turn in range(12):
        inputs, choice = pair_inputs(rng), int(rng.integers(4))
        asked = turn % 3 == 0
        if asked:
            scorer.step(inputs, ALL, choice, Label(1))
        else:
            scorer.skip(inputs, ALL, choice)
        if asked or track == "all":
            gram += np.outer(inputs.phi[choice], inputs.phi[choice])
    np.testing.assert_allclose(scorer.tracker.blocks[0].gram_inv, np.linalg.inv(gram), atol=1e-13)


@pytest.mark.parametrize("counts", ["learned", "rounds"])
@pytest.mark.parametrize("name", ["sgd", "ridge", "newton"])
def test_radius_counts_labels_or_rounds(name: str, counts: str) -> None:
    rng = np.random.default_rng(10)
    scorer = fresh(name, radius_counts=counts, noise=0.5, norm_bound=2.0)
    scorer.step(pair_inputs(rng), ALL, 0, Label(1))
    for _ in range(3):
        scorer.skip(pair_inputs(rng), ALL, 0)
    expected = radius(0.5, 5, 1 if counts == "learned" else 4, 1.0, 0.05, 2.0)
    assert scorer.bounds(pair_inputs(rng), ALL).radius == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("name", ["sgd", "ridge", "newton"])
def test_skips_shrink_widths_only_where_all_rounds_are_tracked(
    name: str, classes: int | None
) -> None:
    rng = np.random.default_rng(11)
    make = pair_inputs if classes is None else shared_inputs
    inputs = make(rng)
    for track in ("labeled", "all"):
        scorer = fresh(name, classes=classes, track=track)
        before = scorer.bounds(inputs, ALL).widths
        scorer.skip(inputs, ALL, 0)
        after = scorer.bounds(inputs, ALL).widths
        assert (after[0] < before[0]) == (track == "all")
        assert scorer.learned == 0


# What a scorer refuses or does not read: settings, names and features ---------------------------


def test_a_ridge_below_the_floor_is_refused_in_a_run() -> None:
    below = math.nextafter(LEAST_RIDGE, 0.0)
    assert resolve({"scorer.ridge": LEAST_RIDGE}).settings.scorer.ridge == LEAST_RIDGE
    with pytest.raises(
        SettingsError, match=r"scorer.ridge must be greater than or equal to 0\.000001"
    ):
        resolve({"scorer.ridge": below})
