"""`stacksl forget`: one item out of a run, wherever it is kept."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, facts

if TYPE_CHECKING:
    from stacksl.runs.forgetting import Forgotten

__all__ = ["forget"]

Id = Annotated[
    str, typer.Option("--id", metavar="ID", show_default=False, help="The item's id in the data.")
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE", help="Where the data lies now, if it was moved."),
]


def forget(
    run: options.RunFolder,
    id: Id,
    data: Data = None,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Erase one item everywhere in a run: text, id, notes, features, sheets and reports.

    The data file is yours and stays as it is: delete the row there, and `resume` still works. What
    was learnt from the item stays in the models, which are named; the ledger's chain still
    verifies, and `ledger replay` names the rounds it can no longer rebuild.
    """
    from stacksl.runs.forgetting import forget as erase

    result = erase(run, id, data=data)
    print(as_json({"run": run, **asdict(result)}) if json else _shown(result))


def _shown(result: Forgotten) -> str:
    seen = "in no round" if result.round is None else f"in round {result.round:,}"
    learnt = ", and its label was learnt" if result.learnt else ""
    rewritten = ", ".join(("ledger.db", "features/", *result.changed))
    alike = f"{result.alike:,} other items have the very same text" if result.alike else None
    return facts(
        [
            ("Forgotten", f"it was seen {seen}{learnt}; its place goes by {result.name}"),
            ("Rewritten", rewritten),
            *(("Model", sentence) for sentence in result.models),
            ("Alike", alike),
            *(("Yours", sentence) for sentence in result.yours),
        ]
    )
