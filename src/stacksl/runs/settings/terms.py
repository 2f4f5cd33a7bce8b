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
    waits, usable = ledger.open_purchases(), _usable(spec, ledger)
    spent = ledger.accounts.spent - len(waits) * drop
    per_item = labels_per_item(spec.settings)
    wanted = parse_budget(text, usable, spec.settings.price, per_item=per_item)
    if text.strip().startswith("$"):
        answered, paid = _paid(ledger)  # some answers cost less than the most
        left = (wanted.money or 0) - paid
        if left >= 0:
            wanted = replace(wanted, labels=min(usable * per_item, answered + left // wanted.price))
    if wanted.labels < spent:
        end = f", or withdraw the {len(waits)} open ones with --free --drop (in Python drop=True)"
        end += f" and give at least {spent - len(waits)}"
        raise SettingsError(
            f"a budget of '{text}' is {plural(wanted.labels, 'label')}, less than the {spent} that"
            f" are bought or promised: give at least {spent}{end * (bool(waits) and not drop)}"
        )
    audited = [row for row in ledger.export() if row["purpose"] == "audit" and not row["slot"]]
    lost = sum(row["state"] == "released" for row in audited)
    leased = len(ledger.bought("audit"))
    audits = _audits(spec, wanted.labels, spent=spent, leased=leased, lost=lost)
    used = ledger.accounts.further - drop * sum(w.purpose == "audit" and w.slot > 0 for w in waits)
    further = further_labels(spec.settings, wanted.labels, sum(audits))
    if spec.settings.promised_share is not None:
        further = max(further, spec.terms.further)  # of a look that may be under way
    facts = shown_facts(spec.folder)
    judged = facts and (facts.column.audit if facts.column else facts.audit)
    if judged and not judged.waits and sum(audits) <= leased:  # no new audit: what it left is free
        looks = stop_rule(spec.settings.stop_when)[0] in ("accuracy", "right")
        further = max(further * looks, used + 2 * (judged.second.askable if judged.second else 0))
    most = wanted.labels - spent + used
    return replace(wanted, audits=audits, further=max(used, min(further, most)))


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
    wanted = settings.second_look
    if not settings.several_people or wanted is False:
        return 0
    if settings.column is not None:  # it comes before the rows in doubt
        return min(second_look.reserved(audit, 10 * audit), labels - audit)
    if not wanted and labels < second_look.SMALLEST and settings.accuracy_mark is None:
        return 0
    return min(max(0, labels - audit - 1), second_look.reserved(audit, labels))  # one label trains


def left_to_train(spec: RunSpec, ledger: Ledger) -> int:
    """The training labels that can still be bought under the terms of the spec."""
    terms, accounts = spec.terms, ledger.accounts
    left = terms.labels - accounts.spent
    if terms.money is not None and spec.budget.price > 0:
        left = min(left, (terms.money - accounts.spent_money) // spec.budget.price)
    measuring = accounts.spent - accounts.asked  # and what an audit gave back trains nothing
    return left - max(0, sum(terms.audits) + terms.further - measuring)


def fresh_audit(terms: Budget) -> int:
    """How many labels of a changed budget are reserved for a new audit; 0 for none."""
    return terms.audits[-1] if len(terms.audits) > 1 else 0


def what_measures(terms: Budget, before: Budget) -> str | None:
    """A sentence on the audit under a changed budget; None for a run without one."""
    first, *later = terms.audits
    if fresh := fresh_audit(terms):
        new = len(terms.audits) > len(before.audits)  # else of an earlier change
        which = "a second" if len(later) == 1 else "another"
        reserved = f"{'added ' * new}labels pay {which} audit"
        return expected_width(fresh, terms.labels - before.labels * new, reserved=reserved)
    if not any((first, *later)):
        return None
    if later:
        return (
            f"no audit comes with this change, as one does with {SMALLEST} labels added: the one"
            " that was shown measures the new model, too"
        )
    return f"the audit of {first} stays what it is: it was drawn before round 1"


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
    known = spec.sources.usable.keys() | set(ledger.bought())
    excluded = spec.sources.excluded | set(corpus_of(spec).compared)
    ids = enumerate(item.id for item in spec.dataset.items)
    return sum(row not in excluded and name in known for row, name in ids)


def _audits(spec: RunSpec, labels: int, *, spent: int, leased: int, lost: int) -> tuple[int, ...]:
    """How many labels each audit takes of a budget of `labels`: one more where the last was shown.

    Args:
        labels: the budget wanted, in all.
        spent: the labels bought or promised.
        leased: labels that audits asked for, `lost` of which were released.
    """
    last_shown = spec.folder.read_state().get("shown")
    sizes: tuple[int, ...] = (spec.budget.audits[0],)
    if last_shown is not None:  # as far as they come to what was shown
        sums = zip(spec.terms.audits, accumulate(spec.terms.audits), strict=True)
        sizes = tuple(size for size, total in sums if total <= last_shown["audited"] + lost)
    if spec.settings.promised_share is not None:  # it draws audits of its own
        return spec.terms.audits
    wanted = spec.settings.audit
    if wanted == 0 or (wanted is None and spec.test is not None):
        return sizes
    if last_shown is None and spec.budget.audits[0]:
        return sizes
    if (begun := leased - sum(sizes)) > 0:
        return (*sizes, begun)
    if spec.settings.column is not None and any(sizes):  # corrections do not change the column
        return sizes
    bought = ("asked", "audited", "further")
    added = labels - (spent if last_shown is None else sum(last_shown[name] for name in bought))
    size = default_size(added)
    return (*sizes, size) if size or (last_shown is not None and added > 0) else sizes
