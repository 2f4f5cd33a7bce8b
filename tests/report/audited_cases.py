"""Runs with an audit and with answers of people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stacksl.report.facts import Facts
from stacksl.report.quality import (
    Agreement,
    Asking,
    AuditResult,
    ClassRow,
    ClassTotal,
    Cost,
    Gain,
    LabeledShare,
    Named,
    OwnItems,
    RunChange,
)

from .edge_cases import bare, untested
from .usual_cases import calibration, confusions, refit, usual, wilson


def audit(correct: int, known: int, n: int, none: int = 0, **more: Any) -> AuditResult:
    """An audit of `n` items, `known` of them with a clear answer."""
    unknown = n - known
    low, high = wilson(correct, n)[0], wilson(correct + unknown, n)[1]
    shares = correct / n, (correct + unknown) / n
    accuracy = correct / known if known else None
    return AuditResult(n, correct, none, unknown, accuracy, low, high, *shares, **more)


def asking() -> Asking:
    """What two annotators said, a hundred rows of which went to both."""
    return Asking(
        labels=930,
        none_of_these=41,
        ambiguous=22,
        broken=7,
        disputes=3,
        late=2,
        agreement=Agreement(100, 88, 0.874),
        disputed=1,
        costs=(Cost("zyx anna", 600, 1_500_000_000), Cost("zyx ben", 400, 1_000_000_000)),
        changes=(
            RunChange(2500, "class", 78),
            RunChange(2600, "away", who="zyx ben"),
            RunChange(4000, "budget", 1000, 2_500_000_000),
        ),
    )


ROLES = (
    Named("asked for, to learn from", "880"),
    Named("never asked for", "9023"),
    Named("of the audit", "100"),
)


def own(facts: Facts) -> OwnItems:
    """The model on 9,023 items without an answer, judged by 95 of the audit."""
    shares = LabeledShare(0.9, 29, 0.41, 0.3465124, 41, 40), LabeledShare(0.95, 59)
    rows = (
        ClassTotal(row.name, row.bought, 117, row.bought + 110.4, row.bought + 20.0, 300.0)
        for row in facts.classes
    )
    return OwnItems(9023, 95, "audit", shares, tuple(rows))


def audited() -> Facts:
    """A run of two annotators with an audit and no test file, some of its answers unclear."""
    facts = untested()
    draw = np.random.default_rng(11)
    rows = tuple(
        ClassRow(row.name, row.bought, n, 0.5, n // 2 / n, *wilson(n // 2, n))
        for row, n in zip(facts.classes, draw.integers(2, 21, len(facts.classes)), strict=True)
    )
    rows = (replace(rows[0], bought=0, precision=None), *rows[1:])
    return replace(
        facts,
        budget=replace(facts.budget, asked=900, answered=830, unlearned=20, unnamed=50, audit=100),
        data=replace(facts.data, roles=ROLES),
        own=own(facts),
        more=Gain(100, 0.021, 0.004, 0.052),
        audit=audit(80, 95, 100, none=3),
        asking=asking(),
        classes=rows,
        confusions=confusions(),
        measured_on="audit",
        calibration=replace(calibration(), n=95, source="audit"),
        refit=replace(
            refit(),
            mixture=(("plain", 0.08, 1.102), ("names", 0.3, 0.84), ("names and graph", 0.62, 0.71)),
        ),
    )


def audited_and_tested() -> Facts:
    """An audit that is all clear, drawn late, then trained on; and a test file besides."""
    facts, late = usual(), audit(88, 100, 100, passed_over=0.1, trained_on=100)
    spent = replace(facts.budget, asked=900, answered=900, audit=100)
    return replace(facts, asking=Asking(labels=1000), audit=late, budget=spent)


def audited_in_vain() -> Facts:
    """An audit of which no item got a clear answer."""
    facts = replace(bare(), audit=audit(0, 0, 20), asking=Asking(labels=0, ambiguous=20))
    return replace(facts, budget=replace(facts.budget, audit=20, rounds=100))
