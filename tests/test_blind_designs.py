"""Designs blind to the answers: section 3.2 of docs/theory.md by numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core.confidence import radius

CANDIDATES, ROUNDS, BUDGET, DELTA, NOISE = 5, 200, 120, 0.05, 1.0


def blind_run(seed: int, dim: int, scale: float = math.sqrt(8.0)) -> tuple[float, float, int, bool]:
    """`width` over all pairs, about the wider end, on candidates fixed in advance.

    Gives the largest |Dᵀ(θ − θ*)|/‖D‖ over rounds and pairs, the largest ‖θ − θ*‖ in V over rounds,
    the labels asked, and whether every skip cost at most γ times the level.
    """
    rng = np.random.default_rng([seed, dim])
    truth = rng.normal(size=dim)
    truth /= np.linalg.norm(truth)
    phi = rng.normal(size=(ROUNDS, CANDIDATES, dim))
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    level = scale * math.sqrt(dim * math.log1p(BUDGET / dim) / BUDGET)
    gram, moment, asked = np.eye(dim), np.zeros(dim), 0
    along, ellipsoid, safe = 0.0, 0.0, True
    first, second = np.triu_indices(CANDIDATES, 1)
    for rows in phi:
        inverse = np.linalg.inv(gram)
        error = inverse @ moment - truth
        apart = rows[first] - rows[second]
        widths = np.sqrt(np.einsum("ij,jk,ik->i", apart, inverse, apart))
        along = max(along, float(np.abs(apart @ error / widths).max()))
        ellipsoid = max(ellipsoid, math.sqrt(error @ gram @ error))
        if widths.max() > level and asked < BUDGET:
            pair = int(widths.argmax())
            ends = rows[[first[pair], second[pair]]]
            wider = ends[int(np.einsum("ij,jk,ik->i", ends, inverse, ends).argmax())]
            gram += np.outer(wider, wider)
            moment += (wider @ truth + NOISE * rng.normal()) * wider
            asked += 1
        else:
            values = rows @ truth
            choice = int((rows @ (error + truth)).argmax())
            safe &= bool(values.max() - values[choice] <= gamma() * level)
    return along, ellipsoid, asked, safe


def gamma() -> float:
    """σ√(2 log(K²T/δ)) + √λ·S with λ = S = 1."""
    return NOISE * math.sqrt(2.0 * math.log(CANDIDATES**2 * ROUNDS / DELTA)) + 1.0


@pytest.mark.parametrize("dim", [2, 5, 10])
def test_all_pairs_are_within_gamma_and_the_budget_never_runs_out(dim: int) -> None:
    for seed in range(20):
        along, _, asked, safe = blind_run(seed, dim)
        assert along <= gamma()
        assert 0 < asked < BUDGET
        assert safe


def test_pair_errors_do_not_grow_with_d_and_the_ellipsoid_does() -> None:
    """From d = 4 to 64, 16 times: ‖θ − θ*‖ in V grows by about √16, and so does its bound β.

    A low level (a = 0.5) spends the whole budget in every dimension.
    """
    small, large = (np.array([blind_run(s, dim, 0.5) for s in range(8)]) for dim in (4, 64))
    assert (small[:, 2] == BUDGET).all()
    assert (large[:, 2] == BUDGET).all()
    along, ellipsoid, *_ = large.mean(axis=0) / small.mean(axis=0)
    assert along < 1.3
    assert 1.8 < ellipsoid < 4.5
    bounds = [radius(NOISE, dim, BUDGET, 1.0, DELTA, 1.0) for dim in (4, 64)]
    assert bounds[1] / bounds[0] > 1.7
    assert gamma() < bounds[1]
