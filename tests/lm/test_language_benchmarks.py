"""What the benchmarks of the sample model compute beside the product's own parts."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.types import Item

from ..benchmarks import benchmark


def test_weights_of_a_premise_are_found_again_and_are_those_of_pmi_without_news():
    """Labels that a known a and b drew give them back; few labels leave the prior's ratio of 1."""
    draw = np.random.default_rng(3)
    sums, alone = draw.normal(0, 3, (2, 4000, 4))
    scores = 0.8 * sums - 0.3 * alone
    gold = (scores + draw.gumbel(size=scores.shape)).argmax(axis=1)
    a, b, _ = benchmark("stacked_scores").weighed(sums, alone, gold)
    assert (a, b) == pytest.approx((0.8, 0.3), abs=0.05)
    one = benchmark("stacked_scores").weighed(sums[:1], alone[:1], gold[:1])
    assert one[1] / one[0] == pytest.approx(1.0, abs=0.5)


def test_further_negatives_are_options_of_the_other_labels():
    from stacksl.lm.settings import Lesson

    names = [("a", "b"), ("c", "d"), ("b", "e")]
    items = [Item(str(n), f"question {n}", own) for n, own in enumerate(names)]
    lessons = [Lesson(item, 1, (0, 1), (0.5, 0.2)) for item in items]
    with_negatives = benchmark("_supervision").with_negatives
    for item, wider in zip(items, with_negatives(lessons, 2, seed=0), strict=True):
        own, added = wider.item.candidates[:2], {*wider.item.candidates[2:]}
        assert own == item.candidates
        assert len(added) == 2
        assert added < {"a", "b", "c", "d", "e"} - {*own}
        assert (wider.label, wider.candidates) == (1, (0, 1, 2, 3))
    found = with_negatives(lessons, 9, seed=0)
    assert [len(wider.item.candidates) for wider in found] == [5, 5, 5]


def test_a_committee_is_asked_where_its_members_differ():
    agree, differ = [0.9, 0.1], [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]]
    voices = [np.array([agree, own]) for own in differ]
    assert benchmark("selections").disagreement(*voices).tolist() == [1, 0]


def test_a_cell_of_the_benchmark_refits_and_judges():
    """On a few questions: what the benchmark calls is what the package has."""
    refits, bench = benchmark("_refits"), benchmark("language_model")
    names = ("sum", "mean", "max", "min", "any", "all", "log", "exp")
    items = [
        Item(name, f"# Return the {name}.\ndef", names[n : n + 4])
        for n, name in enumerate(names[:4])
    ]
    gold = np.zeros(4, dtype=np.int64)
    pool = refits.model_of({}, 0).scores(items, "pmi")
    task = refits.Task(items, gold, items[:2], gold[:2], pool, 0.0)
    for gate, settings in (
        ("committee", {}), ("random", {"stacked": True}), ("margin", {"negatives": 2})
    ):  # fmt: skip
        settings = {**settings, "epochs": 1}
        cell = {"gate": gate, "budget": 0.5, "seed": 0, "settings": settings, "pilot": 0}
        row = bench.measure(cell, task)
        assert (row["labels"], row["n"]) == (2, 2)
        assert row["accuracy"] in (0.0, 0.5, 1.0)
