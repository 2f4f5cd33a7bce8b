"""The guarded drift reset: its arithmetic, false alarms, detection, and its state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stacksl.core.blocks import PairFeatures, SharedFeatures
from stacksl.core.gates.registry import Always, First
from stacksl.core.scorers import make_scorer
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import SettingsError
from stacksl.types import Decision, Label
from stacksl_lab.drift import DriftGuard, label_surprise, reward_surprise, surprise
from stacksl_lab.engines import StreamResult, run_stream
from stacksl_lab.learner import StudyLearner
from stacksl_lab.rewards import Feedback, Reward, RewardRidge

ROUNDS, K, DIM = 2400, 6, 5


def sphere(generator: np.random.Generator, *shape: int) -> np.ndarray:
    rows = generator.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def world(seed: int, *, changes: bool, labels: bool) -> dict[str, Any]:
    """Features with the feedback of a θ* of norm √d (twice that for labels), new in mid-stream."""
    generator = np.random.default_rng(seed)
    phi = sphere(generator, ROUNDS, K, DIM)
    size = math.sqrt(DIM) * (2.0 if labels else 1.0)
    thetas = size * sphere(generator, 2, DIM)
    values = phi @ thetas[0]
    if changes:
        values[ROUNDS // 2 :] = phi[ROUNDS // 2 :] @ thetas[1]
    if labels:
        return {"features": phi, "utilities": values + generator.gumbel(size=values.shape)}
    return {"features": phi, "rewards": values + 0.3 * generator.normal(size=values.shape)}


def guarded_stream(scorer: str, seed: int, *, changes: bool, guard: DriftGuard) -> StreamResult:
    return run_stream(
        scorer,
        gate=First(),
        budget=ROUNDS,
        settings=ScorerSettings(noise=0.3 if scorer == "ridge" else 1.0),
        drift=guard,
        certificates=False,
        **world(seed, changes=changes, labels=scorer != "ridge"),
    )


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """All compiled loops at once, in the file that a session begins with (`tests/conftest.py`).

    What they call is then compiled once, and other processes load them from the disk.
    """
    phi = sphere(np.random.default_rng(0), 4, K, DIM)
    options: dict[str, Any] = {"gate": First(), "budget": 2, "labels": np.arange(4)}
    run_stream("newton", phi, drift=DriftGuard(), **options)
    run_stream("newton", phi, **options)
    run_stream("ridge", phi[:, 0], classes=K, **options)


def test_a_rewards_surprise_is_its_standardized_residual() -> None:
    assert reward_surprise(1.0, 0.4, 0.3) == pytest.approx(4.0)
    assert reward_surprise(1.0, 1.0, 0.0) == 0.0
    assert reward_surprise(1.1, 1.0, 0.0) == math.inf


def test_a_labels_surprise_has_mean_one_under_the_policy() -> None:
    """Σ π z² = 1 whatever the policy, and each z² is (ℓ − h)²/Var ℓ."""
    scores = np.random.default_rng(1).normal(size=5) * 3.0
    policy = np.exp(scores) / np.exp(scores).sum()
    squares = np.array([label_surprise(scores, gold) for gold in range(5)])
    assert policy @ squares == pytest.approx(1.0)
    losses = -np.log(policy)
    mean = policy @ losses
    np.testing.assert_allclose(squares, (losses - mean) ** 2 / (policy @ (losses - mean) ** 2))


def test_a_label_that_nothing_was_said_of_is_no_surprise() -> None:
    assert label_surprise(np.zeros(7), 3) == 0.0
    assert label_surprise(np.array([0.3]), 0) == 0.0
    assert label_surprise(np.array([0.0, 800.0]), 1) == 0.0
    assert label_surprise(np.array([0.0, 800.0]), 0) == math.inf


def test_the_sum_counts_only_what_is_known_well() -> None:
    guard = DriftGuard()
    assert guard.advance(5.0, 9.0, 0.05, 16, 5) == 12.0
    assert guard.advance(5.0, 9.0, 0.10, 16, 5) == 5.0
    assert guard.advance(5.0, 9.0, 0.05, 15, 5) == 5.0
    assert guard.advance(5.0, math.inf, 0.05, 16, 5) == 12.0, "the cap of 9"
    assert guard.advance(1.0, 0.0, 0.05, 16, 5) == 0.0


def test_the_surprise_of_an_answer_is_taken_under_an_explicit_inverse() -> None:
    generator = np.random.default_rng(1)
    rows = PairFeatures(sphere(generator, K, DIM))
    ridge = RewardRidge(DIM, ScorerSettings(noise=0.5))
    newton = make_scorer("newton", dim=DIM, classes=None)
    gram, hessian = np.eye(DIM), np.eye(DIM)
    for seed in range(9):
        item = PairFeatures(sphere(np.random.default_rng([2, seed]), K, DIM))
        ridge.reward(item, 2, Reward(1.0))
        gram += np.outer(item.phi[2], item.phi[2])
        newton.step(item, tuple(range(K)), 2, Label(seed % K))
        hessian += information(newton.state()["theta"], item.phi)
    square, leverage = surprise(ridge, rows, tuple(range(K)), 3, Reward(0.7))
    row = rows.phi[3]
    assert square == pytest.approx(((0.7 - row @ ridge.state()["theta"]) / 0.5) ** 2)
    assert leverage == pytest.approx(row @ np.linalg.inv(gram) @ row)
    shown = (0, 2, 5)
    square, leverage = surprise(newton, rows, shown, 0, Label(5))
    part = rows.phi[list(shown)]
    fisher = information(newton.state()["theta"], part)
    assert leverage == pytest.approx(np.trace(fisher @ np.linalg.inv(hessian)))
    assert square == label_surprise(part @ newton.state()["theta"], 2)


def information(theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
    policy = np.exp(rows @ theta) / np.exp(rows @ theta).sum()
    centered = rows - policy @ rows
    return np.einsum("x,xi,xj->ij", policy, centered, centered)


def alarms(guard: DriftGuard, squares: np.ndarray) -> int:
    """How often S passes the level over z² of directions known exactly, starting over each time."""
    total, count = 0.0, 0
    for square in squares:
        total = guard.advance(total, float(square), 0.0, 99, 1)
        if total > guard.level:
            total, count = 0.0, count + 1
    return count


def test_the_rate_of_false_alarms_of_rewards_is_below_its_bound() -> None:
    """r solves ½ log(1 − 2r) + 2r = 0: 0.3984; e^(−15r) = 2.5e-3 a label, 254 in 100,000."""
    squares = np.random.default_rng(0).normal(size=100_000) ** 2
    assert 0 < alarms(DriftGuard(level=15.0), squares) < 254
    assert alarms(DriftGuard(), squares) <= 1  # 0.65 expected at most


@pytest.mark.parametrize("scorer", ["ridge", "newton"])
def test_a_stationary_world_raises_no_alarm(scorer: str) -> None:
    """2 seeds of 2,400 answers; for rewards 0.03 false alarms are expected at most.

    6.5e-6 an answer in directions known exactly; the leverage is below 0.01 after 500 of them.
    """
    for seed in range(2):
        assert not len(guarded_stream(scorer, seed, changes=False, guard=DriftGuard()).resets)


@pytest.mark.parametrize("scorer", ["ridge", "newton"])
def test_a_new_theta_is_found_and_learned_afresh(scorer: str) -> None:
    """Not with `sgd`: its θ stays unsure at the default rate, so that no answer surprises it."""
    for seed in range(2):
        found = guarded_stream(scorer, seed, changes=True, guard=DriftGuard())
        late = found.resets[found.resets > ROUNDS // 2]
        assert len(late)
        assert late[0] <= ROUNDS // 2 + 200


def decided(learner: StudyLearner, inputs: PairFeatures, t: int) -> Decision:
    shown = tuple(range(inputs.size))
    [decision] = learner.decide([str(t)], [inputs], [shown], asked=t)
    posted = decision.reserved()
    learner.adopt([posted], [inputs])
    return posted


def answers(seed: int, labels: bool) -> list[tuple[PairFeatures, Feedback]]:
    generator = np.random.default_rng(seed)
    items = [PairFeatures(rows) for rows in sphere(generator, 120, K, DIM)]
    if labels:
        return [(item, Label(int(generator.integers(K)))) for item in items]
    return [(item, Reward(float(generator.normal()))) for item in items]


@pytest.mark.parametrize("scorer", ["ridge", "newton", "sgd"])
def test_a_state_holds_the_guards_sum_bit_for_bit(scorer: str) -> None:
    stream = answers(4, labels=scorer != "ridge")

    def fresh() -> StudyLearner:
        numbers = ScorerSettings(noise=0.4)
        made = make_scorer(scorer, dim=DIM, classes=None, settings=numbers)
        made = RewardRidge(DIM, numbers) if scorer == "ridge" else made
        guard = DriftGuard(level=2.0, allowance=0.3, leverage=9.0, warm=1.0)
        return StudyLearner(made, Always(), budget=120, horizon=120, drift=guard)

    whole, parts = fresh(), fresh()
    for t, (item, answer) in enumerate(stream):
        whole.learn(decided(whole, item, t), item, answer)
        parts.learn(decided(parts, item, t), item, answer)
        saved, parts = parts.state(), fresh()
        parts.restore(saved)
    assert whole.resets > 2
    one, other = whole.state(), parts.state()
    assert one.keys() == other.keys()
    for key, values in one.items():
        np.testing.assert_array_equal(values, other[key], err_msg=key)


def test_a_rebuilt_learner_resets_to_the_start_that_its_state_holds_and_keeps_what_was_asked():
    """The start is a trained scorer's, and the learner is rebuilt around an untrained one."""
    guard = DriftGuard(level=0.5, allowance=0.3, leverage=9.0, warm=0.0)
    item = PairFeatures(sphere(np.random.default_rng(0), K, DIM))
    trained = make_scorer("newton", dim=DIM, classes=None)
    trained.step(item, tuple(range(K)), 1, Label(1))
    start = trained.state()
    saved = StudyLearner(trained, First(), budget=9, horizon=20, drift=guard).state()
    made = make_scorer("newton", dim=DIM, classes=None)
    rebuilt = StudyLearner(made, First(), budget=9, horizon=20, drift=guard)
    rebuilt.restore(saved)
    rounds = 0
    while not rebuilt.resets:
        rebuilt.learn(decided(rebuilt, item, rounds), item, Label(rounds % 2 * 3))
        rounds += 1
    assert 1 < rounds < 9
    assert (rebuilt.resets, rebuilt.suspicion, rebuilt.round) == (1, 0.0, rounds)
    assert made.learned == 1
    for key, values in made.state().items():
        np.testing.assert_array_equal(values, start[key])


