"""The compiled engines and the learner's loop are one algorithm, whatever the stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksl.game import GATES, ONE_HOT_PACE, ScorerSettings, make_gate
from stacksl.game.engines import StreamResult, run_stream

PARAMETERS = {
    "llf": [{"gate_scale": 0.0}, {"gate_scale": 3.0}, {"gate_scale": 4.0, "reading": "literal"}],
    "margin": [{}, ONE_HOT_PACE],
    "contested": [{}, {"width_scale": 0.3, "reserve": 0.4, "floor": 0.2}],
}
GATE_CHOICES = [(name, p) for name in GATES for p in PARAMETERS.get(name, [{}])]

SGD = [
    ScorerSettings(),
    ScorerSettings(track="all", radius_counts="rounds", action="ucb", clip="literal", clip_level=1),
    ScorerSettings(reference="ema", ema_decay=0.9, inner_steps=3, clip="none", kl_weight=0.5),
    ScorerSettings(reference="previous", inner_steps=2, clip_level=1.1, learning_rate=2.0),
    ScorerSettings(track="theta", learning_rate=1.0, kl_weight=0.0),
    ScorerSettings(reference="ema", kl_target=1e-3, clip_multiple=1.2, learning_rate=0.5),
]
OTHERS = [
    ScorerSettings(),
    ScorerSettings(action="ucb", noise=0.3, ridge=0.1),
    ScorerSettings(track="all", radius_counts="rounds", delta=0.2, ridge=2.0),
]
PAIRS = [("sgd", s) for s in SGD] + [("ridge", s) for s in OTHERS] + [("newton", s) for s in OTHERS]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """(T, K, d): odd and even, below and above what the loops take at a time."""
    return draw(st.integers(1, 40)), draw(st.integers(1, 9)), draw(st.integers(1, 9))


def rows_of(shape: tuple[int, ...], seed: int, alike: bool) -> np.ndarray:
    """Rows of norm 1; `alike` draws them from few vectors, so that candidates tie and repeat."""
    generator = np.random.default_rng(seed)
    if alike:
        few = np.eye(shape[-1])[generator.integers(min(shape[-1], 3), size=shape[:-1])]
        return few * 1.0
    rows = generator.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def same(one: StreamResult, other: StreamResult, tolerance: float = 1e-9) -> None:
    """Decision by decision, numbers to rounding; NaN where the other has NaN."""
    assert one.engine == "fused"
    assert other.engine == "loop"
    np.testing.assert_array_equal(one.choices, other.choices)
    np.testing.assert_array_equal(one.asked, other.asked)
    for name in ("statistics", "thresholds", "gate_scores", "scores", "reaches", "theta"):
        mine, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=name)
    assert (one.learnt, one.clipped) == (other.learnt, other.clipped)
    if one.gram_inv is None or other.gram_inv is None:
        assert one.gram_inv is None
        assert other.gram_inv is None
    else:
        np.testing.assert_allclose(one.gram_inv, other.gram_inv, rtol=tolerance, atol=tolerance)


def both(scorer: str, features: np.ndarray, **options: object) -> None:
    fused, loop = (
        run_stream(scorer, features, engine=engine, **options) for engine in ("fused", "loop")
    )
    same(fused, loop)


@pytest.mark.parametrize("gate", GATE_CHOICES, ids=lambda g: f"{g[0]} {g[1]}")
@given(
    shape=shapes(),
    setting=st.sampled_from(PAIRS),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
    alike=st.booleans(),
    certificates=st.booleans(),
    kl_on_skips=st.booleans(),
    rewarded=st.booleans(),
)
@settings(max_examples=40)
def test_engine_and_loop_agree_on_pairs(
    gate, shape, setting, share, seed, alike, certificates, kl_on_skips, rewarded
) -> None:
    scorer, chosen = setting
    if chosen.track == "theta" and gate[0] in ("llf", "contested"):
        chosen = replace(chosen, track="labelled")
    rounds, candidates, _ = shape
    generator = np.random.default_rng([seed, 1])
    feedback = (
        {"rewards": generator.normal(size=(rounds, candidates))}
        if rewarded and scorer == "ridge"
        else {"labels": generator.integers(candidates, size=rounds)}
    )
    both(
        scorer,
        rows_of(shape, seed, alike),
        gate=make_gate(gate[0], **gate[1]),
        budget=round(share * rounds),
        settings=chosen,
        seed=seed,
        kl_on_skips=kl_on_skips,
        width_scale=None if seed % 2 else 0.4,
        certificates=certificates,
        **feedback,
    )


@pytest.mark.parametrize("gate", GATE_CHOICES, ids=lambda g: f"{g[0]} {g[1]}")
@given(
    shape=shapes(),
    setting=st.sampled_from(OTHERS),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
    alike=st.booleans(),
    certificates=st.booleans(),
)
@settings(max_examples=25)
def test_engine_and_loop_agree_on_classes(
    gate, shape, setting, share, seed, alike, certificates
) -> None:
    rounds, classes, dim = shape
    both(
        "ridge",
        rows_of((rounds, dim), seed, alike),
        classes=classes,
        labels=np.random.default_rng([seed, 1]).integers(classes, size=rounds),
        gate=make_gate(gate[0], **gate[1]),
        budget=round(share * rounds),
        settings=setting,
        seed=seed,
        certificates=certificates,
    )


def test_the_clip_level_follows_a_window_that_slides() -> None:
    """More labels than the window of losses holds, so that losses leave it again."""
    generator = np.random.default_rng(0)
    both(
        "sgd",
        rows_of((450, 4, 3), 0, alike=False),
        labels=generator.integers(4, size=450),
        gate=make_gate("always"),
        budget=450,
        settings=ScorerSettings(learning_rate=3.0),
    )


@given(seed=st.integers(0, 99), setting=st.sampled_from([*SGD[:4], *OTHERS]))
@settings(max_examples=20)
def test_certificates_change_no_decision(seed, setting) -> None:
    scorer = "sgd" if setting in SGD else "newton"
    options = {
        "gate": make_gate("contested" if seed % 2 else "llf"),
        "labels": np.random.default_rng([seed, 1]).integers(4, size=60),
        "budget": 20,
        "settings": setting,
    }
    rows = rows_of((60, 4, 5), seed, alike=seed % 3 == 0)
    full = run_stream(scorer, rows, **options, engine="fused")
    bare = run_stream(scorer, rows, **options, engine="fused", certificates=False)
    np.testing.assert_array_equal(full.choices, bare.choices)
    np.testing.assert_array_equal(full.asked, bare.asked)
    np.testing.assert_array_equal(full.theta, bare.theta)
    np.testing.assert_array_equal(full.gram_inv, bare.gram_inv)
    assert np.isfinite(full.gate_scores).all()
    assert np.isnan(bare.gate_scores).all()
