"""A class that is added in the middle of a run: what it takes to go on with one more.

`classes.csv` in the run's folder has the classes, the ledger's `class_added` rows say since when.
Everything else follows from the rows: replayed, they widen the learner where it was widened first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stacksl.ledger.queries import LedgerReader
from stacksl.runs.loop.game import Game
from stacksl.runs.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Named:
    """An accepted none-of-these whose right text names a class: its `index`, and who said so."""

    item: str
    slot: int
    index: int
    labeler: str
    purpose: str


def in_common(text: str) -> str:
    """A name as it is compared: whatever its case, and with single spaces.

    >>> in_common("  Lost\\n CARD ")
    'lost card'
    """
    return " ".join(text.split()).casefold()


def named(ledger: LedgerReader, classes: Mapping[str, int]) -> list[Named]:
    """The accepted none-of-these that name one of the `classes`: name in common form, to index.

    A right text that came behind its answer counts as well; of several the first that names one.
    """
    stands = {
        (str(row["item"]), row["slot"]): str(row["purpose"])
        for row in ledger.export()
        if row["state"] == "answered" and row["said"] == "none"
    }
    found: dict[tuple[str, int], Named] = {}
    for answer in ledger.texts() if stands else ():
        key = (answer.item, answer.slot)
        index = classes.get(in_common(answer.text or ""))
        if key in stands and answer.said == "none" and index is not None:
            one = Named(*key, index, answer.labeler, stands[key])
            found.setdefault(key, one)
    return list(found.values())


def answered_none(ledger: LedgerReader, *, anew: bool) -> list[str]:
    """The items to train on that nobody named a candidate for, and that were answered with none.

    Items that are open, or that were asked for once more since the last class was added, are not
    among them; `anew` counts a class that is still to be added.
    """
    asked, last = _asked_at(ledger)
    groups: dict[str, list[Mapping[str, object]]] = {}
    for row in ledger.export():
        if row["purpose"] == "train" and row["item"] in asked:
            groups.setdefault(str(row["item"]), []).append(row)
    return [
        item
        for item, rows in groups.items()
        if (anew or asked[item] < last)
        and any(row["said"] == "none" for row in rows)
        and not any(row["state"] == "open" or row["answer"] is not None for row in rows)
    ]


def _asked_at(ledger: LedgerReader) -> tuple[dict[str, int], int]:
    """The ledger's row of each item's last lease, and that of the last class; none forgotten."""
    asked: dict[str, int] = {}
    last = 0
    for row in ledger.rows():
        if row.event == "class_added":
            last = row.seq
        elif row.event == "reserved" and not row.forgotten:
            asked[str(row.item)] = row.seq
    return asked, last


def learn_named(spec: RunSpec, game: Game) -> None:
    """Learn the answers that name a class which was added: old sheets do not offer it."""
    if spec.sources.began is None:
        return
    for each in named(game.ledger, added_classes(spec)):
        lesson = game.ledger.correct(each.item, each.index, each.labeler, slot=each.slot)
        if lesson is not None:
            game.teach(*lesson)


def added_classes(spec: RunSpec) -> dict[str, int]:
    """The classes that were added, in common form, with their indices."""
    began, classes = spec.sources.began, spec.dataset.classes or ()
    if began is None:
        return {}
    return {in_common(name): n for n, name in enumerate(classes) if n >= len(began)}


def widen_to(count: int, game: Game) -> None:
    """Let a game have the classes there were after the ledger's first `count` rows."""
    rows = game.ledger.rows()
    sizes = [row.payload["size"] for row in rows if row.event == "class_added" and row.seq <= count]
    if sizes:
        game.trainer.widen(int(sizes[-1]))
