"""Sentences and named values on the audit and the answers, for page and card."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from stacksl.report.codec import Named
from stacksl.report.wording import count, interval, money, number, percent, plural

if TYPE_CHECKING:
    from stacksl.report.facts import Facts, Refit
    from stacksl.report.quality import (
        Agreement,
        Asking,
        AuditResult,
        ClassTotal,
        Gain,
        LabelledShare,
        OwnItems,
    )


MEANING = (
    "The audit's items were drawn uniformly from the pool, and nothing was selected or trained on "
    "them. The interval speaks of new items from the same source: over many audits, 95 of 100 such "
    "intervals hold the accuracy there."
)


def audit_rows(audit: AuditResult) -> list[Named]:
    """The audit in numbers."""
    known = audit.n - audit.unknown
    rows = [
        Named("Items of the audit", count(audit.n)),
        Named("Right", f"{count(audit.correct)} of {count(known)}"),
        Named("Audited accuracy", percent(audit.accuracy, 2)),
        Named("95% interval (Wilson)", interval(audit.low, audit.high, 2)),
    ]
    if audit.none_of_these:
        rows.append(Named("None of the candidates, counted as wrong", count(audit.none_of_these)))
    if audit.unknown:
        rows.append(Named("Ambiguous, broken or unanswered", count(audit.unknown)))
        rows.append(Named("Worst to best case", interval(audit.worst, audit.best, 2)))
    return rows


def notes(facts: Facts) -> list[str]:
    """Sentences needed to read the audited accuracy."""
    audit = facts.audit
    if audit is None:
        return []
    found = [MEANING]
    if audit.unknown:
        found.append(
            "The interval reaches from the low end of the worst case to the high end of the best."
        )
    if audit.passed_over:
        found.append(_passed_over(audit))
    if audit.shown_before:
        found.append(_shown_before(audit))
    if audit.interval_now is not None:
        share = "not known" if audit.accuracy_now is None else percent(audit.accuracy_now, 2)
        found.append(
            "Answers of the audit were corrected or set aside after it was first shown. The"
            f" accuracy above is by the answers before; with them changed it is {share} (95%"
            f" interval {interval(*audit.interval_now, 2)})."
        )
    if audit.trained_on:
        found.append(
            f"The saved model was also trained on the audit's {plural(audit.trained_on, 'label')};"
            " the accuracy above is of the model before."
        )
    return found


def _shown_before(audit: AuditResult) -> str:
    """That the audit was shown before, which makes its accuracy slightly optimistic."""
    when = "" if audit.shown_at is None else _at(audit.shown_at, audit.learnt)
    return (
        f"This audit was shown before{when}, and no new one was drawn since. None of its answers"
        " was trained on; but whoever goes on until an audit pleases will find it a little too"
        " high."
    )


def _at(shown_at: int, learnt: int | None) -> str:
    now = "" if learnt is None else f" (now it has learnt {count(learnt)})"
    return f", when the model had learnt {plural(shown_at, 'label')}{now}"


def _passed_over(audit: AuditResult) -> str:
    """The limit of an audit drawn after purchases, with the interval over all items."""
    share = audit.passed_over
    whole = interval((1 - share) * audit.low, (1 - share) * audit.high + share)
    return (
        f"This audit was drawn when {percent(share)} of the items had been bought already, and"
        " says nothing of those. The accuracy above is that on items like those left; on all"
        f" items of the source the interval is {whole}."
    )


def answer_rows(asking: Asking) -> list[Named]:
    """The answers by kind, each with its share of all."""
    total = asking.answers
    kinds = (
        ("A candidate", asking.labels),
        ("None of these", asking.none_of_these),
        ("Ambiguous", asking.ambiguous),
        ("Broken item", asking.broken),
    )
    rows = [
        Named(name, f"{count(n)} ({percent(n / total)})" if total else count(n))
        for name, n in kinds
    ]
    if asking.disputes:
        rows.append(Named("Conflicting or late, not charged", count(asking.disputes)))
    if asking.agreement is not None:
        rows.append(Named("Two annotators agreed", _agreement(asking.agreement)))
    return rows + [Named(f"{each.name} differs", each.sentence) for each in asking.differing]


def _agreement(found: Agreement) -> str:
    kappa = "not defined" if found.kappa is None else number(found.kappa, 2)
    share = percent(found.agreed / found.n) if found.n else "–"
    return f"{share} of {plural(found.n, 'row')}, Cohen's κ = {kappa}"


def cost_rows(facts: Facts) -> list[Named]:
    """Each labeler's answers and what they cost."""
    rows = []
    for row in facts.asking.costs if facts.asking else ():
        paid = "" if row.money is None else f", {money(row.money, facts.budget.currency)}"
        rows.append(Named(row.labeler, f"{plural(row.answers, 'answer')}{paid}"))
    return rows


