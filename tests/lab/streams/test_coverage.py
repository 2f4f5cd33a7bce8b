"""`coverage`: exact intervals, errors and certificates against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stacksl.core.confidence import ConfidenceSet, radius
from stacksl.core.gates.registry import make_gate
from stacksl_lab.engines import run_stream
from stacksl_lab.statistics.estimates import estimates, holds, radii
from stacksl_lab.statistics.intervals import clopper_pearson, promise_verdict
from stacksl_lab.study.rows import Row
from stacksl_lab.synthetic.streams import make_stream

KNOWN = {"noise": 0.3, "dim": 6, "ridge": 1.0, "delta": 0.05, "bound": 2.0}


def tail(hits: int, runs: int, share: float) -> float:
    """The probability of `hits` or more, summed as the binomial law has it."""
    return sum(
        math.comb(runs, k) * share**k * (1 - share) ** (runs - k) for k in range(hits, runs + 1)
    )


@pytest.mark.parametrize(("hits", "runs"), [(95, 100), (3, 10), (99, 100)])
def test_the_interval_ends_where_either_tail_is_a_fortieth(hits: int, runs: int) -> None:
    low, high = clopper_pearson(hits, runs)
    assert tail(hits, runs, low) == pytest.approx(0.025)
    assert 1 - tail(hits + 1, runs, high) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("share", "said"), [(1.0, "holds"), (0.99, "open"), (0.9, "open"), (0.8, "fails")]
)
def test_a_promise_is_judged_by_the_whole_interval(share: float, said: str) -> None:
    assert promise_verdict(Row("s", "r", "covered", share, seeds=100), 0.95) == said


def stream(scorer: str, feedback: str, **settings: object):
    from stacksl.core.scorers.base import ScorerSettings

    source = make_stream("iid", feedback, 3, rounds=60, dim=6, candidates=4)  # type: ignore[arg-type]
    given = {"rewards": source.rewards} if feedback == "scalar" else {"labels": source.labels}
    played = run_stream(
        scorer, source.features, gate=make_gate("random"), budget=20, marks=range(1, 61),
        settings=ScorerSettings(**settings), width_scale=1.7, engine="loop", **given,
    )  # fmt: skip
    return source, played


@pytest.mark.parametrize(
    ("scorer", "feedback", "track"),
    [("ridge", "scalar", "labeled"), ("ridge", "scalar", "all"), ("newton", "softmax", "all")],
)
def test_the_replayed_certificate_is_the_gate_score_of_the_engine(scorer, feedback, track) -> None:
    """With a constant radius g is the statistic of `contested`, which the engine computes itself.

    The engine leaves x̂ out of the maximum, so its own may be below 0.
    """
    source, played = stream(scorer, feedback, track=track)
    path = estimates(played, 1.0, moves=played.asked | (track == "all"))
    found = path.certificates(source.features, played.choices, np.full(60, 1.7))
    assert found == pytest.approx(np.maximum(played.gate_scores, 0.0), abs=1e-12)
    assert (played.gate_scores > 0).any()


def test_an_error_is_within_a_radius_where_the_confidence_set_has_the_truth() -> None:
    source, played = stream("ridge", "scalar")
    path = estimates(played, 1.0, moves=played.asked)
    assert len(path.thetas) == 21
    errors = path.errors(source.truth)
    assert errors[0] == pytest.approx(np.linalg.norm(source.truth)), "θ = 0 and V = I"
    for t in (0, 30, 59):
        trust = ConfidenceSet(path.inverses[path.before[t]], 1.0)
        center = path.thetas[path.before[t]]
        assert holds(trust, source.truth, center, errors[t] * 1.0001)
        assert not holds(trust, source.truth, center, errors[t] * 0.9999)


def test_an_estimate_is_that_before_its_round() -> None:
    _, played = stream("ridge", "scalar")
    path = estimates(played, 1.0, moves=played.asked)
    first = int(np.flatnonzero(played.asked)[0])
    assert not path.before[: first + 1].any()
    assert path.before[first + 1] == 1 == path.learned[first + 1]
    assert (path.thetas[-1] == played.theta).all()


def test_radii_are_those_of_the_confidence_set() -> None:
    found = radii(np.array([0, 3, 3, 10]), **KNOWN)
    expected = [radius(0.3, 6, n, 1.0, 0.05, 2.0) for n in (0, 3, 3, 10)]
    assert found.tolist() == expected
