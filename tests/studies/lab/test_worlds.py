"""The laboratory's streams are what their names say, and regret is what it is called."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.errors import SettingsError
from stacksl.game import make_gate
from stacksl.studies.lab.worlds.playing import final_regret, play, regrets
from stacksl.studies.lab.worlds.streams import KINDS, Feedback, Kind, make_world


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feedback", ["scalar", "softmax"])
def test_features_have_norm_1_and_values_are_their_scores(kind: Kind, feedback: Feedback) -> None:
    world = make_world(kind, feedback, 3, rounds=400)
    assert np.linalg.norm(world.features, axis=-1) == pytest.approx(1.0)
    late = slice(200, None) if kind == "concept" else slice(None)
    assert world.values[late] == pytest.approx(world.features[late] @ world.truth)
    assert world.test_values == pytest.approx(world.test_features @ world.truth)
    shown = 20 if feedback == "scalar" else 5
    assert world.present == shown
    pool = shown if kind != "follower" else (60 if feedback == "scalar" else 20)
    assert world.features.shape == (400, pool, 20)
    assert (world.rewards is None) == (feedback == "softmax")


def test_a_seed_gives_one_stream_and_another_another() -> None:
    one, same, other = (make_world("iid", "softmax", seed, rounds=50) for seed in (1, 1, 2))
    assert (one.features == same.features).all()
    assert one.utilities is not None
    assert same.utilities is not None
    assert np.array_equal(one.utilities, same.utilities)
    assert not (one.features == other.features).any()


def test_rewards_have_the_noise_they_say() -> None:
    world = make_world("iid", "scalar", 0, rounds=4000, noise=0.3)
    assert world.rewards is not None
    left = (world.rewards - world.values)[:, 0]
    # The standard deviation of 4,000 normals has a standard error of 0.3 / sqrt(8,000) = .0034.
    assert left.std() == pytest.approx(0.3, abs=0.017)
    assert abs(left.mean()) < 5 * 0.3 / 4000**0.5


def test_labels_are_drawn_from_the_softmax() -> None:
    world = make_world("iid", "softmax", 0, rounds=4000)
    odds = np.exp(world.values)
    likely = (odds / odds.sum(axis=1, keepdims=True)).max(axis=1)
    hits = world.labels == world.values.argmax(axis=1)
    error = np.sqrt((likely * (1 - likely)).sum()) / 4000
    assert abs(hits.mean() - likely.mean()) < 4 * error


@pytest.mark.parametrize(("kind", "parts"), [("shift-2", 2), ("shift-4", 4)])
def test_each_block_lives_in_dimensions_of_its_own(kind: Kind, parts: int) -> None:
    world = make_world(kind, "scalar", 0, rounds=400)
    for part, rows in enumerate(np.split(world.features, parts)):
        used = np.abs(rows).max(axis=(0, 1)) > 0
        size = 20 // parts
        assert used.nonzero()[0].tolist() == list(range(part * size, (part + 1) * size))


def test_three_rounds_in_a_hundred_are_rare() -> None:
    world = make_world("rare", "scalar", 0, rounds=10_000)
    rare = np.abs(world.features[:, 0, 10:]).max(axis=1) > 0
    assert rare.mean() == pytest.approx(0.03, abs=4 * (0.03 * 0.97 / 10_000) ** 0.5)
    assert (np.abs(world.features[rare, :, :10]) == 0).all()


@pytest.mark.parametrize("feedback", ["scalar", "softmax"])
def test_half_of_the_rounds_are_near_ties(feedback: Feedback) -> None:
    world = make_world("near-tie", feedback, 0, rounds=2000)
    spans = world.values.max(axis=1) - world.values.min(axis=1)
    near = spans < 0.2
    assert near.mean() == pytest.approx(0.5, abs=0.06)
    assert np.median(spans[near]) == pytest.approx(0.05, abs=0.02)


def test_the_bound_holds_before_and_after_the_truth_moves() -> None:
    worlds = [make_world("concept", "scalar", seed, rounds=60) for seed in range(8)]
    for world in worlds:
        early, late = (
            np.linalg.lstsq(f.reshape(-1, 20), v.ravel(), rcond=None)[0]
            for f, v in zip(np.split(world.features, 2), np.split(world.values, 2), strict=True)
        )
        assert late == pytest.approx(world.truth)
        norms = np.linalg.norm(early), np.linalg.norm(late)
        assert world.norm_bound == pytest.approx(max(norms))
    assert any(w.norm_bound > np.linalg.norm(w.truth) + 0.01 for w in worlds)
    still = make_world("iid", "scalar", 0, rounds=60)
    assert still.norm_bound == pytest.approx(np.linalg.norm(still.truth))


def test_a_follower_is_compared_with_what_it_showed() -> None:
    world = make_world("follower", "scalar", 0, rounds=60)
    played = play(world, make_gate("first"), 10, engine="loop")
    shown = played.presented
    assert shown is not None
    assert shown.shape == (60, 20)
    best = [values[row].max() for values, row in zip(world.values, shown, strict=True)]
    chosen = world.values[np.arange(60), played.choices]
    assert regrets(world, played) == pytest.approx(np.array(best) - chosen)
    assert (regrets(world, played) <= world.values.max(axis=1) - chosen).all()


def test_regret_is_the_best_value_less_the_chosen_one() -> None:
    world = make_world("iid", "softmax", 0, rounds=60)
    played = play(world, make_gate("first"), 10, engine="loop")
    by_hand = [
        max(values) - values[choice]
        for values, choice in zip(world.values.tolist(), played.choices, strict=True)
    ]
    assert regrets(world, played) == pytest.approx(by_hand)
    assert played.asked.sum() == 10


def test_the_truth_has_no_regret_and_its_opposite_the_most() -> None:
    world = make_world("rare", "softmax", 0, rounds=60)
    assert final_regret(world, world.truth) == 0.0
    spans = world.test_values.max(axis=1) - world.test_values.min(axis=1)
    assert final_regret(world, -world.truth) == pytest.approx(spans.mean())


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(SettingsError, match="kind of stream"):
        make_world("odd", "scalar", 0)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="feedback"):
        make_world("iid", "votes", 0)  # type: ignore[arg-type]
