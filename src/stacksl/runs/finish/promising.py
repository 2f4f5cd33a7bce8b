"""The stop rule `right=R`: so many rows of the delivered table are right, by people and the model.

A pool is bought until a look is cheaper than more labels (`models.promise`). Then the final model
is made, rows of its part of the table are drawn and asked of people, and where several people
answer, rows that people labeled are asked again. If both together show the share, the run ends
with that model; else buying goes on, and at most `LOOKS` models are looked at. Over a column of
labels that the table already has, the model's part is what the table says without people: the label
of the column, and the final model's where there is none.

Where several people answer, audited rows get a second look (`second_look`), and a row sampled of
people's is asked until two agree. One person is not asked a row twice: the promise is then about
agreement with that person, as it is about agreement with a program that answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stacksl.core.blocks import Array
from stacksl.core.rng import generator
from stacksl.errors import SettingsError
from stacksl.ledger.accounts import Accounts
from stacksl.ledger.purchases import settled
from stacksl.ledger.queries import LedgerReader
from stacksl.ledger.store.settings import Setting
from stacksl.models.audit import Audit
from stacksl.models.promise import (
    LOOKS,
    MODEL,
    PEOPLE,
    RANGE,
    WORTH,
    Look,
    allowed_wrong,
    first_look,
    left_wrong,
    look_now,
    step_of,
)
from stacksl.models.second_look import MOST
from stacksl.runs.finish.answers import answers_by_item
from stacksl.runs.items.roles import give_roles, next_terms
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import doubled_of, linear_trainer
from stacksl.runs.session.assignment import free_people
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.terms import labels_per_item
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import SECRET

AGAIN = 3  # halves of an answer that an audited row takes at most beyond the first, in the mean


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a delivered table, and how many of them may be wrong.

    Attributes:
        people: rows that people label, those of open questions and of labels held before included.
        model: rows that nobody was asked about.
        dropped: rows whose question was given up. The model labels them, and no audit was drawn
            from them.
        unlabeled: of people's rows those called ambiguous or broken, which have no label.
        allowed: how many may be wrong; rows that were dropped or have no label are.
    """

    people: int
    model: int
    dropped: int
    unlabeled: int
    allowed: int

    @classmethod
    def of(cls, spec: RunSpec, game: Game) -> Table:
        """The table as it would be delivered now."""
        ledger, usable = game.ledger, spec.sources.usable.keys()
        counted = [
            row
            for row in ledger.export()
            if row["state"] in ("answered", "open") and row["labeler"] not in ledger.set_aside
        ]
        people = usable & {str(row["item"]) for row in counted}
        named = {str(row["item"]) for row in counted if row["kind"] in ("label", "none")}
        waits = {str(row["item"]) for row in counted if row["state"] == "open"}
        bought = set(ledger.bought())
        model, share = len(game.corpus.unbought(bought)), spec.settings.promised_share
        assert share is not None
        allowed = allowed_wrong(share, model + len(usable & bought))
        dropped, unlabeled = usable & bought - people, people - named - waits
        return cls(len(people), model, len(dropped), len(unlabeled), allowed)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.people + self.model + self.dropped


class Drawn(NamedTuple):
    """A look whose rows were drawn.

    Attributes:
        number: from 1.
        audit: how many rows of the model.
        sample: how many of people's, of the `frame` of those with one answer each.
        seq: the row of the chain at which they were drawn.
    """

    number: int
    audit: int
    sample: int
    frame: int
    seq: int


def last_drawn(ledger: LedgerReader) -> Drawn | None:
    """The last look whose rows were drawn."""
    rows = [row for row in ledger.rows(only=("settings",)) if "look" in row.payload]
    if not rows:
        return None
    audit, sample, frame = rows[-1].payload["look"]
    return Drawn(len(rows), audit, sample, frame, rows[-1].seq)


def open_look(ledger: LedgerReader) -> Drawn | None:
    """The look that is to be judged: its rows were drawn, or what it is judged by has changed.

    A correction changes its model, a change of the run the share or the budget. No label was bought
    since then.
    """
    look, looked = last_drawn(ledger), looks(ledger)
    if look is None or not looked or looked[-1]["drawn"] != look.number:
        return look
    changed = ledger.accounts.reached != looked[-1]["reached"]
    return look if changed and ledger.accounts.asked == looked[-1]["asked"] else None


def looks(ledger: LedgerReader) -> list[Mapping[str, Any]]:
    """What was found at each look of a promise, in order."""
    return [row.payload for row in ledger.rows(only=("looked",)) if "drawn" in row.payload]


