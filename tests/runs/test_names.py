"""Class names, the graph and the mixture of the final model, on runs of three topics."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stacksl.api import run
from stacksl.core.blocks import SharedBlock
from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.core.heads.logistic import DEFAULT, Strength, folds_of
from stacksl.core.scorers import restore_head
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.loop import head_fitting as final
from stacksl.runs.loop.batch_selection import surest
from stacksl.runs.loop.class_names import in_words
from stacksl.runs.loop.head_fitting import (
    KINDS,
    Component,
    Source,
    fitted_mixture,
    held_out_answers,
    lower_loss,
    make_final,
)
from stacksl.runs.loop.linear_trainer import LinearTrainer

from .conftest import CLASSES, class_items, game_of, pooled
from .people_cases import answer_all, begin


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("card_arrival", "card arrival"),
        ("cardArrival", "card Arrival"),
        ("HTTPError", "HTTP Error"),
        ("top-up/limits", "top up limits"),
        ("größe_ändern", "größe ändern"),
        ("_", "_"),
    ],
)
def test_a_name_becomes_words(name, words) -> None:
    assert in_words(name) == words


# What makes the final model ----------------------------------------------------------------------


def _topics(count=400):
    """Four clouds, and names at their centers."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=count)
    h = np.eye(4, 12)[labels] * 1.6 + 0.35 * rng.normal(size=(count, 12))
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    return h.astype(np.float32), labels, np.eye(4, 12, dtype=np.float32)


def _source(h, names, apart=frozenset()):
    return Source(SharedBlock(h, len(names)), names, apart, 5)


def _made(h, labels, names, rows, apart=frozenset(), kind=None):
    source = _source(h, names, apart)
    fixed = () if kind is None else (Component(kind),)
    head, mixture = make_final(source, rows, labels[rows], fixed)
    return head, {part.kind: part for part in mixture}, source


def _right(head, h, labels):
    return float((head.probabilities(SharedBlock(h, labels.max() + 1)).argmax(1) == labels).mean())


def test_neighbors_weigh_most_where_classes_are_topics() -> None:
    h, labels, names = _topics()
    rows = np.arange(30)
    seen = np.where(np.arange(len(labels)) < 30, labels, -1)  # nothing else may be read
    head, mixture, _ = _made(h, seen, np.roll(names, 1, axis=0), rows)
    assert list(mixture) == list(KINDS)
    assert sum(part.weight for part in mixture.values()) == pytest.approx(1.0)
    assert mixture["plain"].taught > 5 * mixture["names alone"].taught, "the names are wrong"
    assert _right(head, h[30:], labels[30:]) > 0.9


def test_neighbors_weigh_little_where_classes_are_not_topics() -> None:
    """The class is the sign of one coordinate among many: neighbors agree in the others."""
    rng = np.random.default_rng(3)
    labels = rng.integers(2, size=600)
    topics = np.eye(6)[rng.integers(6, size=600)]
    noise = 0.15 * rng.normal(size=(600, 14))
    h = np.column_stack([topics, noise, 0.1 * (2.0 * labels - 1)])
    h = (h / np.linalg.norm(h, axis=1, keepdims=True)).astype(np.float32)
    names = np.zeros((2, 21), dtype=np.float32)
    names[:, :2] = np.eye(2)
    head, mixture, _ = _made(h, labels, names, np.arange(90))
    assert mixture["names and graph"].weight < 0.1
    assert mixture["names and graph"].log_loss > mixture["plain"].log_loss + 0.02
    forced, *_ = _made(h, labels, names, np.arange(90), kind="names and graph")
    right = [_right(each, h[90:], labels[90:]) for each in (head, forced)]
    assert right[0] > right[1] + 0.03, "alone it would have done harm"


def test_labels_are_found_to_improve_on_names_or_not() -> None:
    h, labels, names = _topics()
    rows, rng = np.arange(120), np.random.default_rng(8)
    mean, error = lower_loss(_source(h, np.roll(names, 1, axis=0)), rows, labels[rows])
    assert mean > 5 * error > 0, "the names are wrong, and labels say so"
    mean, error = lower_loss(_source(h, names), rows, rng.integers(4, size=120))
    assert mean < error, "the labels say nothing"


