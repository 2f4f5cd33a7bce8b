"""A language model's pool buys no second item that asks nearly the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stacksl.runs.loop.near_duplicates import NearDuplicates
from stacksl.types import Item

from ..ledgers import rows_of
from .lm_cases import adapt, questions

WORDS = ["apple", "river", "stone", "cloud", "tiger", "lemon", "piano", "ocean", "candle", "lake"]
ITEMS = [
    Item(f"q{n}", f"Answer with one of the options. {a} and {b} met the {c}.", ("yes", "no"))
    for n, (a, b, c) in enumerate(zip(WORDS, WORDS[3:] + WORDS, WORDS[7:] + WORDS, strict=False))
]
AGAIN = [
    replace(item, id=f"{item.id}x", prompt=item.prompt.replace(" and ", "  AND ").rstrip("."))
    for item in ITEMS
]


def test_twins_come_last() -> None:
    count = len(ITEMS)
    near = NearDuplicates([*ITEMS, *AGAIN], classes=True)
    ranked = [row for n in range(count) for row in (n, n + count)]
    assert near.without(ranked, [], count) == list(range(count))
    assert near.without(ranked[2:], [0, count + 1], 3) == [2, 3, 4]
    assert near.without([0, count, 1], [], 3) == [0, 1, count]  # nothing else is left


def test_options_of_their_own_tell_items_apart() -> None:
    alike = [replace(ITEMS[0], id=str(n), candidates=(a, "none")) for n, a in enumerate(WORDS)]
    assert NearDuplicates(alike, classes=False).without(range(5), [], 5) == [0, 1, 2, 3, 4]
    assert NearDuplicates(alike[:1] * 3, classes=False).without([0, 1, 2], [], 1) == [0]


@pytest.mark.parametrize("gate", ["margin", pytest.param("random", marks=pytest.mark.slow)])
def test_a_pool_of_pairs_gives_as_many_prompts_as_labels(gate: str, model: Path, tmp_path) -> None:
    items, answers = questions(8)
    again = [replace(item, id=f"{item.id}x", prompt=f" {item.prompt.upper()}.") for item in items]
    answers |= {f"{name}x": answer for name, answer in answers.items()}
    settings = {"gate": gate, "budget": 8, "open_questions": 3, "mode": "pool"}
    made = adapt(model, ([*items, *again], answers), tmp_path / "run", **settings)
    bought = [row.item for row in rows_of(made, "learned")]
    assert len(bought) == 8
    assert {str(name).removesuffix("x") for name in bought} == {item.id for item in items}