def looked_enough(spec: RunSpec, ledger: LedgerReader) -> bool:
    """Whether no look is drawn: the share is promised, a look is open, or none is left."""
    if spec.settings.promised_share is None:
        return False
    drawn = last_drawn(ledger)
    used_up = drawn is not None and drawn.number >= LOOKS
    return bool(ledger.accounts.reached) or used_up or open_look(ledger) is not None


def next_look(
    spec: RunSpec, game: Game, more: int = 0, *, reach: bool = False, share: float | None = None
) -> Look | None:
    """The look to draw now, with so many `more` labels to buy; None where buying goes on.

    With `reach` it is any that can be paid, now or after more labels. A `share` other than that of
    the rule may be asked about.
    """
    past_looks, stages = looks(game.ledger), linear_trainer(game).stages
    if not stages:
        return None
    factor, rate = 1.0, doubled_of(game.ledger).rate
    for look in {look["drawn"]: look for look in past_looks}.values():
        expected = factor * look["expected"] * look["audit"] / max(1, look["rows"])
        factor *= min(4.0, max(1.0, (look["wrong"] + 1) / (expected + 1)))
    table, left, errors = Table.of(spec, game), game.ledger.accounts.left + more, None
    if spec.settings.several_people:
        errors = of_people(spec, game, rate) / max(1, table.people)
        left = left * 9 // 10  # the rest is for third answers
    allowed = table.allowed if share is None else allowed_wrong(share, table.rows)
    rows = table.people, table.model, allowed - table.dropped - table.unlabeled
    looked = bool(past_looks) and stages[-1].labels <= past_looks[-1]["labels"]
    batch = spec.settings.open_questions
    return look_now(stages, *rows, left, factor, errors, reach=reach, looked=looked, batch=batch)


def unpayable(spec: RunSpec, game: Game) -> bool:
    """Whether no look that may pass can be paid, now or later.

    Early forecasts are poor, so before a first look half of the budget is spent.
    """
    accounts, stages = game.ledger.accounts, linear_trainer(game).stages
    tells = bool(looks(game.ledger)) or 2 * accounts.spent >= accounts.budget
    return tells and len(stages) > 2 and not next_look(spec, game, reach=True)


def first_budgets(spec: RunSpec, share: float, rows: int, accounts: Accounts | None) -> list[int]:
    """The ends of what a promise takes, from a first look on, with what is spent; or none."""
    expected = first_look(share, rows, several=spec.settings.several_people)
    largest = labels_per_item(spec.settings) * rows
    if expected is None or expected > largest:
        return []
    spent = 0
    if accounts is not None:  # the first labels to train on count in what is expected
        spent = accounts.spent - (accounts.asked if accounts.asked < 3 * step_of(rows) else 0)
    return [min(largest, spent + round(factor * expected)) for factor in RANGE]


def of_people(spec: RunSpec, game: Game, rate: float) -> float:
    """How many rows of people with one answer are wrong at a `rate` of errors."""
    return rate * sum(len(answers) == 1 for answers in answers_by_item(spec, game.ledger).values())


def unreachable(spec: RunSpec, game: Game) -> bool:
    """Whether people err so often that the promise takes two answers a row: nothing is bought.

    Only answers to rows that were asked again tell: what a model gets wrong in held-out rows may be
    its own error as well.
    """
    doubled = doubled_of(game.ledger)
    if not spec.settings.several_people or not doubled.answers:
        return False
    return WORTH * of_people(spec, game, doubled.rate) > Table.of(spec, game).allowed


def draw_look(spec: RunSpec, game: Game, look: Look) -> RunSpec:
    """Reserve the answers of a look; the spec with its audit."""
    terms, ledger, further = spec.terms, game.ledger, spec.terms.further
    if spec.settings.several_people:
        further = ledger.accounts.further + AGAIN * look.audit // 2
    new_terms = replace(terms, audits=(*terms.audits, look.audit), further=further)
    new_spec, drawn = replace(spec, terms=new_terms), last_drawn(ledger)
    frame = [item for item, answers in answers_by_item(spec, ledger).items() if len(answers) == 1]
    secret = int(spec.folder.resolved()[SECRET], 16)
    rng = generator(secret, "promise", 0 if drawn is None else drawn.number)
    sample = [frame[place] for place in rng.permutation(len(frame))[: look.sample]]
    with ledger.together():
        payload = {"look": [look.audit, len(sample), len(frame)]}
        ledger.change_settings({"budget_now": Setting(new_terms.as_setting)}, payload)
        next_terms(new_spec, ledger, list(game.corpus.order), first=len(game.corpus.began))
        ledger.reserve(sample, "train")
    give_roles(new_spec, game.corpus, ledger)
    return new_spec


