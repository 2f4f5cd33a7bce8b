"""`python -m stacksl.studies.lab.gates.pilot`: settings of gates, compared on pilot seeds alone.

The seeds 1000 to 1003 choose, the study's own seeds 0 to 11 then confirm once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stacksl.studies.lab.gates.entries import Entry
from stacksl.studies.lab.gates.scores import FEEDBACKS, METRICS, scores
from stacksl.studies.lab.gates.study import GATES_STUDY, NOISE, ROUNDS, trial
from stacksl.studies.lab.worlds.streams import KINDS

if TYPE_CHECKING:
    from stacksl.studies.lab.trial import LabStudy, Samples

__all__ = ["PILOT_SEEDS", "candidates", "pilot_study", "report"]

PILOT_SEEDS = (1000, 1001, 1002, 1003)

PRICES = tuple((f, r) for f in (0.3, 0.4, 0.5, 0.7) for r in (1e-3, 3e-3, 0.01, 0.03, 0.1))
"""f and r of the priced gates."""


def candidates() -> tuple[Entry, ...]:
    """What is compared: `first` and the width gate, and the priced gates at many settings."""
    return tuple(_candidates())


def _candidates() -> Iterator[Entry]:
    yield Entry("first", "first")
    for scale in (0.6, 0.8, 1.0):
        yield Entry(f"width, scale {scale:g}", "width", {"scale": scale})
    for gate, widths in (("contested", ("σ", "2σ", "σ√d")), ("avoided", ("σ", "2σ"))):
        for width in widths:
            for reserve, floor in PRICES:
                name = f"{gate}, {width}, f = {reserve:g}, r = {floor:g}"
                parameters = {"width_scale": width, "reserve": reserve, "floor": floor}
                yield Entry(name, gate, parameters)
    for reserve, floor in PRICES:
        name = f"information, f = {reserve:g}, r = {floor:g}"
        yield Entry(name, "information", {"reserve": reserve, "floor": floor})


def pilot_study(
    gates: Sequence[Entry], rounds: int = ROUNDS, kinds: Sequence[str] = KINDS
) -> LabStudy:
    """The battery's cells with these entries."""
    trials = [trial(kind, feedback, rounds, gates) for feedback in NOISE for kind in kinds]
    return replace(GATES_STUDY, name="gates-pilot", trials=lambda quick: trials)


def report(samples: Samples) -> Iterator[str]:
    """A line a candidate, metric and feedback: geometric mean, worst ratio, and where it is."""
    for metric in METRICS:
        for feedback in FEEDBACKS:
            yield f"{metric}, {feedback}: geometric mean, worst ratio to the best"
            found = scores(samples, metric, reset=False, feedback=feedback, draws=2)
            for one in sorted(found, key=lambda score: score.geometric_mean):
                yield f"  {one.entry}: {one.geometric_mean:.2f}, {one.worst:.2f} at {one.cell}"


def main() -> None:
    """Measure what is not measured yet, with one process a core, and print the report."""
    from stacksl.studies.lab.bench import measured, samples
    from stacksl.studies.lab.store import NumberStore

    store = NumberStore(Path("runs/studies/gates-pilot.jsonl"))
    study = pilot_study(candidates())
    found = measured(study, PILOT_SEEDS, store, jobs=os.cpu_count() or 1)
    print("\n".join(report(samples(found))))


if __name__ == "__main__":
    main()