def test_a_mixture_has_tried_what_the_labels_improve() -> None:
    h, labels, names = _topics()
    rows, source = np.arange(120), _source(h, names)
    before = lower_loss(source, rows, labels[rows])
    fitted_mixture(source, rows, labels[rows])
    assert lower_loss(source, rows, labels[rows]) == before
    fewer = lower_loss(source, rows[:100], labels[:100])
    assert fewer == lower_loss(_source(h, names), rows[:100], labels[:100]) != before


def test_a_mixture_has_the_probabilities_of_its_parts() -> None:
    h, labels, names = _topics(120)
    rows = np.arange(40)
    head, mixture, source = _made(h, labels, names, rows)
    block = SharedBlock(h[40:], 4)
    parts = [
        make_final(source, rows, labels[rows], (part._replace(weight=1.0),))[0]
        for part in list(mixture.values())[:4]
    ]
    parts.append(head.heads[4])  # it is fitted on what the others predict
    expected = sum(
        part.weight * each.probabilities(block)
        for part, each in zip(mixture.values(), parts, strict=True)
    )
    found = head.probabilities(block)
    np.testing.assert_allclose(found, expected, atol=0.03)  # those are fitted less closely
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    again = restore_head(head.state())
    np.testing.assert_array_equal(again.probabilities(block), found)
    np.testing.assert_allclose(head.alone(h[40:]), found, atol=1e-12)


def test_a_class_with_labels_does_not_take_the_items_of_one_without() -> None:
    """Two clouds of one class each that touch, 30 labels of the first and the names of both."""
    rng = np.random.default_rng(1)
    cloud = np.repeat(np.arange(2), 200)
    h = np.eye(2, 8)[cloud] + 0.3 * rng.normal(size=(400, 8))
    h = (h / np.linalg.norm(h, axis=1, keepdims=True)).astype(np.float32)
    source = Source(SharedBlock(h, 2), np.eye(2, 8, dtype=np.float32), frozenset(), 5)
    rows = np.arange(30)
    found = source.spread_labels(rows, cloud[rows])
    right = found.targets.argmax(axis=1) == cloud[30:]
    assert right[170:].mean() > 0.9


@pytest.mark.parametrize(("labels", "kinds"), [(0, 1), (5, 1), (6, 5), (60, 5)])
def test_few_labels_leave_the_names_alone(labels, kinds) -> None:
    h, gold, names = _topics(120)
    _, mixture, _ = _made(h, gold, names, np.arange(labels))
    assert len(mixture) == kinds
    assert "names" in mixture


def test_labels_of_one_class_alone_do_not_decide() -> None:
    h, gold, names = _topics(200)
    rows = np.flatnonzero(gold == 2)[:20]
    head, mixture, _ = _made(h, gold, names, rows)
    assert len(mixture) == 5
    assert np.isfinite(head.probabilities(SharedBlock(h, 4))).all()


def test_items_set_apart_are_not_in_the_graph() -> None:
    h, labels, names = _topics(120)
    rows, apart = np.arange(30), frozenset(range(100, 120))
    head, _, source = _made(h, labels, names, rows, apart, "names and graph")
    _, members = source._graph
    assert set(members) == set(range(100))
    moved = h.copy()
    moved[100:] = moved[100:][:, ::-1]
    again, *_ = _made(moved, labels, names, rows, apart, "names and graph")
    np.testing.assert_array_equal(head.coefficients, again.coefficients)


def test_a_held_out_label_says_nothing_to_its_own_fold() -> None:
    h, labels, names = _topics(100)
    source = _source(h, names)
    rest = source.spread_labels(np.arange(20), labels[:20], np.arange(20, 30))
    assert len(rest.h) == 70
    np.testing.assert_array_equal(rest.h, h[30:])
    np.testing.assert_allclose(rest.targets.sum(axis=1), 1.0, atol=1e-5)


