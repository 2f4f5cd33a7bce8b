"""The numbers of an evaluation against second implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.models.metrics import calibration_error, cohen_kappa, confusions, macro_f1, wilson


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_the_score_equation(counts: tuple[int, int]) -> None:
    """Both ends p satisfy |share - p| = z sqrt(p (1 - p) / n): that is what defines them."""
    correct, n = counts
    z = 1.959963984540054
    low, high = wilson(correct, n)
    assert 0.0 <= low <= correct / n + 1e-15
    assert correct / n <= high + 1e-15
    assert high <= 1.0
    for end in (low, high):
        assert (correct / n - end) ** 2 == pytest.approx(z * z * end * (1 - end) / n, abs=1e-14)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_macro_f1_by_hand(pairs: list[tuple[int, int]]) -> None:
    gold, said = zip(*pairs, strict=True)
    scores = []
    for label in set(gold):
        hits = sum(g == p == label for g, p in pairs)
        scores.append(2 * hits / (gold.count(label) + said.count(label)))
    assert macro_f1(gold, said) == pytest.approx(np.mean(scores))


def test_confusions_are_the_off_diagonal_of_scikit_learns_matrix() -> None:
    from sklearn.metrics import confusion_matrix

    rng = np.random.default_rng(0)
    gold, said = rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    matrix = confusion_matrix(gold, said)
    found = confusions(gold.tolist(), said.tolist())
    assert {(g, p): n for g, p, n in found} == {
        (g, p): matrix[g, p] for g in range(4) for p in range(4) if g != p
    }
    assert [n for _, _, n in found] == sorted((n for _, _, n in found), reverse=True)


def test_calibration_error_against_scikit_learn() -> None:
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.2, 1.0, 500)
    correct = rng.uniform(size=500) < confidence**2
    counts, _ = np.histogram(confidence, bins=10, range=(0.0, 1.0))
    share, mean = calibration_curve(correct, confidence, n_bins=10)
    expected = (counts[counts > 0] / 500 * np.abs(share - mean)).sum()
    assert calibration_error(confidence, correct) == pytest.approx(expected)
    assert calibration_error(confidence[:0], correct[:0]) == 0.0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=2))
def test_kappa_is_scikit_learns(pairs: list[tuple[str, str]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    if len({answer for pair in pairs for answer in pair}) == 1:
        assert cohen_kappa(pairs) is None
        return
    first, second = zip(*pairs, strict=True)
    assert cohen_kappa(pairs) == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
