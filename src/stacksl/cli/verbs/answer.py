"""`stacksl answer`: labels from people, by file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stacksl.cli import options
from stacksl.cli.live import live, tracked
from stacksl.cli.printing import as_json, facts, visible
from stacksl.cli.verbs.run import is_interactive, shown_run
from stacksl.errors import SettingsError
from stacksl.report.wording import count, plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.runs.changes.people import Correction, Received

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
        typer.Argument(
            metavar="FILE...", help="Sheets that people filled in, completely or in part."
        ),
    ],
    correct: Annotated[
        bool,
        typer.Option("--correct", help="Replace accepted answers by different ones in the sheets."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before accepted answers are replaced.")
    ] = False,
    report_to: options.ReportTo = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Read answers from filled-in sheets, learn from them, and write the next sheet.

    Sheets may arrive late, partially, twice, or contradict each other: you pay for each label once,
    and nothing that was accepted is lost. If a cell cannot be read, the command names its file, row
    and column, enters all other cells, and ends with exit code 2.

    With --correct the command lists the accepted answers that differ, old and new, and replaces
    them when you confirm. Nothing is paid for again. People can correct only their own rows.

    Read the sheet that a colleague filled in:
        stacksl answer runs/first sheets/0001.xlsx
    Read several sheets, with the result as JSON:
        stacksl answer runs/first 0001-anna.xlsx 0001-ben.xlsx --json
    """
    opened = options.open_run(run)
    agreed = _agreed(opened.corrections(*files), yes) if correct else None
    with live(quiet=quiet) as bar, tracked(report_to, run, bar) as progress:
        received = opened.answer(*files, correct=agreed, progress=progress)
    for line in received.faults:
        print(visible(line), file=sys.stderr)
    counted = asdict(received)
    result = {**counted.pop("status"), **counted}
    print(as_json(result) if json else _summary(opened, received))
    if received.faults:
        raise typer.Exit(2)


def _agreed(corrections: list[Correction], yes: bool) -> list[Correction]:
    """The corrections, after they were listed and consented to.

    Raises:
        SettingsError: nobody can be asked.
        typer.Abort: if the answer is no.
    """
    for correction in corrections:
        replaced = f"{correction.before} -> {correction.after}"
        print(visible(f"{correction.key}, {correction.annotator}: {replaced}"), file=sys.stderr)
    if corrections and not yes:
        if not is_interactive():
            raise SettingsError(
                f"{plural(len(corrections), 'accepted answer')} would be replaced, and there is no"
                " terminal to ask on: add --yes, or leave --correct out"
            )
        typer.confirm("Replace them?", abort=True, err=True)
    return corrections


def _summary(run: Run, received: Received) -> str:
    accepted = [
        f"{count(n)} {words}" for kind, words in WORDS.items() if (n := received.accepted.get(kind))
    ]

    def some(n: int, note: str = "") -> str | None:
        return f"{count(n)}{note}" if n else None

    late = ", kept but not paid: somebody else answered the row, or the row is no longer asked"
    lines = facts(
        [
            ("Accepted", ", ".join(accepted) or "none that is new"),
            ("Corrected", some(received.corrected)),
            ("Repeated", some(received.repeated)),
            ("Contradict", some(received.disputed, ", kept but not paid (--correct replaces)")),
            ("Late", some(received.late, late)),
            ("Not readable", some(len(received.faults))),
            ("Still empty", some(received.empty)),
        ]
    )
    return f"{lines}\n\n{shown_run(run, received.status)}"


VERBS = (answer,)