def test_smoothed_predictions_are_of_items_never_asked_and_nearer_the_truth() -> None:
    h, labels, names = _topics(400)
    rows, held = np.arange(8), np.arange(8, 20)
    seen = np.where(np.arange(400) < 8, labels, -1)  # nothing else may be read
    noise = np.random.default_rng(4).normal(size=(4, 12))
    rough = ClassHead(3 * np.eye(4, 12) + 1.5 * noise, np.zeros(4), Strength(1.0))
    head, source = MixedHead((rough,), np.ones(1)), _source(h, names)
    found = source.smoothed(head, rows, seen[rows], held)
    np.testing.assert_array_equal(found.h, h[20:])
    np.testing.assert_allclose(found.targets.sum(axis=1), 1.0, atol=1e-5)
    assert found.weight.tolist() == [1.0] * 380
    smooth = float((found.targets.argmax(axis=1) == labels[20:]).mean())
    assert smooth > _right(head, h[20:], labels[20:]) + 0.02


def test_a_mixture_that_was_fitted_before_is_made_again_of_fewer_labels() -> None:
    h, labels, names = _topics(300)
    source = _source(h, names)
    _, mixture = make_final(source, np.arange(60), labels[:60])
    assert [part.kind for part in mixture] == list(KINDS)
    assert sum(part.taught for part in mixture[:4]) == pytest.approx(1.0)
    fewer, again = make_final(source, np.arange(20), labels[:20], mixture)
    assert (again, len(fewer.heads)) == (mixture, 5)
    without, _ = make_final(source, np.arange(20), labels[:20], mixture, np.arange(40, 90))
    assert (without.heads[4].coefficients != fewer.heads[4].coefficients).any()


def test_items_never_asked_are_scored_by_heads_of_folds_that_left_them_out() -> None:
    h, labels, names = _topics(300)
    rows, others, block = np.arange(80), np.arange(80, 300), SharedBlock(h, 4)
    mixture, answers = held_out_answers(_source(h, names), rows, labels[rows], others)
    mixture = tuple(part._replace(c=DEFAULT) for part in mixture)
    for (train, held), (_, apart) in zip(folds_of(80, 5), folds_of(220, 5), strict=True):
        without, gold = np.concatenate([held, others[apart]]), labels[train]
        head, _ = make_final(_source(h, names), train, gold, mixture, without)
        expected = surest(head, block, others[apart].tolist())
        np.testing.assert_allclose(answers.others[apart], expected, atol=1e-6)
    whole, _ = make_final(_source(h, names), rows, labels[rows], mixture)
    assert answers.others.mean() < surest(whole, block, others.tolist()).mean()


def test_a_large_pool_is_sampled_and_keeps_every_bought_item(monkeypatch) -> None:
    monkeypatch.setattr(final, "ITEMS", 60)
    monkeypatch.setattr(final, "FITTED", 4 * 25)
    h, labels, names = _topics(300)
    rows = np.array([7, 250, 299, 3])
    source = _source(h, names)
    rest = source.spread_labels(rows, labels[rows])
    _, members = source._holding
    assert len(members) == 60
    assert set(rows) <= set(members)
    assert len(rest.h) == 25
    late = np.setdiff1d(np.arange(300), members)[:1]
    source.spread_labels(late, labels[late])
    assert late[0] in source._holding[1], "a label that came later is in the graph as well"
    _, whatever_was_bought = source.graph()
    assert len(whatever_was_bought) == 60


def test_answers_without_a_class_speak_against_their_neighbors() -> None:
    h, labels, names = _topics(200)
    apart = frozenset(np.flatnonzero(labels == 3)[40:].tolist())
    source = _source(h, names, apart)
    named, unnamed = (np.flatnonzero(labels == kind)[:5] for kind in (1, 2))
    found, members = source.answerable(named, unnamed), source.graph()[1]
    assert len(found) == len(members)
    means = [found[labels[members] == kind].mean() for kind in range(4)]
    assert means[2] < 0.2 < 0.8 < means[1]
    none = np.zeros(0, dtype=np.int64)
    np.testing.assert_array_equal(source.answerable(none, none), 1.0)
    elsewhere = np.array(sorted(apart)[:2])
    np.testing.assert_array_equal(source.answerable(named, elsewhere), 1.0)


