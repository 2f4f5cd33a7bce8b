"""`stacksl forget`: erase one item of a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, facts

if TYPE_CHECKING:
    from stacksl.runs.changes.forgetting import Forgotten

Id = Annotated[str, typer.Option("--id", metavar="ID", help="The item's id in the data.")]


def forget(
    run: options.RunFolder,
    id: Id,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Erase one item everywhere in a run: text, id, notes, features, sheets and reports.

    The model and the report are deleted, and `stacksl resume` makes them again without the item.
    What was learnt from it during the run stays and is named; the ledger's chain still verifies,
    and `ledger replay` plays the run from the arrays of that moment on. What an interrupted call
    has left to do is done first by the next command on the run.
    """
    from stacksl.runs.changes import forgetting

    result = forgetting.forget(run, id)
    print(as_json({"run": run, **asdict(result)}) if json else _shown(result))


def _shown(result: Forgotten) -> str:
    learnt = "its label was learnt" if result.learnt else "no label of it was learnt"
    again = "`stacksl resume` makes them again without it, `stacksl refit` one with the audit"
    return facts(
        [
            ("Forgotten", f"{learnt}; its place is named {result.name}"),
            ("Deleted", f"the model and the report; {again}"),
            *(("Remains", sentence) for sentence in result.remains),
        ]
    )
