"""The stop rule `right=R`: so many rows of the delivered table are right, by people and the model.

A pool is bought until a look is cheaper than more labels (`models.promise`). Then the final model
is made, rows of its part of the table are drawn and asked of people, and where several people
answer, rows that people labelled are asked again. If both together show the share, the run ends
with that model; else buying goes on, and at most `LOOKS` models are looked at.

Where several people answer, audited rows get a second look (`second_look`), and a row sampled of
people's is asked until two agree. One person is not asked a row twice: the promise is then about
agreement with that person, as it is about agreement with a program that answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl.errors import SettingsError
from stacksl.ledger.queries import LedgerReader
from stacksl.ledger.store.settings import Setting
from stacksl.models.audit import Audit
from stacksl.models.promise import (
    GUESSED,
    LOOKS,
    MODEL,
    PEOPLE,
    WEIGHT,
    Look,
    allowed_wrong,
    left_wrong,
    look_now,
)
from stacksl.models.second_look import MOST, Verdict, reserved, settled
from stacksl.report.wording import count, percent, plural
from stacksl.runs.items.roles import give_roles, next_terms
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.session.assignment import FILE, annotators_of, without_rows
from stacksl.runs.settings.budget import promised_share
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import SECRET

Answers = dict[str, list[Verdict]]


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a delivered table: by whom they are labelled, and how many may be wrong."""

    people: int
    model: int
    allowed: int

    @classmethod
    def of(cls, spec: RunSpec, game: Game) -> Table:
        """The table as it would be delivered now; a label that was held already is people's."""
        model = len(game.corpus.unbought(game.ledger.bought()))
        people = len(game.ledger.bought())
        share = promised_share(spec.settings.stop_when)
        assert share is not None
        return cls(people, model, allowed_wrong(share, people + model))


def doubted(settings: Settings) -> bool:
    """Whether people's errors are part of the promise: several people answer."""
    return settings.labeler == FILE and len(annotators_of(settings.annotators)) > 1


def open_look(ledger: LedgerReader) -> Mapping[str, int] | None:
    """The look whose rows were drawn and not judged yet: its `audit` and its `sample`."""
    drawn = [
        row.payload["look"] for row in ledger.rows(only=("settings",)) if "look" in row.payload
    ]
    return drawn[-1] if len(drawn) > len(looks(ledger)) else None


def looks(ledger: LedgerReader) -> list[Mapping[str, Any]]:
    """What was found at each look of a promise, in order."""
    return [row.payload for row in ledger.rows(only=("looked",)) if "audit" in row.payload]


def next_look(spec: RunSpec, game: Game) -> Look | None:
    """The look to draw now; None where buying goes on, or no look is left."""
    before = looks(game.ledger)
    if len(before) >= LOOKS:
        return None
    stages, table = linear_trainer(game).stages, Table.of(spec, game)
    factor, errors = 1.0, GUESSED if doubted(spec.settings) else None
    for each in before:
        expected = each["expected"] * each["audit"] / max(1, each["rows"])
        factor *= min(4.0, max(1.0, (each["wrong"] + 1) / (expected + 1)))
        if errors is not None:
            errors = (each["differ"] + GUESSED * WEIGHT) / (each["sample"] + WEIGHT)
        stages = [stage for stage in stages if stage.labels > each["labels"]] or stages[-1:]
    if before and stages[-1].labels <= before[-1]["labels"]:
        return None  # the same model
    stages = linear_trainer(game).stages
    left = game.ledger.accounts.left
    left = left * 4 // 5 if errors is not None else left  # further answers
    return look_now(
        stages, table.people, table.model, table.allowed, left, factor=factor, errors=errors
    )


def draw_look(spec: RunSpec, game: Game, look: Look) -> RunSpec:
    """Reserve the answers of a look; the spec with its audit."""
    terms, ledger = spec.terms, game.ledger
    further = terms.further
    if doubted(spec.settings):
        further = ledger.accounts.further + reserved(look.audit, 3 * look.audit)
    now = replace(terms, audits=(*terms.audits, look.audit), further=further)
    values = {"labels_now": now.labels, "audits_now": now.audits}
    values |= {"further_now": further} if further else {}
    values |= {} if now.money is None else {"money_now": now.money}
    wanted = replace(spec, now=now)
    sample = _sampled(spec, game, look.sample, len(looks(ledger)))
    with ledger.together():
        said = {"look": {"audit": look.audit, "sample": len(sample)}}
        ledger.change_settings({k: Setting(v) for k, v in values.items()}, None, said)
        audited, order = set(ledger.bought("audit")), list(game.corpus.order)
        next_terms(wanted, ledger, order, audited, first=len(game.corpus.began))
        ledger.reserve(sample, "train")
    give_roles(wanted, game.corpus, ledger)
    return wanted