def change_rows(facts: Facts) -> list[Named]:
    """What changed on the way, in the order it did: the budget, and the classes."""
    if facts.asking is None:
        return []
    found = []
    for row in facts.asking.changes:
        paid = "" if row.money is None else f", {money(row.money, facts.budget.currency)}"
        found.append((row.rounds, f"a budget of {plural(row.labels, 'label')}{paid}"))
    for rounds, classes in facts.asking.added:
        found.append((rounds, f"one class more: {plural(classes, 'class', 'classes')}"))
    found.sort(key=lambda change: change[0])
    kind = "question" if facts.method.mode == "pool" else "round"
    return [Named(f"After {plural(rounds, kind)}", what) for rounds, what in found]


def compared(refit: Refit | None) -> str:
    """What made the final model besides the labels, and what else was tried; empty if nothing."""
    if refit is None or not refit.made_by:
        return ""
    what = {
        "plain": "The labels bought alone make the final model.",
        "names": "The names of the classes took part in the final model.",
        "names and graph": (
            "The names of the classes and the unlabelled rest of the pool took part in the final"
            " model."
        ),
    }.get(refit.made_by, f"The final model was made by: {refit.made_by}.")
    if not refit.compared:
        return what
    tried = ", ".join(f"{name} {percent(accuracy)}" for name, accuracy in refit.compared)
    return (
        f"{what} Three-fold cross-validated accuracy on the labels bought, each counted as often as"
        f" it is an item's nearest label, which decided: {tried}. These levels only compare: they"
        " are no accuracy on new items, which may be easier or harder than the items bought."
    )


# --- for who pays --------------------------------------------------------------------------------

SOURCES = {
    "audit": "the audit",
    "test": "the test file",
    "bought": "the last labels bought, which may be harder than new items,",
}


def uses(facts: Facts) -> list[tuple[str, str, str]]:
    """(count, name, meaning) of each use of the labels spent; the counts add up to them."""
    budget = facts.budget
    found = [
        (budget.answered, "learnt", "the model was trained on them"),
        (budget.unlearnt, "second answers", "to compare people, or on erased items; not learnt"),
        (budget.unnamed, "named no candidate", "none of these, ambiguous or broken; charged"),
        (budget.aside, "set aside", "answers of people who are set aside; charged"),
        (budget.open, "still out", "asked and not yet answered"),
        (budget.audit, "audit", "never learnt; measure the final model"),
    ]
    return [(count(n), name, meaning) for n, name, meaning in found if n]


def items(facts: Facts) -> list[tuple[str, str]]:
    """(count, name) of each role of the items; the counts add up to them."""
    return [(count(int(row.value)), row.name) for row in facts.data.roles]


def share_words(share: LabelledShare, own: OwnItems) -> str:
    """What share of the rest can be labelled at the accuracy wanted, or why that is not known."""
    if not own.source:
        return "cannot be estimated without an audit or a test file"
    kind = "audited items" if own.source == "audit" else "test items"
    judged = f"{count(own.measured)} {kind}"
    if own.measured < share.needed:
        return f"cannot be estimated from {judged}; needs at least {share.needed}"
    if share.share is None:
        return f"cannot be estimated: no threshold passed the test on {judged}"
    return (
        f"{percent(share.share, 0)} ({plural(round(share.share * own.rest), 'item')}), where its"
        f" probability is at least {share.threshold:.3f}; {count(share.correct)} of"
        f" {count(share.n)} {kind} there are right"
    )


def gain_words(gain: Gain) -> str:
    """What more labels would add, or why it cannot be estimated."""
    if gain.value is None or gain.low is None or gain.high is None:
        return (
            f"What {gain.more} more training labels would add cannot be estimated: {gain.reason}."
        )
    value, low, high = (f"{100 * each:.1f}" for each in (gain.value, gain.low, gain.high))
    return (
        f"{gain.more} more training labels would add some {value} points of accuracy"
        f" (90% interval {low} to {high})."
    )


def total_words(row: ClassTotal) -> str:
    """A class's corrected number of items with its interval; a dash where nothing was measured."""
    if row.total is None or row.low is None or row.high is None:
        return "–"
    return f"{count(round(row.total))} ({count(round(row.low))} to {count(round(row.high))})"


def commands(facts: Facts) -> list[tuple[str, str]]:
    """(what for, command) of the next steps; each is run in the folder that holds the run's."""
    run, budget = shlex.quote(facts.run), facts.budget
    found = [("Label the items without an answer", f"stacksl predict {run} --own --out labels.csv")]
    found.append(("Label new items", f"stacksl predict {run} new.csv --out labelled.csv"))
    if facts.asking and facts.asking.disagreements:
        found.append(("Correct an answer", f"stacksl answer {run} --correct FILE"))
    if facts.data.roles:
        found.append(("Buy 100 more", f"stacksl change {run} --budget {budget.labels + 100}"))
    if facts.audit and not facts.audit.trained_on and not facts.language:
        found.append(("Train on the audit as well", f"stacksl refit {run} --with-audit"))
    found.append(("Forward this page without texts", f"stacksl report {run} --no-text"))
    return found
