"""What a scorer counts and keeps of a round, labelled or not: its matrix, widths and radius."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.confidence import radius
from stacksl.types import Label

from .scorer_cases import ALL, fresh, pair_inputs, shared_inputs


@pytest.mark.parametrize("track", ["labelled", "all"])
def test_sgd_matrix_gets_the_choice(track: str) -> None:
    rng = np.random.default_rng(8)
    scorer, gram = fresh("sgd", track=track), np.eye(5)
    for turn in range(12):
        inputs, choice = pair_inputs(rng), int(rng.integers(4))
        asked = turn % 3 == 0
        if asked:
            scorer.step(inputs, ALL, choice, Label(1))
        else:
            scorer.skip(inputs, ALL, choice)
        if asked or track == "all":
            gram += np.outer(inputs.phi[choice], inputs.phi[choice])
    np.testing.assert_allclose(scorer.tracker.confidence.gram_inv, np.linalg.inv(gram), atol=1e-13)


@pytest.mark.parametrize("counts", ["learnt", "rounds"])
@pytest.mark.parametrize("name", ["sgd", "ridge", "newton"])
def test_radius_counts_labels_or_rounds(name: str, counts: str) -> None:
    rng = np.random.default_rng(10)
    scorer = fresh(name, radius_counts=counts, noise=0.5, norm_bound=2.0)
    scorer.step(pair_inputs(rng), ALL, 0, Label(1))
    for _ in range(3):
        scorer.skip(pair_inputs(rng), ALL, 0)
    expected = radius(0.5, 5, 1 if counts == "learnt" else 4, 1.0, 0.05, 2.0)
    assert scorer.bounds(pair_inputs(rng), ALL).radius == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("name", ["sgd", "ridge", "newton"])
def test_skips_shrink_widths_only_where_all_rounds_are_tracked(
    name: str, classes: int | None
) -> None:
    rng = np.random.default_rng(11)
    make = pair_inputs if classes is None else shared_inputs
    inputs = make(rng)
    for track in ("labelled", "all"):
        scorer = fresh(name, classes=classes, track=track)
        before = scorer.bounds(inputs, ALL).widths
        scorer.skip(inputs, ALL, 0)
        after = scorer.bounds(inputs, ALL).widths
        assert (after[0] < before[0]) == (track == "all")
        assert scorer.learnt == 0
