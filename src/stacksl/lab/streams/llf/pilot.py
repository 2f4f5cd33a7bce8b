"""`python -m stacksl.lab.streams.llf.pilot`: λ and κ of `llf`, chosen as its rivals' settings.

The seeds 1000 to 1003 and the cells are those of the pilot of `gates`, and so is the criterion: the
geometric mean of the regret on the way over the cells, whose order no divisor changes. What it
prints is kept as `docs/studies/pilots/llf.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stacksl.lab.streams.gates.pilot import PILOT_SEEDS
from stacksl.lab.streams.gates.study import ROUNDS
from stacksl.lab.streams.llf import study as llf
from stacksl.lab.streams.trial import samples
from stacksl.lab.study.bench import Bench
from stacksl.lab.study.rows import Row
from stacksl.lab.study.store import Store

COMMAND = "python -m stacksl.lab.streams.llf.pilot > docs/studies/pilots/llf.json"


def candidates() -> tuple[llf.Entry, ...]:
    """The grid of the pilot, and what it is divided by."""
    grid = llf.grid(llf.PILOT_RIDGES, llf.PILOT_KAPPAS)
    return (*grid, llf.FIRST, llf.INFORMATION)


def record(rows: Sequence[Row]) -> Iterator[str]:
    """Regret over `first` and share of the budget used of each candidate, least regret first.

    In all cells, and under rewards (`scalar`) and labels (`softmax`) apart.
    """
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for row in rows:
        if row.metric in ("over_first", "budget_used"):
            mine = found.setdefault(row.settings["entry"], {})
            mine.setdefault(row.settings["feedback"], {})[row.metric] = row.value
    ranked = sorted(found.items(), key=lambda one: one[1]["both"]["over_first"] or 0.0)
    yield f'{{"command": {json.dumps(COMMAND)}, "seeds": {list(PILOT_SEEDS)}, "candidates": ['
    lines = [json.dumps({"entry": name, **values}, ensure_ascii=False) for name, values in ranked]
    yield ",\n".join(lines)
    yield "]}"


def main() -> None:
    """Measure what is not measured yet, with one process a core, and print the record."""
    trials = llf.cells(candidates(), ROUNDS)
    played = replace(llf.LLF_STUDY, name="llf-pilot", trials=lambda quick: trials)
    bench = Bench(Store(Path("runs/studies") / played.kept_in()), os.cpu_count() or 1)
    found = bench.measured(lambda: played.numbers(bench, PILOT_SEEDS))
    print("\n".join(record(llf.derive(samples(found)))))


if __name__ == "__main__":
    main()
