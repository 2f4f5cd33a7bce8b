"""The compiled engines against second implementations that invert V anew in every round."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from stacksl.core import Margin
from stacksl.core.gates.registry import First
from stacksl.core.scorers.base import ScorerSettings
from stacksl.errors import FeatureError, SettingsError
from stacksl_lab.baselines.gates import Contested
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.drift import DriftGuard
from stacksl_lab.engines import run_stream

ROUNDS, K, DIM = 80, 4, 6


def pairs(seed: int, rounds: int = ROUNDS, candidates: int = K, dim: int = DIM) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(rounds, candidates, dim))
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def golds(seed: int, rounds: int = ROUNDS, candidates: int = K) -> np.ndarray:
    return np.random.default_rng([seed, 1]).integers(candidates, size=rounds)


@pytest.mark.parametrize("engine", ["fused", "loop"])
def test_scores_that_cancelled_make_no_policy_one_hot(engine) -> None:
    """b = 0.1 + 0.2 − 0.3 is 2^−54, and a share of it would be the whole."""
    phi = np.array([[0.1, 0.5, 0.4], [0.2, 0.5, 0.4], [-0.3, 0.5, 0.4], [0.1, -0.5, -0.4]])[
        ..., None
    ]
    played = run_stream(
        "ridge", phi, labels=np.zeros(4), gate=make_gate("entropy"), budget=4, engine=engine
    )
    assert played.statistics[3] == pytest.approx(math.log(3.0))


def test_widths_settle_a_tie_that_scores_alone_do_not() -> None:
    """1e-9 of the largest bound may exceed a gap that 1e-9 of the largest score does not."""
    phi = np.array([[[1.0, 0.0], [1.0 - 4e-9, 0.0]]]).repeat(3, axis=0)[:, ::-1].copy()
    options: dict[str, Any] = {
        "labels": np.array([1, 1, 1]),
        "gate": Margin(),
        "budget": 1,
        "settings": ScorerSettings(ridge=4.0, norm_bound=30.0),
    }
    loop = run_stream("ridge", phi, **options, engine="loop")
    bare = run_stream("ridge", phi, **options, engine="fused", certificates=False)
    full = run_stream("ridge", phi, **options, engine="fused")
    assert loop.choices.tolist() == full.choices.tolist() == bare.choices.tolist() == [0, 0, 0]


def test_long_streams_are_played_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk's end changes nothing, nor does a read-only float32 memory map."""
    phi, labels = pairs(6).astype(np.float32), golds(6)
    phi.flags.writeable = False
    options: dict[str, Any] = {"labels": labels, "gate": Margin(), "budget": 20}
    whole = run_stream("newton", phi, **options, engine="fused")
    monkeypatch.setattr("stacksl_lab.engines.arrays._CHUNK", 7 * K * DIM)
    parts = run_stream("newton", phi, **options, engine="fused")
    np.testing.assert_array_equal(whole.choices, parts.choices)
    np.testing.assert_array_equal(whole.statistics, parts.statistics)
    np.testing.assert_array_equal(whole.theta, parts.theta)


@pytest.mark.parametrize("engine", ["fused", "loop"])
def test_a_mark_is_the_estimate_of_the_stream_cut_there(engine) -> None:
    """Also under a budget that is spent before, and on class heads."""
    phi, labels = pairs(8), golds(8)
    cases = [("newton", phi, {}), ("ridge", phi[:, 0], {"classes": K})]
    for scorer, rows, more in cases:
        options: dict[str, Any] = {"gate": First(), "budget": 30, "engine": engine, **more}
        whole = run_stream(scorer, rows, labels=labels, marks=(7, 40, ROUNDS), **options)
        assert [(mark.round, mark.learned) for mark in whole.marks] == [(7, 7), (40, 30), (80, 30)]
        for mark in whole.marks:
            cut = run_stream(scorer, rows[: mark.round], labels=labels[: mark.round], **options)
            np.testing.assert_array_equal(mark.theta, cut.theta)
            np.testing.assert_array_equal(mark.gram_inv, cut.gram_inv)
        np.testing.assert_array_equal(whole.marks[2].theta, whole.theta)


@pytest.mark.parametrize("engine", ["fused", "loop"])
def test_the_best_of_what_a_follower_shows_is_the_label(engine) -> None:
    """Learned among what was shown, at θ = 0 the first three, and not the best of all."""
    phi, utilities = pairs(9, 1, 7), np.random.default_rng(9).normal(size=(1, 7))
    assert utilities.argmax() > 2
    told = run_stream(
        "sgd", phi, utilities=utilities, gate=First(), budget=1, present=3, engine=engine
    )
    assert told.presented is not None
    assert told.presented.tolist() == [[0, 1, 2]]
    slope = np.full(3, 1 / 3) - (np.arange(3) == utilities[0, :3].argmax())
    np.testing.assert_allclose(told.theta, -0.1 * slope @ phi[0, :3], atol=1e-12)


def test_widths_hold_where_candidates_repeat() -> None:
    """Against V summed and factored anew: what breaks an inverse kept in float32."""
    phi = np.repeat(pairs(8, 1, 5, 20), 3000, axis=0)
    rewards = np.random.default_rng(8).normal(size=(3000, 5))
    played = run_stream(
        "ridge", phi, rewards=rewards, gate=First(), budget=3000, engine="fused",
        settings=ScorerSettings(ridge=1e-3, action="ucb"),
    )  # fmt: skip
    chosen = phi[np.arange(len(phi)), played.choices]
    lower = np.linalg.cholesky(1e-3 * np.eye(20) + chosen.T @ chosen)
    truth = np.linalg.norm(np.linalg.solve(lower, phi[0].T), axis=0)
    widths = np.sqrt(np.einsum("ij,jk,ik->i", phi[0], played.gram_inv, phi[0]))
    np.testing.assert_allclose(widths, truth, rtol=1e-5)


