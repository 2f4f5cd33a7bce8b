"""What its owner reads of a finished run: why rows were asked, and what model and people said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stacksl.ledger.purchases import Head
from stacksl.ledger.store.database import opened
from stacksl.runs.session.session import Session
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Decision, Item

PAGE = 50  # rows on a page
EXCERPT = 600  # characters of a prompt

_WHY = {
    "gate": "the gate asked",
    "must": "as many labels were left as items",
    "rank": "in doubt",
    "coverage": "covers items in doubt",
    "class": "for a class with few labels",
    "order": "first batch, in the order of the items",
    "drawn": "drawn at random",
    "audit": "audit, drawn at random",
}
_KIND = {"late": "not counted", "corrected": "correction"}


@dataclass(frozen=True, slots=True)
class Word:
    """What one person said of an item: the content, what kind of row has it, and free texts."""

    who: str
    word: int | str
    event: str
    texts: tuple[str, ...] = ()


@dataclass(slots=True)
class Asked:
    """One item that was asked: its row in the data, why, the model's choice before, the answers."""

    row: int
    purpose: str
    decision: Decision | None = None
    words: list[Word] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class History:
    """The items asked, in the order of asking."""

    items: Sequence[Item] = ()
    asked: Sequence[Asked] = ()
    folder: RunFolder | None = None
    head: Head | None = None

    @property
    def stale(self) -> bool:
        """Whether the run has changed since."""
        if self.folder is None:
            return False
        with opened(self.folder.database, readonly=True) as store:
            return store.tail() != self.head

    @property
    def pages(self) -> int:
        """How many pages there are; at least one."""
        return max(1, -(-len(self.asked) // PAGE))

    def page(self, number: int) -> list[dict[str, Any]]:
        """What a page shows, by its number from 1; nothing beyond the last."""
        some = self.asked[(number - 1) * PAGE : number * PAGE]
        first = (number - 1) * PAGE + 1
        return [{"number": first + n, **self._shown(each)} for n, each in enumerate(some)]

    def _shown(self, asked: Asked) -> dict[str, Any]:
        item, decision = self.items[asked.row], asked.decision
        long = len(item.prompt) > EXCERPT
        return {
            "item": item.id,
            "prompt": item.prompt[:EXCERPT] + ("…" if long else ""),
            "why": _why(asked),
            "before": "" if decision is None else item.candidates[decision.choice],
            "sure": None if decision is None else decision.probability,
            "words": [
                (
                    each.who,
                    item.candidates[each.word] if isinstance(each.word, int) else each.word,
                    _KIND.get(each.event, ""),
                    each.texts,
                )
                for each in asked.words
            ],
        }


def _why(asked: Asked) -> str:
    decision = asked.decision
    if decision is None:
        return _WHY.get(asked.purpose, asked.purpose)
    why = _WHY.get(decision.reason, decision.reason)
    if math.isinf(decision.threshold):
        return why
    if decision.reason == "coverage":
        return f"{why}: gain {decision.statistic:.3g}, best left out {decision.threshold:.3g}"
    if decision.reason not in ("gate", "rank"):
        return why
    return f"{why}: {decision.statistic:.3g} above {decision.threshold:.3g}"


def history_of(session: Session) -> History:
    """All usable items that were asked in a run; owned labels were not asked."""
    corpus, ledger, usable = session.corpus, session.ledger, session.corpus.usable
    found: dict[str, Asked] = {}
    for row in ledger.rows():
        item = str(row.item)
        if row.item is None or not usable[corpus.row[item]] or row.purpose == "owned":
            continue
        if row.event == "round":
            decision = row.decision()
            if decision.asked:
                found[item] = Asked(corpus.row[item], "train", decision)
        elif row.event == "reserved":
            found.setdefault(item, Asked(corpus.row[item], str(row.purpose)))
        elif row.event in ("answered", "late", "corrected"):
            said = row.payload["index" if "index" in row.payload else "said"]
            word = Word(str(row.labeler), said, row.event, ledger.remarks(row))
            found[item].words.append(word)
        elif row.event == "released" and (remarks := ledger.remarks(row)):
            found[item].words.append(Word("", str(row.payload["reason"]), row.event, remarks))
    return History(corpus.items, list(found.values()), session.spec.folder, ledger.head)
