"""A run of people that is cut off anywhere ends as the undisturbed one, given the same answers."""

from __future__ import annotations

from pathlib import Path

from stacksl.runs.items.roles import order_of

from .people_cases import begin, expect_sound


def test_a_waiting_run_that_is_resumed_waits_on(tmp_path: Path) -> None:
    waiting = begin(tmp_path, audit=4)
    with waiting.ledger as ledger:
        before, told = ledger.head, waiting.status()
    for _ in range(2):
        waiting.resume()
    with waiting.ledger as ledger:
        assert ledger.head == before
    assert waiting.status() == told
    expect_sound(waiting)


def test_an_order_is_the_seeds_or_the_files() -> None:
    assert order_of("file", 3, 5) == [0, 1, 2, 3, 4]
    one, other = order_of("shuffled", 3, 50), order_of("shuffled", 4, 50)
    assert sorted(one) == sorted(other) == list(range(50))
    assert one != other
    assert order_of("shuffled", 3, 50) == one
    assert order_of("shuffled", 3, 50, 1) != one
