"""`rates`: growth of regret with T and its decrease with B.

Rows are named `pairs: GATE, B, T` on the instance of Theorem C.1, `corners: d, B` on that of C.2,
`cube: ACTION, ‖θ*‖, T` on the hypercube at other norms and `iid: ACTION, T` on the stationary
stream; the last two buy every label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl_lab.figures.rates import figures, layout
from stacksl_lab.statistics.intervals import bootstrapped, slope_over
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.lower_bounds import (
    NOISE,
    blind_regret,
    cube,
    pairs,
    printed_bound,
    proved_bound,
    theorem_a,
)
from stacksl_lab.synthetic.playing import play, regrets
from stacksl_lab.synthetic.streams import SyntheticStream, make_stream

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


NORMS: Mapping[str, float] = {"worst size": 1.0, "worst size up to 4": 4.0}
"""Over which ‖θ*‖ on the hypercube the worst is taken; 1 is the study's, 4 shows what it does."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where regret is measured.

    Attributes:
        budgets, horizon: values of B, all at one T.
        horizons, budget: values of T, all at one B, and all at B = T/`share`.
        dims, corners, corner_horizon: on the instance of C.2 values of d at the first B, values of
            B at the first d, and T.
        norms: ‖θ*‖ on the hypercube, the same at every T.
        clocks, stationary: values of T on the hypercube and on the stationary stream.
    """

    budgets: tuple[int, ...]
    horizon: int
    horizons: tuple[int, ...]
    budget: int
    norms: tuple[float, ...]
    clocks: tuple[int, ...]
    stationary: tuple[int, ...]
    share: int = 100
    dims: tuple[int, ...] = (4, 2, 3, 6, 8)
    corners: tuple[int, ...] = (400, 100, 200, 800, 1600)
    corner_horizon: int = 10_000


FULL = Grid(
    budgets=(100, 200, 400, 800, 1600, 3200),
    horizon=20_000,
    horizons=(5000, 10_000, 20_000, 40_000, 80_000),
    budget=200,
    norms=tuple(2.0**power for power in range(-7, 3)),
    clocks=(1000, 4000, 16_000, 64_000),
    stationary=(250, 1000, 4000, 16_000),
)
QUICK = Grid(
    (50, 100), 1000, (500, 1000), 100, (0.25, 1.0), (250, 1000), (250, 1000),
    share=10, dims=(2, 3), corners=(50, 100), corner_horizon=500,
)  # fmt: skip


def _pairs_row(gate: str, budget: int, rounds: int) -> str:
    return f"pairs: {gate}, B = {budget:,}, T = {rounds:,}"


def _corners_row(dim: int, budget: int) -> str:
    return f"corners: d = {dim}, B = {budget:,}"


def _cube_row(action: str, norm: float, rounds: int) -> str:
    return f"cube: {action}, ‖θ*‖ = {norm:g}, T = {rounds:,}"


def _iid_row(action: str, rounds: int) -> str:
    return f"iid: {action}, T = {rounds:,}"


def trials(quick: bool) -> Sequence[Trial]:
    """A stream for each (B, T), each ‖θ*‖ on the hypercube, and one that is stationary."""
    grid = QUICK if quick else FULL
    points = [(budget, grid.horizon) for budget in grid.budgets]
    points += [(grid.budget, rounds) for rounds in grid.horizons]
    points += [(rounds // grid.share, rounds) for rounds in grid.horizons]
    streams = [_pairs_trial(*point) for point in dict.fromkeys(points)]
    places = [(dim, grid.corners[0]) for dim in grid.dims]
    places += [(grid.dims[0], budget) for budget in grid.corners]
    streams += [_corners_trial(*p, grid.corner_horizon) for p in dict.fromkeys(places)]
    streams += [_cube_trial(grid, norm) for norm in grid.norms]
    source = {"kind": "iid", "rounds": grid.stationary[-1], "dim": DIM}
    lines = [_prefix(_iid_row(n, t), n, t) for n in ACTIONS for t in grid.stationary]
    return [*streams, Trial(source, tuple(lines))]


def _pairs_trial(budget: int, rounds: int) -> Trial:
    source = {"kind": "pairs", "rounds": rounds, "labels": budget, "dim": DIM}
    lines = tuple(
        Line(_pairs_row(name, budget, rounds), {"gate": dict(gate)}, budget / rounds)
        for name, gate in GATES.items()
    )
    return Trial(source, lines)


def _corners_trial(dim: int, budget: int, rounds: int) -> Trial:
    """The instance of C.2: labels of the first rounds, about the largest UCB, then greedy."""
    source = {"kind": "corners", "rounds": rounds, "labels": budget, "dim": dim}
    settings = {"gate": {"name": "first"}, "action": "asked"}
    return Trial(source, (Line(_corners_row(dim, budget), settings, budget / rounds),))


def _cube_trial(grid: Grid, norm: float) -> Trial:
    size = norm / math.sqrt(CUBE_DIM)
    source = {"kind": "cube", "rounds": grid.clocks[-1], "size": size, "dim": CUBE_DIM}
    lines = [_prefix(_cube_row(n, norm, t), n, t) for n in ACTIONS for t in grid.clocks]
    return Trial(source, tuple(lines))


def _prefix(row: str, name: str, rounds: int) -> Line:
    return Line(row, {"action": ACTIONS[name], "T": rounds}, 1.0)


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """The regret of all rounds.

    Where every label is bought nothing depends on the horizon: the first T rounds of a long
    stream are one of T rounds, and each action plays once.
    """
    if "T" in line.settings:
        summed = _all_bought(stream, line.settings["action"])
        return {"regret": float(summed[line.settings["T"] - 1]), "asked_fraction": 1.0}
    settings = {"action": line.settings.get("action", "greedy")}
    budget = line.budget(stream.horizon)
    played = play(stream, line.settings["gate"], budget, settings=settings, seed=seed)
    total = float(regrets(stream, played).sum())
    return {"regret": total, "asked_fraction": float(played.asked.mean())}


def stream_of(kind: str, seed: int, **sized: Any) -> SyntheticStream:
    """The stream of a trial."""
    if kind == "pairs":
        return pairs(**sized, seed=seed)
    if kind == "corners":
        dim, labels = int(sized["dim"]), sized.pop("labels")
        return cube(**sized, size=NOISE * math.sqrt(dim / labels), seed=seed)
    if kind == "cube":
        return cube(**sized, seed=seed)
    return make_stream("iid", "scalar", seed, purpose="rates", **sized)


@lru_cache(maxsize=2)
def _all_bought(stream: SyntheticStream, action: str) -> Array:
    played = play(stream, {"name": "always"}, stream.horizon, settings={"action": action})
    return np.cumsum(regrets(stream, played))


def derive(samples: Samples) -> list[Row]:
    """Slopes of log mean regret, and the worst mean regret over ‖θ*‖ on the hypercube."""
    grid = FULL if _iid_row("UCB", FULL.stationary[-1]) in samples else QUICK
    regret = {row: numbers["regret"] for row, numbers in samples.items()}
    rows = [row for gate in GATES for row in _pairs_slopes(grid, gate, regret)]
    rows += _corners_slopes(grid, regret)
    for name in NORMS:
        for action in ACTIONS:
            rows += _cube_rows(grid, action, name, regret)
    for action in ACTIONS:
        over = [regret[_iid_row(action, t)] for t in grid.stationary]
        rows.append(_slope(f"iid: {action}, slope in T", grid.stationary, over, 0.5))
    return rows


def _pairs_slopes(grid: Grid, gate: str, regret: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    """Measured slopes in B and in T, and next to them those of every expression there is."""
    blind = {"first": "first", "LLF": "first", "Random": "random"}.get(gate)
    sweeps = (
        ("B", grid.budgets, [(b, grid.horizon) for b in grid.budgets], -0.5),
        ("T", grid.horizons, [(grid.budget, t) for t in grid.horizons], 1.0),
        (f"T at B = T/{grid.share}", grid.horizons,
         [(t // grid.share, t) for t in grid.horizons], 0.5),
    )  # fmt: skip
    for name, places, points, rate in sweeps:
        line = slope_over(places)
        extra = {
            "rate": rate,
            "proved": float(line(np.array([theorem_a(b, t) for b, t in points]))),
            "expected": None
            if blind is None
            else float(line(np.array([blind_regret(b, t, DIM, blind) for b, t in points]))),
        }
        printed = float(line(np.array([printed_bound(b, t, DIM) for b, t in points])))
        over = [regret[_pairs_row(gate, b, t)] for b, t in points]
        yield _slope(f"pairs: {gate}, slope in {name}", places, over, printed, extra)


def _corners_slopes(grid: Grid, regret: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    """Measured slopes in d and in B where C.2 has dT/√B."""
    sweeps = (
        ("d", grid.dims, [(dim, grid.corners[0]) for dim in grid.dims], 1.0),
        ("B", grid.corners, [(grid.dims[0], b) for b in grid.corners], -0.5),
    )
    for name, places, points, rate in sweeps:
        line = slope_over(places)
        bounds = [printed_bound(b, grid.corner_horizon, dim) for dim, b in points]
        proved = [theorem_a(b, grid.corner_horizon, dim) for dim, b in points]
        over = [regret[_corners_row(*point)] for point in points]
        extra = {"rate": rate, "proved": float(line(np.array(proved)))}
        printed = float(line(np.array(bounds)))
        yield _slope(f"corners: first, slope in {name}", places, over, printed, extra)


def _cube_rows(
    grid: Grid, action: str, name: str, regret: Mapping[str, Sequence[float]]
) -> Iterator[Row]:
    """The worst mean regret over the norms that `name` allows, at each T, and its slope."""
    norms = [norm for norm in grid.norms if norm <= NORMS[name]]
    table = [[regret[_cube_row(action, norm, t)] for norm in norms] for t in grid.clocks]
    for rounds, over in zip(grid.clocks, table, strict=True):
        yield _worst_row(f"cube: {action}, {name}, T = {rounds:,}", action, rounds, norms, over)
    line, shape = slope_over(grid.clocks), (len(grid.clocks), len(norms))

    def worst(means: Array) -> Array:
        return line(means.reshape(*means.shape[:-1], *shape).max(axis=-1))

    proved = line(np.array([proved_bound(t, t, CUBE_DIM, NORMS[name]) for t in grid.clocks]))
    flat = [samples for over in table for samples in over]
    row, extra = f"cube: {action}, {name}, slope in T", {"rate": 0.5, "proved": float(proved)}
    yield _slope(row, grid.clocks, flat, 0.5, extra, worst)


def _worst_row(
    row: str, action: str, rounds: int, norms: Sequence[float], over: Sequence[Sequence[float]]
) -> Row:
    value, error = bootstrapped(lambda means: means.max(axis=-1), over)
    settings = {
        "kind": "cube", "T": rounds, "dim": CUBE_DIM, "action": ACTIONS[action],
        "most": norms[-1], "norm": norms[int(np.mean(over, axis=1).argmax())],
    }  # fmt: skip
    return Row("rates", row, "worst_regret", value, error, len(over[0]), settings=settings)


def _slope(
    row: str,
    places: Sequence[float],
    over: Sequence[Sequence[float]],
    printed: float,
    extra: Mapping[str, float | None] | None = None,
    statistic: Callable[[Array], Array] | None = None,
) -> Row:
    value, error = bootstrapped(statistic or slope_over(places), over)
    settings = {"places": list(places), **(extra or {})}
    return Row("rates", row, "slope", value, error, len(over[0]), paper=printed, settings=settings)


RATES = StreamStudy(
    name="rates",
    title="How regret moves with budget and horizon",
    claim="regret is √(dB) + c√B under a budget (Theorem 2) and d√T with all labels (Theorem 1)",
    cost="34 streams per seed and 100 seeds, about 3 s of one core per seed",
    metrics=("regret",),
    seeds=100,
    trials=trials,
    measure=measure,
    stream=stream_of,
    derive=derive,
    table=layout,
    figures=figures,
)
