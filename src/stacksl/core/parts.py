"""Further parts of a run: what learns beside the learner and is kept in the run's checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from stacksl.types import Decision, Label


class Part(Protocol):
    """Learns from each label, and has its state as arrays.

    A resumed run restores it from a checkpoint, then gives it the labels learnt since, in the same
    order: its state may depend on nothing else. It should hold numbers alone; `forget` does not
    look into it.
    """

    def learn(self, decision: Decision, label: Label) -> None:
        """Learn one label, just after the learner did."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learnt, as arrays."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `state` gave."""


PARTS: Final[dict[str, Callable[[], Part]]] = {}
"""What makes each part, by the name that the setting `parts` gives it."""


def named_parts(names: str | None) -> list[str]:
    """The names in the setting `parts`.

    >>> named_parts("tally, drift"), named_parts(None)
    (['tally', 'drift'], [])
    """
    return [] if names is None else [name.strip() for name in names.split(",")]


def make_parts(names: str | None) -> dict[str, Part]:
    """The parts that the setting names, which have learnt nothing."""
    return {name: PARTS[name]() for name in named_parts(names)}
