"""`stacksl answer` and `stacksl people`: labels from people, by file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import live
from stacksl.cli.printing import as_json, count, facts, table, visible
from stacksl.cli.verbs.run import shown_run
from stacksl.report.wording import plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.runs.session.answering import Received

EVERYBODY = ""  # the value of --free without a name

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
    """Read answers from filled-in sheets, learn from them, and write the next sheet.

    Sheets may come late, in part, twice, or contradict each other: every answer is paid for once,
    and nothing that was accepted is lost. A cell that cannot be read is named with its file, row
    and column, all other cells are entered, and the exit code is 2.
    """
    from stacksl.api import Run

    opened = Run.open(run)
    with live(quiet=quiet) as show:
        received = opened.answer(*files, progress=show)
    for line in received.faults:
        print(visible(line), file=sys.stderr)
    print(as_json(_answered(received)) if json else _shown(opened, received))
    if received.faults:
        raise typer.Exit(2)


def people(
    run: options.RunFolder,
    away: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Give NAME no rows until --back, and free those open."),
    ] = None,
    back: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="NAME gets rows again.")
    ] = None,
    free: Annotated[
        str | None,
        typer.Option(metavar="[NAME]", help="Free all open rows, or those of NAME."),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Free only this row; may be repeated.")
    ] = None,
    drop: Annotated[
        bool,
        typer.Option("--drop", help="Buy other items instead of assigning freed rows again."),
    ] = False,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """List annotators with their open and answered rows; free rows for others to answer.

    Freed rows are assigned again. An answer that still arrives on an old sheet counts, unless
    another one was given before. Rows that measure the model are assigned again even with --drop.
    """
    from stacksl.api import Run

    opened = Run.open(run)
    freed = None
    if away or back or free is not None or key or drop:
        with live(quiet=quiet) as show:
            freed = opened.people(
                away=away or (), back=back or (), free=free == EVERYBODY or free or False,
                keys=key or (), drop=drop, progress=show,
            )  # fmt: skip
    if json:
        result = {"run": str(run), "released": freed or 0, "sheets": _sheets(opened)}
        print(as_json({**result, "people": [asdict(each) for each in opened.annotators()]}))
    elif freed:
        print(f"{plural(freed, 'row')} freed\n\n{shown_run(opened)}")
    else:
        print(_listed(opened))


def _listed(run: Run) -> str:
    who = run.annotators()
    cells = [(each.name, each.open, each.answered, "away" if each.away else None) for each in who]
    return table(("Who", "Open", "Answered", ""), cells)


def _answered(received: Received) -> dict[str, Any]:
    return {
        **received.status,
        "accepted": received.accepted,
        "repeated": received.repeated,
        "disputed": received.disputed,
        "late": received.late,
        "empty": received.empty,
        "faults": list(received.faults),
    }


def _sheets(run: Run) -> list[dict[str, Any]]:
    return list(run.status()["sheets"] or [])


def _shown(run: Run, received: Received) -> str:
    said = [f"{count(n)} {WORDS[name]}" for name, n in received.accepted.items() if n]
    lines = facts(
        [
            ("Accepted", ", ".join(said) or "none that is new"),
            ("Repeated", count(received.repeated) if received.repeated else None),
            (
                "Contradict",
                f"{count(received.disputed)}, kept but not paid: the first answer counts"
                if received.disputed
                else None,
            ),
            (
                "Late",
                f"{count(received.late)}, kept but not paid: somebody else answered the row, or"
                " it was dropped"
                if received.late
                else None,
            ),
            ("Not readable", count(len(received.faults)) if received.faults else None),
            ("Still empty", count(received.empty) if received.empty else None),
        ]
    )
    return f"{lines}\n\n{shown_run(run, received.status)}"
