"""The compiled engine on pair features against a naive computation from the formulas alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stacksl.core import Contested, First, ScorerSettings, radius
from stacksl_lab.engines import StreamResult, run_stream


def pairs(seed: int, rounds: int, candidates: int, dim: int) -> np.ndarray:
    """Rows of norm 1 in float64: at θ = 0 all bounds tie but for rounding."""
    rows = np.random.default_rng(seed).normal(size=(rounds, candidates, dim))
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def feedback(kind: str, seed: int, rounds: int, candidates: int) -> dict[str, Any]:
    generator = np.random.default_rng([seed, 1])
    if kind == "rewards":
        return {"rewards": generator.normal(size=(rounds, candidates))}
    return {"labels": generator.integers(candidates, size=rounds)}


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def information(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    policy = softmax(rows @ theta)
    centred = rows - policy @ rows
    return centred.T @ (policy[:, None] * centred)


class Naive:
    """The same game with V inverted in every round, pair by pair, from the formulas alone."""

    def __init__(self, scorer: str, dim: int, budget: int, horizon: int, ucb: bool) -> None:
        self.scorer, self.dim, self.budget, self.horizon, self.ucb = (
            scorer, dim, budget, horizon, ucb,
        )  # fmt: skip
        self.gram, self.moment, self.theta = np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.asked, self.peak = 0, 0.0

    def decide(self, rows: np.ndarray, t: int) -> tuple[int, bool]:
        inverse = np.linalg.inv(self.gram)
        scores = rows @ self.theta
        widths = np.sqrt(np.einsum("ij,jk,ik->i", rows, inverse, rows))
        reach = radius(1.0, self.dim, self.asked, 1.0, 0.05, 1.0)
        bounds = scores + reach * widths
        values = bounds if self.ucb else scores
        scale = np.abs(np.abs(scores) + reach * widths).max()
        choice = int(np.flatnonzero(values >= values.max() - 1e-9 * scale)[0])
        apart = rows - rows[choice]
        gaps = scores - scores[choice]
        gaps = gaps + np.sqrt(self.dim * np.einsum("ij,jk,ik->i", apart, inverse, apart))
        g = np.delete(gaps, choice).max()
        self.peak = max(self.peak, g)
        left = self.budget - self.asked
        ahead = 1.0 - (left / self.budget) / ((self.horizon - t) / self.horizon)
        price = self.peak * 0.01 ** (1.0 - ahead / 0.7)
        return choice, left > 0 and (left >= self.horizon - t or g > price)

    def learn(self, rows: np.ndarray, choice: int, given: dict[str, Any], t: int) -> None:
        self.asked += 1
        if "rewards" in given:
            self.gram += np.outer(rows[choice], rows[choice])
            self.moment += given["rewards"][t, choice] * rows[choice]
        elif self.scorer == "ridge":
            self.gram += rows.T @ rows
            self.moment += rows[given["labels"][t]]
        else:
            slope = softmax(rows @ self.theta) @ rows - rows[given["labels"][t]]
            self.theta = self.theta - np.linalg.solve(
                self.gram + information(rows, self.theta), slope
            )
            self.gram += information(rows, self.theta)
            return
        self.theta = np.linalg.solve(self.gram, self.moment)


def naive(
    scorer: str, phi: np.ndarray, given: dict[str, Any], budget: int, ucb: bool
) -> tuple[list[int], list[bool], np.ndarray]:
    game = Naive(scorer, phi.shape[2], budget, len(phi), ucb)
    choices, asked = [], []
    for t, rows in enumerate(phi):
        choice, asks = game.decide(rows, t)
        if asks:
            game.learn(rows, choice, given, t)
        choices.append(choice)
        asked.append(asks)
    return choices, asked, game.theta


@pytest.mark.parametrize("candidates", [4, 512])
@pytest.mark.parametrize(
    ("scorer", "kind"), [("ridge", "rewards"), ("ridge", "labels"), ("newton", "labels")]
)
@pytest.mark.parametrize("action", ["greedy", "ucb"])
def test_the_engine_is_the_naive_computation(
    candidates: int, scorer: str, kind: str, action: Any
) -> None:
    rounds, dim, budget = (30, 20, 12) if candidates == 512 else (90, 20, 40)
    phi, given = pairs(0, rounds, candidates, dim), feedback(kind, 0, rounds, candidates)
    choices, asked, theta = naive(scorer, phi, given, budget, action == "ucb")
    played = run_stream(
        scorer, phi, gate=Contested(), budget=budget, engine="fused",
        settings=ScorerSettings(action=action), **given,
    )  # fmt: skip
    assert played.choices.tolist() == choices
    assert played.asked.tolist() == asked
    np.testing.assert_allclose(played.theta, theta, rtol=0.0, atol=1e-10)


def repeated(rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Five candidates, the same in every round: what breaks an inverse kept in float32."""
    phi = np.repeat(pairs(8, 1, 5, 20), rounds, axis=0)
    return phi, np.random.default_rng(8).normal(size=(rounds, 5))


def width_error(played: StreamResult, phi: np.ndarray, ridge: float) -> float:
    """The largest relative error of the last widths against V summed and factored anew."""
    chosen = phi[np.arange(len(phi)), played.choices]
    lower = np.linalg.cholesky(ridge * np.eye(phi.shape[2]) + chosen.T @ chosen)
    truth = np.linalg.norm(np.linalg.solve(lower, phi[0].T), axis=0)
    widths = np.sqrt(np.einsum("ij,jk,ik->i", phi[0], played.gram_inv, phi[0]))
    return float(np.abs(widths / truth - 1.0).max())


def test_widths_hold_where_candidates_repeat() -> None:
    phi, rewards = repeated(3000)
    played = run_stream(
        "ridge", phi, rewards=rewards, gate=First(), budget=3000, engine="fused",
        settings=ScorerSettings(ridge=1e-3, action="ucb"),
    )  # fmt: skip
    assert width_error(played, phi, 1e-3) <= 1e-5


@pytest.mark.parametrize(("candidates", "dim"), [(3, 640), (512, 70)])
def test_many_dimensions_and_many_candidates_are_as_in_the_loop(candidates: int, dim: int) -> None:
    phi = pairs(4, 6, candidates, dim)
    options: dict[str, Any] = {"gate": Contested(), "budget": 4}
    options |= feedback("rewards", 4, 6, candidates)
    loop = run_stream("ridge", phi, **options, engine="loop")
    played = run_stream("ridge", phi, **options)
    assert played.engine == "fused"
    np.testing.assert_array_equal(played.choices, loop.choices)
    np.testing.assert_array_equal(played.asked, loop.asked)
    for name in ("statistics", "gate_scores", "scores", "reaches", "theta", "gram_inv"):
        np.testing.assert_allclose(getattr(played, name), getattr(loop, name), atol=1e-10)