def _sampled(spec: RunSpec, game: Game, size: int, number: int) -> list[str]:
    """The items of people to ask again: drawn of those learnt that nobody else answered."""
    ledger = game.ledger
    slots = {item: len(given) for item, given in _answers(ledger).items()}
    items = sorted(item for item in ledger.bought("train") if slots.get(item) == 1)
    secret = int(spec.folder.resolved()[SECRET], 16)
    order = generator(secret, "promise", number).permutation(len(items))
    return [items[place] for place in order[:size]]


def _answers(ledger: LedgerReader) -> Answers:
    """The answers to each item that trains, by one person each, in the order of the slots."""
    found: Answers = {}
    for row in ledger.export():
        if row["purpose"] == "train" and row["state"] == "answered":
            found.setdefault(str(row["item"]), []).append((str(row["said"]), row["answer"]))  # type: ignore[arg-type]
    return found


def unsettled(spec: RunSpec, game: Game) -> list[str]:
    """The sampled items to ask one more person of, as long as the budget pays for it."""
    ledger = game.ledger
    here = set(annotators_of(spec.settings.annotators)) - without_rows(spec.folder, ledger)
    handed = ledger.private.handed()
    due = []
    for item, given in _answers(ledger).items():
        if 1 < len(given) < MOST and settled(given) is None:
            had = {row.annotator for row in handed if row.item == item}
            due += [item] if here - had else []
    return due[: ledger.accounts.left]


def judged(
    spec: RunSpec, game: Game, audit: Audit, policies: Sequence[Array], look: Mapping[str, int]
) -> dict[str, Any]:
    """What a look found, and whether it shows the share: the payload of a `looked` row.

    An audited row is wrong where people said anything but the model's answer, or nothing; with a
    second look, where two people did, or no two agree, and of the rows where people and model
    agree as many as the sample of them says. A sampled row of people is wrong where no two people
    gave its label. `policies` are the model's probabilities of the audited rows.
    """
    ids = [game.corpus.ids[row] for row in audit.rows]
    wrong = sum(
        audit.answers.get(item) != ("label", int(np.argmax(policy)))
        for item, policy in zip(ids, policies, strict=True)
    )
    if (second := audit.second) is not None:
        both = second.wrong + second.sampled_open  # wrong though people and model agreed
        wrong = second.n - second.agreeing - second.model_right
        wrong += -(-second.agreeing * both // max(1, second.sampled))
    table, sample, differ, of_people = Table.of(spec, game), look["sample"], 0, 0
    people, rows = table.people - len(ids), table.model + len(ids)
    if doubted(spec.settings):
        again = [given for given in _answers(game.ledger).values() if len(given) > 1]
        differ, sample = sum(settled(given) != given[0] for given in again), len(again)
        of_people = left_wrong(differ, sample, people, PEOPLE)
    of_model = left_wrong(wrong, len(ids), rows, MODEL)
    return {
        "reached": of_model + of_people <= table.allowed,
        **{"audit": len(ids), "wrong": wrong, "rows": rows, "people": people},
        **{"sample": sample, "differ": differ, "left": of_model + of_people},
        "expected": float(linear_trainer(game).stages[-1].expected),
    }


def promise_of(spec: RunSpec, game: Game) -> str:
    """The sentence of the report on what is promised, or why nothing is."""
    share, found, table = (
        promised_share(spec.settings.stop_when),
        looks(game.ledger),
        Table.of(spec, game),
    )
    assert share is not None
    if not table.model:
        return f"All {plural(table.people, 'row')} are labelled by people: no row is the model's."
    if not found or not found[-1]["reached"]:
        return _refusal(share, found, table)
    last, rows = found[-1], table.people + table.model
    by = f"{count(table.people)} by people and {count(table.model)} by the model"
    meant = "" if doubted(spec.settings) else " Right means: as the one who answered would say."
    return (
        f"At least {percent(share)} of the {plural(rows, 'row')} are right, {by}: of"
        f" {count(last['audit'])} rows of the model drawn at random {count(last['wrong'])} were"
        f" wrong, so at most {count(last['left'])} of all are. Such a promise holds in 95 of 100"
        f" runs.{meant}"
    )


def _refusal(share: float, found: Sequence[Mapping[str, Any]], table: Table) -> str:
    rows = table.people + table.model
    if not found:
        why = "the budget was spent before an audit that could show it was worth its price"
    else:
        least = 1 - min(each["left"] / max(1, each["people"] + each["rows"]) for each in found)
        why = f"{plural(len(found), 'look')} showed at least {percent(max(0.0, least))}"
    return (
        f"That {percent(share)} of the {plural(rows, 'row')} are right cannot be promised: {why}."
        f" A larger budget, `stacksl change RUN --budget B`, or a lower share, --stop-when right=R,"
        " would do."
    )


def expect_promise(settings: Settings) -> None:
    """Check that a run can keep the rule.

    Raises:
        SettingsError: it cannot.
    """
    linear = settings.refit and settings.class_names and not settings.adapts
    linear = linear and settings.column is None
    if settings.mode != "pool" or not linear:
        raise SettingsError(
            "stop_when with right=R looks at the rows that a linear model of a pool labels: give"
            " --mode pool without --model, refit=false, class_names=false or a column of labels, or"
            " another rule"
        )
