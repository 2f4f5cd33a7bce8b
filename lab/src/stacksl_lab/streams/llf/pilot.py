"""`python -m stacksl_lab.streams.llf.pilot`: λ and κ of `llf`, chosen as its rivals' settings.

The seeds 1000 to 1003 and the cells are those of the pilot of `gates`, and so is the criterion: the
geometric mean of the regret on the way over the cells, whose order no divisor changes. What it
prints is kept as `docs/studies/pilots/llf.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stacksl_lab.streams.gates.pilot import measured, written
from stacksl_lab.streams.gates.study import ROUNDS
from stacksl_lab.streams.llf import study as llf
from stacksl_lab.study.rows import Row

COMMAND = "python -m stacksl_lab.streams.llf.pilot > docs/studies/pilots/llf.json"


def candidates() -> tuple[llf.Entry, ...]:
    """The grid of the pilot, and what it is divided by."""
    grid = llf.grid(llf.PILOT_RIDGES, llf.PILOT_KAPPAS)
    return (*grid, llf.FIRST, llf.INFORMATION)


def record(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Regret over `first` and share of the budget used of each candidate, least regret first.

    In all cells, and under rewards (`scalar`) and labels (`softmax`) apart.
    """
    entries: dict[str, dict[str, dict[str, float | None]]] = {}
    for row in rows:
        if row.metric in ("over_first", "budget_used"):
            mine = entries.setdefault(row.settings["entry"], {})
            mine.setdefault(row.settings["feedback"], {})[row.metric] = row.value
    ranked = sorted(entries.items(), key=lambda entry: entry[1]["both"]["over_first"] or 0.0)
    return [{"entry": name, **values} for name, values in ranked]


def main() -> None:
    """Print the record of the pilot."""
    trials = llf.cells(candidates(), ROUNDS)
    played = replace(llf.LLF_STUDY, name="llf-pilot", trials=lambda quick: trials)
    print(written(COMMAND, record(llf.derive(measured(played)))))


if __name__ == "__main__":
    main()
