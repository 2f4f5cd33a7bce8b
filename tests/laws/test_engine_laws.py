"""The compiled engines and the learner's loop are one algorithm, whatever the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from stacksl.core.gates.registry import ONE_HOT_PACE
from stacksl_lab.baselines.registry import GATES, make_gate
from stacksl_lab.drift import DriftGuard
from stacksl_lab.engines import StreamResult, run_stream
from stacksl_lab.gradient import StudySettings

PARAMETERS = {
    "llf": [{"gate_scale": 0.0}, {"gate_scale": 3.0}, {"gate_scale": 4.0, "reading": "literal"}],
    "margin": [{}, ONE_HOT_PACE],
    "contested": [{}, {"width_scale": 0.3, "reserve": 0.4, "floor": 0.2}],
    "adpo": [{}, {"pace": 0.5}, {"level": 0.7}],
    "lucb": [{}, {"width_scale": 0.3, "tolerance": 0.05}],
    "width": [{}, {"scale": 1.7, "ridge": 0.3}, {"exponent": 0.37}],
    "avoided": [{}, {"width_scale": 0.4, "reserve": 0.8, "floor": 0.03}],
    "reserve": [{}, {"share": 0.9, "ahead": 0.5, "floor": 0.3, "pending": 2}],
    "dgs": [{}, {"scale": 0.003, "ridge": 0.7, "delta": 0.3}],
}
GATE_CHOICES = [(name, p) for name in GATES for p in PARAMETERS.get(name, [{}])]


@st.composite
def settings_of(draw: st.DrawFn, scorer: str) -> StudySettings:
    """Any settings, but for rates at which rounding grows from round to round.

    A radius of 0 is left out too: bounds of rows that tie are then rounding errors alone.
    """
    common = {
        "track": draw(st.sampled_from(["labeled", "all"])),
        "action": draw(st.sampled_from(["greedy", "ucb"])),
        "radius_counts": draw(st.sampled_from(["learned", "rounds"])),
        "ridge": draw(st.sampled_from([0.1, 1.0, 4.0])),
        "delta": draw(st.sampled_from([0.05, 0.9])),
        "noise": draw(st.sampled_from([0.3, 1.0])),
        "norm_bound": draw(st.sampled_from([0.0, 1.0, 30.0])),
    }
    return StudySettings(**common, **(draw(descents()) if scorer == "sgd" else {}))


def hopes(data: st.DataObject, setting: StudySettings) -> bool:
    """Whether asked rounds play the largest UCB, where the others do not."""
    return setting.action == "greedy" and data.draw(st.booleans())


@st.composite
def descents(draw: st.DrawFn) -> dict[str, Any]:
    """What `sgd` alone reads."""
    level = draw(st.sampled_from([{}, {"clip_level": 0.3}, {"clip_level": 1.1},
                                  {"clip_multiple": 0.5}, {"clip_multiple": 1.2}]))  # fmt: skip
    return level | {
        "learning_rate": draw(st.sampled_from([0.1, 0.5])),
        "kl_weight": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "kl_target": draw(st.sampled_from([None, 1e-3, 0.1])),
        "reference": draw(st.sampled_from(["frozen", "ema", "previous"])),
        "ema_decay": draw(st.sampled_from([0.0, 0.9])),
        "clip": draw(st.sampled_from(["none", "literal", "scale"])),
        "inner_steps": draw(st.integers(1, 3)),
    }


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """(T, K, d): odd and even, below and above what the loops take at a time."""
    return draw(st.integers(1, 40)), draw(st.integers(1, 9)), draw(st.integers(1, 9))


KINDS = ["plain", "few", "zero", "partly zero", "equal", "repeated", "opposed"]


def rows_of(shape: tuple[int, ...], seed: int, kind: str) -> np.ndarray:
    """Rows of norm 1, but for what `kind` says: then candidates tie, items repeat, or φ is 0."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=shape)
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    if kind == "few":
        rows = np.eye(shape[-1])[generator.integers(min(shape[-1], 3), size=shape[:-1])] * 1.0
    elif kind == "zero":
        rows[:] = 0.0
    elif kind == "partly zero":
        rows[generator.random(shape[:-1]) < 0.4] = 0.0
    elif kind == "equal":
        rows[:] = rows[:, :1]
    elif kind == "repeated":
        rows[:] = rows[:1]
    elif kind == "opposed":
        rows[1::2] = -rows[: len(rows) // 2 * 2 : 2]
    return rows


def budget_of(share: float, rounds: int) -> int:
    """From none to more labels than rounds."""
    return round(1.2 * share * rounds)


def same(one: StreamResult, other: StreamResult, tolerance: float = 1e-9) -> None:
    """Decision by decision, numbers to rounding; NaN where the other has NaN."""
    assert one.engine == "fused"
    assert other.engine == "loop"
    chosen, asked = one.choices != other.choices, one.asked != other.asked
    apart = np.flatnonzero(chosen | asked)[:1]  # later rounds follow from it
    if len(apart) and chosen[apart]:
        # Where θ is 0 but for rounding, its sign and so the largest score are the machine's. Scores
        # of exactly 0 are a tie with a rule, and have to agree.
        if 0 < np.abs([one.scores[apart], other.scores[apart]]).max() < 1e-15:
            reject()
    elif len(apart):
        # A statistic that differs from its threshold by rounding alone is asked for by the machine.
        over = np.abs([each.statistics[apart] - each.thresholds[apart] for each in (one, other)])
        if 0 < over.max() < 1e-12:
            reject()
    np.testing.assert_array_equal(one.choices, other.choices)
    np.testing.assert_array_equal(one.asked, other.asked)
    for name in ("statistics", "thresholds", "gate_scores", "scores", "reaches", "theta"):
        mine, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=name)
    assert (one.learned, one.clipped) == (other.learned, other.clipped)
    np.testing.assert_array_equal(one.resets, other.resets)
    assert (one.presented is None) == (other.presented is None)
    if one.presented is not None:
        np.testing.assert_array_equal(one.presented, other.presented)
    same_matrix(one.gram_inv, other.gram_inv, tolerance)
    assert [m.round for m in one.marks] == [m.round for m in other.marks]
    for mine, theirs in zip(one.marks, other.marks, strict=True):
        assert mine.learned == theirs.learned
        np.testing.assert_allclose(mine.theta, theirs.theta, rtol=tolerance, atol=tolerance)
        same_matrix(mine.gram_inv, theirs.gram_inv, tolerance)