@pytest.mark.parametrize("guarded", [True, False])
def test_a_state_is_refused_where_only_one_side_has_a_guard(guarded: bool) -> None:
    def learner(drift: DriftGuard | None) -> StudyLearner:
        made = make_scorer("ridge", dim=DIM, classes=None)
        return StudyLearner(made, First(), budget=1, horizon=2, drift=drift)

    saved = learner(DriftGuard() if guarded else None).state()
    words = "learner without a drift guard" if guarded else "learner with a drift guard"
    with pytest.raises(SettingsError, match=words):
        learner(None if guarded else DriftGuard()).restore(saved)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"level": 0.0}, "level must be a number above 0, got 0.0"),
        ({"allowance": math.nan}, "allowance must be"),
        ({"cap": 2.0}, "cap must be a number above the allowance"),
        ({"leverage": -1.0}, "leverage must be"),
        ({"warm": math.inf}, "warm must be"),
    ],
)
def test_a_guards_numbers_are_checked(change: dict[str, float], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        DriftGuard(**change)


def test_where_no_residual_is_standardized_the_guard_is_refused() -> None:
    item = PairFeatures(np.eye(3))
    with pytest.raises(SettingsError, match="one-hot scores"):
        surprise(make_scorer("ridge", dim=3, classes=None), item, (0, 1, 2), 0, Label(1))
    shared = SharedFeatures(np.ones(3) / 2, 4)
    with pytest.raises(SettingsError, match="class heads"):
        surprise(make_scorer("newton", dim=3, classes=4), shared, (0, 1), 0, Label(1))
