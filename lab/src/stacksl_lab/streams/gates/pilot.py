"""`python -m stacksl_lab.streams.gates.pilot`: settings of gates, compared on pilot seeds alone.

The seeds 1000 to 1003 choose, the study's own seeds 0 to 11 then confirm once. What it prints is
kept as `docs/studies/pilots/gates.json`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stacksl_lab.streams.gates.entries import Entry
from stacksl_lab.streams.gates.scores import METRICS, Score, scores
from stacksl_lab.streams.gates.study import GATES_STUDY, NOISE, ROUNDS, trial
from stacksl_lab.streams.trial import Samples, StreamStudy, samples
from stacksl_lab.study.bench import Bench
from stacksl_lab.study.store import Store
from stacksl_lab.synthetic.streams import KINDS

COMMAND = "python -m stacksl_lab.streams.gates.pilot > docs/studies/pilots/gates.json"

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


def pilot_study(gates: Sequence[Entry]) -> StreamStudy:
    """The study's cells with these entries."""
    trials = [trial(kind, feedback, ROUNDS, gates) for feedback in NOISE for kind in KINDS]
    return replace(GATES_STUDY, name="gates-pilot", trials=lambda quick: trials)


def record(numbers: Samples, gates: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every candidate over all cells, best geometric mean first.

    Ratios are to the best candidate of a cell; `regret_per_round` is the regret on the way.
    """
    by_metric = {
        metric: {score.entry: score for score in scores(numbers, metric, reset=False, draws=2)}
        for metric in METRICS
    }
    regrets = by_metric["regret_per_round"]
    ranked = sorted(gates, key=lambda entry: regrets[entry.name].geometric_mean)
    return [
        {
            "gate": entry.gate,
            "parameters": dict(entry.parameters),
            **{metric: _score_record(by_metric[metric][entry.name]) for metric in METRICS},
        }
        for entry in ranked
    ]


def _score_record(score: Score) -> dict[str, Any]:
    return {
        "geometric_mean": round(score.geometric_mean, 4),
        "worst": round(score.worst, 4),
        "worst_cell": score.cell,
    }


def written(command: str, candidates: Iterable[Mapping[str, Any]]) -> str:
    """A record as JSON, a candidate a line."""
    lines = ",\n".join(json.dumps(candidate, ensure_ascii=False) for candidate in candidates)
    start = f'{{"command": {json.dumps(command)}, "seeds": {list(PILOT_SEEDS)}, "candidates": ['
    return f"{start}\n{lines}\n]}}"


def measured(study: StreamStudy) -> Samples:
    """The numbers under the pilot's seeds; what is missing is measured, a process a core."""
    bench = Bench(Store(Path("runs/studies") / study.store_file()), os.cpu_count() or 1)
    return samples(bench.measured(lambda: study.numbers(bench, PILOT_SEEDS)))


def main() -> None:
    """Print the record of the pilot, or of `reserve` alone."""
    later = sys.argv[1:] == ["reserve"]
    gates = candidates(LATER if later else GRID)
    command = COMMAND
    if later:
        command = command.replace("pilot >", "pilot reserve >").replace(
            "gates.json", "reserve.json"
        )
    print(written(command, record(measured(pilot_study(gates)), gates)))


if __name__ == "__main__":
    main()
