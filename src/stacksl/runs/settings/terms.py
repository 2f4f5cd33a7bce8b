"""A changed budget of a run: labels, money, and a new audit."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from stacksl.errors import SettingsError
from stacksl.ledger.ledger import Ledger
from stacksl.models import second_look
from stacksl.models.audit import SMALLEST, default_size, expected_width
from stacksl.report.wording import plural
from stacksl.runs.items.roles import corpus_of
from stacksl.runs.settings.budget import Budget, parse_budget, stop_rule
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import shown_facts


def new_terms(spec: RunSpec, ledger: Ledger, text: str, *, drop: bool = False) -> Budget:
    """The terms of a budget given as labels, a share of the items, or money.

    If the run had finished, and so had shown the result of its audit, a new audit takes as many of
    the added labels as it would of a run of that size; but none where one has judged a column.

    Raises:
        SettingsError: the text is no budget, or the budget is below what is spent.
    """
    leases, usable = ledger.open_purchases(), _usable(spec, ledger)
    spent = ledger.accounts.spent - len(leases) * drop
    per_item = labels_per_item(spec.settings)
    budget = parse_budget(text, usable, spec.settings.price, per_item=per_item)
    if text.strip().startswith("$"):
        answered, paid = _paid(ledger)  # some answers cost less than the most
        money = (budget.money or 0) - paid
        if money >= 0:
            labels = min(usable * per_item, answered + money // budget.price)
            budget = replace(budget, labels=labels)
    if budget.labels < spent:
        remedy = f"give at least {spent}"
        if leases and not drop:
            remedy += f", or withdraw the {len(leases)} open ones with --free --drop (in Python"
            remedy += f" drop=True) and give at least {spent - len(leases)}"
        raise SettingsError(
            f"a budget of '{text}' is {plural(budget.labels, 'label')}, less than the {spent} that"
            f" are bought or promised: {remedy}"
        )
    bought, audits = len(ledger.bought("audit")), _audits(spec, ledger, budget.labels, spent)
    used = ledger.accounts.further - drop * sum(w.purpose == "audit" and w.slot > 0 for w in leases)
    further = further_labels(spec.settings, budget.labels, sum(audits))
    if spec.settings.promised_share is not None:
        further = max(further, spec.terms.further)  # of a look that may be under way
    facts = shown_facts(spec.folder)
    result = facts and (facts.column.audit if facts.column else facts.audit)
    if result and not result.waits and sum(audits) <= bought:  # no new audit: what it left is free
        looks = stop_rule(spec.settings.stop_when)[0] in ("accuracy", "right")
        further = max(further * looks, used + 2 * (result.second.askable if result.second else 0))
    upper_bound = budget.labels - spent + used
    return replace(budget, audits=audits, further=max(used, min(further, upper_bound)))


def labels_per_item(settings: Settings) -> int:
    """The labels that a budget may have for each item: two where people's errors are checked.

    So it is in a promise about a table, and where labels of a column are judged.
    """
    checked = settings.promised_share is not None or settings.column is not None
    return 2 if settings.several_people and checked else 1


def further_labels(settings: Settings, labels: int, audit: int) -> int:
    """The labels of a budget that are kept for a second look at audits of `audit` items; often 0.

    There is one where two people or more answer, if the settings say nothing from 150 labels on or
    where the run stops at an accuracy.
    """
    setting = settings.second_look
    if not settings.several_people or setting is False:
        return 0
    if settings.column is not None:  # it comes before the rows in doubt
        return min(second_look.reserved(audit, 10 * audit), labels - audit)
    if not setting and labels < second_look.SMALLEST and settings.accuracy_mark is None:
        return 0
    return min(max(0, labels - audit - 1), second_look.reserved(audit, labels))  # one label trains


def left_to_train(spec: RunSpec, ledger: Ledger) -> int:
    """The training labels that can still be bought under the terms of the spec."""
    terms, accounts = spec.terms, ledger.accounts
    labels_left = terms.labels - accounts.spent
    if terms.money is not None and spec.budget.price > 0:
        labels_left = min(labels_left, (terms.money - accounts.spent_money) // spec.budget.price)
    audit_labels = accounts.spent - accounts.asked  # and what an audit gave back trains nothing
    return labels_left - max(0, sum(terms.audits) + terms.further - audit_labels)


def fresh_audit(terms: Budget) -> int:
    """How many labels of a changed budget are reserved for a new audit; 0 for none."""
    return terms.audits[-1] if len(terms.audits) > 1 else 0


def what_measures(terms: Budget, previous: Budget) -> str | None:
    """A sentence on the audit under a changed budget; None for a run without one."""
    first_size, *later_sizes = terms.audits
    if size := fresh_audit(terms):
        is_new = len(terms.audits) > len(previous.audits)  # else of an earlier change
        ordinal = "a second" if len(later_sizes) == 1 else "another"
        reserved = f"{'added ' if is_new else ''}labels pay {ordinal} audit"
        return expected_width(size, terms.labels - previous.labels * is_new, reserved=reserved)
    if not any((first_size, *later_sizes)):
        return None
    if later_sizes:
        kept = terms.further - previous.further
        sentence = (
            f"no audit comes with this change, as one does with {SMALLEST} labels added: the one"
            " that was shown measures the new model, too"
        )
        if kept > 0:
            sentence += f"; of the added labels {kept:,} may ask further people about its open rows"
        return sentence
    return f"the audit of {first_size} stays what it is: it was drawn before round 1"


def most_paid(spec: RunSpec, ledger: Ledger) -> int:
    """What a run may cost in all, in micro-units: labels without an answer at the full price."""
    answered, paid = _paid(ledger)
    return min(spec.terms.money or 0, paid + (spec.terms.labels - answered) * spec.budget.price)


def _paid(ledger: Ledger) -> tuple[int, int]:
    """The labels with an answer, and the micro-units paid for them."""
    promised = sum(lease.price for lease in ledger.open_purchases())
    return sum(ledger.counts_by_kind().values()), ledger.accounts.spent_money - promised


def _usable(spec: RunSpec, ledger: Ledger) -> int:
    """The number of items that labels can be bought of, or were."""
    item_ids = spec.sources.usable.keys() | set(ledger.bought())
    excluded = spec.sources.excluded | set(corpus_of(spec).reference_rows)
    numbered = enumerate(item.id for item in spec.dataset.items)
    return sum(row not in excluded and name in item_ids for row, name in numbered)


def _audits(spec: RunSpec, ledger: Ledger, labels: int, spent: int) -> tuple[int, ...]:
    """How many labels each audit takes of a budget of `labels`: one more where the last was shown.

    So many of the labels are `spent`: bought or promised.
    """
    audit_rows = [row for row in ledger.export() if row["purpose"] == "audit" and not row["slot"]]
    released = sum(row["state"] == "released" for row in audit_rows)
    last_shown = spec.folder.read_state().get("shown")
    sizes: tuple[int, ...] = (spec.budget.audits[0],)
    if last_shown is not None:  # as far as they come to what was shown
        sums = zip(spec.terms.audits, accumulate(spec.terms.audits), strict=True)
        sizes = tuple(size for size, total in sums if total <= last_shown["audited"] + released)
    if spec.settings.promised_share is not None:  # it draws audits of its own
        return spec.terms.audits
    setting = spec.settings.audit
    if setting == 0 or (setting is None and spec.test is not None):
        return sizes
    if last_shown is None and spec.budget.audits[0]:
        return sizes
    if (open_size := len(ledger.bought("audit")) - sum(sizes)) > 0:
        return (*sizes, open_size)
    if spec.settings.column is not None and any(sizes):  # corrections do not change the column
        return sizes
    keys = ("asked", "audited", "further")
    added = labels - (spent if last_shown is None else sum(last_shown[name] for name in keys))
    size = default_size(added)
    return (*sizes, size) if size or (last_shown is not None and added > 0) else sizes
