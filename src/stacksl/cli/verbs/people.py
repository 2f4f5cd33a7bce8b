"""`stacksl answer` and `stacksl people`: labels from people, by file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import live
from stacksl.cli.printing import as_json, dollars, facts, table, visible
from stacksl.cli.verbs.run import agree, differing_lines, is_interactive, shown_run, word
from stacksl.errors import SettingsError
from stacksl.report.wording import count, plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.runs.changes.correcting import Correction
    from stacksl.runs.changes.freeing import Annotator
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
    correct: Annotated[
        bool,
        typer.Option("--correct", help="Replace accepted answers that the sheets give otherwise."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before accepted answers are replaced.")
    ] = False,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Read answers from filled-in sheets, learn from them, and write the next sheet.

    Sheets may come late, in part, twice, or contradict each other: every answer is paid for once,
    and nothing that was accepted is lost. A cell that cannot be read is named with its file, row
    and column, all other cells are entered, and the exit code is 2.

    With --correct the accepted answers that differ are listed, old and new, and replaced after a
    question. Nothing is paid for again. Each annotator corrects rows of their own alone.
    """
    opened = options.open_run(run)
    agreed = _agreed(opened.corrections(*files), yes) if correct else None
    with live(quiet=quiet) as show:
        received = opened.answer(*files, correct=agreed, progress=show)
    for line in received.faults:
        print(visible(line), file=sys.stderr)
    print(as_json(_answered(received)) if json else _shown(opened, received))
    if received.faults:
        raise typer.Exit(2)


def _agreed(found: list[Correction], yes: bool) -> list[Correction]:
    """The corrections, after they were listed and consented to.

    Raises:
        SettingsError: nobody can be asked.
        typer.Abort: if the answer is no.
    """
    for each in found:
        line = f"{each.key}, {each.annotator}: {each.before} -> {each.after}"
        print(visible(line), file=sys.stderr)
    if found and not yes:
        if not is_interactive():
            raise SettingsError(
                f"{plural(len(found), 'accepted answer')} would be replaced, and there is no"
                " terminal to ask on: add --yes, or leave --correct out"
            )
        typer.confirm("Replace them?", abort=True, err=True)
    return found


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
        str | None, typer.Option(metavar="[NAME]", help="Free all open rows, or those of NAME.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Free only this row; may be repeated.")
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="Buy other items instead of assigning freed rows again.")
    ] = False,
    set_aside: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave the answers of NAME out of training, and refit."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The answers of NAME count, and are tested no more."),
    ] = None,
    buy_anew: Annotated[
        bool, typer.Option("--buy-anew", help="Buy the labels that --set-aside left out again.")
    ] = False,
    yes: options.Yes = False,
    wait: options.Wait = options.PATIENCE,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """List annotators with their rows, free rows for others, and say whose answers count.

    Freed rows are assigned again. An answer that still arrives on an old sheet counts, unless
    another one was given before. Rows that measure the model are assigned again even with --drop.

    Who agrees with the prediction far less than the others is named, until --set-aside or --keep.
    What --set-aside left out is bought again only with --buy-anew, within the budget.
    """
    opened = options.open_run(run)
    if free == EVERYBODY and opened.status().get("labeler", "file") != "file":
        count_freed = opened.people(free=True, drop=drop)
        print(f"{plural(count_freed, 'question')} freed\n\n{shown_run(opened)}")
        return
    freed = None
    names = {"set_aside": set_aside or (), "keep": keep or ()}
    if buy_anew and set_aside:
        raise SettingsError("give --buy-anew by itself, after --set-aside has shown the price")
    if buy_anew:
        _consent(opened, yes)
    if away or back or free is not None or key or drop or set_aside or keep or buy_anew:
        with live(quiet=quiet) as show:
            freed = opened.people(
                away=away or (), back=back or (), free=free == EVERYBODY or free or False,
                keys=key or (), drop=drop, **names, buy_anew=buy_anew, progress=show,
            )  # fmt: skip
    if json:
        status = opened.status()
        result = {"run": str(run), "released": freed or 0, "sheets": status["sheets"] or []}
        result |= {"differing": status["differing"], "left_out": opened.left_out()[0]}
        print(as_json({**result, "people": [asdict(each) for each in opened.annotators()]}))
    elif freed or set_aside or keep or buy_anew:
        said = [f"{plural(freed, 'row')} freed"] if freed else []
        print("\n\n".join([*said, *_left_out(opened), shown_run(opened)]))
    else:
        differing = facts(differing_lines(opened.status()))
        print("\n\n".join(filter(None, [_listed(opened), differing, *_left_out(opened)])))


def _left_out(run: Run) -> list[str]:
    """The price of what is left out of training, if anything is."""
    items, cost = run.left_out()
    if not items:
        return []
    price = "" if cost is None else f" for {dollars(cost)} at most"
    return [
        f"left out, without another answer: {plural(items, 'item')}; to buy them anew{price}:"
        f" stacksl people {word(run.path)} --buy-anew{_raised(run, items)}"
    ]


def _raised(run: Run, items: int) -> str:
    """The change that comes first where the budget does not pay so many labels."""
    status = run.status()
    if items <= status["left"]:
        return ""
    budget = status["budget"] + items - status["left"]
    return f", after stacksl change {word(run.path)} --budget {budget} --later"


def _consent(run: Run, yes: bool) -> None:
    """Print what is bought anew at which cost and, on a terminal, ask for consent."""
    items, cost = run.left_out()
    if _raised(run, items):
        return  # it will be refused
    price = "" if cost is None else f" for {dollars(cost)} at most"
    agree([f"{plural(items, 'more label')}{price}, within the budget"], yes)


def _listed(run: Run) -> str:
    who = run.annotators()
    cells = [(each.name, each.open, each.answered, _state(each)) for each in who]
    return table(("Who", "Open", "Answered", ""), cells)


def _state(each: Annotator) -> str | None:
    said = ["away"] if each.away else []
    said += [each.standing.replace("_", " ")] if each.standing else []
    return ", ".join(said) or None


def _answered(received: Received) -> dict[str, Any]:
    found = asdict(received)
    return {**found.pop("status"), **found}


def _shown(run: Run, received: Received) -> str:
    said = [f"{count(n)} {WORDS[name]}" for name, n in received.accepted.items() if n]

    def some(n: int, more: str = "") -> str | None:
        return f"{count(n)}{more}" if n else None

    late = ", kept but not paid: somebody else answered the row, or it was dropped"
    after_shown = some(received.corrected_after_shown, ", its accuracy stays by the answers before")
    lines = facts(
        [
            ("Accepted", ", ".join(said) or "none that is new"),
            ("Corrected", some(received.corrected)),
            ("Audit corrected after it was shown", after_shown),
            ("Repeated", some(received.repeated)),
            ("Contradict", some(received.disputed, ", kept but not paid (--correct replaces)")),
            ("Late", some(received.late, late)),
            ("Not readable", some(len(received.faults))),
            ("Still empty", some(received.empty)),
        ]
    )
    return f"{lines}\n\n{shown_run(run, received.status)}"