@pytest.mark.parametrize(("candidates", "dim"), [(3, 640), (512, 70)])
def test_many_dimensions_and_many_candidates_are_as_in_the_loop(candidates: int, dim: int) -> None:
    phi = pairs(4, 6, candidates, dim)
    rewards = np.random.default_rng([4, 1]).normal(size=(6, candidates))
    options: dict[str, Any] = {"gate": Contested(), "budget": 4, "rewards": rewards}
    loop = run_stream("ridge", phi, **options, engine="loop")
    played = run_stream("ridge", phi, **options)
    assert played.engine == "fused"
    np.testing.assert_array_equal(played.choices, loop.choices)
    np.testing.assert_array_equal(played.asked, loop.asked)
    for name in ("statistics", "gate_scores", "scores", "reaches", "theta", "gram_inv"):
        np.testing.assert_allclose(getattr(played, name), getattr(loop, name), atol=1e-10)


def test_without_an_engine_the_loop_plays() -> None:
    h, labels = pairs(7, candidates=1)[:, 0], golds(7)
    options: dict[str, Any] = {"labels": labels, "classes": K, "gate": Margin(), "budget": 9}
    for scorer in ("sgd", "newton"):
        assert run_stream(scorer, h, **options).engine == "loop"
        with pytest.raises(SettingsError, match=f"'{scorer}' on class heads"):
            run_stream(scorer, h, **options, engine="fused")
    assert run_stream("ridge", h, **options).engine == "fused"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ["fused", "loop"])
def test_a_theta_that_explodes_is_told_from_bad_features(engine) -> None:
    with pytest.raises(SettingsError, match="lower the learning rate"):
        run_stream(
            "sgd", 1e3 * pairs(0), labels=golds(0), gate=First(), budget=ROUNDS,
            settings=ScorerSettings(learning_rate=1e306, clip="none"), engine=engine,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"labels": golds(0)[:-1]}, SettingsError, "80 indices from 0 to 3"),
        ({"labels": np.full(ROUNDS, np.nan)}, SettingsError, "80 indices from 0 to 3"),
        ({"classes": 0, "features": np.zeros((ROUNDS, DIM))}, SettingsError, "at least 1 class"),
        ({"labels": golds(0), "rewards": np.zeros((ROUNDS, K))}, SettingsError, "one of the three"),
        ({}, SettingsError, "one of the three"),
        ({"rewards": np.zeros((ROUNDS, K))}, SettingsError, "learns from labels"),
        ({"rewards": np.zeros(ROUNDS), "scorer": "ridge"}, SettingsError, r"shape \(80, 4\)"),
        ({"features": np.zeros((3, 2))}, FeatureError, r"\(T, K, d\)"),
        ({"features": np.full((ROUNDS, K, DIM), np.nan)}, FeatureError, "round 1 has NaN"),
        ({"budget": -1}, SettingsError, "at least 0"),
        ({"marks": (3, 2)}, SettingsError, "rising numbers of rounds from 1 to 80"),
        ({"present": 1, "utilities": np.zeros((ROUNDS, K))}, SettingsError, "present = 1: leave"),
        ({"present": 5, "utilities": np.zeros((ROUNDS, K))}, SettingsError, "2 to all 4"),
        ({"present": 2}, SettingsError, "give the utilities"),
        (
            {"present": 2, "classes": K, "features": np.zeros((ROUNDS, DIM))},
            SettingsError,
            "present = 2 with classes",
        ),
        ({"utilities": np.zeros(ROUNDS)}, SettingsError, r"utilities should be .* \(80, 4\)"),
        ({"drift": DriftGuard(), "scorer": "ridge"}, SettingsError, "one-hot scores"),
        (
            {"drift": DriftGuard(), "classes": K, "features": np.zeros((ROUNDS, DIM))},
            SettingsError,
            "drift guard needs pair features",
        ),
        (
            {"asks_ucb": True, "settings": ScorerSettings(action="ucb")},
            SettingsError,
            "asks_ucb plays the largest UCB in asked rounds alone",
        ),
        ({"scorer": "ridg"}, SettingsError, "did you mean 'ridge'"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], error: type, words: str) -> None:
    options: dict[str, Any] = {
        "scorer": "sgd",
        "features": pairs(0),
        "gate": make_gate("llf"),
        "budget": 5,
    }
    if not change.keys() & {"labels", "rewards", "utilities"} and change:
        options["labels"] = golds(0)
    with pytest.raises(error, match=words):
        run_stream(**{**options, **change})


def test_the_engine_is_loaded_when_it_plays() -> None:
    code = "import sys, stacksl_lab.engines; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_gate_that_nobody_compiled_is_played_by_the_loop() -> None:
    """The compiled loop has no number for it."""

    class Third:
        name, ranks, exact_spend = "third", False, False

        def start(self):
            return (0.0, 0.0, 0.0, 0.0)

        def statistic(self, view, clock, state):
            return float(clock.round % 3 == 0)

        def threshold(self, g, u, clock, state):
            return 0.5

        def advance(self, g, took, clock, state):
            return state

    phi = np.eye(3)[None].repeat(12, axis=0)
    played = run_stream("ridge", phi, labels=np.zeros(12), gate=Third(), budget=4)
    assert played.engine == "loop"
    assert np.flatnonzero(played.asked).tolist() == [2, 5, 8, 11]
    with pytest.raises(SettingsError, match="third"):
        run_stream("ridge", phi, labels=np.zeros(12), gate=Third(), budget=4, engine="fused")
