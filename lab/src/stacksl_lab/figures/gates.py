"""The tables and figures of `gates`: gates against streams, the best of each stream in bold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stacksl.core.blocks import Array
from stacksl_lab.streams.gates.entries import RESET, Place, place_of, swept_of
from stacksl_lab.study.rows import Row, half_width
from stacksl_lab.study.tables import between, pivot, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TITLES: Mapping[str, str] = {
    "regret_per_round": "Regret a round on the way",
    "final_regret": "Regret a round of the final model",
}
STARTS: Mapping[str, str] = {"regret_per_round": "", "final_regret": "final_"}
REACH = 4.0  # the ratio from which on a cell is as dark as it gets


def layout(rows: Sequence[Row]) -> str:
    """The summary, then a table of gates against streams for each metric, feedback and budget."""
    blocks = [_overall(rows)]
    for metric, title in TITLES.items():
        placed = {place_of(r.row): r for r in rows if r.metric == metric and not swept_of(r.row)}
        for feedback, budget in dict.fromkeys((p.feedback, p.budget) for p in placed):
            mine = {p: r for p, r in placed.items() if (p.feedback, p.budget) == (feedback, budget)}
            head = f"{title}, × 1000: {feedback}, budget {budget:g}"
            blocks.append(_by_stream(mine, head))
    if any(swept_of(row.row) for row in rows):
        blocks.append(_by_ridge(rows))
    return "\n\n".join(blocks)


def _by_ridge(rows: Sequence[Row]) -> str:
    """Gates and streams against λ: regret on the way."""
    sweeps = {
        s: row for row in rows if row.metric == "regret_per_round" and (s := swept_of(row.row))
    }
    names = {row.row: swept for swept, row in sweeps.items()}

    def cell(row: Row) -> str:
        shown, half = _thousandth(row.value or 0.0), half_width(row)
        return shown if half is None else f"{shown} ± {_thousandth(half)}"

    return pivot(
        sweeps.values(),
        lambda row: f"{names[row.row].entry}, {names[row.row].kind}",
        lambda row: f"λ = {names[row.row].ridge:g}",
        cell,
        title=f"{TITLES['regret_per_round']}, × 1000, by the ridge: scalar, budget 0.02",
    )


def _overall(rows: Sequence[Row]) -> str:
    """Each entry's geometric mean and worst ratio, by metric, with bootstrap intervals."""
    wanted = [f"{start}{kind}" for start in STARTS.values() for kind in ("geometric_mean", "worst")]
    mine = {(r.row, r.metric): r for r in rows if r.settings.get("feedback") == "both"}
    head = (
        "ratio to the cell's best", "on the way: geometric mean", "worst",
        "final model: geometric mean", "worst",
    )  # fmt: skip
    names = _ranked(rows)
    return table(head, ([name, *(between(mine[name, m]) for m in wanted)] for name in names))


def _ranked(rows: Sequence[Row], reset: bool | None = None) -> list[str]:
    """Entries by the geometric mean on the way, those with the reset after the others."""
    chosen = [
        row
        for row in rows
        if row.metric == "geometric_mean"
        and row.settings.get("feedback") == "both"
        and (reset is None or row.row.endswith(RESET) == reset)
    ]
    return [r.row for r in sorted(chosen, key=lambda r: (r.row.endswith(RESET), r.value or 0.0))]


def _by_stream(by_place: Mapping[Place, Row], title: str) -> str:
    """Gates against streams, the best of a stream in bold, with and without reset."""
    best: dict[tuple[str, bool], float] = {}
    for place, row in by_place.items():
        key, value = (place.kind, place.reset), row.value or 0.0
        best[key] = min(best.get(key, value), value)

    def cell(row: Row) -> str:
        place, half = place_of(row.row), half_width(row)
        shown = _thousandth(row.value or 0.0)
        shown = f"**{shown}**" if row.value == best[place.kind, place.reset] else shown
        return shown if half is None else f"{shown} ± {_thousandth(half)}"

    entry, kind = (lambda row: place_of(row.row).entry), (lambda row: place_of(row.row).kind)
    return pivot(by_place.values(), entry, kind, cell, title=title)


