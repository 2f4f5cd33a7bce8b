"""`python -m stacksl.lab.streams.gates.pilot`: settings of gates, compared on pilot seeds alone.

The seeds 1000 to 1003 choose, the study's own seeds 0 to 11 then confirm once. What it prints is
kept as `docs/studies/pilots/gates.json`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.lab.streams.gates.entries import Entry
from stacksl.lab.streams.gates.scores import METRICS, Score, scores
from stacksl.lab.streams.gates.study import GATES_STUDY, NOISE, ROUNDS, trial
from stacksl.lab.synthetic.streams import KINDS

if TYPE_CHECKING:
    from stacksl.lab.streams.trial import Samples, StreamStudy


COMMAND = "python -m stacksl.lab.streams.gates.pilot > docs/studies/pilots/gates.json"

PILOT_SEEDS = (1000, 1001, 1002, 1003)

PRICES = tuple(
    {"reserve": f, "floor": r} for f in (0.7, 0.9) for r in (0.001, 0.003, 0.01, 0.03, 0.1)
)
"""f and r of every priced gate."""

RESERVES = tuple(
    {"share": kappa, "ahead": f, "floor": r}
    for kappa in (0.4, 0.6)
    for f in (0.8, 0.9)
    for r in (0.03, 0.1)
)
"""κ, f and r of `reserve`: its default has the least max(geometric mean/1.1, worst/1.4), the two
goals, on the way."""

GRID: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "first": ({},),
    "contested": [{"width_scale": "σ√d", **price} for price in PRICES],
    "avoided": [{"width_scale": "σ", **price} for price in PRICES],
    "information": PRICES,
    "entropy": PRICES,
    "margin": [{"pace": pace} for pace in (0.003, 0.01, 0.03, 0.1, 0.3)],
    "adpo": [{"pace": pace} for pace in (0.01, 0.03, 0.1, 0.3, 1.0)],
    "dgs": [{"scale": scale} for scale in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)],
    "lucb": [{}, *({"width_scale": scale} for scale in ("σ/4", "σ/2", "σ", "σ√d"))],
    "width": [
        *({"scale": scale} for scale in (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.8)),
        *({"exponent": power} for power in (0.5, 0.7)),
    ],
}
"""The settings of each gate that are compared; its defaults are among them."""

LATER: Mapping[str, Sequence[Mapping[str, Any]]] = {"information": ({},), "reserve": RESERVES}
"""What `pilot reserve` compares, kept as `docs/studies/pilots/reserve.json`."""


def candidates(grid: Mapping[str, Sequence[Mapping[str, Any]]] = GRID) -> tuple[Entry, ...]:
    """Every setting of the grid, named by its parameters."""
    return tuple(
        Entry(_name(gate, parameters), gate, parameters)
        for gate, settings in grid.items()
        for parameters in settings
    )


def _name(gate: str, parameters: Mapping[str, Any]) -> str:
    return ", ".join([gate, *(f"{key} {value}" for key, value in parameters.items())])


def pilot_study(
    gates: Sequence[Entry], rounds: int = ROUNDS, kinds: Sequence[str] = KINDS
) -> StreamStudy:
    """The study's cells with these entries."""
    trials = [trial(kind, feedback, rounds, gates) for feedback in NOISE for kind in kinds]
    return replace(GATES_STUDY, name="gates-pilot", trials=lambda quick: trials)


def record(
    samples: Samples, gates: Sequence[Entry], seeds: Sequence[int], command: str = COMMAND
) -> dict[str, Any]:
    """What is kept of a pilot: every candidate over all cells, best geometric mean first.

    Ratios are to the best candidate of a cell; `regret_per_round` is the regret on the way.
    """
    found = {
        metric: {score.entry: score for score in scores(samples, metric, reset=False, draws=2)}
        for metric in METRICS
    }
    ranked = sorted(gates, key=lambda one: found["regret_per_round"][one.name].geometric_mean)
    lines = [
        {
            "gate": entry.gate,
            "parameters": dict(entry.parameters),
            **{metric: _said(found[metric][entry.name]) for metric in METRICS},
        }
        for entry in ranked
    ]
    return {"command": command, "seeds": list(seeds), "candidates": lines}


def _said(score: Score) -> dict[str, Any]:
    return {
        "geometric_mean": round(score.geometric_mean, 4),
        "worst": round(score.worst, 4),
        "worst_cell": score.cell,
    }


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The record as JSON, a candidate a line."""
    import json

    yield f'{{"command": {json.dumps(found["command"])}, "seeds": {found["seeds"]}, "candidates": ['
    lines = [json.dumps(line, ensure_ascii=False) for line in found["candidates"]]
    yield ",\n".join(lines)
    yield "]}"


def main() -> None:
    """Measure what is not measured yet, with one process a core, and print the record."""
    from stacksl.lab.streams.trial import samples
    from stacksl.lab.study.bench import Bench
    from stacksl.lab.study.store import Store

    later = sys.argv[1:] == ["reserve"]
    gates = candidates(LATER if later else GRID)
    study = pilot_study(gates)
    bench = Bench(Store(Path("runs/studies") / study.kept_in()), os.cpu_count() or 1)
    found = bench.measured(lambda: study.numbers(bench, PILOT_SEEDS))
    command = COMMAND.replace("pilot >", "pilot reserve >") if later else COMMAND
    command = command.replace("gates.json", "reserve.json") if later else command
    print("\n".join(_lines(record(samples(found), gates, PILOT_SEEDS, command))))


if __name__ == "__main__":
    main()
