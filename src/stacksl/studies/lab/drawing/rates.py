"""The tables and the figure of `rates`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stacksl.studies.lab.drawing.style import canvas, curve, styled
from stacksl.studies.lab.worlds.lower_bounds import LOWER_ANY, LOWER_BLIND, NOISE, printed_bound
from stacksl.studies.rows import Row, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figures", "layout"]

_REGRET = "regret (mean, 95 % interval)"


def layout(rows: Sequence[Row]) -> str:
    """Slopes; regret on the lower-bound instance by gate; regret where every label is bought."""
    parts = [_slopes(rows), _pairs_table(rows), _bought_table(rows)]
    first = rows[0]
    marks = "".join(f" ({mark})" for mark in first.settings.get("marks", []))
    below = f"Means of {first.seeds} seeds, a stream each, with 95 % intervals.{marks}"
    return "\n\n".join([*parts, below])


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    shown = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(shown + ["| " + " | ".join(line) + " |" for line in lines])


def _slopes(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if row.metric == "slope":
            corrected = row.settings.get("corrected")
            shown = "" if corrected is None else f"{corrected:g}"
            lines.append((row.row, _number(row, 3), f"{row.paper:.3f}", shown))
    return _table(("slope of log regret", "measured", "as printed", "corrected"), lines)


def _pairs_table(rows: Sequence[Row]) -> str:
    points = _pairs(rows)
    gates = list(dict.fromkeys(_gate(row) for row in points))
    places = list(dict.fromkeys(_point(row) for row in points))
    named = {(_gate(row), _point(row)): row for row in points}
    lines = [
        (
            f"{budget:,}",
            f"{rounds:,}",
            f"{LOWER_ANY * scale(budget, rounds, row):,.0f}",
            f"{LOWER_BLIND * scale(budget, rounds, row):,.0f}",
            f"{printed_bound(budget, rounds, row.settings['dim']):,.0f}",
            *(_number(named[gate, (budget, rounds)], 0) for gate in gates),
        )
        for budget, rounds in places
        for row in [named[gates[0], (budget, rounds)]]
    ]
    head = ("B", "T", "below for any policy", "for labels chosen blindly", "as printed", *gates)
    return _table(head, lines)


def _bought_table(rows: Sequence[Row]) -> str:
    shown = [row for row in rows if row.row.startswith(("cube", "iid")) and row.metric != "slope"]
    names = dict.fromkeys(row.row.rpartition(", T")[0] for row in shown)
    clocks = sorted({row.settings["T"] for row in shown})
    named = {(row.row.rpartition(", T")[0], row.settings["T"]): row for row in shown}
    lines = [(name, *(_number(named[name, t], 1) for t in clocks)) for name in names]
    return _table(("regret, every label bought", *(f"T = {t:,}" for t in clocks)), lines)


def scale(budget: int, rounds: int, row: Row) -> float:
    """σT√(d/B), which every bound from below on this instance is a multiple of."""
    return NOISE * rounds * math.sqrt(float(row.settings["dim"]) / budget)


def _pairs(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.settings.get("kind") == "pairs"]


def _gate(row: Row) -> str:
    return row.row.removeprefix("pairs: ").partition(",")[0]


def _point(row: Row) -> tuple[int, int]:
    return int(row.settings["labels"]), int(row.settings["rounds"])


def _number(row: Row, digits: int) -> str:
    half = half_width(row)
    shown = f"{row.value:,.{digits}f}"
    return shown if half is None else f"{shown} ± {half:,.{digits}f}"


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """`rates`: regret over B and over T on the lower-bound instance; where all is bought."""
    points = _pairs(rows)
    by_rounds = [[r for r in points if _point(r)[1] == t] for t in {_point(r)[1] for r in points}]
    by_budget = [[r for r in points if _point(r)[0] == b] for b in {_point(r)[0] for r in points}]
    with styled():
        figure, axes = canvas(2, 2, width=7.6, height=6.8)
        _over(axes[0, 0], max(by_rounds, key=len), 0)
        _over(axes[0, 1], max(by_budget, key=len), 1)
        _bought(axes[1, 0], [row for row in rows if row.metric == "worst_regret"], "cube")
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
    lower = np.array([LOWER_ANY * scale(*_point(row), row) for row in first])
    printed = np.array([printed_bound(*_point(row), row.settings["dim"]) for row in first])
    fitted = (first[0].value or 1.0) / printed[0] * printed
    ax.plot(places, lower, "k:", lw=1.2, label="lower bound, any policy")
    ax.plot(places, fitted, "k--", lw=1.2, label="Theorem 2 as printed (fitted at the left)")
    corrected = lower * ((first[0].value or 1.0) / lower[0])
    ax.plot(places, corrected, color="#555555", lw=1.0, label="corrected (fitted at the left)")
    other = f"T = {_point(rows[0])[1]:,}" if place == 0 else f"B = {_point(rows[0])[0]:,}"
    _finish(ax, places, ("B", "T")[place], f"lower-bound instance, {other}")


def _bought(ax: Axes, rows: Sequence[Row], kind: str) -> None:
    """Regret over T of both actions where every label is bought, with the slopes 1/2 and 1."""
    names: Mapping[str, Any] = {"UCB": "ucb", "greedy": "greedy"}
    for number, (name, action) in enumerate(names.items()):
        line = [row for row in rows if row.settings["action"] == action]
        curve(ax, line, [row.settings["T"] for row in line], name, number)
    line = [row for row in rows if row.settings["action"] == "ucb"]
    places = np.array([row.settings["T"] for row in line], dtype=float)
    start = line[0].value or 1.0
    ax.plot(places, start * np.sqrt(places / places[0]), "k--", lw=1.2, label="√T")
    if kind == "cube":
        lower = LOWER_BLIND * NOISE * line[0].settings["dim"] * np.sqrt(places)
        ax.plot(places, lower, "k:", lw=1.2, label="lower bound, any policy")
    title = "hypercube, worst size, B = T" if kind == "cube" else "stationary stream, B = T"
    _finish(ax, list(places), "T", title)


def _finish(ax: Axes, places: Sequence[float], label: str, title: str) -> None:
    from matplotlib.ticker import NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(list(places), [f"{p / 1000:g}k" if p >= 1000 else f"{p:g}" for p in places])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)
    ax.set_title(title)
