"""A run's none-of-these train nothing, and a pool asks less often of items like them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl import Item
from stacksl.api import Run, run

from ..ledgers import bought
from .conftest import CLASSES, class_items

KEPT = CLASSES[:2]


def two_of_three(count: int) -> tuple[list[Item], dict[str, int]]:
    """Sentences of three topics with two classes; those of the third have no answer."""
    items, answers = class_items(count, 0)
    kept = [Item(item.id, item.prompt, KEPT) for item in items]
    return kept, {name: gold for name, gold in answers.items() if gold < len(KEPT)}


def run_over_two(folder: Path, budget: int, **settings: Any) -> Run:
    items, answers = two_of_three(90)
    plan = {"mode": "pool", "audit": 0, "class_names": False, **settings}
    said = {"labeler": lambda request: answers.get(request.item)}  # None is "none of these"
    return run(items, budget=budget, out=folder / "run", **said, **plan)


def test_a_pool_asks_less_often_of_what_nobody_can_answer(tmp_path: Path) -> None:
    items, answers = two_of_three(180)
    plan = {"mode": "pool", "audit": 0, "open_questions": 10, "out": tmp_path / "run"}
    done = run(items, labeler=lambda request: answers.get(request.item), budget=40, **plan)
    said = done.ledger.counts_by_kind()
    assert len(answers) < 0.7 * len(items)
    assert 0 < said["none"] < 0.2 * 40
    assert done.replay()["labels"] == said["label"]


def test_nothing_is_fitted_on_what_has_no_label(tmp_path: Path) -> None:
    """Neighbors spread labels over the rest of a pool, but not to an answered item."""
    from stacksl.runs.loop import linear_trainer as refits

    seen: list[frozenset[int]] = []
    source = refits.Source

    def noted(block: Any, names: Any, apart: frozenset[int], seed: int, kept: Any) -> Any:
        seen.append(apart)
        return source(block, names, apart, seed, kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refits, "Source", noted)
        done = run_over_two(tmp_path, 30, class_names=True)
    items, answers = two_of_three(90)
    asked = {row["item"] for row in bought(done)}
    none = {n for n, item in enumerate(items) if item.id in asked and item.id not in answers}
    assert none
    assert seen[-1] == none
