"""`llf`: the paper's gate over (λ, κ) in the cells of the study `gates`, and its baselines.

κ is c in units of Δ₁, the spread at θ = 0. On rows of one norm every spread of a warm-up is Δ₁, so
that c = κ·median, the paper's rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stacksl.core.blocks import Array
from stacksl_lab.figures.llf import figures, layout
from stacksl_lab.statistics.intervals import bootstrapped
from stacksl_lab.streams.gates.entries import Place, place_of
from stacksl_lab.streams.gates.study import ACTION, BUDGETS, DIM, NOISE, QUICK_ROUNDS, ROUNDS
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import first_spread, play, regrets
from stacksl_lab.synthetic.streams import KINDS, SyntheticStream

QUICK_KINDS = ("iid", "shift-2")
RIDGES = (0.001, 0.003, 0.01, 1.0)
KAPPAS: Mapping[str, Sequence[float]] = {
    "learned": (0.5, 0.9, 0.99),
    "rounds": (0.9, 1.1, 1.5, 3.0),
}
"""The map: κ by what the radius counts; with labels the gate never asks from κ = 1 on."""

PILOT_RIDGES = (0.0003, 0.001, 0.003, 0.01, 0.1, 1.0)
PILOT_KAPPAS: Mapping[str, Sequence[float]] = {
    "learned": (0.5, 0.9, 0.95, 0.99),
    "rounds": (0.9, 1.1, 1.5, 2.0, 3.0),
}
"""The grid of the pilot: the paper's ranges of λ and κ, and beyond."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A gate and the scorer under it.

    Attributes:
        name: of its rows.
        gate: its key in the registry.
        kappa: c of `llf` in units of Δ₁.
        ridge: λ.
        counts: what the radius counts: labels (`learned`) or, as printed, `rounds`.
    """

    name: str
    gate: str
    kappa: float | None = None
    ridge: float = 1.0
    counts: str = "learned"

    def line(self, kind: str, feedback: str, budget: float) -> Line:
        """Its line in a cell."""
        scale = {} if self.kappa is None else {"first_spreads": self.kappa}
        scorer = {"action": ACTION[feedback], "ridge": self.ridge, "radius_counts": self.counts}
        settings = {"gate": self.gate, **scale, "scorer_settings": scorer}
        return Line(Place(self.name, kind, feedback, budget).row, settings, budget)


def llf(ridge: float, kappa: float, counts: str = "learned") -> Entry:
    """The paper's gate at (λ, κ)."""
    suffix = "" if counts == "learned" else ", radius of rounds"
    return Entry(f"llf, λ = {ridge:g}, κ = {kappa:g}{suffix}", "llf", kappa, ridge, counts)


def grid(ridges: Sequence[float], kappas: Mapping[str, Sequence[float]]) -> Iterator[Entry]:
    """The paper's gate at every (λ, κ), for each radius."""
    return (llf(r, k, counts) for counts, those in kappas.items() for r in ridges for k in those)


FIRST, INFORMATION = Entry("first", "first"), Entry("information", "information")
"""What everything is divided by: the labels that come first, and our default, both at λ = 1."""


UNTUNED = llf(1.0, 0.9)
"""That of the preset `paper` on rows of one norm."""

TUNED = llf(0.001, 0.9)
"""The best of the pilot under rewards; under labels, and over all cells, a ridge of 1 is."""

PLAYED = (TUNED, UNTUNED, FIRST, Entry("random", "random"), INFORMATION)
"""The entries whose cells are shown."""


def entries() -> tuple[Entry, ...]:
    """The map, `first` at each other ridge, and the gates that the map is compared with."""
    mapped = grid(RIDGES, KAPPAS)
    first = (Entry(f"first, λ = {ridge:g}", "first", ridge=ridge) for ridge in RIDGES if ridge < 1)
    return tuple(dict.fromkeys((*mapped, *first, *PLAYED)))


def trials(quick: bool) -> Sequence[Trial]:
    """The streams of the study `gates`."""
    return cells(entries(), QUICK_ROUNDS if quick else ROUNDS, KINDS if not quick else QUICK_KINDS)


