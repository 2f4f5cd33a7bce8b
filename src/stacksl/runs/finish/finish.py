"""The end of a run, after the last answer: final model, test, report, second look at the audit.

A further answer of a second look is one more slot of its item in the ledger, and a row of a sheet
like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.core.rng import generator
from stacksl.files.atomic import write_atomic
from stacksl.ledger.events import NOTES
from stacksl.ledger.ledger import Ledger
from stacksl.models.audit import Audit, Audited, judge_audit
from stacksl.models.metrics import Powers, largest, z_of_look
from stacksl.models.second_look import (
    looked,
    looked_at_some,
    next_rows,
    split,
    too_wide,
)
from stacksl.report.facts import Facts
from stacksl.report.sentences import settled_by
from stacksl.runs.finish.adapters import AdapterEnding
from stacksl.runs.finish.facts import facts_of
from stacksl.runs.finish.heads import HeadEnding
from stacksl.runs.items.roles import reference_of
from stacksl.runs.loop.game import Game, Progress
from stacksl.runs.session.assignment import free_people
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import (
    FACTS,
    MODEL,
    SECRET,
    RunFolder,
    anchors,
    note_derived,
    read_facts,
)
from stacksl.runs.storage.status import evaluated, stated
from stacksl.runs.storage.status import now as time_now


def finish(
    ending: HeadEnding | AdapterEnding,
    state: dict[str, Any],
    audit: Audit | None = None,
    look: int = 0,
) -> None:
    """Save, test and audit the final model, then write the report and the card.

    No file written earlier reveals a result of the `audit`; for `look` see `judged_at`.
    """
    spec, game = ending.spec, ending.game
    tested, options = ending.test(), dict[str, Any]()
    if audit is not None:
        judged = judged_audit(ending, audit, look)
        tested = replace(tested, audited=judged)
        options = {name: getattr(audit, name) for name in ("passed_over", "second", "waits")}
        if audit.second is None or too_wide(audit.second):  # else the column's accuracy is known
            options |= {"measures": judged.measures}
    if isinstance(ending, HeadEnding) and spec.settings.column is not None:
        sample = audit or Audit((), {})
        labels, reference = ending.of_column(sample.rows), ending.column_reference(sample)
        if spec.settings.promised_share is not None:  # as in the second look
            ids = (game.corpus.ids[row] for row in sample.rows)
            labels = dict(zip(ids, ending.delivered(sample.rows), strict=True))
        tested = replace(tested, column=judge_audit(labels, sample.answers, reference, **options))
    judges = audit is not None and (audit.second is None) == (audit.second_left is None)
    if audit is not None and judges:
        labels, reference = ending.left(audit)
        options |= {"second": audit.second_left, "look": look}
        tested = replace(tested, left=judge_audit(labels, audit.answers, reference, **options))
    tested = ending.with_curve(tested, audit)
    ending.report(Progress("report", 0, 1))
    state.setdefault("finished", time_now())
    facts = facts_of(ending, tested, state)
    if audit is not None:
        facts = _continued(facts, state.get("shown", {}), audit, game)
    ending.save(tested, facts, audit)
    note_derived(spec.folder, game.ledger, MODEL)
    write_atomic(spec.folder.path / FACTS, facts.to_json())
    note_derived(spec.folder, game.ledger, FACTS)
    write_pages(spec.folder, game.ledger)
    state["shown"] = _shown_results(facts, game.ledger)
    measured = facts.test or facts.audit
    ending.report(
        Progress("report", 1, 1, accuracy=None if measured is None else measured.accuracy)
    )


def judged_audit(ending: HeadEnding | AdapterEnding, audit: Audit, look: int = 0) -> Audited:
    """The final model on an audit, by the answers that were shown first.

    Where it is judged at a `look` of many, the number of that look, it has a lower bound alone.
    """
    game = ending.game
    ids = [game.corpus.ids[row] for row in audit.rows]
    policies = dict(zip(ids, ending.policies(audit.rows), strict=True))
    reference = largest(ending.policies(reference_of(game, audit)))
    judges_model = ending.spec.settings.column is None  # else the second look was at its labels
    unknown = audit.second is None or (not look and too_wide(audit.second)) or not judges_model
    people = {row.annotator for row in game.ledger.private.handed()}
    options = {name: getattr(audit, name) for name in ("passed_over", "waits")} | {"look": look}
    agreement = f"agreement with the {'annotators' if len(people) > 1 else 'annotator'}"
    options |= {"measures": agreement} if unknown and people else {}
    second = audit.second if judges_model else None
    return judge_audit(policies, audit.answers, reference, **options, second=second)


def _continued(facts: Facts, shown: Mapping[str, Any], audit: Audit, game: Game) -> Facts:
    """The facts with the audit's number, whether it was shown, and whether it is trained on.

    Its labels stay in the final head until something else is learned. `shown` is what the run
    showed when it last finished (`_shown_results`).
    """
    labels, fact = len(game.examples.bought), facts.audit
    assert fact is not None
    fact = replace(fact, number=audit.number, revised=audit.revised)
    fact = replace(fact, learned=labels, shown_at=labels)
    if shown.get("number") == audit.number:
        later = game.ledger.rows(shown["rows"], only=("relabeled",))
        same = shown["made_of"] == [facts.data.items, facts.data.classes] and not any(later)
        same &= labels <= shown["learned"]  # fewer where items were erased
        fact = replace(
            fact,
            shown_before=shown["shown_before"] or not same or labels < shown["learned"],
            shown_at=shown["shown_at"],
            trained_on=len(audit.labels(game.corpus.ids)) if same and shown["trained_on"] else 0,
        )
    return replace(facts, audit=fact)


def _shown_results(facts: Facts, ledger: Ledger) -> dict[str, Any]:
    """What a finished run has shown, kept in its state: facts may be deleted with an item."""
    results: dict[str, Any] = {
        "asked": facts.budget.asked,
        "audited": facts.budget.audit,
        "further": facts.budget.further,
        "rows": ledger.head.count,
    }
    if facts.audit is None:
        return results
    results["made_of"] = [facts.data.items, facts.data.classes]
    names = ("number", "learned", "shown_before", "shown_at", "trained_on")
    return results | {name: getattr(facts.audit, name) for name in names}


def write_pages(folder: RunFolder, ledger: Ledger) -> Path:
    """The report and the model card, from the facts on disk; the path of the report."""
    from stacksl.report import card, render

    facts = replace(read_facts(folder), run=folder.path.absolute().name)  # it may have been moved
    judged = facts.column.audit if facts.column else None
    judged_run = evaluated(folder.path, folder.resolved())
    if comparison := stated(judged_run, judged, settled_by(facts)):  # as the other run is now
        # the page has commands of its own
        sentence = re.sub(": `[^`]*`", "", comparison["sentence"])
        sentence = sentence.replace(f"audit of {comparison['run']} ", "audit of the run before ")
        facts = replace(facts, stated=sentence)
    placed = replace(facts, run=str(folder.path))  # the card says where its commands are typed
    write_atomic(folder.path / "report.html", render(placed))
    write_atomic(folder.path / "README.md", card(facts))
    note_derived(folder, ledger, "report.html", "README.md")
    return folder.path / "report.html"


# The second look --------------------------------------------------------------------------------


def report_stands(spec: RunSpec, ledger: Ledger) -> bool:
    """Whether only answers of audits followed the report, so that its model stands."""
    head = anchors(spec.folder).get(FACTS)
    report_row = None if head is None else ledger.place(head)
    if report_row is None or not spec.folder.has_results():
        return False
    later = ledger.rows(report_row)
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
    by_all = ledger.audited_by_all().items()
    answers = {i: [answer.word for answer in of_all] for i, of_all in by_all if i in looked_at}
    secret = int(spec.folder.resolved()[SECRET], 16)
    order = generator(secret, "second look", audit.number).permutation(len(ids))
    accounts = ledger.accounts
    slots = {item: accounts.slots(ledger.items.surrogates[item]) for item in answers}
    first = {i: max(at * s.again for (_, at), s in of_item) for i, of_item in slots.items()}
    counted = {i: [s for _, s in of_item[first[i] :]] for i, of_item in slots.items()}
    begun = [i for i, of in counted.items() if sum(not accounts.is_aside(s) for s in of) > 1]
    shuffled = [ids[place] for place in order]
    fixed = () if look else begun
    noted = {} if look or spec.settings.column else state.get("judged", {})  # no refit changes it
    labels = noted["labels"] if noted.get("audit") == audit.number else list(predicted.values())
    judged = dict(zip(ids, labels, strict=True))
    rows = split(shuffled, judged, answers, fixed, every=every)
    free, awaited = free_people(spec, ledger, ids)
    free |= (dropped := {i: 0 for i in begun if any(slot.dropped for _, slot in slots[i])})
    left = min(spec.terms.further - accounts.further, accounts.left)
    left = 0 if accounts.reached else left  # what a look has found stands
    due = next_rows(rows, answers, free, left, awaited)
    first_words = {item: words[0] for item, words in answers.items()}
    if due or awaited:  # the first answers measure agreement until all are in
        return due, replace(audit, answers=first_words, now=first_words, revised=0, waits=True)
    left *= spec.settings.promised_share is None  # what a promise has judged stands
    nobody = len(next_rows(rows, answers, dict.fromkeys(free, 1) | dropped, left))
    begins = any(len(of_all) > 1 for of_all in answers.values())
    if not begins and (look or not nobody):
        return due, audit
    z = z_of_look(look)
    if begins and not look:
        state["judged"] = {"audit": audit.number, "labels": labels}
    askable = len(next_rows(rows, answers, free, 2 * len(ids)))
    second = looked(rows, predicted, answers, powers, z, judged)
    second = replace(second, askable=askable, nobody=nobody)
    if not look and too_wide(second):
        audit = replace(audit, answers=first_words)
    of_left = None
    if not every:
        labels, reference = ending.left(audit)
        of_left = looked_at_some(labels, reference, rows, answers, z, judged)
    return due, replace(audit, second=second, second_left=of_left)


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
        reference = largest(ending.policies(reference_of(ending.game, audit)))
    largest_own = largest(policies)
    powers = None if reference is None or largest_own is None else Powers(largest_own, reference)
    return dict(zip(ids, (int(np.argmax(policy)) for policy in policies), strict=True)), powers
