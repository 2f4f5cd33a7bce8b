"""The tables and the figure of `rates`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl_lab.figures.style import canvas, curve, log_log, styled
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import estimate, means, pivot, table
from stacksl_lab.synthetic.lower_bounds import (
    LOWER_ANY,
    LOWER_BLIND,
    NOISE,
    printed_bound,
    proved_bound,
    theorem_a,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_REGRET = "regret (mean, 95% interval)"


def layout(rows: Sequence[Row]) -> str:
    """Slopes; regret on the lower-bound instance by gate; regret where every label is bought."""
    bought = [_bought_table(rows, kind) for kind in ("cube", "iid")]
    parts = [_slopes(rows), _pairs_table(rows), _corners_table(rows), *bought]
    below = means(rows[0], ", a stream each, with 95% intervals.")
    return "\n\n".join([*parts, f"Means of {below}"])


def _slopes(rows: Sequence[Row]) -> str:
    lines = [
        (row.row, estimate(row, ".3f"), _plain(row.settings.get("expected")),
         f"{row.paper:.3f}", *(_plain(row.settings.get(name)) for name in ("rate", "proved")))
        for row in rows
        if row.metric == "slope"
    ]  # fmt: skip
    head = (
        "slope of log regret", "measured", "its expectation", "theorem as printed", "rate",
        "Theorem A (4) or 1, with logarithms",
    )  # fmt: skip
    return table(head, lines)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _pairs_table(rows: Sequence[Row]) -> str:
    points = _pairs(rows)
    gates = list(dict.fromkeys(_gate(row) for row in points))
    named = {(_gate(row), _point(row)): row for row in points}
    lines = [
        (f"{point[0]:,}", f"{point[1]:,}", *_bounds(named[gates[0], point]),
         *(estimate(named[gate, point], ",.0f") for gate in gates))
        for point in dict.fromkeys(_point(row) for row in points)
    ]  # fmt: skip
    head = (
        "B", "T", "below for any policy", "for labels chosen blindly", "always wrong, 2mT",
        "Theorem A (4)", "Theorem 2 as printed", *gates,
    )  # fmt: skip
    return table(head, lines)


def _bounds(row: Row) -> Iterator[str]:
    """What bounds the regret of a point from below, what no learner exceeds, and two theorems."""
    for constant in (LOWER_ANY, LOWER_BLIND, 2.0):
        yield f"{constant * scale(*_point(row), row):,.0f}"
    yield f"{theorem_a(*_point(row)):,.0f}"
    yield f"{printed_bound(*_point(row), row.settings['dim']):,.0f}"


def _corners_table(rows: Sequence[Row]) -> str:
    """Regret of `first` where C.2 has dT/√B, in units of σdT/√B and next to its bounds."""
    lines = []
    for row in (row for row in rows if row.settings.get("kind") == "corners"):
        dim, (budget, rounds) = int(row.settings["dim"]), _point(row)
        unit = NOISE * dim * rounds / math.sqrt(budget)
        lines.append(
            (f"{dim}", f"{budget:,}", f"{LOWER_BLIND * unit:,.0f}", estimate(row, ",.0f"),
             estimate(row, ".3f", times=1.0 / unit), f"{2.0 * unit:,.0f}",
             f"{theorem_a(budget, rounds, dim):,.0f}", f"{printed_bound(budget, rounds, dim):,.0f}")
        )  # fmt: skip
    head = (
        "d", "B", "Theorem C.2, any policy", "first", "first / (σdT/√B)", "always wrong",
        "Theorem A (4)", "Theorem 2 as printed",
    )  # fmt: skip
    return table(head, lines, "All signs ({±1/√d}^d), |θ*_i| = σ√(d/B)")


def _bought_table(rows: Sequence[Row], kind: str) -> str:
    return pivot(
        [row for row in rows if row.row.startswith(kind) and row.metric != "slope"],
        lambda row: row.row.rpartition(", T")[0],
        lambda row: f"T = {row.settings['T']:,}",
        lambda row: estimate(row, ",.1f"),
        corner="regret, every label bought",
    )


def scale(budget: int, rounds: int, row: Row) -> float:
    """σT√(d/B): every bound from below on this instance is a multiple, and 2mT is twice it."""
    return NOISE * rounds * math.sqrt(float(row.settings["dim"]) / budget)


def _pairs(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.settings.get("kind") == "pairs"]


def _gate(row: Row) -> str:
    return row.row.removeprefix("pairs: ").partition(",")[0]


def _point(row: Row) -> tuple[int, int]:
    return int(row.settings["labels"]), int(row.settings["rounds"])


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """`rates`: regret over B and over T on the lower-bound instance; where all is bought."""
    points = _pairs(rows)
    by_rounds = [[r for r in points if _point(r)[1] == t] for t in {_point(r)[1] for r in points}]
    by_budget = [[r for r in points if _point(r)[0] == b] for b in {_point(r)[0] for r in points}]
    with styled():
        figure, axes = canvas(2, 2, width=7.6, height=6.8)
        _over(axes[0, 0], max(by_rounds, key=len), 0)
        _over(axes[0, 1], max(by_budget, key=len), 1)
        worst = [r for r in rows if r.metric == "worst_regret" and "up to" not in r.row]
        _bought(axes[1, 0], worst, "cube")
        stationary = [row for row in rows if row.row.startswith("iid") and row.metric == "regret"]
        _bought(axes[1, 1], stationary, "iid")
        axes[0, 0].set_ylabel(_REGRET)
        axes[1, 0].set_ylabel(_REGRET)
        handles, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=3, fontsize=8)
        for ax in axes[1]:
            ax.legend(fontsize=8)
    return {"rates": figure}


def _over(ax: Axes, rows: Sequence[Row], place: int) -> None:
    """Regret of every gate over B (`place` 0) or T (1), with the bounds."""
    for number, gate in enumerate(dict.fromkeys(_gate(row) for row in rows)):
        line = sorted((row for row in rows if _gate(row) == gate), key=_point)
        curve(ax, line, [_point(row)[place] for row in line], gate, number)
    first = sorted((row for row in rows if _gate(row) == _gate(rows[0])), key=_point)
    places = [_point(row)[place] for row in first]
    _draw_bounds(ax, first, places)
    fixed = f"T = {_point(rows[0])[1]:,}" if place == 0 else f"B = {_point(rows[0])[0]:,}"
    _finish(ax, places, ("B", "T")[place], f"lower-bound instance, {fixed}")


def _draw_bounds(ax: Axes, first: Sequence[Row], places: Sequence[int]) -> None:
    """Two bounds and what no learner exceeds as they are; a rate and Theorem 2 fitted."""
    lower = np.array([LOWER_ANY * scale(*_point(row), row) for row in first])
    printed = np.array([printed_bound(*_point(row), row.settings["dim"]) for row in first])
    proved = [theorem_a(*_point(row)) for row in first]
    start = first[0].value or 1.0
    ax.plot(places, proved, color="#555555", lw=1.6, label="Theorem A (4), with its constants")
    ax.plot(places, 2.0 / LOWER_ANY * lower, "k-.", lw=1.0, label="always wrong, 2mT")
    ax.plot(places, lower, "k:", lw=1.2, label="lower bound, any policy")
    name = "Theorem 2 as printed (fitted at the left)"
    ax.plot(places, start / printed[0] * printed, "k--", lw=1.2, label=name)
    rate = start / lower[0] * lower
    ax.plot(places, rate, color="#555555", lw=0.8, label="rate T·d/√B (fitted at the left)")


def _bought(ax: Axes, rows: Sequence[Row], kind: str) -> None:
    """Regret over T of both actions where every label is bought, with the slope 1/2."""
    names: Mapping[str, Any] = {"UCB": "ucb", "greedy": "greedy"}
    for number, (name, action) in enumerate(names.items()):
        line = [row for row in rows if row.settings["action"] == action]
        curve(ax, line, [row.settings["T"] for row in line], name, number)
    line = [row for row in rows if row.settings["action"] == "ucb"]
    places = np.array([row.settings["T"] for row in line], dtype=float)
    start = line[0].value or 1.0
    shown = start * np.sqrt(places / places[0])
    ax.plot(places, shown, "k--", lw=1.2, label="√T (fitted at the left)")
    if kind == "cube":
        dim, norm = line[0].settings["dim"], line[0].settings["most"]
        proved = [proved_bound(t, t, dim, norm) for t in places]
        name = "Theorem 1, with its constants"
        ax.plot(places, proved, color="#555555", lw=1.6, label=name)
        lower = LOWER_BLIND * NOISE * dim * np.sqrt(places)
        ax.plot(places, lower, "k:", lw=1.2, label="lower bound, any policy")
    title = "hypercube, worst ‖θ*‖ ≤ 1, B = T" if kind == "cube" else "stationary stream, B = T"
    _finish(ax, list(places), "T", title)


def _finish(ax: Axes, places: Sequence[float], label: str, title: str) -> None:
    log_log(ax, places)
    ax.set_xlabel(label)
    ax.set_title(title)
