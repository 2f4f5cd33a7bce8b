"""Coverage: the batch that says most of the doubtful items, held against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.core.heads.coverage import kernel_of, most_covering, stands_for
from stacksl.core.heads.spreading import neighbour_graph, restored_graph, spread


def cloud(count: int = 60, dim: int = 6, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def defined(h, doubt, free, count) -> list[int]:
    """The greedy batch by the formula alone, on dense matrices."""
    k = neighbour_graph(h).weights.toarray().astype(np.float64) + np.eye(len(h))
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
    kernel = kernel_of(neighbour_graph(h))
    assert most_covering(kernel, doubt, free, 20) == defined(h, doubt, free, 20)


def test_class_names_cover_nothing() -> None:
    h = cloud()
    with_names = kernel_of(neighbour_graph(h[:50], h[50:]))
    assert len(with_names.starts) == 51
    assert with_names.columns.max() == 49


def clouds() -> tuple[np.ndarray, np.ndarray]:
    """Three tight groups of 60, 30 and 20 items, and the group of each."""
    group = np.repeat([0, 1, 2], [60, 30, 20])
    h = np.eye(8)[group] + 0.2 * np.random.default_rng(1).normal(size=(110, 8))
    return (h / np.linalg.norm(h, axis=1, keepdims=True)).astype(np.float32), group


def test_each_group_has_its_turn_and_the_bought_are_covered() -> None:
    h, group = clouds()
    kernel, free = kernel_of(neighbour_graph(h)), np.ones(110, dtype=bool)
    first = most_covering(kernel, np.ones(110), free, 3)
    assert len(set(group[first])) > 1, "one batch is not of one group"
    free[first] = False
    again = most_covering(kernel, np.ones(110), free, 3)
    assert not set(first) & set(again)


def test_a_group_without_doubt_takes_no_label() -> None:
    h, group = clouds()
    doubt = np.where(group == 0, 0.02, 0.9)
    picked = most_covering(kernel_of(neighbour_graph(h)), doubt, np.ones(110, dtype=bool), 12)
    assert 0 not in group[picked], "the largest group is the one that the model knows"


def test_the_free_items_may_run_out() -> None:
    free = np.zeros(60, dtype=bool)
    free[[3, 8]] = True
    kernel = kernel_of(neighbour_graph(cloud()))
    assert sorted(most_covering(kernel, np.zeros(60), free, 9)) == [3, 8]
    assert most_covering(kernel, np.ones(60), np.zeros(60, dtype=bool), 9) == []


def test_items_without_a_direction_cover_themselves() -> None:
    h = np.zeros((4, 3), dtype=np.float32)
    h[3] = 1.0
    picked = most_covering(kernel_of(neighbour_graph(h)), np.ones(4), np.ones(4, dtype=bool), 4)
    assert sorted(picked) == [0, 1, 2, 3]


def test_what_a_label_represents_is_what_it_is_nearest_to() -> None:
    h, rows = cloud(500), np.array([7, 100, 3, 42])
    expected = np.bincount(np.argmax(h @ h[rows].T, axis=1), minlength=4)
    np.testing.assert_array_equal(stands_for(h, rows), expected)
    assert stands_for(h, rows).sum() == 500


def test_a_graph_is_restored_bit_for_bit() -> None:
    h = cloud()
    graph = neighbour_graph(h[:50], h[50:])
    again = restored_graph(graph.state())
    assert (again.items, again.names) == (50, 10)
    rows, labels = np.array([1, 5]), np.array([0, 3])
    assert spread(again, rows, labels, 10).tobytes() == spread(graph, rows, labels, 10).tobytes()
