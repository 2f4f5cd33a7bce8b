"""What benchmarks compute by themselves, on a few rows."""

from __future__ import annotations

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.runs.loop.head_fitting import Source

from ..benchmarks import benchmark


def test_labels_are_judged_by_heads_that_did_not_learn_them() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=120)
    h = np.eye(4, 12)[labels] * 1.6 + 0.35 * rng.normal(size=(120, 12))
    names = np.eye(4, 12, dtype=np.float32)
    source = Source(SharedBlock(h.astype(np.float32), 4), names, frozenset(), 0)
    rows = np.arange(40)
    told = labels[rows].copy()
    told[0] = (told[0] + 1) % 4
    probabilities = benchmark("second_answers").held_out(source, rows, told)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert probabilities[rows, told].argmin() == 0, "the wrong label is the least probable"
