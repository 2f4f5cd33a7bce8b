"""The tables and the figure of `complexity`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.figures.style import canvas, curve, log_log, styled
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import estimate, means, pivot, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


AXES = ("d", "K", "B", "T")
LABELS: Mapping[str, str] = {"milliseconds": "milliseconds a run", "peak_mib": "MiB, the most held"}


def layout(rows: Sequence[Row]) -> str:
    """Slopes next to the paper's and ours, then what was measured."""
    slopes = [row for row in rows if "slope" in row.metric]
    where = slopes[0].settings["machine"]
    note = ", the median of three runs each, with 95% intervals; measured on"
    below = means(rows[0], f"{note} {where}.")
    return "\n\n".join([_slopes(slopes), _measured(rows), below])


def _slopes(rows: Sequence[Row]) -> str:
    named = {(row.row, row.metric): row for row in rows}
    parts = []
    for metric, what in (("milliseconds", "time"), ("peak_mib", "memory")):
        lines = [_slope_cells(named, name, metric) for name in dict.fromkeys(n for n, _ in named)]
        head = (f"slope of {what}", "measured", "between the last two", "paper", "counted")
        parts.append(table(head, lines))
    return "\n\n".join(parts)


def _slope_cells(named: Mapping[tuple[str, str], Row], name: str, metric: str) -> tuple[str, ...]:
    """The slope over all points and at their end; next to them those of both counts at the end."""
    overall, end = named[name, f"slope of {metric}"], named[name, f"end slope of {metric}"]
    counted = round(float(end.settings["counted"]), 2) + 0.0
    paper = round(end.paper or 0.0, 2) + 0.0
    return name, estimate(overall, ".2f"), estimate(end, ".2f"), f"{paper:.2f}", f"{counted:.2f}"


def _measured(rows: Sequence[Row]) -> str:
    memory = {row.row: row for row in rows if row.metric == "peak_mib"}
    return pivot(
        [row for row in rows if row.metric == "milliseconds"],
        lambda row: f"{row.settings['axis']} = {_place(row):,}",
        lambda row: str(row.settings["kind"]),
        lambda row: f"{row.value:.3g} / {memory[row.row].value:.3g}",
        corner="ms / MiB",
    )


def _place(row: Row) -> int:
    return int(row.settings[row.settings["axis"]])


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """`complexity`: time above and memory below, against each of d, K, B, T."""
    with styled():
        figure, axes = canvas(2, 4, width=9.6, height=5.2)
        for line, (metric, label) in enumerate(LABELS.items()):
            for column, axis in enumerate(AXES):
                shown = [r for r in rows if r.metric == metric and r.settings["axis"] == axis]
                _draw(axes[line, column], shown)
                axes[line, column].set_xlabel(axis)
            values = [row.value for row in rows if row.metric == metric and row.value]
            for ax in axes[line]:
                ax.set_ylim(min(values) / 1.5, max(values) * 1.5)
            axes[line, 0].set_ylabel(label)
        handles, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8)
    return {"complexity": figure}


def _draw(ax: Axes, rows: Sequence[Row]) -> None:
    for number, kind in enumerate(dict.fromkeys(row.settings["kind"] for row in rows)):
        line = [row for row in rows if row.settings["kind"] == kind]
        curve(ax, line, [_place(row) for row in line], kind, number)
    places = sorted({_place(row) for row in rows})
    log_log(ax, places)
