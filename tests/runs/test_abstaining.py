"""A run's none-of-these train when its model abstains, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.core.heads.abstaining import FEWEST
from stacksl.runs.finish import heads

from ..ledgers import bought
from .column_cases import facts_of
from .conftest import CLASSES, class_items

KEPT = CLASSES[:2]


def two_of_three(count: int, seed: int = 0) -> tuple[list[Item], dict[str, int]]:
    """Sentences of three topics with two classes; those of the third have no answer."""
    items, answers = class_items(count, seed)
    kept = [Item(item.id, item.prompt, KEPT) for item in items]
    return kept, {name: gold for name, gold in answers.items() if gold < len(KEPT)}


def played(folder: Path, budget: int, **settings: Any) -> Run:
    items, answers = two_of_three(90)
    plan = {"mode": "pool", "audit": 0, "class_names": False, **settings}
    said = {"labeler": lambda request: answers.get(request.item)}  # None is "none of these"
    return run(items, budget=budget, out=folder / "run", **said, **plan)


@pytest.fixture(scope="module")
def abstaining(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("abstaining"), 70, class_names=True)


def test_the_threshold_is_kept_with_the_model_and_its_origin_told(abstaining: Run) -> None:
    about = json.loads((abstaining.path / "model" / "model.json").read_text(encoding="utf-8"))
    asking = facts_of(abstaining)["asking"]
    threshold = about["abstain"]
    assert threshold["none"] == asking["none_of_these"] >= FEWEST
    assert threshold["labels"] == asking["labels"] == 70 - threshold["none"]
    assert 0.5 < threshold["value"] < 1, "of two classes the larger probability is above a half"
    assert threshold["auroc"] > 0.8
    assert f"below {threshold['value']:.3f}" in asking["abstaining"]
    assert asking["abstaining"] in (abstaining.path / "README.md").read_text(encoding="utf-8")
    assert f"{threshold['value']:.3f}" in (abstaining.path / "report.html").read_text()


def test_a_pool_asks_less_often_of_what_nobody_can_answer(tmp_path: Path) -> None:
    items, answers = two_of_three(180)
    plan = {"mode": "pool", "audit": 0, "open_questions": 10, "out": tmp_path / "run"}
    done = run(items, labeler=lambda request: answers.get(request.item), budget=40, **plan)
    said = done.ledger.counts_by_kind()
    assert len(answers) < 0.7 * len(items)
    assert 0 < said["none"] < 0.2 * 40
    assert done.replay()["labels"] == said["label"]


def test_predictions_say_where_it_abstains(abstaining: Run) -> None:
    items, answers = two_of_three(60, seed=9)
    rows = list(abstaining.predict(items))
    value = abstaining.model.abstaining.value
    assert [row["abstain"] for row in rows] == [row["probability"] < value for row in rows]
    told = {item.id: row["abstain"] for item, row in zip(items, rows, strict=True)}
    kept = np.mean([not told[name] for name in answers])
    left_out = np.mean([told[item.id] for item in items if item.id not in answers])
    assert kept > 0.6
    assert left_out > 0.6


def test_an_evaluation_tells_the_share_and_the_accuracy_on_the_rest(abstaining: Run) -> None:
    items, answers = two_of_three(60, seed=9)
    mine = [item for item in items if item.id in answers]
    told = abstaining.evaluate(mine, answers)
    rows = list(abstaining.predict(mine))
    kept = [row for row in rows if not row["abstain"]]
    right = [row["index"] == answers[row["id"]] for row in kept]
    assert told["abstained"] == pytest.approx(1 - len(kept) / len(rows))
    assert told["accuracy_kept"] == pytest.approx(np.mean(right))
    assert told["n"] == len(mine), "the accuracy still counts every row"


def test_a_few_none_of_these_train_nothing_and_the_report_says_so(
    tmp_path: Path, monkeypatch
) -> None:
    done = played(tmp_path, 12)
    none = facts_of(done)["asking"]["none_of_these"]
    assert 0 < none < FEWEST
    assert done.model.abstaining is None
    assert f"never abstains: {none} items were" in facts_of(done)["asking"]["abstaining"]
    monkeypatch.setattr(heads, "unnamed", lambda ledger: ["one"])
    with done.ledger as ledger:
        assert ": 1 item was answered" in heads.words_on_threshold(ledger, None, possible=True)
    items, answers = two_of_three(20, seed=9)
    assert all("abstain" not in row for row in done.predict(items))
    known = [item for item in items if item.id in answers]
    assert "abstained" not in done.evaluate(known, answers)


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
        done = played(tmp_path, 30, class_names=True)
    items, answers = two_of_three(90)
    asked = {row["item"] for row in bought(done)}
    none = {n for n, item in enumerate(items) if item.id in asked and item.id not in answers}
    assert none
    assert seen[-1] == none
