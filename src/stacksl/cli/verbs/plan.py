"""`stacksl plan`: the accuracy to expect from more labels, before a run and during it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, count, dollars, facts, share, table


@options.takes("features", "price", "classes", *options.READING)
def plan(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA|RUN",
            show_default=False,
            help="A file of items, or a run's folder; without one, the built-in sample.",
        ),
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The accuracy to expect at 100, 200, 500 and 1,000 labels, with 90 % intervals, and its price.

    For a file it rests on runs on public sets, for a run on its training labels. The audit is
    never read.
    """
    from stacksl.api.forecasting import plan as planned
    from stacksl.runs.settings.resolve import resolve

    found = planned(source, resolve({"budget": "all", **context.obj}))
    print(as_json(found) if json else _shown(found))


def _shown(found: dict[str, Any]) -> str:
    lines = []
    if found["expected"]:
        header = ["Labels", "To buy", "Accuracy", "90 % interval"]
        priced = found["expected"][0]["cost"] is not None
        rows = [
            [count(row["labels"]), count(row["more"]), share(row["accuracy"]), _between(row)]
            + ([dollars(round(row["cost"] * 1_000_000))] if priced else [])
            for row in found["expected"]
        ]
        lines.append(table(header + (["Cost"] if priced else []), rows))
    now = found["now"]
    about: list[tuple[str, object]] = [
        ("Labels learnt", count(found["labels"]) if found["labels"] else None),
        ("Accuracy now", now and f"{share(now['accuracy'])} ({_between(now)})"),
        ("Rests on", found["rests_on"] or None),
        ("Not estimated", found["reason"] or None),
    ]
    return "\n\n".join(each for each in (*lines, facts(about)) if each)


def _between(row: dict[str, Any]) -> str:
    return f"{row['low']:.2f} to {row['high']:.2f}"