def cells(gates: Sequence[Entry], rounds: int, kinds: Sequence[str] = KINDS) -> list[Trial]:
    """All entries at two budgets on a stream of each kind, for both kinds of feedback."""
    return [
        Trial(
            {"kind": kind, "feedback": feedback, "rounds": rounds, "dim": DIM},
            tuple(e.line(kind, feedback, budget) for budget in BUDGETS for e in gates),
        )
        for feedback in NOISE
        for kind in kinds
    ]


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Regret on the way and the share of labels asked."""
    gate, scorer = {"name": line.settings["gate"]}, line.settings["scorer_settings"]
    if "first_spreads" in line.settings:
        spread = first_spread(stream, scorer["ridge"])
        gate["gate_scale"] = line.settings["first_spreads"] * spread
    played = play(stream, gate, line.budget(stream.horizon), settings=scorer, seed=seed)
    regret = float(regrets(stream, played).mean())
    return {"regret_per_round": regret, "asked_fraction": float(played.asked.mean())}


def derive(samples: Samples) -> list[Row]:
    """Each entry over `first` and over `information`, in all cells and by feedback."""
    places = {place_of(row): numbers for row, numbers in samples.items()}
    cells = list(dict.fromkeys((p.kind, p.feedback, p.budget) for p in places))
    rows: list[Row] = []
    for feedback in ("both", *NOISE):
        mine = [cell for cell in cells if feedback in ("both", cell[1])]
        for name in dict.fromkeys(place.entry for place in places):
            rows += _derived(places, name, feedback, mine)
    return rows


def _derived(
    places: Mapping[Place, Mapping[str, Sequence[float]]],
    name: str,
    feedback: str,
    cells: Sequence[tuple[str, str, float]],
) -> Iterator[Row]:
    def pair(base: str) -> list[Sequence[float]]:
        both = (name, base)
        return [places[Place(e, *cell)]["regret_per_round"] for e in both for cell in cells]

    used = [np.array(places[Place(name, *c)]["asked_fraction"]) / c[2] for c in cells]
    about = {"entry": name, "feedback": feedback, "cells": len(cells), "marks": []}
    over = _ratios(np.mean(pair(INFORMATION.name), axis=1))
    worst = {"cell": " · ".join(map(str, cells[int(over.argmax())]))}
    for metric, statistic, samples, extra in (
        ("over_first", _geometric, pair(FIRST.name), {}),
        ("over_information", _geometric, pair(INFORMATION.name), {}),
        ("worst_over_information", _worst, pair(INFORMATION.name), worst),
        ("budget_used", _mean, used, {}),
    ):
        value, error = bootstrapped(statistic, samples)  # type: ignore[arg-type]
        yield Row(
            "llf",
            name if feedback == "both" else f"{name}, {feedback}",
            metric,
            round(value, 6),
            se=None if error is None else round(error, 6),
            seeds=len(used[0]),
            settings={**about, **extra},
        )


def _mean(means: Array) -> Array:
    values: Array = means.mean(axis=-1)
    return values


def _ratios(means: Array) -> Array:
    """Means of the cells of an entry over those of the base, (..., 2 cells) to (..., cells)."""
    mine, base = np.split(means, 2, axis=-1)
    over: Array = mine / base
    return over


def _geometric(means: Array) -> Array:
    values: Array = np.exp(np.log(_ratios(means)).mean(axis=-1))
    return values


def _worst(means: Array) -> Array:
    values: Array = _ratios(means).max(axis=-1)
    return values


LLF_STUDY = StreamStudy(
    name="llf",
    title="The paper's gate over ridge and threshold",
    claim="LLF buys labels where they matter, for c = κ·median and a ridge of 0.001 to 1",
    cost="34 gates in 28 cells of 20,000 rounds per seed, about 20 s of one core",
    metrics=("regret_per_round",),
    seeds=10,
    trials=trials,
    measure=measure,
    derive=derive,
    table=lambda rows: layout(rows, [entry.name for entry in PLAYED]),
    figures=figures,
)
