"""Progress of a run, as reported to its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` in a phase, and what was `spent` of the `budget`.

    A stream plays `rounds`. A pool buys `labels`: `done` and `total` count all, `spent` and
    `budget` those to train on. `accuracy` is the share of right choices before each label was seen,
    on asked items, None where people answer; `money` what labels cost so far.
    `refitted` says that the model was refitted. At the end `accuracy` is the final model's, if it
    was measured.
    """

    phase: Literal["features", "rounds", "labels", "refit", "test", "report", "topics"]
    done: int
    total: int
    spent: int = 0
    budget: int = 0
    accuracy: float | None = None
    money: float | None = None
    refitted: bool = False


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""
