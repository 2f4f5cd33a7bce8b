"""The facts of what was asked: the audit, what annotators said, what it cost, what was changed.

As in `facts.py`, plain numbers and strings: shares are fractions in 0..1, money is in micro-units.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Agreement", "Asking", "AuditResult", "BudgetChange", "Cost"]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The final model on items drawn uniformly, paid for, and kept out of training.

    Attributes:
        n: items of the audit.
        correct: those answered rightly.
        none_of_these: those whose answer is none of the candidates; they count as wrong.
        unknown: those answered as ambiguous or broken, or not at all.
        accuracy: correct / (n − unknown); None where nothing is known.
        low, high: the 95 % Wilson interval; where something is unknown, from the low end of `worst`
            to the high end of `best`.
        worst, best: the accuracy if all unknown ones were wrong, or right.
        passed_over: the share of the source's items that it could not be drawn from, since they
            had been bought before; 0 for an audit drawn before the first purchase.
        trained_on: audit labels that the saved model was trained on afterwards
            (`stacksl refit --with-audit`); the numbers here are of the model before.
        number: which of the run's audits it is, from 1.
        learnt: labels that the model had learnt which is measured.
        shown_before: whether this audit measured a model before, and `shown_at` how many labels
            that one had learnt, the first time.
    """

    n: int
    correct: int
    none_of_these: int
    unknown: int
    accuracy: float | None
    low: float
    high: float
    worst: float
    best: float
    passed_over: float = 0.0
    trained_on: int = 0
    number: int = 1
    learnt: int | None = None
    shown_before: bool = False
    shown_at: int | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
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
class Cost:
    """What one labeler answered, and for how much (micro-units; None where no price was given)."""

    labeler: str
    answers: int
    money: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """A recorded change of the budget: after how many rounds, to how many labels and money."""

    rounds: int
    labels: int
    money: int | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """What was said to what was asked, audit included.

    Attributes:
        labels: charged answers that named a candidate.
        none_of_these, ambiguous, broken: charged answers that named none.
        disputes: answers that contradicted an accepted one, or came too late; kept uncharged.
        agreement: of two annotators; None where no row went to two.
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
    costs: tuple[Cost, ...] = ()
    changes: tuple[BudgetChange, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    abstaining: str = ""

    @property
    def answers(self) -> int:
        """All charged answers."""
        return self.labels + self.none_of_these + self.ambiguous + self.broken
