"""Report facts of the answers: what was said at which cost, and what changed on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from stacksl.ledger.accounts import DROPPED
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Purpose, Word
from stacksl.ledger.queries import LedgerReader
from stacksl.models.metrics import agreement_of
from stacksl.report.quality import Asking, Cost, RunChange
from stacksl.runs.items.sources import OWNED
from stacksl.runs.spec import RunSpec

EVERY: tuple[Purpose, ...] = get_args(Purpose)
OWNER = "owner"  # whose the label is of a row that nobody was asked about


def answers_by_item(
    spec: RunSpec,
    ledger: LedgerReader,
    purposes: Sequence[Purpose] = ("train",),
    until: int | None = None,
) -> dict[str, list[Word]]:
    """The answers that count now to each usable item, by one person each, by slot.

    Those to questions that were asked after row `until` of the chain are left out, and so is "none
    of these" where the item was asked about again, and answered, after a class was added.
    """
    rows = [] if until is None else ledger.rows(until, only=("reserved",))
    later, answers = {(row.item, row.slot) for row in rows}, dict[str, list[Word]]()
    purchases, keys = ledger.accounts.purchases, ledger.items.named()
    accepted = ledger.accepted(*purposes)
    for row in sorted(accepted, key=lambda row: (str(row["item"]), int(str(row["slot"])))):
        item, slot = str(row["item"]), int(str(row["slot"]))
        state = purchases[keys[item], slot]
        if (item, slot) not in later and item in spec.sources.usable and state.word is not None:
            words = answers.setdefault(item, [])
            if state.again:
                words[:] = [word for word in words if word != "none"]
            words.append(state.word)
    return answers


def table_answers(
    spec: RunSpec, ledger: LedgerReader, until: int | None = None
) -> dict[str, list[Word]]:
    """The answers to each row of the exported table, as `answers_by_item` has them.

    A row that nobody was asked about has the label that a column of owned labels gives it, else the
    last label that is owned of its text, by a file or a click. The items of a file of owned labels
    are no rows of the table.
    """
    answers, sources = answers_by_item(spec, ledger, EVERY, until), spec.sources
    owned_ids = [id for id in ledger.bought("owned") if id in answers]
    texts = {sources.usable[id].content: answers[id] for id in owned_ids}
    in_column = spec.settings.owned_column is not None
    for id, item in sources.usable.items() if texts else ():
        words = answers.get(OWNED + id) if in_column else None
        if words := words or texts.get(item.content):
            answers.setdefault(id, words)
    return {id: words for id, words in answers.items() if id not in sources.owned}


def asking_of(ledger: Ledger, *, priced: bool) -> Asking:
    """What annotators said, at what cost; money only where a price was given."""
    counts, (disputed, late) = ledger.counts_by_kind(), ledger.uncharged()
    return Asking(
        labels=counts["label"],
        none_of_these=counts["none"],
        ambiguous=counts["ambiguous"],
        broken=counts["broken"],
        disputes=len(disputed),
        late=len(late),
        agreement=agreement_of([(first.word, second.word) for first, second in ledger.agreement()]),
        costs=_costs(ledger, priced),
        changes=tuple(_changes(ledger)),
    )


def _costs(ledger: Ledger, priced: bool) -> tuple[Cost, ...]:
    """The charged answers of each labeler."""
    paid: dict[str, list[int]] = defaultdict(list)
    for row in ledger.export():
        if row["state"] == "answered" and row["purpose"] != "owned":
            paid[str(row["labeler"])].append(int(str(row["price"])))
    return tuple(
        Cost(name, len(prices), sum(prices) if priced else None)
        for name, prices in sorted(paid.items())
    )


def _changes(ledger: Ledger) -> list[RunChange]:
    """The changes of a run, in order; rows that were changed together are counted."""
    changes: list[RunChange] = []
    known_terms, rounds = (ledger.terms.budget, ledger.terms.money), 0
    for row in ledger.rows():
        rounds += row.event == "round"
        if row.event == "budget":
            terms = (row.payload["budget"], row.payload["money"])
            if terms != known_terms:  # else items were added
                changes.append(RunChange(rounds, "budget", *terms))
            known_terms = terms
        for change in _changed(ledger, row, rounds):
            if changes and change == replace(changes[-1], count=1):
                change = replace(change, count=changes.pop().count + 1)
            changes.append(change)
    return changes


def _changed(ledger: Ledger, row: Row, rounds: int) -> list[RunChange]:
    """The changes of a run that a row records, but for those of the budget."""
    data = row.payload
    if row.event == "settings":
        added = [RunChange(rounds, kind, data[kind]) for kind in ("pool", "owned") if kind in data]
        names = ledger.private.names
        values = {"set": data.get("set", [])}
        values |= {kind: [data[kind]] for kind in ("labeler", "stop_when") if kind in data}
        values["joined"] = [names[code] for code in data.get("joined", ())]
        changed = [(kind, value) for kind, listed in values.items() for value in listed]
        return added + [RunChange(rounds, kind, who=value) for kind, value in changed]
    own_label = row.purpose == "owned" and row.labeler == OWNER
    kind = {
        "answered": "labeled" if own_label else "",
        "class_added": "class",
        "set_aside": "set_aside",
        "kept": "kept",
        "away": "away",
        "back": "back",
        "forgotten": "erased",
        "corrected": "named" if "named" in data else "corrected",
        "reserved": "reopened" if "again" in data else "",
        "released": "dropped" if data.get("reason") == DROPPED else "",
    }.get(row.event)
    person = str(row.labeler) if row.event in ("set_aside", "kept", "away", "back") else ""
    number = data["size"] if row.event == "class_added" else 1
    return [RunChange(rounds, kind, number, who=person)] if kind else []
