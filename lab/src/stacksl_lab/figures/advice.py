"""The verdict on a sentence by its interval; the table and the figure of the study `advice`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.study.rows import Row, half_width
from stacksl_lab.study.tables import estimate, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


RULE = (
    "An effect above 0 means that the sentence is right. The verdict is *holds* if the whole 95%"
    " interval is above 0, *the reverse* if it is below 0, and *no effect seen* otherwise. It is"
    " *does not* if a share is 0 under every seed, or if the whole interval of a distance is too"
    " large. With so many sentences at 95%, chance may misjudge one or two."
)


DISTANCE = "demand_uncut"
"""The metric whose effect is a distance from a target: below 0 it is missed, on either side."""

CROWDED = 6  # values under a panel, beyond which their names are turned

HEADS = {
    "demand": "labels asked for / B",
    "regret_per_round": "regret a round",
    "final_regret": "regret of the last θ",
}


def verdict(row: Row) -> str:
    """`holds`, `the reverse`, `no effect seen` or `does not`, by an effect's interval (`RULE`).

    >>> verdict(Row("advice", "budget", "effect", 2.0, 0.5, 20))
    'holds'
    """
    half, value = half_width(row), row.value
    if row.settings.get("presence") and value == 0.0:
        return "does not"
    if half is None or value is None or abs(value) <= half:
        return "no effect seen"
    if value > 0.0:
        return "holds"
    return "does not" if row.settings.get("metric") == DISTANCE else "the reverse"


def layout(rows: Sequence[Row]) -> str:
    """A line a sentence: what is claimed, the sweep, the effect with its interval, the verdict."""
    heads = ("", "the paper", "sweep: mean over seeds", "effect", "", "verdict")
    lines, last = [], ""
    for row in rows:
        if row.metric == "effect":
            known = row.settings
            sweep = _points(_sweep(row, rows))
            sweep, last = ("the same" if sweep == last else sweep), sweep
            size = estimate(row, ".3g", ".2g")
            lines.append([row.row, known["text"], sweep, known["effect"], size, verdict(row)])
    return "\n\n".join([table(heads, lines), _levels(rows), RULE])


def _sweep(effect: Row, rows: Sequence[Row]) -> list[Row]:
    """The rows of the lines an effect is made of, in their order."""
    known = effect.settings
    mine = {row.row: row for row in rows if row.metric == known["metric"]}
    return [mine[name] for name in known["lines"] if name in mine]


def _points(points: Sequence[Row]) -> str:
    """Each value with its mean, budget by budget where there are several."""
    if len(points) == 1:
        return f"{points[0].value or 0.0:.3g}"
    name = _parameter(points[0])
    groups = _by_budget(points)
    parts = []
    for budget, mine in groups:
        values = ", ".join(f"{_value(point)} → {point.value or 0.0:.3g}" for point in mine)
        parts.append(values if budget is None else f"β = {budget:g}: {values}")
    return f"{name}: {'; '.join(parts)}" if name else "; ".join(parts)


def _by_budget(points: Sequence[Row]) -> list[tuple[float | None, list[Row]]]:
    """The points of each budget; all together under None where it is one, or what is swept."""
    budgets = list(dict.fromkeys(point.budget_fraction for point in points))
    if len(budgets) in (1, len(points)):
        return [(None, list(points))]
    return [(b, [point for point in points if point.budget_fraction == b]) for b in budgets]


def _levels(rows: Sequence[Row]) -> str:
    """What the bisections found, and what is asked for of the stream itself at both levels."""
    by_metric = {(row.row, row.metric): row for row in rows}
    lines = []
    for name in dict.fromkeys(row.row for row in rows if row.metric == "level"):
        level, above, jump = (_mean(by_metric[name, m]) for m in ("level", "level_above", "jump"))
        at = estimate(by_metric[name, "demand_uncut"], ".3f", ".2g")
        over = _mean(by_metric[name, "demand_uncut_above"])
        lines.append(
            f"- {name.partition(':')[0]}: between the level {level:.4g} and the next one,"
            f" {above:.4g}, the labels asked for fall by {jump:.1%} of B in simulation. On the"
            f" stream itself, where it may ask for twice B, the gate asks for {at} of B at the"
            f" first and {over:.3f} at the second."
        )
    return "\n".join(lines)


def _mean(row: Row) -> float:
    return row.value or 0.0


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """The sweeps, a panel each, with 95% intervals; sentences on one sweep share it."""
    from stacksl_lab.figures.style import canvas, styled

    panels: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row.metric == "effect" and len(row.settings["lines"]) > 1:
            panels.setdefault((row.settings["metric"], *row.settings["lines"]), row)
    columns = 4
    tall = -(-len(panels) // columns)
    with styled():
        drawn, axes = canvas(tall, columns, width=11.0, height=2.5 * tall)
        for ax, effect in zip(axes.flat, panels.values(), strict=False):
            _panel(ax, effect, _sweep(effect, rows))
        for ax in list(axes.flat)[len(panels) :]:
            ax.set_visible(False)
        drawn.suptitle("Means over seeds with 95% intervals", fontsize=9)
    return {"advice": drawn}


def _panel(ax: Axes, effect: Row, points: Sequence[Row]) -> None:
    from stacksl_lab.figures.style import curve

    groups = _by_budget(points)
    for number, (budget, mine) in enumerate(groups):
        name = "" if budget is None else f"β = {budget:g}"
        curve(ax, mine, list(range(len(mine))), name, number)
        turned = 45.0 if len(mine) > CROWDED else 0.0
        values = [_value(point) for point in mine]
        ax.set_xticks(range(len(mine)), values, fontsize=6, rotation=turned)
    if len(groups) > 1:
        ax.legend(fontsize=7)
    ax.set_title(effect.row.partition(",")[0], fontsize=9)
    metric = str(effect.settings["metric"])
    ax.set_ylabel(HEADS[metric], fontsize=8)
    ax.set_xlabel(_parameter(points[0]), fontsize=8)
    if metric == "demand":
        ax.set_ylim(-0.05, 1.05)
    elif min(point.value or 0.0 for point in points) > 0.0:
        ax.set_yscale("log")
    ax.margins(x=0.1)


def _parameter(point: Row) -> str:
    name, separator, _ = point.row.partition(": ")[2].partition(" = ")
    return name if separator else ""


def _value(point: Row) -> str:
    text = point.row.partition(": ")[2].partition(",")[0].rpartition("= ")[2]
    return text.replace("0.0001", "1e-04")  # as wide as its neighbors