def _thousandth(value: float) -> str:
    """`value` × 1000 to three digits."""
    return f"{float(f'{1000 * value:.3g}'):g}"


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """The ratios on the way and of the final model as heat tables, and the summary with bars."""
    return {
        "gates": _heat(rows, "regret_per_round"),
        "gates-final": _heat(rows, "final_regret"),
        "gates-summary": _summary(rows),
    }


def _heat(rows: Sequence[Row], metric: str) -> Figure:
    from stacksl_lab.figures.style import canvas, styled

    names = _ranked(rows, reset=False)
    cells = {
        place_of(row.row): row.value
        for row in rows
        if row.metric == metric and not swept_of(row.row)
    }
    panels = list(dict.fromkeys((p.feedback, p.budget) for p in cells))
    kinds = list(dict.fromkeys(place.kind for place in cells))
    across = len({budget for _, budget in panels})
    down = len(panels) // across
    with styled():
        width = 2.0 + 0.5 * len(kinds) * across
        figure, axes = canvas(down, across, width, 0.4 + down * (0.9 + 0.21 * len(names)))
        for number, (ax, (feedback, budget)) in enumerate(zip(axes.flat, panels, strict=True)):
            means = np.array([[cells[Place(n, k, feedback, budget)] for k in kinds] for n in names])
            _shaded(ax, np.asarray(means / means.min(axis=0), dtype=float))
            ax.set_title(f"{feedback}, budget {budget:g}")
            low, left = number >= len(panels) - across, number % across == 0
            ax.set_xticks(range(len(kinds)), kinds if low else [""] * len(kinds))
            ax.set_yticks(range(len(names)), names if left else [""] * len(names))
            _slanted(ax)
        figure.suptitle(f"{TITLES[metric]}: mean over the best gate's", fontsize=10)
    return figure


def _slanted(ax: Axes) -> None:
    """Names of streams at a slant, no grid and no ticks between the cells."""
    ax.tick_params(axis="x", rotation=45)
    for label in ax.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    ax.grid(visible=False)
    ax.tick_params(length=0)


def _shaded(ax: Axes, over: Array) -> None:
    """Ratios as colors, each written in its cell."""
    from matplotlib.colors import LogNorm

    ax.imshow(over, aspect="auto", cmap="cividis_r", norm=LogNorm(1.0, REACH))
    for (i, j), ratio in np.ndenumerate(over):
        text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
        ax.text(j, i, text, ha="center", va="center", fontsize=6.5,
                color="white" if ratio > 2.0 else "black")  # fmt: skip


def _summary(rows: Sequence[Row]) -> Figure:
    """Geometric means and worst ratios with their 95% bootstrap intervals."""
    from stacksl_lab.figures.style import canvas, dots, log_ratio, styled

    names = _ranked(rows)
    kinds = {"geometric_mean": "geometric mean", "worst": "worst cell"}
    mine = [row for row in rows if row.settings.get("feedback") == "both"]
    with styled():
        figure, axes = canvas(1, 2, 8.4, 1.2 + 0.24 * len(names))
        for ax, start, title in zip(axes[0], STARTS.values(), TITLES.values(), strict=True):
            series = {
                f"{label}, 95% interval": [row for row in mine if row.metric == f"{start}{kind}"]
                for kind, label in kinds.items()
            }
            dots(
                ax,
                series,
                names,
                lambda row: row.row,
                lambda row: row.settings["interval"],
                named=ax is axes[0, 0],
            )
            log_ratio(ax)
            ax.set_title(title)
            ax.set_xlabel("ratio to the best gate of a cell")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncol=2)
    return figure
