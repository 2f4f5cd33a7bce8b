"""Classes that are added during a run.

The table `classes` of the run's database has the classes; a `class_added` row of the ledger notes
when each was added. A replay of those rows widens the learner at the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stacksl.data.values import normal
from stacksl.ledger.purchases import Answer
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.loop.game import Game
from stacksl.runs.spec import RunSpec


def answers_that_name(ledger: LedgerReader, classes: Mapping[str, int]) -> list[tuple[str, Answer]]:
    """The accepted none-of-these that name one of the `classes`: `normal` name, to index.

    Each has the index of that class, and comes after its purpose. A right text given after its
    answer counts as well; of several, the first that names a class.
    """
    purposes = {
        (str(row["item"]), row["slot"]): str(row["purpose"])
        for row in ledger.export()
        if row["state"] == "answered" and row["kind"] == "none"
    }
    named_items: dict[tuple[str, int], tuple[str, Answer]] = {}
    for answer in ledger.texts() if purposes else ():
        key = (answer.item, answer.slot)
        index = classes.get(normal(answer.text or ""))
        if key in purposes and answer.kind == "none" and index is not None:
            named_items.setdefault(key, (purposes[key], replace(answer, index=index)))
    return list(named_items.values())


def answered_none(spec: RunSpec, ledger: LedgerReader, *, adding: bool = False) -> list[str]:
    """Items answered with none of the classes and with no candidate.

    So are audited ones, or counts would tell them; but a promise's looks stand as they were judged.
    Items that are not usable, that are open, or that were asked again since the last class was
    added, are left out; with `adding` a class that is still to be added counts as the last one.
    """
    promised = spec.settings.promised_share is not None
    purposes = ("train",) if promised else ("train", "audit")
    last_row: dict[str | None, int] = {}  # of each item's last lease; of the last class, under None
    for row in ledger.rows(only=("reserved", "class_added")):
        last_row[row.item] = row.seq
    groups: dict[str, list[Mapping[str, object]]] = {}
    for purchase in ledger.export():
        if purchase["purpose"] in purposes and purchase["item"] in spec.sources.usable:
            groups.setdefault(str(purchase["item"]), []).append(purchase)
    return [
        item
        for item, rows in groups.items()
        if (adding or last_row[item] < last_row.get(None, 0))
        and any(row["kind"] == "none" for row in rows)
        and not any(row["state"] == "open" or row["answer"] is not None for row in rows)
    ]


def learn_named(spec: RunSpec, game: Game, *, audit: bool = False) -> None:
    """Learn the answers that name an added class, which older sheets do not offer.

    Those of an audit are corrected at the end of the run, so that no count of rows shows them.
    """
    if spec.sources.began is None:
        return
    for purpose, answer in answers_that_name(game.ledger, added_classes(spec)):
        if (purpose == "audit") != audit:
            continue
        old_label = game.ledger.label_of(answer.item)
        example = game.ledger.correct(
            answer.item, answer.index, answer.labeler, slot=answer.slot, named=True
        )
        new_label = game.ledger.label_of(answer.item)
        if example is not None:
            game.apply_label(*example)
        elif new_label != old_label:
            game.examples.relabel(answer.item, new_label)


def added_classes(spec: RunSpec) -> dict[str, int]:
    """The `normal` names of the added classes, with their indices."""
    classes = spec.dataset.classes or ()
    first_count = len(spec.sources.began or classes)
    return {normal(name): n for n, name in enumerate(classes) if n >= first_count}
