"""`rates`: how regret grows with T and falls with B where it does, and where nothing shows.

Rows are named `pairs: GATE, B, T` on the instance of the lower bound, `cube: ACTION, size, T` on
the hypercube and `iid: ACTION, T` on the stationary stream; the last two buy every label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.game.inputs import Array
from stacksl.studies.lab.measures.intervals import bootstrapped, slope_over
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Samples, Trial
from stacksl.studies.lab.worlds.lower_bounds import NOISE, cube, pairs, printed_bound
from stacksl.studies.lab.worlds.playing import play, regrets
from stacksl.studies.lab.worlds.streams import World, make_world
from stacksl.studies.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ACTIONS", "DIM", "FULL", "GATES", "QUICK", "RATES", "Grid"]

DIM, CUBE_DIM = 20, 5

GATES: Mapping[str, Mapping[str, Any]] = {
    "first": {"name": "first"},
    "LLF": {"name": "llf"},
    "Random": {"name": "random"},
    "margin": {"name": "margin"},
    "contested": {"name": "contested", "width_scale": NOISE * math.sqrt(DIM)},
}
"""What buys the labels on the lower-bound instance; α of `contested` is σ√d."""

ACTIONS: Mapping[str, str] = {"UCB": "ucb", "greedy": "greedy"}


@dataclass(frozen=True, slots=True)
class Grid:
    """Where regret is measured.

    Attributes:
        budgets, horizon: values of B, all at one T.
        horizons, budget: values of T, all at one B.
        clocks: values of T where every label is bought.
        sizes: |θ*_i| on the hypercube, as a multiple of σ√(d/T) at the last of `clocks`.
    """

    budgets: tuple[int, ...]
    horizon: int
    horizons: tuple[int, ...]
    budget: int
    clocks: tuple[int, ...]
    sizes: tuple[float, ...]

    def size(self, multiple: float) -> float:
        """|θ*_i|, score units."""
        return multiple * NOISE * math.sqrt(CUBE_DIM / self.clocks[-1])


FULL = Grid(
    budgets=(100, 200, 400, 800, 1600, 3200),
    horizon=20_000,
    horizons=(5000, 10_000, 20_000, 40_000, 80_000),
    budget=200,
    clocks=(250, 1000, 4000, 16_000),
    sizes=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
)
QUICK = Grid((50, 100), 1000, (500, 1000), 100, (250, 1000), (1.0, 4.0))


def _pairs_row(gate: str, budget: int, rounds: int) -> str:
    return f"pairs: {gate}, B = {budget:,}, T = {rounds:,}"


def _cube_row(action: str, size: float, rounds: int) -> str:
    return f"cube: {action}, size {size:.4f}, T = {rounds:,}"


def _iid_row(action: str, rounds: int) -> str:
    return f"iid: {action}, T = {rounds:,}"


def trials(quick: bool) -> Sequence[Trial]:
    """A stream for each (B, T), each size of θ* on the hypercube, and one that is stationary."""
    grid = QUICK if quick else FULL
    points = [(budget, grid.horizon) for budget in grid.budgets]
    points += [(grid.budget, rounds) for rounds in grid.horizons]
    found = [_pairs_trial(*point) for point in dict.fromkeys(points)]
    found += [_cube_trial(grid, grid.size(multiple)) for multiple in grid.sizes]
    world = {"kind": "iid", "rounds": grid.clocks[-1], "dim": DIM}
    lines = [_prefix(_iid_row(n, t), n, t) for n in ACTIONS for t in grid.clocks]
    return [*found, Trial(world, tuple(lines))]


def _pairs_trial(budget: int, rounds: int) -> Trial:
    world = {"kind": "pairs", "rounds": rounds, "labels": budget, "dim": DIM}
    lines = tuple(
        Line(_pairs_row(name, budget, rounds), {"gate": dict(gate)}, budget / rounds)
        for name, gate in GATES.items()
    )
    return Trial(world, lines)


def _cube_trial(grid: Grid, size: float) -> Trial:
    world = {"kind": "cube", "rounds": grid.clocks[-1], "size": size, "dim": CUBE_DIM}
    lines = [_prefix(_cube_row(n, size, t), n, t) for n in ACTIONS for t in grid.clocks]
    return Trial(world, tuple(lines))


def _prefix(row: str, name: str, rounds: int) -> Line:
    return Line(row, {"action": ACTIONS[name], "T": rounds}, 1.0)


def measure(world: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    """The regret of all rounds, for each line.

    Where every label is bought nothing depends on the horizon: the first T rounds of a long
    stream are one of T rounds, and each action plays once.
    """
    stream = _stream(world, seed)
    if world["kind"] == "pairs":
        budget = int(world["labels"])
        return [_bought(stream, line, budget, seed) for line in lines]
    summed = {name: _all_bought(stream, name) for name in {n.settings["action"] for n in lines}}
    return [
        {"regret": float(summed[n.settings["action"]][n.settings["T"] - 1]), "asked_fraction": 1.0}
        for n in lines
    ]


def _stream(world: Mapping[str, Any], seed: int) -> World:
    sized = {name: value for name, value in world.items() if name != "kind"}
    if world["kind"] == "pairs":
        return pairs(**sized, seed=seed)
    if world["kind"] == "cube":
        return cube(**sized, seed=seed)
    return make_world("iid", "scalar", seed, purpose="rates", **sized)


def _bought(stream: World, line: Line, budget: int, seed: int) -> Numbers:
    played = play(stream, line.settings["gate"], budget, seed=seed)
    total = float(regrets(stream, played).sum())
    return {"regret": total, "asked_fraction": float(played.asked.mean())}


def _all_bought(stream: World, action: str) -> Array:
    played = play(stream, {"name": "always"}, stream.horizon, settings={"action": action})
    return np.cumsum(regrets(stream, played))


def derive(found: Samples) -> list[Row]:
    """Slopes of log mean regret, and the worst mean regret over sizes on the hypercube."""
    grid = FULL if _iid_row("UCB", FULL.clocks[-1]) in found else QUICK
    regret = {row: numbers["regret"] for row, numbers in found.items()}
    rows = [row for gate in GATES for row in _pairs_slopes(grid, gate, regret)]
    for action in ACTIONS:
        rows += _cube_rows(grid, action, regret)
    for action in ACTIONS:
        over = [regret[_iid_row(action, t)] for t in grid.clocks]
        rows.append(_slope(f"iid: {action}, slope in T", grid.clocks, over, 0.5))
    return rows


def _pairs_slopes(grid: Grid, gate: str, regret: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    over = [regret[_pairs_row(gate, b, grid.horizon)] for b in grid.budgets]
    printed = _printed_slope(grid.budgets, [(b, grid.horizon) for b in grid.budgets])
    yield _slope(f"pairs: {gate}, slope in B", grid.budgets, over, printed, -0.5)
    over = [regret[_pairs_row(gate, grid.budget, t)] for t in grid.horizons]
    printed = _printed_slope(grid.horizons, [(grid.budget, t) for t in grid.horizons])
    yield _slope(f"pairs: {gate}, slope in T", grid.horizons, over, printed, 1.0)


def _printed_slope(places: Sequence[float], points: Sequence[tuple[int, int]]) -> float:
    bounds = np.array([printed_bound(b, t, DIM) for b, t in points])
    return float(slope_over(places)(bounds))


def _cube_rows(grid: Grid, action: str, regret: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    sizes = [grid.size(multiple) for multiple in grid.sizes]
    table = [[regret[_cube_row(action, size, t)] for size in sizes] for t in grid.clocks]
    for rounds, over in zip(grid.clocks, table, strict=True):
        value, error = bootstrapped(lambda means: means.max(axis=-1), over)
        row = f"cube: {action}, worst size, T = {rounds:,}"
        settings = {"kind": "cube", "T": rounds, "dim": CUBE_DIM, "action": ACTIONS[action]}
        yield Row("rates", row, "worst_regret", value, error, len(over[0]), settings=settings)
    line, shape = slope_over(grid.clocks), (len(grid.clocks), len(sizes))

    def worst(means: Array) -> Array:
        return line(means.reshape(*means.shape[:-1], *shape).max(axis=-1))

    flat = [samples for over in table for samples in over]
    value, error = bootstrapped(worst, flat)
    settings = {"kind": "cube", "places": list(grid.clocks)}
    yield Row(
        "rates", f"cube: {action}, worst size, slope in T", "slope", value, error,
        len(flat[0]), paper=0.5, settings=settings,
    )  # fmt: skip


def _slope(
    row: str,
    places: Sequence[float],
    over: Sequence[Sequence[float]],
    printed: float,
    corrected: float | None = None,
) -> Row:
    value, error = bootstrapped(slope_over(places), over)
    settings = {"places": list(places), "corrected": corrected}
    return Row("rates", row, "slope", value, error, len(over[0]), paper=printed, settings=settings)


def _layout(rows: Sequence[Row]) -> str:
    from stacksl.studies.lab.drawing.rates import layout

    return layout(rows)


def _figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    from stacksl.studies.lab.drawing.rates import figures

    return figures(rows)


RATES = LabStudy(
    name="rates",
    title="How regret moves with budget and horizon",
    claim="regret is √(dB) + c√B under a budget (Theorem 2) and d√T with all labels (Theorem 1)",
    cost="19 streams a seed, 100 seeds, some 1 s of one core a seed",
    metrics=("regret",),
    seeds=100,
    trials=trials,
    play=measure,
    derive=derive,
    layout=_layout,
    figures=_figures,
)
