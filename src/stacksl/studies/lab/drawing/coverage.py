"""The tables and the figure of the study `coverage`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stacksl.studies.lab.measures.shares import held, interval_of
from stacksl.studies.rows import Row, half_width
from stacksl.studies.tables import estimate, pivot, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PROMISES = {
    "covered": "the set",
    "certified": "the certificate of all rounds together",
    "certified_rounds": "the certificate of every single round",
}
RULE = (
    "Against 1 − δ = 0.95, by the exact 95 % interval of the share: a promise holds where all of"
    " the interval is at least that, fails where all of it is below, and is open else."
)


def layout(rows: Sequence[Row]) -> str:
    """Sets, then certificates: a learner and its purchases a line, a budget a column; verdicts."""
    shares = "Runs in which θ* lies in the set in every round"
    bounds = "Runs in which the certificate bounds the regret"
    parts = [
        _table(rows, shares, "covered", _share),
        _table(rows, f"{shares}, its radius counting rounds", "covered_rounds", _share),
        _table(rows, "Rounds in which θ* lies in the set, mean share", "covered_time", _number),
        _table(rows, "Radius / ‖θ − θ*‖ in V before the last round", "radius_ratio", _number),
        _table(rows, bounds, "certified", _share),
        _table(rows, f"{bounds} of every single round", "certified_rounds", _share),
        _table(rows, "Certificate / regret", "certificate_ratio", _number),
        _verdicts(rows),
        RULE,
    ]
    return "\n\n".join(parts)


def _table(rows: Sequence[Row], title: str, metric: str, shown: Callable[[Row], str]) -> str:
    """The numbers of a metric; a sentence where they are the same everywhere."""
    found = [row for row in rows if row.metric == metric]
    if len({shown(row) for row in found}) == 1:
        return f"**{title}:** {shown(found[0])} in each of {len(found)} settings."
    return pivot(
        found,
        lambda row: str(row.settings["family"]),
        lambda row: f"β = {row.budget_fraction:g}",
        shown,
        title=title,
    )


def _share(row: Row) -> str:
    low, high = interval_of(row)
    return f"{row.value or 0.0:.2f} [{low:.2f}, {high:.2f}]"


def _number(row: Row) -> str:
    return estimate(row, ".3g", ".2g")


def _verdicts(rows: Sequence[Row]) -> str:
    """A line for each learner and V: at how many settings each promise of 1 − δ is kept."""
    lines = []
    for group in dict.fromkeys(str(row.settings["group"]) for row in rows):
        mine = [row for row in rows if row.settings["group"] == group]
        lines.append([group, *(_kept([r for r in mine if r.metric == m]) for m in PROMISES)])
    title = "Settings in which a promise holds / fails / is open"
    return table(["", *PROMISES.values()], lines, title)


def _kept(rows: Sequence[Row]) -> str:
    said = [held(row, 1.0 - float(row.settings["delta"])) for row in rows]
    return " / ".join(str(said.count(name)) for name in ("holds", "fails", "open"))


def figure(rows: Sequence[Row]) -> Figure:
    """Left the share of runs covered with its exact interval, right certificate / regret."""
    from stacksl.studies.lab.drawing.style import canvas, styled

    families = list(dict.fromkeys(str(row.settings["family"]) for row in rows))
    with styled():
        drawn, axes = canvas(1, 2, width=8.6, height=1.4 + 0.34 * len(families))
        left, right = axes[0]
        _dots(left, [r for r in rows if r.metric == "covered"], families, exact=True)
        _dots(right, [r for r in rows if r.metric == "certificate_ratio"], families, exact=False)
        right.set_xscale("log")
        always = "runs in which θ* is always in the set\n(exact 95 % interval; dotted: 1 − δ)"
        _framed(left, families, always, promised=0.95)
        unnamed = [""] * len(families)
        ratio = "certificate / regret\n(mean, 95 % interval; dotted: 1)"
        _framed(right, unnamed, ratio, promised=1.0)
        handles, names = left.get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside upper center", ncols=len(names))
    return drawn


def _framed(ax: Axes, names: Sequence[str], label: str, promised: float) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.axvline(promised, color="black", lw=0.8, ls=":")
    ax.set_xlabel(label)


def _dots(ax: Axes, rows: Sequence[Row], families: Sequence[str], exact: bool) -> None:
    from stacksl.studies.lab.drawing.style import COLOURS, MARKERS

    for number, budget in enumerate(dict.fromkeys(row.budget_fraction for row in rows)):
        mine = [row for row in rows if row.budget_fraction == budget and row.value is not None]
        places = [families.index(r.settings["family"]) + 0.18 * (number - 1.5) for r in mine]
        values = [row.value or 0.0 for row in mine]
        ax.errorbar(
            values,
            places,
            xerr=list(zip(*(_reach(row, exact) for row in mine), strict=True)),
            fmt=MARKERS[number],
            color=COLOURS[number],
            label=f"β = {budget:g}",
            ms=3.5,
            capsize=1.5,
            lw=0.9,
        )


def _reach(row: Row, exact: bool) -> tuple[float, float]:
    """How far the interval goes below and above the value."""
    if not exact:
        half = half_width(row) or 0.0
        return half, half
    low, high = interval_of(row)
    value = row.value or 0.0
    return max(value - low, 0.0), max(high - value, 0.0)
