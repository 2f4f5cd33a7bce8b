"""Coverage: the batch that says most of the doubtful items, held against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.heads import coverage
from stacksl.core.heads.coverage import (
    SeenItems,
    doubts,
    edges_outside,
    gains_outside,
    kernel_of,
    most_covering,
    stands_for,
)
from stacksl.core.heads.linear import ClassHead
from stacksl.core.heads.logistic import Strength
from stacksl.core.heads.spreading import neighbor_graph, restored_graph, spread
from stacksl.core.losses import softmax


def cloud(count: int = 60, dim: int = 6, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def defined(h, doubt, free, count) -> list[int]:
    """The greedy batch by the formula alone, on dense matrices."""
    k = neighbor_graph(h).weights.toarray().astype(np.float64) + np.eye(len(h))
    bought, picked = list(np.flatnonzero(~free)), []
    for _ in range(count):
        covered = k[bought].max(axis=0) if bought else np.zeros(len(h))
        need = np.where(free, doubt, 0.0) ** 3
        gains = doubt * (np.maximum(k - covered, 0) @ need)
        gains[bought] = -1
        picked.append(int(np.argmax(gains)))
        bought.append(picked[-1])
    return picked


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_the_greedy_one_by_definition(seed) -> None:
    rng = np.random.default_rng(seed)
    h, doubt, free = cloud(seed=seed), rng.random(60), rng.random(60) > 0.2
    kernel = kernel_of(neighbor_graph(h))
    assert most_covering(kernel, doubt, free, 20).items == defined(h, doubt, free, 20)


@pytest.mark.parametrize("seed", range(2))
def test_the_gain_of_items_outside_is_that_by_definition_after_the_batch(seed) -> None:
    rng = np.random.default_rng(seed)
    h, others, doubt = cloud(300, seed=seed), cloud(40, seed=seed + 9), rng.random(40)
    inside, free = rng.random(300), rng.random(300) > 0.1
    kernel = kernel_of(neighbor_graph(h))
    cover = most_covering(kernel, inside, free, 20)
    free[cover.items] = False
    gains = gains_outside(cover, edges_outside(h, others), doubt, ~free)
    cosine = others @ h.T
    near = cosine >= np.sort(cosine, axis=1)[:, -15:-14]
    k = np.exp(-(((1 - cosine) / np.median((1 - cosine)[near])) ** 2)) * near
    inner = neighbor_graph(h).weights.toarray() + np.eye(300)
    covered = inner[~free].max(axis=0)
    told = np.maximum(k - covered, 0) @ np.where(free, inside, 0.0) ** 3
    own = 1 - k[:, ~free].max(axis=1)
    assert gains == pytest.approx(doubt * (told + doubt**3 * own), rel=1e-4)


def test_class_names_cover_nothing() -> None:
    h = cloud()
    with_names = kernel_of(neighbor_graph(h[:50], h[50:]))
    assert len(with_names.starts) == 51
    assert with_names.columns.max() == 49


def test_the_free_items_may_run_out() -> None:
    free = np.zeros(60, dtype=bool)
    free[[3, 8]] = True
    kernel = kernel_of(neighbor_graph(cloud()))
    assert sorted(most_covering(kernel, np.zeros(60), free, 9).items) == [3, 8]
    assert most_covering(kernel, np.ones(60), np.zeros(60, dtype=bool), 9).items == []


def test_what_a_label_represents_is_what_it_is_nearest_to() -> None:
    h, rows = cloud(500), np.array([7, 100, 3, 42])
    expected = np.bincount(np.argmax(h @ h[rows].T, axis=1), minlength=4)
    np.testing.assert_array_equal(stands_for(h, rows), expected)
    assert stands_for(h, rows).sum() == 500


def test_a_graph_is_restored_bit_for_bit() -> None:
    h = cloud()
    graph = neighbor_graph(h[:50], h[50:])
    again = restored_graph(graph.state())
    assert (again.items, again.names) == (50, 10)
    rows, labels = np.array([1, 5]), np.array([0, 3])
    assert spread(again, rows, labels, 10).tobytes() == spread(graph, rows, labels, 10).tobytes()


def items_seen(h, doubt, rounds, bought, names) -> SeenItems:
    """After the `rounds` of a stream, each bought item noted after its round."""
    found = SeenItems(names)
    for row in rounds:
        found.add(h[row], doubt[row], found.labels)
        if row in bought:
            found.buy(h[row])
    return found


def gain_by_definition(h, doubt, rounds, bought, names, row) -> float:
    """By the formula alone, on dense matrices."""
    h, names = h.astype(np.float64), names / np.linalg.norm(names, axis=1, keepdims=True)
    width = 0.6 * np.median(1 - np.sort(names @ names.T, axis=1)[:, -2])
    k = np.exp(-np.square((1 - h @ h.T) / width))
    covered = k[bought].max(axis=0) if bought else np.zeros(len(h))
    more = doubt[rounds] ** 3 * np.maximum(k[row, rounds] - covered[rounds], 0)
    return float(more.mean() + doubt[row] ** 3 * (1 - covered[row]) / 1000)


@pytest.mark.parametrize("bought", [[], [3], [3, 9, 17, 30]])
def test_what_an_item_of_a_stream_covers(bought) -> None:
    h, names, doubt = cloud(), 0.3 * cloud(5, seed=1), np.random.default_rng(0).random(60)
    found = items_seen(3 * h, doubt, range(40), bought, names)
    for row in range(40, 60):
        wanted = gain_by_definition(h, doubt, list(range(40)), bought, names, row)
        assert found.gain(h[row], doubt[row]) == pytest.approx(wanted, rel=1e-4)


def test_the_items_held_are_compared_as_if_they_were_not() -> None:
    h, names, doubt = cloud(), cloud(5, seed=1), np.random.default_rng(0).random(60)
    statistics = items_seen(h, doubt, range(12), [2, 7], names).statistics()
    for row in range(12):
        others = [n for n in range(12) if n != row]
        wanted = gain_by_definition(h, doubt, others, [2, 7], names, row)
        assert statistics[row] == pytest.approx(doubt[row] * wanted, rel=1e-4, abs=1e-9)


def test_only_the_last_items_are_held_and_they_are_enough_to_begin_again(monkeypatch) -> None:
    """A stream that is opened again has the same bits from its last items and all it bought."""
    monkeypatch.setattr(coverage, "SEEN", 16)
    monkeypatch.setattr(coverage, "MOST", 2)
    h, names, doubt = cloud(), cloud(5, seed=1), np.random.default_rng(0).random(60)
    bought = [0, 1, 20, 33, 44]
    whole = items_seen(h, doubt, range(50), bought, names)
    again = SeenItems(names)
    again.skip(34)
    for row in bought:
        again.buy(h[row])
    for row in range(34, 50):
        again.add(h[row], 1.0, sum(each < row for each in bought))
    again.renew(doubt[34:50])
    assert [whole.gain(x, 0.5) for x in h] == [again.gain(x, 0.5) for x in h]
    late = items_seen(h, doubt, range(50), bought[3:], names)
    assert [whole.gain(x, 0.5) for x in h] != [late.gain(x, 0.5) for x in h], "the first ones cover"


def test_doubt_is_one_less_the_margin_and_no_row_changes_anothers_bits() -> None:
    h, rng = cloud(), np.random.default_rng(0)
    head = ClassHead(rng.normal(size=(4, 6)), rng.normal(size=4), Strength(1.0, ()))
    found = doubts(head, h)
    for x, doubt in zip(h, found, strict=True):
        second, first = np.sort(softmax(head.coefficients @ x + head.intercepts))[-2:]
        assert doubt == pytest.approx(1 - (first - second))
        assert doubts(head, x[None])[0] == doubt