def _sampled(ledger: LedgerReader, look: Drawn) -> set[str | None]:
    """The items of people that a look drew."""
    reserved = ledger.rows(look.seq, only=("reserved",))
    return {row.item for row in reserved if row.purpose == "train" and row.slot == 1}


def unsettled(spec: RunSpec, game: Game) -> list[str]:
    """The sampled items to ask one more person of, as long as the budget pays for it."""
    ledger = game.ledger
    answers, look = answers_by_item(spec, ledger), last_drawn(ledger)
    drawn = set() if look is None else _sampled(ledger, look)
    waits = {row.item for row in ledger.open_purchases()}
    due = [
        item
        for item, verdicts in answers.items()
        if (len(verdicts) > 1 or item in drawn - waits)  # one answer: the second was withdrawn
        and len(verdicts) < MOST
        and settled(verdicts) is None
    ]
    free, _ = free_people(spec, ledger, due)
    return [item for item in due if free[item]][: ledger.accounts.left]


def judged(
    spec: RunSpec, game: Game, audit: Audit, policies: Sequence[Array], look: Drawn
) -> dict[str, Any]:
    """What a look found, and whether it shows the share: the payload of a `looked` row.

    An audited row is wrong where people said anything but its label, or nothing; where several
    people answer, where no two gave it. A sampled row of people is wrong where no two people gave
    its label. What no two people agree on stays wrong in the table, and so do rows that were added
    after the draw, which could not be drawn, and after a class was added all that the model labels.
    `policies` are the probabilities of the labels that the table has in the audited rows
    (`HeadEnding.delivered`).
    """
    ids = [game.corpus.ids[row] for row in audit.rows]
    wrong = sum(
        audit.answers.get(item) != int(np.argmax(policy))
        for item, policy in zip(ids, policies, strict=True)
    )
    table, divided, differ, sample, people_wrong = Table.of(spec, game), 0, 0, 0, 0
    if (second_look := audit.second) is not None:
        unseen = second_look.agreeing - second_look.sampled  # nobody was left to ask, or no money
        divided = second_look.differing_open + second_look.sampled_open + unseen
        wrong = second_look.n - second_look.agreeing - second_look.model_right
        wrong += second_look.wrong + second_look.sampled_open + unseen
    elif spec.settings.several_people:  # nobody answered a row again: nothing is known to be right
        wrong = divided = len(ids)
    if spec.settings.several_people:
        drawn = _sampled(game.ledger, look)
        answers = answers_by_item(spec, game.ledger)
        sample = len(drawn)
        right = sum(settled(words) == words[0] for item, words in answers.items() if item in drawn)
        differ = sample - right
        people_wrong = left_wrong(differ, sample, look.frame, PEOPLE)
        asked_again = {item for item, words in answers.items() if len(words) > 1} | drawn
        divided += sum(settled(answers.get(str(item), [])) is None for item in asked_again)
    added, classes = game.ledger.added(look.seq)
    added = table.model if classes else min(added, table.model)  # any may be of a new class
    rows = table.model + len(ids) - added
    wrong_left = left_wrong(wrong, len(ids), rows, MODEL) + people_wrong
    wrong_left += divided + table.dropped + table.unlabeled + added
    return {
        "asked": game.ledger.accounts.asked,
        "reached": wrong_left <= table.allowed,
        **{"drawn": look.number, "audit": len(ids), "wrong": wrong, "rows": rows},
        **{"sample": sample, "differ": differ, "left": wrong_left, "of": table.rows},
        "after": added,
        "expected": float(linear_trainer(game).stages[-1].expected),
    }


def expect_promise(settings: Settings, *, owned: bool) -> None:
    """Check that a run can keep the rule, which may have `owned` labels.

    Raises:
        SettingsError: it cannot.
    """
    if len(settings.people) == 2:
        raise SettingsError(
            "stop_when with right=R expected one annotator, or three or more, and got two: a row on"
            " which two people differ stays open, and counts as wrong. Name a third annotator, or"
            " one, whose answers the promise is then about"
        )
    clashes = {
        "mode=stream": settings.mode != "pool",
        "a language model": settings.adapts,
        "refit=false": not settings.refit,
        "class_names=false": not settings.class_names and settings.column is None,
        "labels that you have (--owned), which nobody checks": owned,
    }
    if clash_names := [name for name, clash in clashes.items() if clash]:
        raise SettingsError(
            "stop_when with right=R looks at the rows that a linear model of a pool labels, which"
            f" does not go with {clash_names[0]}: leave one of them out"
        )
