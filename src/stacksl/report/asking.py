"""The facts of what was asked: the audit, the answers, what it cost, what was changed.

As in `facts.py`, plain numbers and strings: shares are fractions in 0..1, money is in micro-units.
"""

from __future__ import annotations

from dataclasses import dataclass

from stacksl.report.codec import Fact, Named


@dataclass(frozen=True, slots=True)
class Agreement(Fact):
    """Two annotators on the same rows, neither knowing the other's answer.

    Attributes:
        n: rows that two annotators answered.
        agreed: rows on which both said the same.
        kappa: Cohen's kappa of the first and the second answers, over all that can be said; None
            where both always gave one and the same answer, which leaves nothing to correct.
    """

    n: int
    agreed: int
    kappa: float | None


@dataclass(frozen=True, slots=True)
class Cost(Fact):
    """What one labeler answered, and for how much (micro-units; None where no price was given)."""

    labeler: str
    answers: int
    money: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetChange(Fact):
    """A recorded change of the budget: after how many rounds, to how many labels and money."""

    rounds: int
    labels: int
    money: int | None = None


@dataclass(frozen=True, slots=True)
class Disagreement(Fact):
    """An item on which two annotators disagreed: its id, an excerpt, and (who, answer) of each."""

    item: str
    prompt: str
    answers: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class Asking(Fact):
    """The answers, those of the audit included.

    Attributes:
        labels: charged answers that named a candidate.
        none_of_these, ambiguous, broken: charged answers that named none.
        disputes: answers that contradicted an accepted one, or were late; kept uncharged.
        agreement: of two annotators; None where no row went to two.
        disagreements: some of the rows on which they disagreed.
        costs: by labeler, in order of their names.
        changes: of the budget, in their order.
        added: (rounds before it, classes from then on) for each class added on the way.
        abstaining: a sentence on what the none-of-these trained; empty where there were none.
    """

    labels: int
    none_of_these: int = 0
    ambiguous: int = 0
    broken: int = 0
    disputes: int = 0
    agreement: Agreement | None = None
    disagreements: tuple[Disagreement, ...] = ()
    costs: tuple[Cost, ...] = ()
    changes: tuple[BudgetChange, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    abstaining: str = ""

    @property
    def answers(self) -> int:
        """All charged answers."""
        return self.labels + self.none_of_these + self.ambiguous + self.broken
