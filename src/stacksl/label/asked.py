"""What its owner reads of a finished run: why rows were asked, and what model and people said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
class History:
    """The items asked, as the page shows them, in the order of asking."""

    asked: Sequence[dict[str, Any]] = ()
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
        first = (number - 1) * PAGE
        some = self.asked[first : first + PAGE]
        return [{"number": place, **each} for place, each in enumerate(some, first + 1)]


def _asked(item: Item, purpose: str, decision: Decision | None = None) -> dict[str, Any]:
    """An item that was asked: why, and the model's choice before; the answers follow in `words`."""
    long = len(item.prompt) > EXCERPT
    return {
        "item": item.id,
        "prompt": item.prompt[:EXCERPT] + ("…" if long else ""),
        "why": _WHY.get(purpose, purpose) if decision is None else _why(decision),
        "before": "" if decision is None else item.candidates[decision.choice],
        "sure": None if decision is None else decision.probability,
        "words": [],
    }


def _why(decision: Decision) -> str:
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
    found: dict[str, dict[str, Any]] = {}
    for row in ledger.rows():
        id = str(row.item)
        if row.item is None or not usable[corpus.row[id]] or row.purpose == "owned":
            continue
        item = corpus.items[corpus.row[id]]
        if row.event == "round":
            decision = row.decision()
            if decision.asked:
                found[id] = _asked(item, "train", decision)
        elif row.event == "reserved":
            found.setdefault(id, _asked(item, str(row.purpose)))
        elif row.event in ("answered", "late", "corrected"):
            word = row.payload["index" if "index" in row.payload else "said"]
            said = item.candidates[word] if isinstance(word, int) else word
            kind = _KIND.get(row.event, "")
            found[id]["words"].append((str(row.labeler), said, kind, ledger.remarks(row)))
        elif row.event == "released" and (remarks := ledger.remarks(row)):
            found[id]["words"].append(("", str(row.payload["reason"]), "", remarks))
    return History(list(found.values()), session.spec.folder, ledger.head)
