"""`stacksl answer` and `stacksl release`: labels from people, by file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import live
from stacksl.cli.printing import as_json, count, facts, visible
from stacksl.cli.running import shown_run
from stacksl.errors import SettingsError
from stacksl.report.wording import plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.runs.answering import Received

__all__ = ["answer", "release"]

WORDS = {
    "label": "with an option",
    "none": "none of these",
    "ambiguous": "ambiguous",
    "broken": "broken",
}


def answer(
    run: options.RunFolder,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Sheets that were filled in, wholly or in part."),
    ],
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Take answers from filled-in sheets, learn from them, and write the next sheet.

    Sheets may come late, in part, twice, or contradict each other: every answer is paid for once,
    and nothing that was accepted is lost. A cell that is not understood is named with its file,
    row and column, the rest is taken all the same, and the exit code is 2.
    """
    from stacksl.api import Run

    opened = Run.open(run)
    with live(quiet=quiet) as show:
        received = opened.answer(*files, progress=show)
    for line in received.faults:
        print(visible(line), file=sys.stderr)
    print(as_json(_answered(opened, received)) if json else _shown(opened, received))
    if received.faults:
        raise typer.Exit(2)


def release(
    run: options.RunFolder,
    annotator: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the rows of this annotator.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only this row; may be repeated.")
    ] = None,
    drop: Annotated[
        bool,
        typer.Option("--drop", help="Buy other items instead of handing these rows out again."),
    ] = False,
    away: Annotated[
        bool, typer.Option("--away", help="Give the annotator no new rows either.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="The annotator is there again: free nothing.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Free rows that were handed out and will not be answered, and hand them out anew.

    An answer that still comes on an old sheet counts, as long as nobody else has given one. Rows
    that measure the model are handed out again even with --drop.
    """
    from stacksl.api import Run

    opened = Run.open(run)
    if back:
        _welcome(opened, annotator, free=bool(key or drop or away))
        result = {"run": str(run), "released": 0, "sheets": _sheets(opened)}
        print(as_json(result) if json else f"{annotator} gets rows again, from the next sheets on")
        return
    with live(quiet=quiet) as show:
        freed = opened.release(
            annotator=annotator, keys=key or [], drop=drop, away=away, progress=show
        )
    result = {"run": str(run), "released": freed, "sheets": _sheets(opened)}
    print(as_json(result) if json else f"{plural(freed, 'row')} freed\n\n{shown_run(opened)}")


def _welcome(run: Run, annotator: str | None, *, free: bool) -> None:
    if annotator is None or free:
        raise SettingsError("--back goes with --annotator NAME alone: it frees nothing")
    run.welcome(annotator)


def _answered(run: Run, received: Received) -> dict[str, Any]:
    right, total = received.predicted
    return {
        **run.status(),
        "accepted": received.accepted,
        "repeated": received.repeated,
        "disputed": received.disputed,
        "empty": received.empty,
        "faults": list(received.faults),
        "predicted": {"right": right, "of": total},
    }


def _sheets(run: Run) -> list[dict[str, Any]]:
    return list(run.status()["sheets"] or [])


def _shown(run: Run, received: Received) -> str:
    right, total = received.predicted
    said = [f"{count(n)} {WORDS[name]}" for name, n in received.accepted.items() if n]
    lines = facts(
        [
            ("Accepted", ", ".join(said) or "none that is new"),
            ("Came before", count(received.repeated) if received.repeated else None),
            (
                "Contradict or late",
                f"{count(received.disputed)}, kept but not paid" if received.disputed else None,
            ),
            ("Not understood", count(len(received.faults)) if received.faults else None),
            ("Still empty", count(received.empty) if received.empty else None),
            ("Predicted before", f"{right} of {total} right" if total else None),
        ]
    )
    return f"{lines}\n\n{shown_run(run)}"
