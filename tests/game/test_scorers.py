"""Each scorer against the formula it stands for, written out in full matrices."""

import math

import numpy as np
import pytest

from stacksl.errors import FeatureError, SettingsError
from stacksl.game.confidence import radius
from stacksl.game.inputs import PairFeatures, SharedFeatures
from stacksl.game.losses import clip, cross_entropy, kl, softmax
from stacksl.game.scorers import ScorerSettings, make_scorer, tie_argmax
from stacksl.items import Label, Reward


def _pairs(rng, count=4, dim=5):
    phi = rng.normal(size=(count, dim))
    return PairFeatures(phi / np.linalg.norm(phi, axis=1, keepdims=True))


def _shared(rng, classes=4, dim=5):
    h = rng.normal(size=dim)
    return SharedFeatures(h / np.linalg.norm(h), classes)


def _kron(inputs):
    """The rows e_x ⊗ h that class heads never build."""
    return PairFeatures(np.kron(np.eye(inputs.classes), inputs.h))


def _scorer(name, *, dim=5, classes=None, seed=0, **settings):
    return make_scorer(
        name, dim=dim, classes=classes, settings=ScorerSettings(**settings), seed=seed
    )


ALL = (0, 1, 2, 3)


# --- sgd


def test_sgd_step_is_the_printed_update():
    rng = np.random.default_rng(0)
    settings = {"learning_rate": 0.3, "kl_weight": 0.2, "clip": "scale", "clip_level": 1.0}
    scorer = _scorer("sgd", **settings)
    theta = np.zeros(5)
    for _ in range(20):
        inputs, gold = _pairs(rng), int(rng.integers(4))
        scores = inputs.phi @ theta
        slope = clip(*cross_entropy(scores, gold), 1.0, "scale")[1]
        slope = slope + 0.2 * kl(scores, np.zeros(4))[1]
        theta = theta - 0.3 * inputs.phi.T @ slope
        scorer.step(inputs, ALL, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta, theta, atol=1e-14)
    assert scorer.learnt == 20


@pytest.mark.parametrize("reference", ["frozen", "ema", "previous"])
@pytest.mark.parametrize("inner_steps", [1, 3])
def test_sgd_class_heads_are_sgd_on_the_kronecker_rows(reference, inner_steps):
    rng = np.random.default_rng(1)
    settings = {"reference": reference, "inner_steps": inner_steps, "ema_decay": 0.8}
    heads = _scorer("sgd", classes=4, **settings)
    flat = _scorer("sgd", dim=20, **settings)
    for turn in range(30):
        inputs = _shared(rng)
        choice, gold = int(rng.integers(3)), int(rng.integers(4))
        feedback = None if turn % 5 == 4 else Label(gold)
        shown = ALL if turn % 2 else tuple(sorted({0, 2, gold}))
        heads.step(inputs, shown, choice, feedback)
        flat.step(_kron(inputs), shown, choice, feedback)
    np.testing.assert_allclose(heads.theta.ravel(), flat.theta, atol=1e-13)
    inputs = _shared(rng)
    ours, theirs = heads.bounds(inputs, (2, 0, 3)), flat.bounds(_kron(inputs), (2, 0, 3))
    for name in ("scores", "probabilities", "widths", "pair_widths", "radius", "choice"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)
    assert set(heads.tracker.blocks) == {0, 1, 2}  # class 3 was never chosen


def test_previous_reference_has_no_pull_in_one_step_and_some_in_three():
    inputs = _pairs(np.random.default_rng(2))
    for inner_steps in (1, 3):
        free = _scorer("sgd", reference="previous", kl_weight=0.0, inner_steps=inner_steps)
        held = _scorer("sgd", reference="previous", kl_weight=5.0, inner_steps=inner_steps)
        for scorer in (free, held):
            scorer.step(inputs, ALL, 0, Label(1))
        assert np.array_equal(free.theta, held.theta) == (inner_steps == 1)
        before = held.theta.copy()
        if inner_steps == 1:
            held.step(inputs, ALL, 0, None)
            np.testing.assert_allclose(held.theta, before, atol=1e-15)


def test_kl_only_step_pulls_back_to_the_frozen_policy_and_is_no_label():
    rng = np.random.default_rng(3)
    scorer, inputs = _scorer("sgd", kl_weight=1.0), _pairs(rng)
    scorer.step(inputs, ALL, 0, Label(1))
    away = kl(scorer.scores(inputs), np.zeros(4))[0]
    for _ in range(10):
        scorer.step(inputs, ALL, 0, None)
    assert kl(scorer.scores(inputs), np.zeros(4))[0] < away
    assert (scorer.learnt, scorer.rounds) == (1, 1)


