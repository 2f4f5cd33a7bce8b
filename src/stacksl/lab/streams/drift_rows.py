"""Names of the rows of `drift`, and their meaning."""

from __future__ import annotations

from dataclasses import dataclass, replace

GUARDS = ("no reset", "guarded", "unguarded")
"""No reset; with the guard of `DriftGuard`; with its leverage so high that it guards nothing."""

STILL = "no change"
"""In the place of a stream's kind: all those whose θ* never moves."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a row was measured under.

    Attributes:
        guard: one of `GUARDS`.
        gate: its name.
        kind, feedback: of the stream; the kind may be `STILL`.
        budget: labels / rounds.
    """

    guard: str
    gate: str
    kind: str
    feedback: str
    budget: float

    @property
    def row(self) -> str:
        """The name of its row; `case_of` reads it."""
        return f"{self.guard} · {self.gate} · {self.kind} · {self.feedback} · {self.budget:g}"

    @property
    def learner(self) -> str:
        """Everything but the stream's kind."""
        return f"{self.guard} · {self.gate} · {self.feedback} · {self.budget:g}"

    def under(self, guard: str) -> Case:
        """The same under another guard."""
        return replace(self, guard=guard)


def case_of(row: str) -> Case:
    """The case whose row has this name; what is derived of it has ` / ` and more behind.

    >>> case_of("guarded · random · iid · scalar · 0.1").gate
    'random'
    """
    guard, gate, kind, feedback, budget = row.partition(" / ")[0].split(" · ")
    return Case(guard, gate, kind, feedback, float(budget))