def same_matrix(one: np.ndarray | None, other: np.ndarray | None, tolerance: float) -> None:
    """Alike to rounding, or both none."""
    if one is None or other is None:
        assert one is None
        assert other is None
    else:
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def both(scorer: str, features: np.ndarray, **options: object) -> StreamResult:
    fused, loop = (
        run_stream(scorer, features, engine=engine, **options) for engine in ("fused", "loop")
    )
    same(fused, loop)
    return fused


PAIRS = given(
    data=st.data(),
    scorer=st.sampled_from(["sgd", "sgd", "ridge", "newton"]),
    shape=shapes(),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
    kind=st.sampled_from(KINDS),
    certificates=st.booleans(),
    kl_on_skips=st.booleans(),
    rewarded=st.booleans(),
)


def agree_on_pairs(
    gate, data, scorer, shape, share, seed, kind, certificates, kl_on_skips, rewarded
) -> None:
    rounds, candidates, _ = shape
    generator = np.random.default_rng([seed, 1])
    feedback = (
        {"rewards": generator.normal(size=(rounds, candidates))}
        if rewarded and scorer == "ridge"
        else {"labels": generator.integers(candidates, size=rounds)}
    )
    setting = data.draw(settings_of(scorer))
    both(
        scorer,
        rows_of(shape, seed, kind),
        gate=make_gate(gate[0], **gate[1]),
        budget=budget_of(share, rounds),
        settings=setting,
        asks_ucb=hopes(data, setting),
        seed=seed,
        kl_on_skips=kl_on_skips,
        width_scale=None if seed % 2 else 0.4,
        certificates=certificates,
        **feedback,
    )


FEW_OR_MANY = pytest.mark.parametrize("part", [0.05, pytest.param(1.0, marks=pytest.mark.slow)])
"""How many of the examples of a law are drawn: `make test-slow` draws all."""


@FEW_OR_MANY
@pytest.mark.parametrize("gate", GATE_CHOICES, ids=lambda g: f"{g[0]} {g[1]}")
def test_engine_and_loop_agree_on_pairs(gate, part) -> None:
    settings(max_examples=int(200 * part))(PAIRS(agree_on_pairs))(gate=gate)


CLASSES = given(
    data=st.data(),
    shape=shapes(),
    setting=settings_of("ridge"),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
    kind=st.sampled_from(KINDS),
    certificates=st.booleans(),
)


