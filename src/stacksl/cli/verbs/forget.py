"""`stacksl forget`: erase one item of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, facts

if TYPE_CHECKING:
    from stacksl.runs.changes.forgetting import Forgotten

SHOWN = 5  # untouched files named on the screen

Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        show_default=False,
        help="The item's id in the data; not needed to finish an interrupted call.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE", help="Where the data is now, if it was moved."),
]


def forget(
    run: options.RunFolder,
    id: Id = None,
    data: Data = None,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Erase one item everywhere in a run: text, id, notes, features, sheets and reports.

    The data file is yours and stays as it is: delete the row there, and `resume` still works. What
    was learnt from the item stays in the models, which are named; the ledger's chain still
    verifies, and `ledger replay` names the rounds it can no longer rebuild. After an interrupted
    call every other command refuses the run until `stacksl forget RUN` has finished it.
    """
    from stacksl.runs.changes import forgetting

    result = forgetting.forget(run, id, data=data)
    print(as_json({"run": run, **asdict(result)}) if json else _shown(result))


def _shown(result: Forgotten) -> str:
    seen = "in no round" if result.round is None else f"in round {result.round:,}"
    learnt = ", and its label was learnt" if result.learnt else ""
    rewritten = ", ".join(("run.db", "features/", *result.changed))
    alike = f"{result.alike:,} other items have the same text" if result.alike else None
    return facts(
        [
            ("Forgotten", f"it was seen {seen}{learnt}; its place is named {result.name}"),
            ("Rewritten", rewritten),
            *(("Model", sentence) for sentence in result.models),
            ("Alike", alike),
            ("Not touched", _untouched(result.untouched)),
            *(("Yours", sentence) for sentence in result.yours),
        ]
    )


def _untouched(files: Sequence[str]) -> str | None:
    if not files:
        return None
    more = len(files) - SHOWN
    named = ", ".join(files[:SHOWN]) + (
        f" and {more:,} more (--json lists all)" if more > 0 else ""
    )
    return f"{named}: they hold the item or cannot be searched for it, clean them yourself"
