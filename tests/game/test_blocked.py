"""The engines with delayed updates against a naive computation, the loop, and each other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stacksl.errors import FeatureError, SettingsError
from stacksl.game import LLF, Contested, First, Margin, ScorerSettings, make_gate, radius
from stacksl.game.engines import StreamResult, inverses, run_stream
from stacksl.game.engines.agreement import disagreements
from stacksl.game.engines.arrays import checked_stream
from stacksl.game.engines.blocked import block_of
from stacksl.game.engines.terms import Terms

ENGINES = ("fused", "blocked", "stepwise")
NUMBERS = ("statistics", "thresholds", "gate_scores", "scores", "reaches")


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


@pytest.mark.parametrize("candidates", [4, 10, 512])
@pytest.mark.parametrize(
    ("scorer", "kind"), [("ridge", "rewards"), ("ridge", "labels"), ("newton", "labels")]
)
@pytest.mark.parametrize("action", ["greedy", "ucb"])
def test_every_engine_is_the_naive_computation(
    candidates: int, scorer: str, kind: str, action: Any
) -> None:
    rounds, dim, budget = (30, 20, 12) if candidates == 512 else (90, 20, 40)
    phi, given = pairs(0, rounds, candidates, dim), feedback(kind, 0, rounds, candidates)
    choices, asked, theta = naive(scorer, phi, given, budget, action == "ucb")
    for engine in ENGINES:
        played = run_stream(
            scorer, phi, gate=Contested(), budget=budget, engine=engine,
            settings=ScorerSettings(action=action), **given,
        )  # fmt: skip
        assert played.engine == engine
        assert played.choices.tolist() == choices
        assert played.asked.tolist() == asked
        np.testing.assert_allclose(played.theta, theta, rtol=0.0, atol=1e-10)


def same(one: StreamResult, other: StreamResult, tolerance: float) -> None:
    np.testing.assert_array_equal(one.choices, other.choices)
    np.testing.assert_array_equal(one.asked, other.asked)
    for name in NUMBERS:
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=0.0, atol=tolerance, err_msg=name
        )
    np.testing.assert_allclose(one.theta, other.theta, rtol=0.0, atol=tolerance)
    if one.gram_inv is not None:
        np.testing.assert_allclose(one.gram_inv, other.gram_inv, rtol=0.0, atol=tolerance)


GATES = ("llf", "margin", "contested", "adpo", "lucb", "width", "entropy", "avoided",
         "information", "dgs", "random", "first")  # fmt: skip


@pytest.mark.parametrize("gate", GATES)
def test_every_gate_decides_as_in_the_loop(gate: str) -> None:
    """With and without certificates, where images are taken only of rounds that learn."""
    phi = pairs(1, 70, 5, 11)
    for number, (scorer, kind) in enumerate(
        [("ridge", "rewards"), ("ridge", "labels"), ("newton", "labels"), ("sgd", "labels")]
    ):
        options: dict[str, Any] = {
            "gate": make_gate(gate),
            "budget": 25,
            "settings": ScorerSettings(
                action=("asked", "greedy", "ucb", "greedy")[number],
                track=("labelled", "all", "labelled", "labelled")[number],
            ),
            "certificates": number % 2 == 0,
            "marks": (33, 70),
        } | feedback(kind, 1, 70, 5)
        loop = run_stream(scorer, phi, **options, engine="loop")
        for engine in ("blocked", "stepwise"):
            played = run_stream(scorer, phi, **options, engine=engine)
            same(played, loop, 1e-10)
            np.testing.assert_allclose(
                played.marks[0].gram_inv, loop.marks[0].gram_inv, rtol=0.0, atol=1e-10
            )
            np.testing.assert_allclose(played.marks[0].theta, loop.marks[0].theta, atol=1e-10)


@pytest.mark.parametrize("scorer", ["newton", "sgd", "ridge"])
def test_an_adaptive_follower_is_played_step_by_step(scorer: str) -> None:
    phi = pairs(2, 60, 9, 8)
    utilities = np.random.default_rng(2).gumbel(size=(60, 9))
    options: dict[str, Any] = {
        "gate": Contested(), "budget": 30, "utilities": utilities, "present": 3,
    }  # fmt: skip
    loop = run_stream(scorer, phi, **options, engine="loop")
    played = run_stream(scorer, phi, **options, engine="stepwise")
    same(played, loop, 1e-10)
    np.testing.assert_array_equal(played.presented, loop.presented)
    with pytest.raises(SettingsError, match="looks ahead"):
        run_stream(scorer, phi, **options, engine="blocked")


def test_a_track_without_a_matrix_needs_none() -> None:
    phi, given = pairs(3, 50, 4, 6), feedback("labels", 3, 50, 4)
    options: dict[str, Any] = {
        "gate": Margin(), "budget": 20, "settings": ScorerSettings(track="theta"), **given,
    }  # fmt: skip
    loop = run_stream("sgd", phi, **options, engine="loop")
    played = run_stream("sgd", phi, **options, engine="blocked")
    same(played, loop, 1e-12)
    assert played.gram_inv is None


def test_many_dimensions_and_many_candidates_work() -> None:
    for candidates, dim in ((3, 2560), (512, 70)):
        phi = pairs(4, 6, candidates, dim)
        given = feedback("rewards", 4, 6, candidates)
        options: dict[str, Any] = {"gate": Contested(), "budget": 4, **given}
        loop = run_stream("ridge", phi, **options, engine="loop")
        played = run_stream("ridge", phi, **options)
        assert played.engine == "blocked"
        same(played, loop, 1e-10)


def test_auto_looks_ahead_where_widths_of_many_columns_are_read() -> None:
    given = feedback("labels", 5, 8, 3)
    wide, narrow = pairs(5, 8, 3, 65), pairs(5, 8, 3, 64)
    options: dict[str, Any] = {"budget": 2, **given}
    assert run_stream("ridge", narrow, gate=Margin(), **options).engine == "fused"
    assert run_stream("ridge", wide, gate=Margin(), **options).engine == "blocked"
    bare = run_stream("ridge", wide, gate=Margin(), **options, certificates=False)
    assert bare.engine == "fused"


def test_blocks_shrink_where_a_label_brings_many_rows() -> None:
    assert [block_of(k, 1) for k in (2, 4, 10, 77, 512)] == [64, 64, 25, 4, 4]
    assert [block_of(k, k) for k in (2, 4, 10, 77, 512)] == [32, 16, 6, 1, 1]


@pytest.mark.parametrize("precision", ["mixed", "float32"])
@pytest.mark.parametrize(("scorer", "kind"), [("ridge", "rewards"), ("newton", "labels")])
def test_decisions_of_less_precision_differ_only_next_to_a_tie(
    precision: Any, scorer: str, kind: str
) -> None:
    phi, given = pairs(6, 300, 4, 40), feedback(kind, 6, 300, 4)
    options: dict[str, Any] = {
        "gate": Contested(), "budget": 120, "settings": ScorerSettings(action="ucb"),
    }  # fmt: skip
    played = run_stream(scorer, phi, **options, **given, precision=precision)
    assert played.engine == "blocked"
    stream = checked_stream(phi, given.get("labels"), given.get("rewards"), None, None)
    found = disagreements(played, stream, Terms(scorer=scorer, **options))
    assert all(one.distance <= 1e-5 for one in found)
    exact = run_stream(scorer, phi, **options, **given, engine="blocked")
    if not found:
        np.testing.assert_array_equal(played.choices, exact.choices)
        np.testing.assert_allclose(played.reaches, exact.reaches, rtol=1e-4)


def test_a_wrong_decision_is_found_with_its_distance() -> None:
    """An action that is not the best, and a purchase that was not wanted, on equal histories."""
    phi, given = pairs(7, 40, 3, 6), feedback("rewards", 7, 40, 3)
    terms = Terms(scorer="ridge", settings=ScorerSettings(), gate=LLF(1.0), budget=10)
    stream = checked_stream(phi, None, given["rewards"], None, None)
    played = run_stream("ridge", phi, gate=LLF(1.0), budget=10, **given, engine="blocked")
    assert disagreements(played, stream, terms) == []
    last, scores = 39, phi[39] @ played.theta
    worst = int(np.argmin(scores))
    choices, asked = played.choices.copy(), played.asked.copy()
    choices[last] = worst
    (found,) = disagreements(replace(played, choices=choices), stream, terms)
    assert (found.round, found.what, found.played) == (40, "action", worst)
    assert found.exact == int(np.argmax(scores))
    assert found.distance == pytest.approx(
        (scores.max() - scores.min()) / np.abs(scores).max(), rel=1e-9
    )
    first = int(np.flatnonzero(asked)[0])
    asked[first] = False
    found = disagreements(replace(played, asked=asked), stream, terms)[0]
    assert (found.round, found.what, found.played, found.exact) == (first + 1, "purchase", 0, 1)


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


@pytest.mark.parametrize(
    ("precision", "most"), [("exact", 1e-5), ("mixed", 1e-5), ("float32", 1e-4)]
)
def test_widths_hold_where_candidates_repeat(
    precision: Any, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    phi, rewards = repeated(3000)
    options: dict[str, Any] = {
        "gate": First(), "budget": 3000, "rewards": rewards, "precision": precision,
        "settings": ScorerSettings(ridge=1e-3, action="ucb"), "engine": "blocked",
    }  # fmt: skip
    assert width_error(run_stream("ridge", phi, **options), phi, 1e-3) <= most
    if precision == "float32":
        monkeypatch.setattr(inverses, "_LEAST", 0.0)
        monkeypatch.setattr(inverses, "_CLOSE", 0.0)
        unguarded = run_stream("ridge", phi, **options)
        assert not width_error(unguarded, phi, 1e-3) <= 1e-2


def test_single_precision_is_guarded_where_no_decision_reads_widths() -> None:
    phi, rewards = repeated(1000)
    options: dict[str, Any] = {
        "gate": First(), "budget": 1000, "rewards": rewards, "precision": "float32",
        "settings": ScorerSettings(ridge=1e-3), "certificates": False, "engine": "blocked",
    }  # fmt: skip
    assert width_error(run_stream("ridge", phi, **options), phi, 1e-3) <= 1e-3


def test_what_an_engine_does_not_play_is_said() -> None:
    phi, given = pairs(9, 6, 3, 4), feedback("labels", 9, 6, 3)
    options: dict[str, Any] = {"gate": First(), "budget": 2, **given}
    with pytest.raises(SettingsError, match="precision 'mixed' belongs to"):
        run_stream("ridge", phi, **options, precision="mixed", engine="fused")
    with pytest.raises(SettingsError, match="'blocked' does not play the scorer 'ridge' on class"):
        run_stream("ridge", phi[:, 0], **options, classes=3, engine="blocked")
    phi[4, 1, 2] = math.nan
    with pytest.raises(FeatureError, match="round 5"):
        run_stream("ridge", phi, **options, engine="blocked")
    with pytest.raises(FeatureError, match="round 5"):
        run_stream("ridge", phi, **options, engine="stepwise")
