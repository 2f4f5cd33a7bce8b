"""`stacksl reproduce` for the studies that play learners on synthetic streams."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stacksl.cli.entry import Stopped
from stacksl.cli.printing import as_json
from stacksl.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stacksl.studies.lab import LabStudy
    from stacksl.studies.lab.bench import LabPace
    from stacksl.studies.rows import Row

__all__ = ["reproduce_lab"]

QUICK_SEEDS = 2


def reproduce_lab(
    study: LabStudy,
    seeds: int | None,
    quick: bool,
    jobs: int | None,
    figures: Path | None,
    out: Path,
    json: bool,
    quiet: bool,
) -> None:
    """Measure what is not measured yet, print the rows, draw the figures.

    Raises:
        RunError: figures cannot be written.
        Stopped: the user stopped it; the same command goes on.
    """
    from stacksl.studies.lab.bench import measured, reproduce
    from stacksl.studies.lab.records import lab_record
    from stacksl.studies.lab.store import NumberStore

    count = seeds or (QUICK_SEEDS if quick else study.seeds)
    store = NumberStore(out / f"{study.name}.jsonl")
    workers = jobs or os.cpu_count() or 1
    tell = None if quiet else _tell
    try:
        found = measured(study, range(count), store, jobs=workers, quick=quick, tell=tell)
    except KeyboardInterrupt as stop:
        raise Stopped(
            f"stopped; {len(store)} measurements are kept in {out}: the same command goes on"
        ) from stop
    finally:
        if tell is not None:
            print(file=sys.stderr)
    rows = reproduce(study, found, quick=quick)
    if figures is not None:
        _draw(study, rows, figures)
    print(as_json(lab_record(study, count, rows, found, quick)) if json else _shown(study, rows))


def _shown(study: LabStudy, rows: Sequence[Row]) -> str:
    from stacksl.studies.tables import markdown

    layout = study.layout or markdown
    return f"{study.title}. Claimed: {study.claim}.\n\n{layout(rows)}"


def _draw(study: LabStudy, rows: Sequence[Row], folder: Path) -> None:
    from stacksl.studies.lab.drawing.style import save

    if study.figures is None:
        print(f"'{study.name}' has no figure: its table says it all", file=sys.stderr)
        return
    try:
        for path in save(study.figures(rows), folder):
            print(f"drew {path}", file=sys.stderr)
    except OSError as fault:
        raise RunError(f"cannot draw in {folder}: {fault.strerror}; give another folder") from fault


def _tell(pace: LabPace) -> None:
    """One line on stderr, written over."""
    left = pace.seconds_left
    when = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
    bar = "#" * round(24 * pace.done / pace.total)
    said = f"[{bar:<24}] {pace.done} of {pace.total} streams, {when} left   "
    end = "\r" if sys.stderr.isatty() else "\n"
    print(said, file=sys.stderr, end=end, flush=True)
