"""The sentences on a promise that so many rows of a table are right (`promising`).

Before a run they say what a promise probably takes, on the way what a look found, and at the end
what is promised, or why nothing is and which command may change that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Any

from stacksl.ledger.accounts import Accounts
from stacksl.ledger.queries import LedgerReader
from stacksl.models.promise import (
    LOOKS,
    MODEL,
    PEOPLE,
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
    if not (named := first_budgets(spec, share, rows, None)):
        return f"{promise} more labels than a budget may have: ask for a lower share"
    least, most = named
    sure = f" and nine of ten no more than {most:,}"
    if most == labels_per_item(spec.settings) * rows:
        sure = f", and a budget may have at most {most:,}"
    return (
        f"{promise} {_range_of(spec, named)}, depending on how often the model errs. In"
        f" simulations on public sets fewer than half of the runs took no more than {least:,}"
        f"{sure}; labels that the promise does not need are not bought. One answer to each row"
        f" takes {rows:,}{spec.budget.cost_of(rows)}"
    )


def _range_of(spec: RunSpec, named: Sequence[int]) -> str:
    """From the least to the most of the labels that a promise takes, and their price."""
    low, high = (money(labels * spec.budget.price) for labels in named)
    price = f", for {low} to {high}" * (spec.budget.money is not None)
    return f"{named[0]:,} to {named[1]:,} labels{price}"


def before_a_look(spec: RunSpec, labels: int, accounts: Accounts | None = None) -> str:
    """A warning where a budget of so many labels may end before a look can be paid; else empty."""
    if (share := spec.settings.promised_share) is None:
        return ""
    rows = len(spec.sources.pool.items)

    def fits(wanted: float) -> bool:
        named = first_budgets(spec, wanted, rows, accounts)
        return bool(named) and named[0] <= labels

    if fits(share):
        return ""
    lower, named = largest_below(share, fits), first_budgets(spec, share, rows, accounts)
    takes = _range_of(spec, named) if named else "more labels than a budget may have"
    hint = "no share of 50% or more is likely to be promised"
    if lower:
        hint = f"right={100 * lower:.0f}% is likelier, if you ask for it now and not at the end"
    return (
        f"a budget of {plural(labels, 'label')} may end before a look at the table, and nothing is"
        f" promised then: right={100 * share:.4g}% probably takes {takes}. With this budget {hint}"
    )


def largest_below(
    share: float, fits: Callable[[float], object], least: float = 0.49
) -> float | None:
    """The largest full percent between `least` and `share` that fits, as smaller ones do."""
    lower = [n / 100 for n in range(50, 100) if least < n / 100 < share]
    index = bisect_left(lower, True, key=lambda wanted: not fits(wanted))
    return lower[index - 1] if index else None


def looks_left(spec: RunSpec, ledger: LedgerReader) -> str:
    """What is said before a run that promises a share goes on."""
    drawn, before = last_drawn(ledger), looks(ledger)
    left = LOOKS if drawn is None else LOOKS - drawn.number
    more = "After a look, labels are bought only while another that may show the share can be paid"
    said = f"{left} of {LOOKS} looks at the table are left. {more if left else 'Nothing is bought'}"
    if before and not ledger.accounts.reached and ledger.accounts.asked == before[-1]["asked"]:
        said += f". The run can promise {_shown_by(before[-1])} only until a label is bought"
    if spec.settings.several_people and (doubled := doubled_of(ledger)).answers:
        said += (
            f". By rows that two people answered, people err in about {percent(doubled.rate)} of"
        )
        said += f" answers: {percent(1 - doubled.rate)} of a table with one answer a row are right"
    return said


def promise_of(spec: RunSpec, game: Game) -> str:
    """The sentence of the report on what is promised, or why nothing is."""
    share, table = spec.settings.promised_share, Table.of(spec, game)
    assert share is not None
    if not table.model + table.dropped:
        return (
            f"All {plural(table.people, 'row')} are labeled by people: no row is the model's, and"
            " nothing is promised about people's labels."
            f"{_by_people(spec, game.ledger, table.rows)}"
        )
    if not game.ledger.accounts.reached:
        if unreachable(spec, game):
            return _beyond(spec, game, share, table)
        return _refusal(spec, game, share, table)
    look = looks(game.ledger)[-1]
    part = drawn = "the model" if spec.settings.column is None else "the column"
    if spec.settings.column is not None and -1 in spec.sources.model_labels:
        part, drawn = f"{part} or, where it has no label, the model", f"{part} or the model"
    by = f"{count(table.people)} by people and {count(table.rows - table.people)} by {part}"
    meant = " A label is right if whoever answered would say the same."
    meant *= not spec.settings.several_people
    if aside := len(spec.sources.excluded - spec.sources.erased):
        meant += f" Not counted: {plural(aside, 'row')} with the text of an example of a class."
    of_model = left_wrong(look["wrong"], look["audit"], look["rows"], MODEL)
    of_people = f" and of {look['sample']} of people {look['differ']}" * bool(look["sample"])
    after = look["after"]
    err = f" and {count(look['left'] - of_model - after)} that people err on"
    parts = f", {count(of_model)} of {drawn}{err}{_added(look)}"
    return (
        f"At least {percent(share)} of the {plural(table.rows, 'row')} are right, {by}: of"
        f" {count(look['audit'])} rows of {drawn} drawn at random {count(look['wrong'])}"
        f"{of_people} {'was' if look['wrong'] == 1 and not of_people else 'were'} wrong or unclear,"
        f" so at most {count(look['left'])} of all are{parts * (look['left'] > of_model)}. Such a"
        f" promise holds in 95 of 100 runs.{meant}"
    )


def _beyond(spec: RunSpec, game: Game, share: float, table: Table) -> str:
    errors = doubled_of(game.ledger).rate

    def fits(wanted: float) -> bool:
        """Whether a look can be paid whose rows do not put this share out of reach as well."""
        look = next_look(spec, game, reach=True, share=wanted)
        wrong = of_people(spec, game, errors) + errors * (look.labels if look else table.rows)
        return look is not None and WORTH * wrong <= allowed_wrong(wanted, table.rows)

    most = largest_below(share, fits)
    rule = f"`stacksl change RUN --stop-when right={100 * (most or 0):.0f}%`"
    lower = f" A lower share may be promised: {rule}." if most else ""
    cost = f"{count(table.people)} more labels{spec.budget.cost_of(table.people)}"
    return (
        f"{percent(share)} is probably not reachable with one answer per row: people seem to err in"
        f" about {percent(errors)}, in some {of_people(spec, game, errors):,.0f} of the"
        f" {plural(table.people, 'row')} that they labeled, and {count(table.allowed)} of all may"
        f" be wrong. Two answers per row cost {cost}: start a run with --overlap"
        f" {table.people}. Nothing more was bought.{lower}"
    )


def _refusal(spec: RunSpec, game: Game, share: float, table: Table) -> str:
    """Why nothing is promised, and what to do; a look counts until a label changes the model."""
    before, why, accounts = looks(game.ledger), last_look(spec, game.ledger), game.ledger.accounts
    own = {"python": "labeler" in spec.folder.read_state()}
    if not before:
        spent = " before the budget was spent" * (not accounts.left)
        why = f"No look at the table was taken{spent}.{_by_people(spec, game.ledger, table.rows)}"
    elif since := accounts.asked - before[-1]["asked"]:
        why += f" It does not judge the present model, which has {plural(since, 'more answer')}."
    elif (rule := _shown_by(before[-1])) != "right=0%":
        why += f" That share can be promised: `{change_call('RUN', {'stop_when': rule}, **own)}`."
    if before and before[-1]["drawn"] >= LOOKS:
        why += f" No look is left of {LOOKS}, so nothing more is bought."
    else:
        why += _next_budget(spec, game, share, table, own)
    rows = plural(table.rows, "row")
    return f"That {percent(share)} of the {rows} are right cannot be promised. {why}"


def _next_budget(
    spec: RunSpec, game: Game, share: float, table: Table, own: Mapping[str, bool]
) -> str:
    """The budget that may pay a look at the `share`, or at a lower one that no look showed yet."""
    accounts, before, kept = game.ledger.accounts, looks(game.ledger), ""
    most = labels_per_item(spec.settings) * table.rows
    few = " With this budget no lower share can be promised either." * (not before)
    shown = max([0.5, *(1 - look["left"] / max(1, look["of"]) for look in before)])
    if len(linear_trainer(game).stages) < 3:
        named = first_budgets(spec, share, table.rows, accounts)
        if not named:
            return f" No budget is likely to pay a look that shows it: ask for a lower share.{few}"
        least, budget = (_budget(spec, accounts, labels) for labels in named)
        call = change_call("RUN", {"budget": budget}, **own)
        return (
            f"{few} The promise probably takes a budget of {least} to {budget}: `{call}` buys no"
            " label that it does not need."
        )
    more = most - accounts.spent - accounts.left  # that a larger budget could buy

    def look_at(wanted: float, more: int = more) -> Look | None:
        return next_look(spec, game, more, reach=True, share=wanted)

    asked, spent = look_at(share), ", and what earlier looks cost is spent" * bool(before)
    rest = None
    if accounts.left and unpayable(spec, game):
        kept = (
            f" With this budget no look can be paid, so {plural(accounts.left, 'label')} were left."
        )
        rest = largest_below(share, lambda s: look_at(s, 0), shown)
        cheaper = look_at(rest, 0) if rest else None
        if rest and cheaper and (asked is None or cheaper.labels < asked.labels):
            call = change_call("RUN", {"stop_when": f"right={100 * rest:.0f}%"}, **own)
            some = f"{count(cheaper.labels)} of these{spec.budget.cost_of(cheaper.labels)}"
            kept += f" A look at {100 * rest:.0f}% takes about {some}{spent}: `{call}`."
    kept += few * (not rest)
    payable = share if asked else largest_below(share, look_at, shown)
    if payable and (look := look_at(payable)):
        room = look.labels // 10 if look.before else 0  # the model that it is about is another then
        labels = min(look.labels + room, most - accounts.spent)
        wanted = {"budget": _budget(spec, accounts, accounts.spent + labels)}
        may = "after more labels a look may" if look.before else "a look can"
        what = f" For {percent(share)} {may} be paid with"
        to = f" to the {count(accounts.left)} that are left" * bool(accounts.left)
        if payable < share:
            wanted["stop_when"] = f"right={100 * payable:.0f}%"
            what = (
                " No budget pays a look that may show it, even if people label all other rows;"
                f" at {100 * payable:.0f}% {may} be paid with"
            )
        added = labels - accounts.left
        return (
            f"{kept}{what} `{change_call('RUN', wanted, **own)}`, which adds"
            f" {plural(added, 'label')}{spec.budget.cost_of(added)}{to}. Such a look shows its"
            f" share in about {'2 of 3' if look.sample else '4 of 5'} cases."
        )
    return (
        f"{kept} Too few rows are left to pay for {'another' if before else 'a'} look: the table"
        " can be exported without a promise, or people label the other rows."
    )


def _budget(spec: RunSpec, accounts: Accounts, labels: int) -> str:
    """A budget of so many labels in all, in money where the run's is.

    The labels that were bought may have cost less than their price.
    """
    if spec.budget.money is None or not spec.budget.price:
        return str(labels)
    more = (labels - accounts.spent) * spec.budget.price
    return money(accounts.spent_money + more).replace(",", "")


def last_look(spec: RunSpec, ledger: LedgerReader) -> str:
    """What the last look found, and what limits it, after the sentence on one that waits."""
    part = "the column" if spec.settings.column else "the model"
    begun, before = _begun(spec, ledger, part), looks(ledger)
    if not before:
        return begun
    last = before[-1]
    model = left_wrong(last["wrong"], last["audit"], last["rows"], MODEL)
    bad = f"{count(last['wrong'])} of {plural(last['audit'], 'row')} of {part}"
    bad += f" and {last['differ']} of {last['sample']} of people" * bool(last["sample"])
    return f"{begun} " * bool(begun) + (
        f"Look {last['drawn']} of {LOOKS} showed that at least {_shown_by(last)[6:]} of the"
        f" {plural(last['of'], 'row')} are right: {bad} were wrong or unclear, so at most"
        f" {count(model)} errors of {part} and {count(last['left'] - model - last['after'])}"
        f" of people (or unclear) are left{_added(last)}. {_limit(ledger, last, part)}"
        f"{_by_people(spec, ledger, last['of'])}"
    )


def _added(look: Mapping[str, Any]) -> str:
    """The part of a sentence on rows that a look says nothing about; empty if there are none."""
    after = look["after"]
    why = "since rows or classes were added after its draw"
    return f", with {plural(after, 'row')} counted as wrong, {why}" * bool(after)


def _begun(spec: RunSpec, ledger: LedgerReader, part: str) -> str:
    """The sentence on a look that waits for answers, with those that the cost does not have yet."""
    if (look := open_look(ledger)) is None:
        return ""
    since = list(ledger.rows(look.seq, only=("answered", "reserved")))
    answered, waiting = sum(row.event == "answered" for row in since), len(ledger.open_purchases())
    awaited = f"{count(waiting)} {'is' if waiting == 1 else 'are'} awaited"
    answers = f"{plural(answered, 'answer was', 'answers were')} received, {awaited}"
    begun = f"Look {look.number} of {LOOKS} has begun: {plural(look.audit, 'row')} of {part}"
    begun += f" and {count(look.sample)} of people" * bool(look.sample) + " were drawn at random"
    if not spec.settings.several_people:
        return f"{begun}; {answers}."
    audited = {row.item for row in since if row.purpose == "audit" and row.item is not None}
    slots = [ledger.accounts.slots(ledger.items.surrogates[item]) for item in audited]
    once = [of_row[0][1] for of_row in slots if len(of_row) == 1]
    later = sum(not first.dropped and first.word not in UNCLEAR for first in once)
    more = f", and at least {count(later)} more{spec.budget.cost_of(later)} will be asked for after"
    more = f"{more} them" * bool(later)
    return f"{begun}. Each row needs the same answer from two people: {answers}{more}."


def _by_people(spec: RunSpec, ledger: LedgerReader, rows: int) -> str:
    """What one answer to each of the `rows` gives, once as much was spent; empty before."""
    spent, doubled = ledger.accounts.spent, doubled_of(ledger)
    if spent < rows or not spec.settings.several_people:
        return ""
    known = "how often people err is not known, since no row has answers of two people"
    if doubled.answers:
        known = f"people seem to err in about {percent(doubled.rate)} of single answers, so a table"
        known += f" with one answer in each row is about {percent(1 - doubled.rate)} right"
    return (
        f" {plural(spent, 'label')} were spent, and one answer to each row takes {count(rows)}:"
        f" {known}. That is no promise; `export --table` writes the present table without one."
    )


def _limit(ledger: LedgerReader, look: Mapping[str, Any], part: str) -> str:
    """The sentence on the limit of a look without which the fewest rows would be left wrong."""
    drawn = [row.payload for row in ledger.rows(only=("settings",)) if "look" in row.payload]
    names = ("wrong", "audit", "rows", "differ", "sample", "left")
    wrong, n, rows, differ, sample, left = (look[name] for name in names)
    after = look["after"]
    frame = drawn[look["drawn"] - 1]["look"][2] if sample else 0
    model, right = (left_wrong(bad, n, rows, MODEL) for bad in (wrong, 0))
    people, agreed = (left_wrong(bad, sample, frame, PEOPLE) for bad in (differ, 0))
    known = wrong * (rows - n) / n + differ * (frame - sample) / max(1, sample)
    limits = [
        (left - model - people + known, "the size of the look"),  # as many are wrong as drawn
        (left - model + right, f"the errors of {part}"),
        (model + agreed + after, "people's errors and unclear rows"),
    ]
    limits += [(left - after, "the addition of rows or classes after it")] * (after > 0)
    least, limit = min(limits)
    shown = percent(1 - least / max(1, look["of"]))
    return f"What limits the share most: {limit}. Without it the share would be about {shown}."


def _shown_by(look: Mapping[str, Any]) -> str:
    """The stop rule that a look meets, its share rounded down to a tenth of a percent."""
    return f"right={max(0, floor(1000 * (1 - look['left'] / max(1, look['of'])))) / 10:g}%"