def test_ema_reference_follows_theta():
    rng = np.random.default_rng(4)
    scorer, reference = _scorer("sgd", reference="ema", ema_decay=0.5), np.zeros(5)
    for _ in range(5):
        scorer.step(_pairs(rng), ALL, 0, Label(2))
        reference = 0.5 * reference + 0.5 * scorer.theta
    np.testing.assert_allclose(scorer.reference, reference, atol=1e-15)


def test_literal_clip_below_the_first_loss_learns_nothing_and_says_so():
    # At θ = 0 the loss is log K, so a level below it has zero gradient for ever (DESIGN D10).
    rng = np.random.default_rng(5)
    literal = _scorer("sgd", clip="literal", clip_level=math.log(4) - 0.01)
    scaled = _scorer("sgd", clip="scale", clip_level=math.log(4) - 0.01)
    for _ in range(10):
        inputs = _pairs(rng)
        literal.step(inputs, ALL, 0, Label(1))
        scaled.step(inputs, ALL, 0, Label(1))
    assert not literal.theta.any()
    assert literal.clipped == 10
    assert scaled.theta.any()


def test_quantile_clip_leaves_the_first_labels_alone_then_clips_a_few():
    rng = np.random.default_rng(6)
    scorer = _scorer("sgd", clip="scale", clip_level=None, learning_rate=0.5)
    for turn in range(400):
        scorer.step(_pairs(rng), ALL, 0, Label(int(rng.integers(4))))
        if turn == 19:
            assert scorer.clipped == 0
    assert 5 <= scorer.clipped <= 60  # about 5 % of 380
    assert scorer._level() == pytest.approx(np.quantile(scorer._losses, 0.95), rel=0.02)


def test_sgd_infinite_clip_is_no_clip():
    rng = np.random.default_rng(7)
    loose = _scorer("sgd", clip="literal", clip_level=math.inf)
    free = _scorer("sgd", clip="none")
    for _ in range(30):
        inputs, gold = _pairs(rng), int(rng.integers(4))
        loose.step(inputs, ALL, 0, Label(gold))
        free.step(inputs, ALL, 0, Label(gold))
    np.testing.assert_array_equal(loose.theta, free.theta)
    assert loose.clipped == 0


# --- what enters V


@pytest.mark.parametrize("track", ["labelled", "all"])
def test_sgd_matrix_gets_the_choice(track):
    rng = np.random.default_rng(8)
    scorer, gram = _scorer("sgd", track=track), np.eye(5)
    for turn in range(12):
        inputs, choice = _pairs(rng), int(rng.integers(4))
        asked = turn % 3 == 0
        if asked:
            scorer.step(inputs, ALL, choice, Label(1))
        else:
            scorer.skip(inputs, ALL, choice)
        if asked or track == "all":
            gram += np.outer(inputs.phi[choice], inputs.phi[choice])
    np.testing.assert_allclose(scorer.tracker.confidence.gram_inv, np.linalg.inv(gram), atol=1e-13)


def test_track_theta_keeps_no_matrix_and_the_same_theta():
    rng = np.random.default_rng(9)
    bare, full = _scorer("sgd", track="theta"), _scorer("sgd")
    for _ in range(8):
        inputs = _pairs(rng)
        for scorer in (bare, full):
            scorer.step(inputs, ALL, 0, Label(1))
            scorer.skip(inputs, ALL, 0)
    np.testing.assert_array_equal(bare.theta, full.theta)
    view = bare.bounds(inputs, ALL)
    assert np.isnan(view.widths).all()
    assert np.isnan(view.pair_widths).all()
    assert view.choice == int(np.argmax(view.scores))
    assert not any("gram" in name for name in bare.state())


@pytest.mark.parametrize("counts", ["learnt", "rounds"])
@pytest.mark.parametrize("name", ["sgd", "ridge", "newton"])
def test_radius_counts_labels_or_rounds(name, counts):
    rng = np.random.default_rng(10)
    scorer = _scorer(name, radius_counts=counts, noise=0.5, norm_bound=2.0)
    scorer.step(_pairs(rng), ALL, 0, Label(1))
    for _ in range(3):
        scorer.skip(_pairs(rng), ALL, 0)
    expected = radius(0.5, 5, 1 if counts == "learnt" else 4, 1.0, 0.05, 2.0)
    assert scorer.bounds(_pairs(rng), ALL).radius == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("name", ["sgd", "ridge", "newton"])
