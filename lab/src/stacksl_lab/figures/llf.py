"""The tables and the figure of `llf`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stacksl_lab.figures.style import canvas, styled
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import estimate, means, pivot, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEEDBACKS: Mapping[str, str] = {"scalar": "rewards", "softmax": "labels"}


def layout(rows: Sequence[Row], shown: Sequence[str]) -> str:
    """The map of the gate, what it is compared with, and the cells of the entries `shown`."""
    unit = "κ is c in units of the spread at θ = 0, which every item of a warm-up has."
    below = means(rows[0], f", 95% intervals. {unit}")
    mapped = _mapped(rows)
    parts = [*_map_tables(mapped), _entries_table(mapped, shown), *_cell_tables(rows, shown)]
    return "\n\n".join([*parts, f"Means of {below}"])


def _mapped(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """What is derived of each entry, by its name and the feedback, then by the metric."""
    mapped: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if "cells" in row.settings:
            place = row.settings["entry"], row.settings["feedback"]
            mapped.setdefault(place, {})[row.metric] = row
    return mapped


def _place(entry: str) -> tuple[str, ...]:
    """λ, κ and, where it counts rounds, the radius of an entry of the map; () of others."""
    parts = entry.split(", ")
    return tuple(parts[1:]) if parts[0] == "llf" else ()


def _map_tables(mapped: Mapping[tuple[str, str], Mapping[str, Row]]) -> Iterator[str]:
    """Regret over `first` and, in brackets, the share of the budget used, for each radius."""
    for feedback, label in FEEDBACKS.items():
        for size, radius in ((2, "labels"), (3, "rounds")):
            here = [
                (place, mine)
                for (entry, fed), mine in mapped.items()
                if fed == feedback and len(place := _place(entry)) == size
            ]
            kappas = list(dict.fromkeys(place[1] for place, _ in here))
            lines = [
                [ridge, *(_cell(mine) for place, mine in here if place[0] == ridge)]
                for ridge in dict.fromkeys(place[0] for place, _ in here)
            ]
            title = f"{label.capitalize()}, radius of {radius}: regret over `first` (budget used)"
            yield table(["", *kappas], lines, title)


def _cell(mine: Mapping[str, Row]) -> str:
    return f"{mine['over_first'].value:.2f} ({mine['budget_used'].value:.2f})"


def _entries_table(
    mapped: Mapping[tuple[str, str], Mapping[str, Row]], shown: Sequence[str]
) -> str:
    lines = [
        (entry, label, estimate(mine["over_first"], ".2f"),
         estimate(mine["over_information"], ".2f"),
         estimate(mine["worst_over_information"], ".1f"),
         str(mine["worst_over_information"].settings["cell"]),
         f"{mine['budget_used'].value:.2f}")
        for feedback, label in {"both": "both", **FEEDBACKS}.items()
        for (entry, fed), mine in mapped.items()
        if fed == feedback and (entry in shown or not _place(entry))
    ]  # fmt: skip
    head = ("", "feedback", "regret over `first`", "over `information`", "worst cell", "which",
            "budget used")  # fmt: skip
    return table(head, lines, "Geometric means over the cells, and the worst")


def _cell_tables(rows: Sequence[Row], shown: Sequence[str]) -> Iterator[str]:
    """Regret a round × 1000 of the entries that are compared, a table for each kind of feedback."""
    cells = [r for r in rows if " · " in r.row and r.metric == "regret_per_round"]
    mine = [row for row in cells if row.row.partition(" · ")[0] in shown]
    for feedback, budget in dict.fromkeys(tuple(r.row.split(" · ")[2:]) for r in mine):
        yield pivot(
            [row for row in mine if row.row.endswith(f" · {feedback} · {budget}")],
            lambda row: row.row.split(" · ")[0],
            lambda row: row.row.split(" · ")[1],
            lambda row: estimate(row, ".3g", times=1000.0),
            title=f"Regret a round on the way, × 1000: {feedback}, budget {budget}",
        )


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """`llf`: regret over `first` over (λ, κ)."""
    return {"llf": _map(_mapped(rows))}


def _map(mapped: Mapping[tuple[str, str], Mapping[str, Row]]) -> Figure:
    """Regret over `first` under rewards and labels, over (λ, κ), the radius counting labels."""
    from matplotlib.colors import LogNorm

    with styled():
        figure, axes = canvas(1, 2, width=8.4, height=3.0)
        for ax, (feedback, label) in zip(axes[0], FEEDBACKS.items(), strict=True):
            here = {
                place: mine["over_first"].value
                for (entry, fed), mine in mapped.items()
                if fed == feedback and len(place := _place(entry)) == 2
            }
            ridges, kappas = (list(dict.fromkeys(p[i] for p in here)) for i in (0, 1))
            over = np.array([[here[r, k] for k in kappas] for r in ridges], dtype=float)
            ax.imshow(over, aspect="auto", cmap="cividis_r", norm=LogNorm(0.2, 5.0))
            for (i, j), value in np.ndenumerate(over):
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8,
                        color="white" if value > 1.0 else "black")  # fmt: skip
            ax.set_xticks(range(len(kappas)), [k.removeprefix("κ = ") for k in kappas])
            ax.set_yticks(range(len(ridges)), [r.removeprefix("λ = ") for r in ridges])
            ax.set_xlabel("κ = c/Δ₁")
            ax.set_ylabel("λ")
            ax.set_title(f"regret over that of `first`, {label}")
            ax.grid(visible=False)
    return figure
