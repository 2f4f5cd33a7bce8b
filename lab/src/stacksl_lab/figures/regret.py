"""The table and the figures of `regret`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stacksl_lab.figures.style import COLORS, canvas, curve, dots, styled
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import estimate, means, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_HEADS = (
    "regret / T, ours", "paper", "ours / paper", "over first", "labels / T",
    "regret of the last model",
)  # fmt: skip


def layout(rows: Sequence[Row]) -> str:
    """A line a row: its regret with its interval, and what it is compared with."""
    named: dict[str, dict[str, Row]] = {}
    for row in rows:
        named.setdefault(row.row.partition(" / ")[0], {})[row.metric] = row
    shown = table(["", *_HEADS], [_cells(name, mine) for name, mine in named.items()])
    first = next(iter(next(iter(named.values())).values()))
    below = means(first, " with 95% intervals. Δ₁ is the spread of the first round.")
    return f"{shown}\n\nMeans of {below}"


def _cells(name: str, mine: Mapping[str, Row]) -> Iterator[str]:
    regret = mine["regret_per_round"]
    asked = regret.asked_fraction
    yield name
    yield estimate(regret, ".5f")
    yield "" if regret.paper is None else f"{regret.paper:.5f}"
    yield estimate(mine.get("over_paper"), ".2f")
    yield estimate(mine.get("over_first"), ".3f")
    yield "" if asked is None else f"{asked:.4f}"
    yield estimate(mine.get("final_regret"), ".5f")


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """`regret`: regret a round next to the paper's; `regret-switch`: regret and labels over c."""
    regrets = [row for row in rows if row.metric == "regret_per_round"]
    plain = [row for row in regrets if "Δ₁" not in row.row]
    return {"regret": _rows(plain), "regret-switch": _switch(regrets)}


def _rows(rows: Sequence[Row]) -> Figure:
    """Regret of every row with its interval, the paper's number as a cross."""
    names = [row.row for row in rows]
    with styled():
        figure, axes = canvas(height=0.8 + 0.22 * len(rows))
        ax = axes[0, 0]
        dots(ax, {"": rows}, names, lambda row: row.row)
        printed = [(row.paper, place) for place, row in enumerate(rows) if row.paper is not None]
        for paper, place in printed:
            ax.plot(paper, place, "x", color=COLORS[1], ms=6, mew=1.6)
        ax.set_xlabel("regret a round (mean, 95% interval over seeds; × the paper)")
        ax.set_xscale("log")
    return figure


def _switch(rows: Sequence[Row]) -> Figure:
    """Regret and labels bought against c in units of the first spread."""
    swept = [row for row in rows if "first_spreads" in row.settings]
    kinds: Sequence[tuple[str, Sequence[Row]]] = (
        ("radius counts labels", [row for row in swept if not _printed(row)]),
        ("radius counts rounds, as printed", [row for row in swept if _printed(row)]),
    )
    with styled():
        figure, axes = canvas(2, 1, height=4.6)
        above, below = axes[:, 0]
        for number, (name, line) in enumerate(kinds):
            places = [row.settings["first_spreads"] for row in line]
            curve(above, line, places, name, number)
            asked = [row.asked_fraction for row in line]
            below.plot(places, asked, color=COLORS[number], marker="os"[number], ms=4, lw=1.3)
        above.set_yscale("log")
        above.set_ylabel("regret a round")
        above.legend(loc="upper left")
        below.set_ylabel("labels / rounds")
        below.set_xlabel("c in units of the first spread Δ₁ (β = 0.1; mean, 95% interval)")
        for ax in (above, below):
            ax.axvline(1.0, color="#555555", lw=0.8, ls=":")
    return figure


def _printed(row: Row) -> bool:
    settings: Mapping[str, Any] = row.settings["scorer_settings"]
    return settings.get("radius_counts") == "rounds"
