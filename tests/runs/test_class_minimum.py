"""The per-class minimum: labels reserved for rare classes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from stacksl import Item, run
from stacksl.core.blocks import SharedBlock
from stacksl.core.rng import generator
from stacksl.errors import SettingsError
from stacksl.runs.loop.batch_selection import rare_picks, share_of


class Certain:
    """A head whose probabilities are the features themselves."""

    def probabilities(self, block: SharedBlock) -> np.ndarray:
        return np.asarray(block.h, dtype=np.float64)


def picks(have: list[int], count: int, wanted: int = 2) -> list[int]:
    chances = np.array([[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.5, 0.1, 0.4], [0.3, 0.6, 0.1]])
    block = SharedBlock(chances, 3)
    return rare_picks(Certain(), block, range(4), have, classes=3, wanted=wanted, count=count)  # type: ignore[arg-type]


def test_the_class_with_the_fewest_labels_has_the_first_turn() -> None:
    assert picks([0, 0, 1], count=1) == [2], "class 2 has none: its likeliest item"
    assert picks([0, 0, 1], count=2) == [2, 1], "then one each for 1 and 2, the lower index first"
    assert picks([0, 0, 1, 1, 2, 2], count=3) == [], "no class lacks a label"


def test_at_most_half_of_a_batch_is_kept() -> None:
    assert share_of(25, wanted=9, classes=77, budget=100) == 13
    assert share_of(25, wanted=0, classes=77, budget=100) == 0


def corpus(common: int = 150, rare: int = 8) -> tuple[list[Item], list[int]]:
    """Three classes, two of them common; the words of a rare one overlap with the first's."""
    rng = generator(0, "rare corpus")
    words = [["oven", "flour", "yeast"], ["tide", "anchor", "sail"], ["oven", "kiln", "clay"]]
    labels = [0] * common + [1] * common + [2] * rare
    items = [
        Item(f"q{n}", " ".join(rng.choice(words[y], 2)) + f" {n % 7}", ("bread", "sea", "pottery"))
        for n, y in enumerate(labels)
    ]
    return items, labels


def test_a_run_with_a_quota_buys_more_of_the_rare_class(tmp_path: Path) -> None:
    items, labels = corpus()
    bought = {}
    for quota in (0, 5):
        done = run(
            items,
            labels,
            budget=30,
            mode="pool",
            open_questions=5,
            class_names=False,
            min_per_class=quota,
            out=tmp_path / str(quota),
        )
        with done.ledger as ledger:
            rows = ledger.export()
            reasons = Counter(r.payload["reason"] for r in ledger.rows() if r.event == "round")
        assert len(rows) == 30
        assert (reasons["class"] > 0) is (quota > 0)
        assert done.replay()["labels"] == 30
        bought[quota] = Counter(row["answer"] for row in rows)
    assert bought[5][2] >= min(5, 8)
    assert bought[5][2] >= bought[0][2]


@pytest.mark.parametrize("wanted", [6, 20_000_000, 2**63 - 1])
def test_a_quota_is_bounded_by_the_budget_over_the_classes(tmp_path: Path, wanted: int) -> None:
    items, labels = corpus()
    sentence = f"at most 5, the budget of 15 labels over the 3 classes, got {wanted}"
    with pytest.raises(SettingsError, match=sentence):
        run(items, labels, budget=15, mode="pool", min_per_class=wanted, out=tmp_path / "run")
    with pytest.raises(SettingsError, match=r"min_per_class .* --mode pool"):
        run(items, labels, budget=15, mode="stream", min_per_class=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
