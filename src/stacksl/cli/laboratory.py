"""`stacksl reproduce` for the studies that play learners on synthetic streams."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from stacksl.cli.entry import Stopped
from stacksl.cli.printing import as_json
from stacksl.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stacksl.studies.lab import LabStudy
    from stacksl.studies.lab.bench import LabPace
    from stacksl.studies.lab.trial import Numbers
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
        RunError: numbers or figures cannot be written; found before anything is measured.
        Stopped: the user stopped it; the same command goes on.
    """
    from stacksl.studies.lab.bench import reproduce
    from stacksl.studies.lab.records import lab_record

    if figures is not None:
        _check_figures(study, figures)
    count = seeds or (QUICK_SEEDS if quick else study.seeds)
    found = _measured(study, count, quick, jobs or os.cpu_count() or 1, out, quiet)
    rows = reproduce(study, found, quick=quick)
    shown = as_json(lab_record(study, count, rows, found, quick)) if json else _shown(study, rows)
    print(shown, flush=True)
    if figures is not None:
        _draw(study, rows, figures)


def _measured(
    study: LabStudy, count: int, quick: bool, jobs: int, out: Path, quiet: bool
) -> Mapping[str, Sequence[Numbers]]:
    from stacksl.studies.lab.bench import measured
    from stacksl.studies.lab.store import NumberStore

    store = NumberStore(out / f"{study.name}.jsonl")
    before = len(store)
    tell = None if quiet else _tell
    try:
        return measured(study, range(count), store, jobs=jobs, quick=quick, tell=tell)
    except KeyboardInterrupt as stop:
        raise Stopped(
            f"stopped; {len(store) - before} new measurements are kept in {store.path}: the same"
            " command goes on"
        ) from stop
    finally:
        if tell is not None and sys.stderr.isatty():
            print(file=sys.stderr)  # below the line that is written over


def _check_figures(study: LabStudy, folder: Path) -> None:
    """That the folder can be written, before hours of measuring and not after them."""
    if study.figures is None:
        print(f"'{study.name}' has no figure: its table says it all", file=sys.stderr)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as fault:
        raise _cannot_draw(folder, fault) from fault


def _cannot_draw(folder: Path, fault: OSError) -> RunError:
    return RunError(f"cannot draw in {folder}: {fault.strerror}; give another folder")


def _shown(study: LabStudy, rows: Sequence[Row]) -> str:
    from stacksl.studies.tables import markdown

    layout = study.layout or markdown
    return f"{study.title}. Claimed: {study.claim}.\n\n{layout(rows)}"


def _draw(study: LabStudy, rows: Sequence[Row], folder: Path) -> None:
    from stacksl.studies.lab.drawing.style import save

    if study.figures is None:
        return
    try:
        for path in save(study.figures(rows), folder):
            print(f"drew {path}", file=sys.stderr)
    except OSError as fault:
        raise _cannot_draw(folder, fault) from fault


def _tell(pace: LabPace) -> None:
    """One line on stderr, written over."""
    left = pace.seconds_left
    when = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
    bar = "#" * round(24 * pace.done / pace.total)
    said = f"[{bar:<24}] {pace.done} of {pace.total} streams, {when} left   "
    end = "\r" if sys.stderr.isatty() else "\n"
    print(said, file=sys.stderr, end=end, flush=True)
