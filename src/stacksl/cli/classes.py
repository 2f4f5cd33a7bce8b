"""`stacksl classes`: one more class in the middle of a run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import live
from stacksl.cli.printing import as_json, count, dollars
from stacksl.cli.running import shown_run
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.runs.adding import Prospect

__all__ = ["classes"]

Name = Annotated[
    str | None, typer.Option("--add", metavar="NAME", help="The class, as people are to read it.")
]
Description = Annotated[
    str, typer.Option("--description", metavar="D", show_default=False, help="What it means.")
]
Reopen = Annotated[
    bool, typer.Option("--reopen", help="Buy labels anew where the answer was none of these.")
]


def classes(
    run: options.RunFolder,
    add: Name = None,
    description: Description = "",
    reopen: Reopen = False,
    yes: options.Yes = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Add a class to a run that has begun, and go on with it.

    Answers of none of these whose right text names the class are learnt as it, and cost nothing.
    The others were given without it: with --reopen one more label of each of their items is
    bought, after the price was shown. Sheets that are out keep the options they were written with;
    on those the class can be named as `[none]: NAME`.
    """
    from stacksl.api import Run
    from stacksl.runs.adding import prospect

    if add is None and not reopen:
        raise SettingsError(
            "what is to be done with the classes? --add NAME adds one, --reopen asks once more for"
            " the items that were answered with none of these"
        )
    opened = Run.open(run)
    again: tuple[str, ...] = ()
    if reopen:
        offered = prospect(opened.folder, add)
        _agree(offered, yes)
        again = offered.again
    with live(quiet=quiet) as show:
        found = (
            opened.ask_again(agreed=again, progress=show)
            if add is None
            else opened.add_class(
                add, description=description, reopen=again if reopen else False, progress=show
            )
        )
    if opened.status()["state"] != "finished":
        found = replace(found, measured=0)  # what an audit's answers say is told at the end
    if json:
        print(as_json({**opened.status(), **_facts(found, reopen)}))
    else:
        print("\n\n".join([*_told(found, add, reopen, str(run)), shown_run(opened)]))


def _agree(found: Prospect, yes: bool) -> None:
    """Say what is bought once more and for how much and, on a terminal, ask.

    Raises:
        typer.Abort: if the answer is no.
    """
    if not found.again:
        return
    print(f"{_again(found)} at most", file=sys.stderr)
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm("Buy them?", abort=True, err=True)


def _again(found: Prospect) -> str:
    labels = len(found.again)
    cost = "" if found.cost is None else f" for {dollars(found.cost)}"
    return f"{count(labels)} more label{'' if labels == 1 else 's'}{cost}"


def _facts(found: Prospect, reopen: bool) -> dict[str, Any]:
    return {
        "classes": found.classes,
        "mapped": found.mapped,
        "measured": found.measured,
        "reopened": len(found.again) if reopen else 0,
        "again": 0 if reopen else len(found.again),
    }


def _told(found: Prospect, add: str | None, reopen: bool, run: str) -> list[str]:
    """What happened to the answers that had named none."""
    lines = [] if add is None else [f"the run has {count(found.classes)} classes now"]
    if found.mapped or found.measured:
        audit = f", and {count(found.measured)} of the audit name it" if found.measured else ""
        lines.append(f"{count(found.mapped)} answers named it and are learnt, for nothing{audit}")
    if found.again and reopen:
        lines.append(f"asked for once more: {_again(found)}")
    elif found.again:
        lines.append(
            f"{count(len(found.again))} items were answered with none of these before; to ask for"
            f" them once more buys {_again(found)}: stacksl classes {run} --reopen"
        )
    return ["\n".join(lines)] if lines else []
