"""The second look of a run: which audited rows are asked of whom, within the labels kept for it.

A further answer is one more slot of its item in the ledger, and a row of a sheet like any other.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

import numpy as np

from stacksl.core.rng import generator
from stacksl.ledger.events import NOTES
from stacksl.ledger.ledger import Ledger
from stacksl.models.audit import Audit
from stacksl.models.metrics import Powers, largest, z_of_look
from stacksl.models.second_look import Verdict, looked, next_rows, split, too_wide
from stacksl.runs.finish.adapters import AdapterEnding
from stacksl.runs.finish.heads import HeadEnding
from stacksl.runs.items.roles import compared
from stacksl.runs.session.assignment import free_people
from stacksl.runs.settings.budget import promised_share
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import FACTS, SECRET, anchors


def report_stands(spec: RunSpec, ledger: Ledger) -> bool:
    """Whether only answers of audits followed the report, so that its model stands."""
    head = anchors(spec.folder).get(FACTS)
    after = None if head is None else ledger.place(head)
    if after is None or not spec.folder.has_results():
        return False
    later = ledger.rows(after)
    return all(row.purpose == "audit" or row.event in ("shown", *NOTES) for row in later)


def second_look(
    ending: HeadEnding | AdapterEnding,
    audit: Audit,
    state: dict[str, Any],
    look: int = 0,
    *,
    every: bool = False,
) -> tuple[list[str], Audit]:
    """The items of an audit to ask one more person of now, and the audit as a report measures it.

    That waits for answers, or goes by what two people said. Rows are sampled in a random order by
    the run's secret: once as the second look begins, and in the same order at every `look` of many,
    where rows that differed from an earlier model are no random sample. The final model is made.
    Once a look at the end is done, what the model said of its rows is noted in the `state`: they
    stay what they were when a correction refits the model.
    """
    spec, ledger = ending.spec, ending.game.ledger
    predicted, powers = _looked_at(ending, audit, every=every)
    ids = [*predicted]
    looked_at = audit.answers.keys() & predicted.keys()
    answers, now = (_answers_to(looked_at, ledger, now=later) for later in (False, True))
    secret = int(spec.folder.resolved()[SECRET], 16)
    order = generator(secret, "second look", audit.number).permutation(len(ids))
    accounts = ledger.accounts
    slots = {item: accounts.slots(ledger.items.surrogates[item]) for item in answers}
    begun = [i for i, asked in slots.items() if sum(not accounts.is_aside(s) for _, s in asked) > 1]
    shuffled = [ids[place] for place in order]
    fixed = () if look else begun
    noted = {} if look else state.get("judged", {})
    labels = noted["said"] if noted.get("audit") == audit.number else list(predicted.values())
    judged = dict(zip(ids, labels, strict=True))
    rows = split(shuffled, judged, answers, fixed, every=every)
    free, awaited = free_people(spec, ledger, ids)
    free |= (dropped := {i: 0 for i in begun if any(slot.dropped for _, slot in slots[i])})
    left = min(spec.terms.further - accounts.further, accounts.left)
    left = 0 if accounts.reached else left  # what a look has found stands
    due = next_rows(rows, answers, free, left, awaited)
    first, first_now = ({i: of_all[0] for i, of_all in given.items()} for given in (answers, now))
    if due or awaited:  # the first answers measure agreement until all are in
        return due, replace(audit, answers=first, now=first, waits=True)
    left *= promised_share(spec.settings.stop_when) is None  # what a promise has judged stands
    nobody = len(next_rows(rows, answers, dict.fromkeys(free, 1) | dropped, left))
    begins = any(len(of_all) > 1 for of_all in answers.values())
    if not begins and (look or not nobody):
        return due, audit
    z = z_of_look(look)
    if begins and not look:
        state["judged"] = {"audit": audit.number, "said": labels}
    askable = len(next_rows(rows, answers, free, 2 * len(ids)))
    second = looked(rows, predicted, answers, powers, z, judged)
    second = replace(second, askable=askable, nobody=nobody)
    agreeing, sampled, differing = ([item for item in part if item in now] for part in rows)
    later = looked((agreeing, sampled, differing), predicted, now, powers, z, judged)
    if not look and too_wide(second):
        audit = replace(audit, answers=first, now=first_now)
    return due, replace(audit, second=second, second_now=later)


def _answers_to(items: Set[str], ledger: Ledger, *, now: bool) -> dict[str, list[Verdict]]:
    """What each person said of each of the items; with `now` as corrected since it was shown."""
    return {
        item: [(answer.said, answer.index) for answer in of_all]
        for item, of_all in ledger.audited_by_all(now=now).items()
        if item in items
    }


def _looked_at(
    ending: HeadEnding | AdapterEnding, audit: Audit, *, every: bool
) -> tuple[dict[str, int], Powers | None]:
    """The label that is looked at in each audited row, by item, and its probabilities.

    It is the column's, where the run judges one, and in a promise that of the delivered table;
    else the final model's.
    """
    ids = [ending.game.corpus.ids[row] for row in audit.rows]
    if isinstance(ending, HeadEnding) and ending.spec.settings.column is not None and not every:
        labels, reference = ending.of_column(audit.rows), ending.column_reference(audit)
        ids, policies = [*labels], [*labels.values()]
    else:
        policies = ending.policies(audit.rows)
        if isinstance(ending, HeadEnding) and every:
            policies = ending.delivered(audit.rows)
        reference = largest(ending.policies(compared(ending.game, audit)))
    sure = largest(policies)
    powers = None if reference is None or sure is None else Powers(sure, reference)
    return dict(zip(ids, (int(np.argmax(policy)) for policy in policies), strict=True)), powers