def test_skips_shrink_widths_only_where_all_rounds_are_tracked(name, classes):
    rng = np.random.default_rng(11)
    make = _pairs if classes is None else _shared
    inputs = make(rng)
    for track in ("labelled", "all"):
        scorer = _scorer(name, classes=classes, track=track)
        before = scorer.bounds(inputs, ALL).widths
        scorer.skip(inputs, ALL, 0)
        after = scorer.bounds(inputs, ALL).widths
        assert (after[0] < before[0]) == (track == "all")
        assert scorer.learnt == 0


# --- ridge


def test_ridge_on_rewards_is_the_ridge_estimate():
    rng = np.random.default_rng(12)
    scorer, rows, values = _scorer("ridge", ridge=0.5), [], []
    for _ in range(40):
        inputs, choice, value = _pairs(rng), int(rng.integers(4)), float(rng.normal())
        scorer.step(inputs, ALL, choice, Reward(value))
        rows.append(inputs.phi[choice])
        values.append(value)
    rows, values = np.array(rows), np.array(values)
    expected = np.linalg.solve(0.5 * np.eye(5) + rows.T @ rows, rows.T @ values)
    np.testing.assert_allclose(scorer.theta, expected, atol=1e-13)
    view = scorer.bounds(inputs, ALL)
    np.testing.assert_allclose(view.probabilities, softmax(view.scores))


def test_ridge_on_labels_regresses_on_the_whole_loss_set():
    rng = np.random.default_rng(13)
    scorer, rows, values = _scorer("ridge"), [], []
    for turn in range(25):
        inputs = _pairs(rng)
        shown = (0, 1, 3) if turn % 2 else ALL
        scorer.step(inputs, shown, 0, Label(3))
        rows += [inputs.phi[x] for x in shown]
        values += [float(x == 3) for x in shown]
    rows, values = np.array(rows), np.array(values)
    expected = np.linalg.solve(np.eye(5) + rows.T @ rows, rows.T @ values)
    np.testing.assert_allclose(scorer.theta, expected, atol=1e-13)


def test_ridge_class_heads_are_ridge_on_the_kronecker_rows():
    rng = np.random.default_rng(14)
    heads, flat = _scorer("ridge", classes=4), _scorer("ridge", dim=20)
    for _ in range(30):
        inputs, gold = _shared(rng), int(rng.integers(4))
        heads.step(inputs, ALL, 0, Label(gold))
        flat.step(_kron(inputs), ALL, 0, Label(gold))
    np.testing.assert_allclose(heads.theta.ravel(), flat.theta, atol=1e-12)
    inputs = _shared(rng)
    ours, theirs = heads.bounds(inputs, (3, 1)), flat.bounds(_kron(inputs), (3, 1))
    for name in ("scores", "probabilities", "widths", "pair_widths", "choice"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)


def test_ridge_class_heads_learn_absent_classes_as_zero():
    rng = np.random.default_rng(15)
    some, every = _scorer("ridge", classes=4), _scorer("ridge", classes=4)
    for _ in range(10):
        inputs = _shared(rng)
        some.step(inputs, (1, 2), 1, Label(2))
        every.step(inputs, ALL, 1, Label(2))
    np.testing.assert_array_equal(some.theta, every.theta)


def test_ridge_policy_is_the_share_of_positive_scores():
    scorer, inputs = _scorer("ridge"), PairFeatures(np.eye(5)[:4])
    np.testing.assert_array_equal(scorer.bounds(inputs, ALL).probabilities, 0.25)
    scorer.theta = np.array([0.6, -0.5, 0.2, 0.0, 0.0])
    np.testing.assert_allclose(scorer.bounds(inputs, ALL).probabilities, [0.75, 0, 0.25, 0])
    scorer.theta = -np.ones(5)
    np.testing.assert_array_equal(scorer.bounds(inputs, (1, 2)).probabilities, 0.5)


def test_feedback_that_a_scorer_cannot_learn_is_refused():
    rng = np.random.default_rng(16)
    shared, pairs = _shared(rng), _pairs(rng)
    for scorer, inputs in (
        (_scorer("ridge", classes=4), shared),
        (_scorer("newton", classes=4), shared),
        (_scorer("newton"), pairs),
        (_scorer("sgd"), pairs),
    ):
        with pytest.raises(SettingsError, match="reward"):
            scorer.step(inputs, ALL, 0, Reward(1.0))
        assert scorer.learnt == 0
    mixed = _scorer("ridge")
    mixed.step(pairs, ALL, 0, Reward(1.0))
    with pytest.raises(SettingsError, match="both came"):
        mixed.step(pairs, ALL, 0, Label(1))


# --- newton


