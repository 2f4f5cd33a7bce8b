"""What every scorer does: laws that are played with numbers drawn under a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Inputs, PairFeatures, SharedFeatures
from stacksl.core.scorers import Scorer, ScorerSettings, make_scorer
from stacksl.types import Label

DIM, COUNT = 6, 4
ALL = tuple(range(COUNT))

SETTINGS: Mapping[str, ScorerSettings] = {
    "default": ScorerSettings(),
    "all": ScorerSettings(track="all", clip="literal", radius_counts="rounds"),
    "ucb": ScorerSettings(reference="previous", clip_level=0.8, action="ucb", ridge=1e-3),
}

State: TypeAlias = Mapping[str, NDArray[Any]]
Law: TypeAlias = Callable[[str, bool, ScorerSettings], None]


def _make(name: str, classes: bool, settings: ScorerSettings | None = None) -> Scorer:
    return make_scorer(name, dim=DIM, classes=COUNT if classes else None, settings=settings)


def _inputs(rng: np.random.Generator, classes: bool, count: int = COUNT) -> Inputs:
    if classes:
        h = rng.normal(size=DIM)
        return SharedFeatures(h / np.linalg.norm(h), COUNT)
    phi = rng.normal(size=(count, DIM))
    return PairFeatures(phi / np.linalg.norm(phi, axis=1, keepdims=True))


def _play(scorer: Scorer, rng: np.random.Generator, classes: bool, rounds: int) -> None:
    for turn in range(rounds):
        inputs, gold = _inputs(rng, classes), int(rng.integers(COUNT))
        view = scorer.bounds(inputs, ALL)
        if turn % 3 == 2:
            scorer.skip(inputs, ALL, view.choice)
            scorer.step(inputs, ALL, view.choice, None)
        else:
            shown = ALL if turn % 2 else tuple(sorted({0, 3, gold}))
            scorer.step(inputs, shown, view.choice, Label(gold))


def _same(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].dtype == other[key].dtype
        np.testing.assert_array_equal(one[key], other[key], strict=True)


def expect_state_comes_back_bit_for_bit_and_the_run_goes_on_alike(
    name: str, classes: bool, settings: ScorerSettings
) -> None:
    """A restored scorer has the same state and goes on alike, bit for bit."""
    scorer, rng = _make(name, classes, settings), np.random.default_rng(0)
    _play(scorer, rng, classes, 60)
    state = scorer.state()
    assert all(isinstance(array, np.ndarray) for array in state.values())
    other = _make(name, classes, settings)
    other.restore(state)
    _same(state, other.state())
    assert other.learned == scorer.learned == 40
    for each in (scorer, other):
        _play(each, np.random.default_rng(1), classes, 30)
    _same(scorer.state(), other.state())
    probe = _inputs(np.random.default_rng(2), classes)
    for field in ("scores", "probabilities", "widths", "pair_widths", "radius", "choice"):
        ours, theirs = (getattr(each.bounds(probe, ALL), field) for each in (scorer, other))
        np.testing.assert_array_equal(ours, theirs)


def expect_state_is_a_copy(name: str, classes: bool, settings: ScorerSettings) -> None:
    """The state is a copy that learning does not change."""
    scorer, rng = _make(name, classes, settings), np.random.default_rng(3)
    _play(scorer, rng, classes, 10)
    state = scorer.state()
    kept = {key: array.copy() for key, array in state.items()}
    _play(scorer, rng, classes, 10)
    _same(state, kept)
    other = _make(name, classes, settings)
    other.restore(state)
    _play(other, rng, classes, 10)
    _same(state, kept)


def expect_looking_changes_nothing(name: str, classes: bool, settings: ScorerSettings) -> None:
    """Scores and bounds change nothing."""
    scorer, rng = _make(name, classes, settings), np.random.default_rng(4)
    _play(scorer, rng, classes, 20)
    before = scorer.state()
    inputs = _inputs(rng, classes)
    scorer.bounds(inputs, ALL)
    scorer.bounds(inputs, (2,))
    scorer.scores(inputs)
    _same(before, scorer.state())


def expect_inputs_are_never_changed(name: str, classes: bool, settings: ScorerSettings) -> None:
    """The features of an item are never changed."""
    scorer, rng = _make(name, classes, settings), np.random.default_rng(5)
    inputs = _inputs(rng, classes)
    array = inputs.h if isinstance(inputs, SharedFeatures) else inputs.phi
    array.flags.writeable = False
    kept = array.copy()
    for shown in (ALL, (1, 2)):
        scorer.bounds(inputs, shown)
        scorer.step(inputs, shown, 1, Label(2))
        scorer.step(inputs, shown, 1, None)
        scorer.skip(inputs, shown, 1)
    np.testing.assert_array_equal(array, kept)


def expect_zero_rows_and_a_single_candidate_are_free_of_nan(
    name: str, classes: bool, settings: ScorerSettings
) -> None:
    """Zero rows and a single candidate give finite numbers."""
    scorer = _make(name, classes, settings)
    zero = SharedFeatures(np.zeros(DIM), COUNT) if classes else PairFeatures(np.zeros((4, DIM)))
    inputs = _inputs(np.random.default_rng(7), classes)
    for _ in range(25):
        scorer.step(zero, ALL, 0, Label(1))
        scorer.step(inputs, (2,), 2, Label(2))
        scorer.step(zero, (2,), 2, None)
        scorer.skip(zero, ALL, 0)
    for each, shown in ((zero, ALL), (zero, (1,)), (inputs, (2,)), (inputs, ALL)):
        view = scorer.bounds(each, shown)
        for field in ("scores", "probabilities", "widths", "pair_widths", "upper", "lower"):
            assert np.isfinite(getattr(view, field)).all(), field
        assert abs(view.probabilities.sum() - 1.0) < 1e-6
    assert scorer.bounds(inputs, (2,)).choice == 0
    assert all(np.isfinite(array).all() for array in scorer.state().values())


def expect_presented_restricts_the_same_numbers(
    name: str, classes: bool, settings: ScorerSettings
) -> None:
    """What is presented restricts the numbers, and changes none."""
    scorer, rng = _make(name, classes, settings), np.random.default_rng(8)
    _play(scorer, rng, classes, 20)
    inputs = _inputs(rng, classes)
    whole, part = scorer.bounds(inputs, ALL), scorer.bounds(inputs, (3, 1))
    np.testing.assert_allclose(part.scores, whole.scores[[3, 1]], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(part.widths, whole.widths[[3, 1]], rtol=1e-12)
    np.testing.assert_allclose(scorer.scores(inputs), whole.scores, rtol=1e-12, atol=1e-14)
    assert (part.presented, part.dim, part.radius) == ((3, 1), DIM, whole.radius)


def expect_labels_teach(name: str, classes: bool, settings: ScorerSettings) -> None:
    """Labels of a separable problem are learned."""
    # Separable: the gold is the candidate of a fixed direction (pairs), or its sign (classes).
    rng = np.random.default_rng(9)
    scorer = _make(name, classes, ScorerSettings(learning_rate=1.0, kl_weight=0.0))
    truth = rng.normal(size=DIM)
    right = []
    for _ in range(600):
        inputs = _inputs(rng, classes)
        if isinstance(inputs, SharedFeatures):
            gold = int(inputs.h @ truth > 0)
        else:
            gold = int(np.argmax(inputs.phi @ truth))
        right.append(scorer.bounds(inputs, ALL).choice == gold)
        scorer.step(inputs, ALL, 0, Label(gold))
    assert np.mean(right[-200:]) > 0.85


def expect_items_may_differ_in_their_number_of_candidates(
    name: str, classes: bool, settings: ScorerSettings
) -> None:
    """Items of pairs may differ in their number of candidates."""
    scorer, rng = _make(name, False), np.random.default_rng(10)
    for count in (1, 2, 9, 70, 3):
        inputs = _inputs(rng, False, count)
        view = scorer.bounds(inputs, tuple(range(count)))
        scorer.step(inputs, view.presented, view.choice, Label(count - 1))
    assert scorer.learned == 5


LAWS: tuple[Law, ...] = (
    expect_state_comes_back_bit_for_bit_and_the_run_goes_on_alike,
    expect_state_is_a_copy,
    expect_looking_changes_nothing,
    expect_inputs_are_never_changed,
    expect_zero_rows_and_a_single_candidate_are_free_of_nan,
    expect_presented_restricts_the_same_numbers,
    expect_labels_teach,
    expect_items_may_differ_in_their_number_of_candidates,
)
