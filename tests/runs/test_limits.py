"""What limits the share that a look at a table shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stacksl.models.promise import MODEL, PEOPLE, left_wrong
from stacksl.runs.finish.promise_sentences import _limit

FRAME = 180


@pytest.mark.parametrize(
    ("found", "unclear", "limit"),
    [
        # at most 54 of the other 609 rows are wrong, where 3 of 111 expect 16 of them
        ((3, 111, 720, 7, 180), 0, "the size of the look"),
        ((3, 111, 720, 0, 0), 0, "the size of the look"),
        # a larger look would show the same errors, and a better model would have fewer
        ((60, 200, 720, 0, 0), 0, "the errors of the model"),
        ((1, 400, 500, 20, 100), 0, "people's errors and unclear rows"),
        ((1, 400, 500, 0, 0), 80, "people's errors and unclear rows"),
    ],
)
def test_what_limits_a_share_most_is_named(
    found: tuple[int, ...], unclear: int, limit: str
) -> None:
    """Without it the fewest rows would be left wrong."""
    wrong, audit, rows, differ, sample = found
    of_people = left_wrong(differ, sample, FRAME, PEOPLE) if sample else 0
    left = left_wrong(wrong, audit, rows, MODEL) + of_people + unclear
    names = ("wrong", "audit", "rows", "differ", "sample", "drawn", "left", "of")
    look = dict(zip(names, (*found, 1, left, 900), strict=True)) | {"after": 0}
    drawn = SimpleNamespace(payload={"look": [audit, sample, FRAME]})
    ledger: Any = SimpleNamespace(rows=lambda only: [drawn])
    said = _limit(ledger, look, "the model")
    assert said.startswith(f"What limits the share most: {limit}. Without it the share would be ")
    if found == (3, 111, 720, 0, 0):
        assert said.endswith(" about 98.2%."), "16.5 of 900 rows"