def _fisher(rows, theta):
    policy = softmax(rows @ theta)
    centred = rows - policy @ rows
    return (centred.T * policy) @ centred


@pytest.mark.parametrize("count", [2, 4, 12])
def test_newton_on_pairs_is_the_dense_recursion(count):
    rng = np.random.default_rng(17)
    scorer, theta, information = _scorer("newton", ridge=0.7), np.zeros(5), 0.7 * np.eye(5)
    shown = tuple(range(count))
    for _ in range(40):
        inputs, gold = _pairs(rng, count), int(rng.integers(count))
        rows = inputs.phi
        gradient = softmax(rows @ theta) @ rows - rows[gold]
        theta = theta - np.linalg.solve(information + _fisher(rows, theta), gradient)
        information = information + _fisher(rows, theta)
        scorer.step(inputs, shown, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta, theta, atol=1e-11)
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose(scorer.confidence.gram_inv, inverse, atol=1e-12)
    view = scorer.bounds(inputs, shown)
    assert view.information == pytest.approx(np.trace(_fisher(inputs.phi, theta) @ inverse))


def test_newton_class_heads_use_bohnings_bound_exactly():
    rng = np.random.default_rng(18)
    classes, dim, ridge = 4, 3, 0.6
    scorer = _scorer("newton", dim=dim, classes=classes, ridge=ridge)
    centring = np.eye(classes) - 1.0 / classes
    full, theta = ridge * np.eye(classes * dim), np.zeros(classes * dim)
    for turn in range(30):
        inputs, gold = _shared(rng, classes, dim), int(rng.integers(classes))
        shown = tuple(sorted({0, 1, gold})) if turn % 3 == 0 else ALL
        rows = _kron(inputs).phi[list(shown)]
        full += 0.5 * np.kron(centring, np.outer(inputs.h, inputs.h))
        gradient = softmax(rows @ theta) @ rows - rows[shown.index(gold)]
        theta = theta - np.linalg.solve(full, gradient)
        scorer.step(inputs, shown, 0, Label(gold))
    np.testing.assert_allclose(scorer.theta.ravel(), theta, atol=1e-12)
    inputs = _shared(rng, classes, dim)
    rows, inverse = _kron(inputs).phi, np.linalg.inv(full)
    view = scorer.bounds(inputs, ALL)
    np.testing.assert_allclose(view.widths, np.sqrt(np.diag(rows @ inverse @ rows.T)), rtol=1e-12)
    apart = rows - rows[view.choice]
    pairs = np.sqrt(np.diag(apart @ inverse @ apart.T))
    np.testing.assert_allclose(view.pair_widths, pairs, atol=1e-12)
    assert view.information == pytest.approx(np.trace(_fisher(rows, theta) @ inverse))
    assert view.radius == pytest.approx(radius(1.0, classes * dim, 30, ridge, 0.05, 1.0))


def test_bohnings_bound_lies_above_the_exact_information():
    # H_exact ⪯ H_bound, so widths are never wider than those of the exact Kd × Kd matrix.
    rng = np.random.default_rng(19)
    classes, dim = 4, 3
    scorer = _scorer("newton", dim=dim, classes=classes)
    exact = np.eye(classes * dim)
    for _ in range(40):
        inputs, gold = _shared(rng, classes, dim), int(rng.integers(classes))
        shown = tuple(sorted({0, gold, 2}))
        scorer.step(inputs, shown, 0, Label(gold))
        exact += _fisher(_kron(inputs).phi[list(shown)], scorer.theta.ravel())
    inverse = np.linalg.inv(exact)
    for _ in range(20):
        inputs = _shared(rng, classes, dim)
        rows = _kron(inputs).phi
        view = scorer.bounds(inputs, ALL)
        assert (view.widths <= np.sqrt(np.diag(rows @ inverse @ rows.T)) + 1e-12).all()
        apart = rows - rows[view.choice]
        assert (view.pair_widths <= np.sqrt(np.diag(apart @ inverse @ apart.T)) + 1e-12).all()


@pytest.mark.parametrize("seed", range(3))
def test_newton_set_covers_the_truth_of_a_softmax_world(seed):
    rng = np.random.default_rng(seed)
    truth = 2.0 * rng.normal(size=5)
    scorer = _scorer("newton", norm_bound=float(np.linalg.norm(truth)))
    for _ in range(500):
        inputs = _pairs(rng)
        gold = int(rng.choice(4, p=softmax(inputs.phi @ truth)))
        reach = scorer.bounds(inputs, ALL).radius
        assert scorer.confidence.contains(truth, scorer.theta, reach)
        scorer.step(inputs, ALL, 0, Label(gold))


