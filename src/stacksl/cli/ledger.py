"""`stacksl ledger`: what was asked, who answered, what it cost, and whether it can be trusted."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from typing import Any

from stacksl.cli import options
from stacksl.cli.printing import as_json, count, facts

__all__ = ["export", "path", "replay", "verify"]

COLUMNS = ("item", "slot", "state", "answer", "said", "learnt_at", "price", "labeler", "purpose")


def path(run: options.RunFolder, json: options.Json = False, debug: options.Debug = False) -> None:
    """Where a run's ledger lies."""
    from stacksl.runs.folder import RunFolder

    where = RunFolder.open(run).ledger
    print(as_json({"run": run, "ledger": where}) if json else where)


def verify(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Check that no row of the ledger was edited and no tail cut off.

    Every row carries the hash of the one before, and every checkpoint the ledger's length and last
    hash. Whoever rewrites ledger and checkpoints together is not found.
    """
    from stacksl.api import Run
    from stacksl.labels.purchases import Head
    from stacksl.runs.checkpoints import heads

    opened = Run.open(run)
    marks = heads(opened.folder.checkpoints)
    with opened.ledger as ledger:
        ledger.verify(Head(*mark) for mark in marks)
        rows, tip = ledger.head
    result = {"run": run, "rows": rows, "tip": tip, "checkpoints": len(marks)}
    agree = "1 checkpoint agrees" if len(marks) == 1 else f"{count(len(marks))} checkpoints agree"
    said = f"the ledger is whole: {count(rows)} rows, and {agree}"
    print(as_json(result) if json else said)


def export(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Print one row a purchase: CSV, or with --json one JSON object a line."""
    from stacksl.api import Run

    with Run.open(run).ledger as ledger:
        rows = ledger.export()
    if json:
        for row in rows:
            print(as_json(row))
        return
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def replay(
    run: options.RunFolder, json: options.Json = False, debug: options.Debug = False
) -> None:
    """Rebuild the learner from the ledger alone and compare it with the one that was saved."""
    from stacksl.api import Run

    result = Run.open(run).replay()
    print(as_json(result) if json else _replayed(result))


def _replayed(result: Mapping[str, Any]) -> str:
    lost = [
        count(first) if first == last else f"{count(first)} to {count(last)}"
        for first, last in result.get("lost_rounds", ())
    ]
    shown = [(name.capitalize(), count(result[name])) for name in ("rows", "rounds", "labels")]
    why = f"{', '.join(lost)} (an item was forgotten)" if lost else None
    return facts([*shown, ("Rounds not computed again", why)])