# A run of names ----------------------------------------------------------------------------------


def test_a_pool_begins_with_a_head_of_names(tmp_path) -> None:
    game = game_of(
        tmp_path, class_items(40), budget=6, names=np.eye(3, 8, dtype=np.float32), ranks=True
    )
    posted = next(pooled(game))
    assert {d.reason for d in posted} == {"coverage"}
    first = next(row for row in game.ledger.rows() if row.event == "refit")
    assert first.payload == {"labels": 0, "tune": False}


def test_the_graph_is_kept_and_made_again(tmp_path) -> None:
    items, answers = class_items(60)
    done = run(items, answers, mode="pool", budget=20, open_questions=5, out=tmp_path / "run")
    kept = done.path / "features" / final.GRAPH
    before, chosen = kept.read_bytes(), [row["item"] for row in done.ledger.export()]
    kept.unlink()
    again = run(items, answers, mode="pool", budget=20, open_questions=5, out=tmp_path / "again")
    assert (again.path / "features" / final.GRAPH).read_bytes() == before
    assert [row["item"] for row in again.ledger.export()] == chosen
    forget(done.path, chosen[0])
    assert not kept.exists(), "neighbors of what was forgotten are not kept"


@pytest.mark.parametrize("mode", ["pool", pytest.param("stream", marks=pytest.mark.slow)])
def test_a_run_says_what_made_its_model_and_replays(tmp_path, mode) -> None:
    items, answers = class_items(90)
    done = run(items, answers, mode=mode, budget=66, open_questions=22, out=tmp_path / "run")
    last = [row for row in done.ledger.rows() if row.event == "refit"][-1]
    assert last.payload["tune"] is True
    assert list(last.payload["mixture"]) == sorted(KINDS)
    assert sum(last.payload["mixture"].values()) == pytest.approx(1.0)
    assert done.replay()["labels"] == 66
    assert done.ledger.accounts.asked == 66, "names are no labels"


def test_that_labels_do_not_improve_on_names_is_told_on_the_way_and_at_the_end(tmp_path) -> None:
    rng = random.Random(1)
    waiting = begin(
        tmp_path, count=200, budget=130, open_questions=50, audit=0, class_names=True, seed=3
    )
    told = "labels and the class names is not shown to be better than the names alone"
    for _ in range(2):
        assert not any(told in each for each in waiting.status()["warnings"])
        answer_all(waiting, lambda row: rng.choice(CLASSES))
    assert sum(f"the first 100 {told}" in each for each in waiting.status()["warnings"]) == 1
    answer_all(waiting, lambda row: rng.choice(CLASSES))
    assert sum(f"the first 130 {told}" in each for each in waiting.status()["warnings"]) == 1
    assert f"the first 130 {told}" in (waiting.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("lower", "words"), [(-0.29, "0.29 higher"), (0.01, "0.01 lower")])
def test_which_log_loss_is_higher_is_told_without_a_sign(
    tmp_path, monkeypatch, lower, words
) -> None:
    monkeypatch.setattr(LinearTrainer, "over_names", lambda self, labels: (lower, 0.05))
    items, answers = class_items(160)
    done = run(items, answers, mode="pool", budget=100, audit=0, out=tmp_path / "run")
    (told,) = (each for each in done.status()["warnings"] if "than the names alone" in each)
    assert f"its log-loss is {words}, with a standard error of 0.05" in told


def test_that_labels_improve_on_names_is_not_told(tmp_path) -> None:
    items, answers = class_items(200)
    done = run(items, answers, mode="pool", budget=120, audit=0, out=tmp_path / "run")
    assert not any("than the names alone" in each for each in done.status()["warnings"])