# --- the action, ties, settings


def test_ties_go_to_the_lowest_candidate_whatever_the_order():
    values = np.array([1.0, 3.0, 3.0 - 1e-10])
    assert tie_argmax(values, 3.0) == 1
    assert tie_argmax(values, 3.0, (5, 4, 2)) == 2
    assert tie_argmax(values, 1e-3, (5, 4, 2)) == 1
    view = _scorer("ridge").bounds(PairFeatures(np.eye(5)), (4, 2, 3))
    assert view.choice == 1


def test_optimism_prefers_the_unknown_and_greed_the_known():
    inputs = PairFeatures(np.eye(5)[:2])
    greedy, hopeful = _scorer("ridge"), _scorer("ridge", action="ucb")
    for scorer in (greedy, hopeful):
        for _ in range(20):
            scorer.step(inputs, (0, 1), 0, Reward(0.1))
    assert greedy.bounds(inputs, (0, 1)).choice == 0
    assert hopeful.bounds(inputs, (0, 1)).choice == 1


def test_margin_and_spread():
    scorer, inputs = _scorer("ridge"), PairFeatures(np.eye(5))
    scorer.theta = np.array([1.0, 0.4, -2.0, 0.0, 0.0])
    view = scorer.bounds(inputs, (0, 1, 2))
    assert view.margin == pytest.approx(0.6)
    assert view.spread == pytest.approx(3.0 + 2.0 * view.radius)
    assert scorer.bounds(inputs, (1,)).margin == math.inf


def test_settings_name_every_mistake_at_once():
    with pytest.raises(SettingsError) as caught:
        ScorerSettings(ridge=0.0, delta=2.0, reference="first", inner_steps=0)
    for word in ("ridge", "delta", "reference", "inner_steps"):
        assert word in str(caught.value)
    with pytest.raises(SettingsError, match="keeps none"):
        ScorerSettings(track="theta", action="ucb")
    with pytest.raises(SettingsError, match="kl_weight"):
        ScorerSettings(kl_weight=math.nan)


def test_make_scorer_refuses_what_cannot_be():
    with pytest.raises(SettingsError, match="did you mean 'newton'"):
        _scorer("newtn")
    for name in ("ridge", "newton"):
        with pytest.raises(SettingsError, match="track"):
            _scorer(name, track="theta")


@pytest.mark.parametrize("name", ["ridge", "newton"])
@pytest.mark.parametrize("classes", [None, 4])
def test_settings_of_the_gradient_step_do_not_reach_the_others(name, classes):
    rng = np.random.default_rng(20)
    plain = _scorer(name, classes=classes)
    other = _scorer(
        name,
        classes=classes,
        kl_weight=9.0,
        learning_rate=7.0,
        clip="literal",
        clip_level=0.1,
        reference="ema",
        inner_steps=4,
    )
    for _ in range(5):
        inputs = _pairs(rng) if classes is None else _shared(rng)
        for scorer in (plain, other):
            scorer.step(inputs, ALL, 0, Label(1))
            scorer.step(inputs, ALL, 0, None)
    np.testing.assert_array_equal(plain.theta, other.theta)


def test_features_of_another_dimension_are_refused():
    rng = np.random.default_rng(21)
    with pytest.raises(FeatureError, match="dimension 7"):
        _scorer("ridge").bounds(_pairs(rng, dim=7), ALL)
    with pytest.raises(FeatureError, match="shared features"):
        _scorer("sgd").bounds(_shared(rng), ALL)
    with pytest.raises(FeatureError, match="'theta'"):
        _scorer("newton").restore(_scorer("newton", dim=6).state())


def test_a_loss_set_without_the_gold_is_refused():
    with pytest.raises(ValueError, match="lacks the gold"):
        _scorer("sgd").step(_pairs(np.random.default_rng(22)), (0, 1), 0, Label(3))


def test_a_kl_weight_that_is_adjusted_never_makes_theta_diverge() -> None:
    """Against the frozen start KL only grows as labels come in: the pull stays below 1/η."""
    rng = np.random.default_rng(11)
    settings = ScorerSettings(learning_rate=0.1, kl_target=1e-4)
    scorer = make_scorer("sgd", dim=4, classes=None, settings=settings)
    for _ in range(400):
        phi = rng.normal(size=(3, 4))
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        scorer.step(PairFeatures(phi), (0, 1, 2), 0, Label(int(np.argmax(phi[:, 0]))))
    assert np.abs(scorer.theta).max() < 2.0
    assert scorer.kl_weight == pytest.approx(10.0)
