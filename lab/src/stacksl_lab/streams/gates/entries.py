"""The gates that are compared, and their settings: every gate of the registry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stacksl_lab.baselines.registry import GATES

RESET = ", reset"
"""What the name of an entry ends with when its learner starts over at a drift."""

DEFAULTS: Mapping[str, str] = {"information": "regret", "margin": "model"}
"""The entries that are an aim's default, by name."""

_LEADING = ("first", "contested", "avoided", "width", "information", "reserve", "adpo", "margin")
"""The gates whose entries are played with the drift guard too."""

_SETTINGS: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] = {
    "llf": (("llf", {"gate_scale": "calibrated"}),),
    "contested": (
        ("contested, α = σ√d", {"width_scale": "σ√d"}),
        ("contested, α = 2σ", {"width_scale": "2σ"}),
    ),
    "avoided": (("avoided", {"width_scale": "σ"}),),
    "width": (
        ("width", {}),
        ("width, tuned", {"scale": 1.5}),
        ("width, exponent ½", {"exponent": 0.5}),
    ),
    "margin": (("margin", {}), ("margin, tuned", {"pace": 0.3})),
    "lucb": (("lucb", {}), ("lucb, tuned", {"width_scale": "σ/4"})),
    "dgs": (("dgs", {}), ("dgs, tuned", {"scale": 1e-4})),
}
"""Where a gate has other entries than one at its defaults: their names and parameters."""


_FACTORS: Mapping[str, float] = {"σ/4": 0.25, "σ/2": 0.5, "σ": 1.0, "2σ": 2.0}


@dataclass(frozen=True, slots=True)
class Entry:
    """A gate with its parameters, and whether the learner starts over at a drift.

    Attributes:
        name: of its rows.
        gate: its key in the registry.
        parameters: of the gate; a width scale may be written in the noise, as `2σ` or `σ√d`, and
            the `gate_scale` of `llf` be `calibrated`.
        reset: whether the learner has a drift guard.
    """

    name: str
    gate: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reset: bool = False

    def settings(self, noise: float, dim: int) -> dict[str, Any]:
        """The name and the parameters of its gate, width scales as numbers (score units)."""
        scales = {name: factor * noise for name, factor in _FACTORS.items()}
        scales["σ√d"] = noise * math.sqrt(dim)
        parameters = {key: scales.get(value, value) for key, value in self.parameters.items()}
        return {"name": self.gate, **parameters}


@dataclass(frozen=True, slots=True)
class Swept:
    """The place of a number in the sweep over the ridge λ, on rewards and the smaller budget.

    Attributes:
        entry: the name of its entry.
        kind: of the stream.
        ridge: λ.
    """

    entry: str
    kind: str
    ridge: float

    @property
    def row(self) -> str:
        """The name of its row; `swept_of` reads it."""
        return f"{self.entry} / {self.kind} / λ = {self.ridge:g}"


def swept_of(row: str) -> Swept | None:
    """The place in the sweep whose row has this name; None for another row.

    >>> swept_of("first / iid / λ = 0.1").ridge
    0.1
    """
    if " / λ = " not in row:
        return None
    entry, kind, ridge = row.split(" / ")
    return Swept(entry, kind, float(ridge.removeprefix("λ = ")))


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a number in the study.

    Attributes:
        entry: the name of its entry.
        kind, feedback: of the stream.
        budget: labels / rounds.
    """

    entry: str
    kind: str
    feedback: str
    budget: float

    @property
    def row(self) -> str:
        """The name of its row; `place_of` reads it."""
        return f"{self.entry} · {self.kind} · {self.feedback} · {self.budget:g}"

    @property
    def reset(self) -> bool:
        """Whether its learner starts over at a drift."""
        return self.entry.endswith(RESET)


def place_of(row: str) -> Place:
    """The place whose row has this name.

    >>> place_of("first, reset · iid · scalar · 0.02").budget
    0.02
    """
    entry, kind, feedback, budget = row.split(" · ")
    return Place(entry, kind, feedback, float(budget))


def entries() -> tuple[Entry, ...]:
    """Every gate of the registry but `always`, which is `first` on a budget; then those reset."""
    plain = tuple(_plain())
    again = (
        Entry(entry.name + RESET, entry.gate, entry.parameters, reset=True)
        for entry in plain
        if entry.gate in _LEADING and "exponent" not in entry.parameters
    )
    return (*plain, *again)


def _plain() -> Iterator[Entry]:
    for gate in GATES:
        if gate != "always":
            for name, parameters in _SETTINGS.get(gate, ((gate, {}),)):
                yield Entry(name, gate, parameters)
