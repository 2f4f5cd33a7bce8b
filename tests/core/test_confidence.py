"""The confidence set against a matrix that is inverted afresh."""

import math

import numpy as np
import pytest

from stacksl.core.confidence import ConfidenceSet, pair_norms, radius
from stacksl_lab.statistics.estimates import holds


def _gram(rows, weights, ridge):
    return ridge * np.eye(rows.shape[1]) + (rows.T * weights) @ rows


def test_widths_and_pair_widths_are_norms_in_the_inverse():
    rng = np.random.default_rng(2)
    seen, rows = rng.normal(size=(150, 5)), rng.normal(size=(6, 5))
    trust = ConfidenceSet.empty(5, 1.0)
    trust.update(seen)
    inverse = np.linalg.inv(_gram(seen, np.ones(150), 1.0))
    np.testing.assert_allclose(trust.widths(rows), [math.sqrt(r @ inverse @ r) for r in rows])
    differences = rows - rows[3]
    pairs = [math.sqrt(r @ inverse @ r) for r in differences]
    found = pair_norms(rows, trust.images(rows), 3)
    np.testing.assert_allclose(found, pairs, atol=1e-15)
    assert found[3] == 0.0


def test_pair_width_of_nearly_equal_rows_does_not_cancel():
    # ‖φ + εe − φ‖ in (ridge·I)⁻¹ is ε/sqrt(ridge); v_x + v_i − 2c would give 0 or 1e-8.
    trust = ConfidenceSet.empty(3, 4.0)
    row = np.array([0.6, 0.5, 0.4])
    rows = np.stack([row, row, row + np.array([2.0**-40, 0.0, 0.0])])
    pairs = pair_norms(rows, trust.images(rows), 0)
    assert pairs[1] == 0.0
    assert pairs[2] == pytest.approx(2.0**-41, rel=1e-3)


def test_radius_is_the_papers_formula():
    # σ = 0.3, d = 20, n = 2000, λ = 1, δ = .05, S = 4, L = 1, worked by hand:
    # 20·ln(101) = 92.3024, 2·ln(20) = 5.9915, their root 9.9143, ·0.3 + 4 = 6.9743.
    assert radius(0.3, 20, 2000, 1.0, 0.05, 4.0) == pytest.approx(6.9743, abs=5e-5)
    assert radius(1.0, 20, 0, 4.0, 1.0, 3.0) == 6.0


def test_ridge_set_covers_the_truth():
    # δ = .05 bounds the chance that the truth ever leaves; the set is some five times too wide
    # at these sizes (notes, Section 3.4), so a failure means a wrong radius or matrix.
    rng = np.random.default_rng(0)
    truth = rng.normal(size=6)
    trust, moment = ConfidenceSet.empty(6, 1.0), np.zeros(6)
    for _ in range(400):
        row = rng.normal(size=6)
        row /= np.linalg.norm(row)
        trust.update(row[None, :])
        moment += row * (row @ truth + 0.3 * rng.normal())
        reach = radius(0.3, 6, trust.learned, 1.0, 0.05, float(np.linalg.norm(truth)))
        assert holds(trust, truth, trust.gram_inv @ moment, reach)


def _unit_rows(count, dim, seed):
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_inverse_stays_exact_on_repeated_candidates():
    # Five candidates again and again at ridge 1e-3: the worst case for an inverse kept by updates.
    dim, count = 20, 20_000
    five, trust = _unit_rows(5, dim, 5), ConfidenceSet.empty(dim, 1e-3)
    for turn in range(count):
        trust.update(five[turn % 5][None, :])
    gram = _gram(five, np.full(5, count / 5), 1e-3)
    assert np.abs(trust.gram_inv @ gram - np.eye(dim)).max() < 1e-4
