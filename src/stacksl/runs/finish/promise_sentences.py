"""The sentences on a promise that so many rows of a table are right (`promising`).

Before a run they say what a promise probably takes, on the way what a look found, and at the end
what is promised, or why nothing is and which command may change that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Any, NamedTuple

from stacksl.ledger.accounts import Accounts
from stacksl.ledger.queries import LedgerReader
from stacksl.models.promise import (
    LOOKS,
    MODEL,
    WORTH,
    Look,
    allowed_wrong,
    left_wrong,
)
from stacksl.models.second_look import UNCLEAR
from stacksl.report.wording import change_call, count, money, percent, plural
from stacksl.runs.finish.promising import (
    Table,
    first_budgets,
    last_drawn,
    looks,
    next_look,
    of_people,
    open_look,
    unpayable,
    unreachable,
)
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import doubled_of, linear_trainer
from stacksl.runs.settings.terms import labels_per_item
from stacksl.runs.spec import RunSpec


def expected_promise(spec: RunSpec) -> str:
    """The range of labels that a promise takes, their price, and how sure that is; else empty."""
    if (share := spec.settings.promised_share) is None:
        return ""
    rows = len(spec.sources.pool.items)
    promise = f"a promise that {percent(share)} of {plural(rows, 'row')} are right probably takes"
    if not (label_range := first_budgets(spec, share, rows, None)):
        return f"{promise} more labels than a budget may have: ask for a lower share"
    fewest, largest = label_range
    limit = f" and nine of ten no more than {largest:,}"
    if largest == labels_per_item(spec.settings) * rows:
        limit = f", and a budget may have at most {largest:,}"
    return (
        f"{promise} {_range_of(spec, label_range)}, depending on how often the model errs. In"
        f" simulations on public sets fewer than half of the runs took no more than {fewest:,}"
        f"{limit}; labels that the promise does not need are not bought. One answer to each row"
        f" takes {rows:,}{spec.budget.cost_of(rows)}"
    )


def _range_of(spec: RunSpec, label_range: Sequence[int]) -> str:
    """From the least to the most of the labels that a promise takes, and their price."""
    low, high = (money(labels * spec.budget.price) for labels in label_range)
    price = "" if spec.budget.money is None else f", for {low} to {high}"
    return f"{label_range[0]:,} to {label_range[1]:,} labels{price}"


def before_a_look(
    spec: RunSpec, labels: int, accounts: Accounts | None = None, *, says_range: bool = True
) -> str:
    """A warning where a budget of so many labels may end before a look can be paid; else empty."""
    if (share := spec.settings.promised_share) is None:
        return ""
    rows = len(spec.sources.pool.items)

    def fits(lower_share: float) -> bool:
        label_range = first_budgets(spec, lower_share, rows, accounts)
        return bool(label_range) and label_range[0] <= labels

    if fits(share):
        return ""
    lower, label_range = largest_below(share, fits), first_budgets(spec, share, rows, accounts)
    takes = _range_of(spec, label_range) if label_range else "more labels than a budget may have"
    takes = f": right={100 * share:.4g}% probably takes {takes}" if says_range else ""
    hint = "no share of 50% or more is likely to be promised"
    if lower:
        hint = f"right={100 * lower:.0f}% is likelier, if you ask for it now and not at the end"
    return (
        f"a budget of {plural(labels, 'label')} may end before a look at the table, and nothing is"
        f" promised then{takes}. With this budget {hint}"
    )


def largest_below(
    share: float, fits: Callable[[float], object], above: float = 0.49
) -> float | None:
    """The largest full percent between `above` and `share` that fits, as smaller ones do."""
    candidates = [n / 100 for n in range(50, 100) if above < n / 100 < share]
    index = bisect_left(candidates, True, key=lambda candidate: not fits(candidate))
    return candidates[index - 1] if index else None


def looks_left(spec: RunSpec, ledger: LedgerReader, *, class_added: bool = False) -> str:
    """What is said before a run that promises a share goes on."""
    drawn = last_drawn(ledger)
    remaining = LOOKS if drawn is None else LOOKS - drawn.number
    after = "After a look, labels are bought only while one that may show the share can be paid"
    after = after if remaining else "Nothing is bought"
    sentence = f"Looks at the table that are left: {remaining} of {LOOKS}. {after}"
    if (rule := _shown_now(ledger)) and not ledger.accounts.reached:
        sentence += f". The run can promise {rule} only until a label is bought"
    if class_added and (loss := lost_by_class(ledger)):
        sentence += f". Adding a class {loss}"
    if spec.settings.several_people and (doubled := doubled_of(ledger)).answers:
        sentence += (
            f". By rows that two people answered, people err in about {percent(doubled.rate)} of"
            f" answers: {percent(1 - doubled.rate)} of a table with one answer a row are right"
        )
    return sentence


def lost_by_class(ledger: LedgerReader) -> str:
    """What adding a class does to the share that a look showed; empty where none did."""
    return (rule := _shown_now(ledger)) and (
        f"ends what the last look showed ({rule}): every row that the model labels counts as wrong"
        " until another look"
    )


class Promise(NamedTuple):
    """The share that is promised, if any, what is said of it, and what explains that."""

    promised: float | None
    stopped: str
    details: str = ""


def promise_of(spec: RunSpec, game: Game) -> Promise:
    """What is promised of the table, or why nothing is."""
    share, table = spec.settings.promised_share, Table.of(spec, game)
    assert share is not None
    if not table.model + table.dropped:
        sentence = (
            f"All {plural(table.people, 'row')} are labeled by people: no row is the model's, and"
            " nothing is promised about people's labels."
        )
        return Promise(None, sentence, _by_people(spec, game.ledger, table.rows).lstrip())
    if not game.ledger.accounts.reached:
        if unreachable(spec, game):
            return _beyond(spec, game, share, table)
        return _refusal(spec, game, share, table)
    look = looks(game.ledger)[-1]
    labeler = source = "the model" if spec.settings.column is None else "the column"
    if spec.settings.column is not None and -1 in spec.sources.model_labels:
        labeler, source = f"{source} or, where it has no label, the model", f"{source} or the model"
    by_whom = f"{count(table.people)} by people and {count(table.rows - table.people)} by {labeler}"
    notes = ""
    if not spec.settings.several_people:
        notes = " A label is right if whoever answered would say the same."
    if excluded := len(spec.sources.excluded - spec.sources.erased):
        notes += f" Not counted: {plural(excluded, 'row')} with the text of an example of a class."
    model_wrong = left_wrong(look["wrong"], look["audit"], look["rows"], MODEL)
    people_sample = ""
    if look["sample"]:
        people_sample = f" and of {look['sample']} of people {look['differ']}"
    parts = ""
    if (others := look["left"] - model_wrong) > 0:
        people_wrong = f"{count(others - look['after'])} that people err on{_added(look)}"
        parts = f", {count(model_wrong)} of {source} and {people_wrong}"
    sentence = (
        f"At least {percent(share)} of the {plural(table.rows, 'row')} are right, {by_whom}: of"
        f" {count(look['audit'])} rows of {source} drawn at random {count(look['wrong'])}"
        f"{people_sample} turned out wrong or unclear, so at most {count(look['left'])} of all"
        f" are{parts}. Such a promise holds in 95 of 100 runs."
    )
    return Promise(share, sentence, notes.lstrip())


def _beyond(spec: RunSpec, game: Game, share: float, table: Table) -> Promise:
    """That people err too often for the `share`, and what two answers a row would cost."""
    errors = doubled_of(game.ledger).rate

    def fits(lower_share: float) -> bool:
        """Whether a look can be paid whose rows do not put this share out of reach as well."""
        look = next_look(spec, game, reach=True, share=lower_share)
        wrong = of_people(spec, game, errors) + errors * (look.labels if look else table.rows)
        return look is not None and WORTH * wrong <= allowed_wrong(lower_share, table.rows)

    reachable = largest_below(share, fits)
    command = f"`stacksl change RUN --stop-when right={100 * (reachable or 0):.0f}%`"
    advice = f" A lower share may be promised: {command}." if reachable else ""
    cost = f"{count(table.people)} more labels{spec.budget.cost_of(table.people)}"
    sentence = (
        f"{percent(share)} is probably not reachable with one answer per row: people seem to err in"
        f" about {percent(errors)}, in some {of_people(spec, game, errors):,.0f} of the"
        f" {plural(table.people, 'row')} that they labeled, and {count(table.allowed)} of all may"
        " be wrong."
    )
    details = (
        f"Two answers per row cost {cost}: start a run with --overlap {table.people}. Nothing more"
        f" was bought.{advice}"
    )
    return Promise(None, sentence, details)


def _refusal(spec: RunSpec, game: Game, share: float, table: Table) -> Promise:
    """That nothing is promised; why, and what to do.

    A look counts until a label changes the model.
    """
    past_looks, accounts = looks(game.ledger), game.ledger.accounts
    why = last_look(spec, game.ledger)
    options = {"python": "labeler" in spec.folder.read_state()}
    if not past_looks:
        spent = "" if accounts.left else " before the budget was spent"
        why = f"No look at the table was taken{spent}.{_by_people(spec, game.ledger, table.rows)}"
    elif learned := accounts.asked - past_looks[-1]["asked"]:
        why += f" It does not judge the present model, which has {plural(learned, 'more answer')}."
    elif rule := _shown_now(game.ledger):
        call = change_call("RUN", {"stop_when": rule}, **options)
        why += f" {rule[6:]} can be promised: `{call}`."
    if past_looks and past_looks[-1]["drawn"] >= LOOKS:
        why += f" No look is left of {LOOKS}, so nothing more is bought."
    else:
        why += _next_budget(spec, game, share, table, options)
    rows = plural(table.rows, "row")
    sentence = f"That {percent(share)} of the {rows} are right cannot be promised."
    return Promise(None, sentence, why)


def _next_budget(
    spec: RunSpec, game: Game, share: float, table: Table, options: Mapping[str, bool]
) -> str:
    """The budget that may pay a look at the `share`, or at a lower one that no look showed yet."""
    accounts, past_looks = game.ledger.accounts, looks(game.ledger)
    unspent = left_over = ""
    cap = labels_per_item(spec.settings) * table.rows
    no_lower = ""
    if not past_looks:
        no_lower = " With this budget no lower share is likely to be promised."
    shown_share = max([0.5, *(1 - look["left"] / max(1, look["of"]) for look in past_looks)])
    if len(linear_trainer(game).stages) < 3:
        label_range = first_budgets(spec, share, table.rows, accounts)
        if not label_range:
            why = "No budget is likely to pay a look that shows it: ask for a lower share."
            return f" {why}{no_lower}"
        low, high = (_budget(spec, accounts, labels) for labels in label_range)
        call = change_call("RUN", {"budget": high}, **options)
        return (
            f"{no_lower} The promise probably takes a budget of {low} to {high}: `{call}` buys no"
            " label that it does not need."
        )
    affordable = cap - accounts.spent - accounts.left  # that a larger budget could buy

    def look_at(wanted: float, affordable: int = affordable) -> Look | None:
        return next_look(spec, game, affordable, reach=True, share=wanted)

    full_look, payable_now = look_at(share), None
    spent = ", and what earlier looks cost is spent" if past_looks else ""
    if accounts.left and unpayable(spec, game):
        left_over = plural(accounts.left, "label was", "labels were")
        unspent = f" With this budget no look can be paid, so {left_over} left."
        payable_now = largest_below(
            share,
            lambda s: (look := look_at(s, 0)) and look.labels + _room(look) <= accounts.left,
            shown_share,
        )
        cheaper = look_at(payable_now, 0) if payable_now else None
        if payable_now and cheaper and (full_look is None or cheaper.labels < full_look.labels):
            lower = f"{100 * payable_now:.0f}%"
            call = change_call("RUN", {"stop_when": f"right={lower}"}, **options)
            labels_taken = f"{count(cheaper.labels)} of these{spec.budget.cost_of(cheaper.labels)}"
            unspent += f" A look at {lower} takes about {labels_taken}{spent}: `{call}`."
    unspent += "" if payable_now else no_lower
    payable = share if full_look else largest_below(share, look_at, shown_share)
    if payable and (look := look_at(payable)):
        labels = min(look.labels + _room(look), cap - accounts.spent)
        wanted = {"budget": _budget(spec, accounts, accounts.spent + labels)}
        possibility = "after more labels a look may" if look.before else "a look can"
        opening = f" For {percent(share)} {possibility} be paid with"
        told = bool(unspent) or not accounts.left
        besides = "" if told else f" to the {count(accounts.left)} that are left"
        if payable < share:
            wanted["stop_when"] = f"right={100 * payable:.0f}%"
            opening = (
                " No budget pays a look that may show it, even if people label all other rows;"
                f" at {100 * payable:.0f}% {possibility} be paid with"
            )
        added = labels - accounts.left
        return (
            f"{unspent}{opening} `{change_call('RUN', wanted, **options)}`, which adds"
            f" {plural(added, 'label')}{spec.budget.cost_of(added)}{besides}. Such a look shows its"
            f" share in about {'2 of 3' if look.sample else '4 of 5'} cases."
        )
    look_wanted = f"{'another' if past_looks else 'a'} look"
    kept = f", so {left_over} left" if left_over else ""
    return (
        f"{no_lower} Too few rows are left to pay for {look_wanted}{kept}: the table can be"
        " exported without a promise, or people label the other rows."
    )


def _room(look: Look) -> int:
    """Labels to keep for a look with labels before it: its model is another one then."""
    return look.labels // 10 if look.before else 0


def _budget(spec: RunSpec, accounts: Accounts, labels: int) -> str:
    """A budget of so many labels in all, in money where the run's is.

    The labels that were bought may have cost less than their price.
    """
    if spec.budget.money is None or not spec.budget.price:
        return str(labels)
    remaining = (labels - accounts.spent) * spec.budget.price
    return money(accounts.spent_money + remaining).replace(",", "")


def last_look(spec: RunSpec, ledger: LedgerReader) -> str:
    """What the last look found when it was taken, after the sentence on one that waits."""
    labeler = "the column" if spec.settings.column else "the model"
    waiting, past_looks = _begun(spec, ledger, labeler), looks(ledger)
    if not past_looks:
        return waiting
    look, now = past_looks[-1], ""
    taken = next(past for past in past_looks if past["drawn"] == look["drawn"])
    if taken["after"] < look["after"]:  # it stays true of the table that it was taken of
        now = f" Now this look shows at least {_shown_by(look)[6:]} of the {look['of']:,} rows"
        now, look = f"{now}{_added(look)}.", taken
    model_wrong = left_wrong(look["wrong"], look["audit"], look["rows"], MODEL)
    wrong_rows = f"{count(look['wrong'])} of {plural(look['audit'], 'row')} of {labeler}"
    if look["sample"]:
        wrong_rows += f" and {look['differ']} of {look['sample']} of people"
    people_wrong = look["left"] - model_wrong - look["after"]
    return (f"{waiting} " if waiting else "") + (
        f"Look {look['drawn']} of {LOOKS} showed that at least {_shown_by(look)[6:]} of the"
        f" {plural(look['of'], 'row')} are right. {wrong_rows} turned out wrong or unclear. So at"
        f" most {plural(model_wrong, 'error')} of {labeler} and {count(people_wrong)} of people"
        f" (or unclear) may be left{_added(look)}.{now}"
        f"{_by_people(spec, ledger, past_looks[-1]['of'])}"
    )


def _added(look: Mapping[str, Any]) -> str:
    """The part of a sentence on rows that a look says nothing about; empty if there are none."""
    if not (added := look["after"]):
        return ""
    why = "since rows or classes were added after its draw"
    return f", with {plural(added, 'row')} counted as wrong, {why}"


def _begun(spec: RunSpec, ledger: LedgerReader, labeler: str) -> str:
    """The sentence on a look that waits for answers, with those that the cost does not have yet."""
    if (look := open_look(ledger)) is None:
        return ""
    later_rows = list(ledger.rows(look.seq, only=("answered", "reserved")))
    answered = sum(row.event == "answered" for row in later_rows)
    waiting = len(ledger.open_purchases())
    answers = f"{plural(answered, 'answer')} received, {count(waiting)} awaited"
    sentence = f"Look {look.number} of {LOOKS} has begun: {plural(look.audit, 'row')} of {labeler}"
    if look.sample:
        sentence += f" and {count(look.sample)} of people"
    sentence += " were drawn at random"
    if not spec.settings.several_people:
        return f"{sentence}; {answers}."
    audited = {row.item for row in later_rows if row.purpose == "audit" and row.item is not None}
    slots = [ledger.accounts.slots(ledger.items.surrogates[item]) for item in audited]
    answered_once = [of_row[0][1] for of_row in slots if len(of_row) == 1]
    further = sum(not first.dropped and first.word not in UNCLEAR for first in answered_once)
    if further:
        answers += f", and at least {count(further)} more{spec.budget.cost_of(further)}"
        answers += " will be asked for after them"
    return f"{sentence}. Each row needs the same answer from two people: {answers}."


def _by_people(spec: RunSpec, ledger: LedgerReader, rows: int) -> str:
    """What one answer to each of the `rows` gives, once as much was spent; empty before."""
    spent, doubled = ledger.accounts.spent, doubled_of(ledger)
    if spent < rows or not spec.settings.several_people:
        return ""
    errors = "how often people err is not known, since no row has answers of two people"
    if doubled.answers:
        errors = f"people seem to err in about {percent(doubled.rate)} of single answers, so a"
        errors += f" table with one answer in each row is about {percent(1 - doubled.rate)} right"
    return (
        f" {plural(spent, 'label')} were spent, and one answer to each row takes {count(rows)}:"
        f" {errors}. That is no promise; `export --table` writes the present table without one."
    )


def _shown_now(ledger: LedgerReader) -> str:
    """The stop rule that the last look shows, if it says anything of the present model's rows.

    Empty also below half of the table, which is no use.
    """
    if not (past_looks := looks(ledger)):
        return ""
    look = past_looks[-1]
    judges_rows = ledger.accounts.asked == look["asked"] and look["rows"] > look["audit"]
    return _shown_by(look) if judges_rows and 2 * look["left"] <= look["of"] else ""


def _shown_by(look: Mapping[str, Any]) -> str:
    """The stop rule that a look meets, its share rounded down to a tenth of a percent."""
    return f"right={max(0, floor(1000 * (1 - look['left'] / max(1, look['of'])))) / 10:g}%"
