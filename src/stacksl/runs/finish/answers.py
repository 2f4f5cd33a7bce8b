"""What was said to what was asked, as the report counts it, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from stacksl.ledger.ledger import Ledger
from stacksl.models.metrics import cohen_kappa
from stacksl.report.asking import Agreement, Asking, BudgetChange, Cost
from stacksl.runs.finish.rounds import Change

__all__ = ["asking_of"]


def asking_of(
    ledger: Ledger,
    changes: Iterable[Change] = (),
    added: Iterable[tuple[int, int]] = (),
    *,
    priced: bool,
) -> Asking:
    """What annotators said, at what cost; money only where a price was given.

    `changes` of the budget and classes `added` are as a `Chronicle` has them.
    """
    said = ledger.said()
    return Asking(
        labels=said["label"],
        none_of_these=said["none"],
        ambiguous=said["ambiguous"],
        broken=said["broken"],
        disputes=len(ledger.disputes()),
        agreement=_agreement(ledger),
        costs=_costs(ledger, priced),
        changes=tuple(BudgetChange(*change) for change in changes),
        added=tuple(added),
    )


def _agreement(ledger: Ledger) -> Agreement | None:
    pairs = [(one.word, other.word) for one, other in ledger.agreement()]
    if not pairs:
        return None
    agreed = sum(one == other for one, other in pairs)
    return Agreement(len(pairs), agreed, cohen_kappa(pairs))


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