def agree_on_classes(gate, data, shape, setting, share, seed, kind, certificates) -> None:
    rounds, classes, dim = shape
    both(
        "ridge",
        rows_of((rounds, dim), seed, "plain" if kind == "equal" else kind),
        classes=classes,
        labels=np.random.default_rng([seed, 1]).integers(classes, size=rounds),
        gate=make_gate(gate[0], **gate[1]),
        budget=budget_of(share, rounds),
        settings=setting,
        asks_ucb=hopes(data, setting),
        seed=seed,
        certificates=certificates,
    )


@FEW_OR_MANY
@pytest.mark.parametrize("gate", GATE_CHOICES, ids=lambda g: f"{g[0]} {g[1]}")
def test_engine_and_loop_agree_on_classes(gate, part) -> None:
    settings(max_examples=int(200 * part))(CLASSES(agree_on_classes))(gate=gate)


@pytest.mark.parametrize("clip", ["literal", "scale"])
def test_the_clip_level_follows_a_window_that_slides(clip) -> None:
    """More labels than the window of losses holds, so that losses leave it again."""
    generator = np.random.default_rng(0)
    played = both(
        "sgd",
        rows_of((450, 4, 3), 0, "plain"),
        labels=generator.integers(4, size=450),
        gate=make_gate("always"),
        budget=450,
        settings=StudySettings(learning_rate=3.0, clip=clip),
    )
    assert 0 < played.clipped < 450


def test_a_clip_level_of_zero_lets_nothing_through() -> None:
    """Losses of items known by heart round to 0, and so does the median of the window."""
    labels = np.r_[np.zeros(40), np.arange(20) % 3].astype(np.int64)
    for clip in ("literal", "scale"):
        both(
            "sgd",
            np.eye(3)[None].repeat(60, axis=0),
            labels=labels,
            gate=make_gate("always"),
            budget=60,
            settings=StudySettings(learning_rate=60.0, kl_weight=0.0, clip_multiple=1.0, clip=clip),
        )


@st.composite
def guards(draw: st.DrawFn) -> DriftGuard:
    """Guards that alarm now and then within some dozens of labels of noise."""
    return DriftGuard(
        level=draw(st.sampled_from([1.0, 3.0, 23.0])),
        allowance=draw(st.sampled_from([0.5, 2.0])),
        cap=draw(st.sampled_from([4.0, 25.0])),
        leverage=draw(st.sampled_from([0.1, 0.5, 9.0])),
        warm=draw(st.sampled_from([0.0, 1.0, 3.0])),
    )


MARKS = given(
    data=st.data(),
    scorer=st.sampled_from(["ridge", "newton", "sgd"]),
    shape=st.tuples(st.integers(1, 60), st.integers(2, 9), st.integers(1, 6)),
    gate=st.sampled_from(["always", "first", "random", "contested", "margin", "llf"]),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
    guarded=st.booleans(),
    followed=st.booleans(),
    certificates=st.booleans(),
    kl_on_skips=st.booleans(),
)


def agree_on_marks(
    data, scorer, shape, gate, share, seed, guarded, followed, certificates, kl_on_skips
) -> None:
    """Rows in general position: a follower's exact ties are broken by rounding."""
    rounds, candidates, _ = shape
    feedback = "rewards" if scorer == "ridge" else "utilities"
    setting = data.draw(settings_of(scorer))
    present = data.draw(st.integers(2, candidates)) if followed else None
    played = both(
        scorer,
        rows_of(shape, seed, "plain"),
        gate=make_gate(gate),
        budget=budget_of(share, rounds),
        settings=setting,
        asks_ucb=hopes(data, setting),
        seed=seed,
        kl_on_skips=kl_on_skips,
        certificates=certificates,
        marks=sorted(data.draw(st.sets(st.integers(1, rounds), max_size=4))),
        present=present,
        drift=data.draw(guards()) if guarded else None,
        **{feedback: np.random.default_rng([seed, 2]).normal(size=(rounds, candidates))},
    )
    if present is not None:
        assert played.presented.shape == (rounds, present)
        assert (played.presented == played.choices[:, None]).any(axis=1).all()


@pytest.mark.parametrize("part", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])
def test_engine_and_loop_agree_on_marks_followers_and_resets(part) -> None:
    settings(max_examples=int(250 * part))(MARKS(agree_on_marks))()
