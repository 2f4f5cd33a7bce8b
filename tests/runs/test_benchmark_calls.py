"""Benchmarks that call parts of a run by their own names, on a few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stacksl.core.blocks import SharedBlock
from stacksl.ledger.store.database import Store
from stacksl.runs.loop.head_fitting import Source

from ..benchmarks import benchmark


def test_a_run_from_end_to_end_buys_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Store, "commit", Store.commit
    )  # which the benchmark replaces by a timed one
    measured = benchmark("end_to_end").child(60, tmp_path / "run", cores=64)
    assert measured["labels"] == measured["budget"] == 6
    assert measured["ledger_rows"] > 60


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
