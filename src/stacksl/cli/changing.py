"""`stacksl budget` and `stacksl extend`: more to spend, or more to choose from, in a begun run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stacksl.cli import options
from stacksl.cli.printing import as_json, count

__all__ = ["budget", "extend"]


def budget(
    run: options.RunFolder,
    labels: Annotated[
        str, typer.Argument(metavar="B", help="Labels in all, a share of the items, or '$400'.")
    ],
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Change the budget of a run that has begun; `stacksl resume` goes on with it.

    Never below what is spent. Where the run had finished, some of the labels added measure the
    model anew, since the first audit has been seen.
    """
    from stacksl.api import Run
    from stacksl.runs.changing import what_measures

    opened = Run.open(run)
    total = opened.change_budget(labels)
    if told := what_measures(opened.folder, total):
        print(told, file=sys.stderr)
    said = f"the budget is {count(total)} labels in all; go on with: stacksl resume {run}"
    print(as_json({"run": run, "budget": total}) if json else said)


def extend(
    run: options.RunFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="More items, like the run's own.")],
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Give a run that has begun more items to choose from; `stacksl resume` goes on with them."""
    from stacksl.api import Run

    added = Run.open(run).extend(file)
    said = f"{count(added)} items were added; go on with: stacksl resume {run}"
    print(as_json({"run": run, "added": added}) if json else said)
