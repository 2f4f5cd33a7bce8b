"""The laboratory's streams are what their names say, and regret is what it is called."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.gates.registry import make_gate
from stacksl.errors import SettingsError
from stacksl_lab.synthetic.playing import play, regrets
from stacksl_lab.synthetic.streams import KINDS, Feedback, Kind, make_stream


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feedback", ["scalar", pytest.param("softmax", marks=pytest.mark.slow)])
def test_features_have_norm_1_and_values_are_their_scores(kind: Kind, feedback: Feedback) -> None:
    source = make_stream(kind, feedback, 3, rounds=200)
    assert np.linalg.norm(source.features, axis=-1) == pytest.approx(1.0)
    late = slice(100, None) if kind == "concept" else slice(None)
    assert source.values[late] == pytest.approx(source.features[late] @ source.truth)
    assert source.test_values == pytest.approx(source.test_features @ source.truth)
    shown = 20 if feedback == "scalar" else 5
    assert source.present == shown
    pool = shown if kind != "follower" else (60 if feedback == "scalar" else 20)
    assert source.features.shape == (200, pool, 20)
    assert (source.rewards is None) == (feedback == "softmax")


def test_a_seed_gives_one_stream_and_another_another() -> None:
    one, same, other = (make_stream("iid", "softmax", seed, rounds=50) for seed in (1, 1, 2))
    assert (one.features == same.features).all()
    assert one.utilities is not None
    assert same.utilities is not None
    assert np.array_equal(one.utilities, same.utilities)
    assert not (one.features == other.features).any()


def test_rewards_have_the_noise_they_say() -> None:
    source = make_stream("iid", "scalar", 0, rounds=4000, noise=0.3)
    left = (source.rewards - source.values)[:, 0]
    # The standard deviation of 4,000 normals has a standard error of 0.3 / sqrt(8,000) = .0034.
    assert left.std() == pytest.approx(0.3, abs=0.017)
    assert abs(left.mean()) < 5 * 0.3 / 4000**0.5


@pytest.mark.parametrize(("kind", "parts"), [("shift-2", 2), ("shift-4", 4)])
def test_each_block_lives_in_dimensions_of_its_own(kind: Kind, parts: int) -> None:
    source = make_stream(kind, "scalar", 0, rounds=400)
    for part, rows in enumerate(np.split(source.features, parts)):
        used = np.abs(rows).max(axis=(0, 1)) > 0
        size = 20 // parts
        assert used.nonzero()[0].tolist() == list(range(part * size, (part + 1) * size))


def test_the_bound_holds_before_and_after_the_truth_moves() -> None:
    worlds = [make_stream("concept", "scalar", seed, rounds=60) for seed in range(8)]
    for source in worlds:
        early, late = (
            np.linalg.lstsq(f.reshape(-1, 20), v.ravel(), rcond=None)[0]
            for f, v in zip(np.split(source.features, 2), np.split(source.values, 2), strict=True)
        )
        assert late == pytest.approx(source.truth)
        norms = np.linalg.norm(early), np.linalg.norm(late)
        assert source.norm_bound == pytest.approx(max(norms))
    assert any(w.norm_bound > np.linalg.norm(w.truth) + 0.01 for w in worlds)
    still = make_stream("iid", "scalar", 0, rounds=60)
    assert still.norm_bound == pytest.approx(np.linalg.norm(still.truth))


def test_a_follower_is_compared_with_what_it_showed() -> None:
    source = make_stream("follower", "scalar", 0, rounds=60)
    played = play(source, make_gate("first"), 10, engine="loop")
    shown = played.presented
    assert shown.shape == (60, 20)
    best = [values[row].max() for values, row in zip(source.values, shown, strict=True)]
    chosen = source.values[np.arange(60), played.choices]
    assert regrets(source, played) == pytest.approx(np.array(best) - chosen)
    assert (regrets(source, played) <= source.values.max(axis=1) - chosen).all()


def test_regret_is_the_best_value_less_the_chosen_one() -> None:
    source = make_stream("iid", "softmax", 0, rounds=60)
    played = play(source, make_gate("first"), 10, engine="loop")
    by_hand = [
        max(values) - values[choice]
        for values, choice in zip(source.values.tolist(), played.choices, strict=True)
    ]
    assert regrets(source, played) == pytest.approx(by_hand)
    assert played.asked.sum() == 10


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(SettingsError, match="kind of stream"):
        make_stream("odd", "scalar", 0)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="feedback"):
        make_stream("iid", "votes", 0)  # type: ignore[arg-type]
