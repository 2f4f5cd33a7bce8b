"""The tables and the figure of the study `certificates`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.statistics.intervals import clopper_pearson
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import between, estimate, pivot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = 1.0
"""The λ at which what does not depend on it is shown, and what was measured at it alone."""


def layout(rows: Sequence[Row]) -> str:
    """Shares of runs that each set lost, then sizes: d and S down, λ across."""
    usual = [row for row in rows if row.settings["ridge"] == USUAL]
    nominal = {row.row: row.value for row in usual if row.metric == "radius"}

    def both(row: Row) -> str:
        return f"{_number(row)} ({nominal[row.row]:.3g})"

    return "\n\n".join(
        [
            _table(rows, "Runs that lose θ*: E_H", "lost", _share),
            _table(usual, "The mixture's set", "lost_mixture", _share, _by_norm),
            _table(rows, "The plug-in's set", "lost_plug_in", _share),
            _table(rows, "Threshold: plug-in less mixture, nats", "over_mixture", _number),
            _table(rows, "Half-width: E_H", "width", _number),
            _table(usual, "The mixture's set", "width_mixture", _number, _by_norm),
            _table(
                usual, "Its radius in H about θ (E_H's), λ = 1", "radius_mixture", both, _by_norm
            ),
        ]
    )


def _table(
    rows: Sequence[Row],
    title: str,
    metric: str,
    shown: Callable[[Row], str],
    places: Callable[[Row], tuple[str, str]] | None = None,
) -> str:
    places = places or _by_ridge
    return pivot(
        [row for row in rows if row.metric == metric],
        lambda row: places(row)[0],
        lambda row: places(row)[1],
        shown,
        title=title,
    )


def _by_ridge(row: Row) -> tuple[str, str]:
    where = f"{row.settings['design']}, d = {row.settings['dim']}, S = {row.settings['bound']:g}"
    return where, f"λ = {row.settings['ridge']:g}"


def _by_norm(row: Row) -> tuple[str, str]:
    settings = row.settings
    return f"{settings['design']}, d = {settings['dim']}", f"S = {settings['bound']:g}"


def _share(row: Row) -> str:
    """The share of all runs of all seeds, with its exact 95% interval."""
    runs = row.seeds * int(row.settings["runs"])
    return between(row, clopper_pearson(round((row.value or 0.0) * runs), runs), ".3f")


def _number(row: Row) -> str:
    return estimate(row, ".3g", ".2g")


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Shares of runs that E_H lost as maps over λ and S, one for each d."""
    from stacksl_lab.figures.style import canvas, styled

    lost = [r for r in rows if r.metric == "lost" and r.settings["design"] == "first"]
    dims = list(dict.fromkeys(row.settings["dim"] for row in lost))
    bounds = list(dict.fromkeys(row.settings["bound"] for row in lost))
    ridges = list(dict.fromkeys(row.settings["ridge"] for row in lost))
    shares = {tuple(r.settings[k] for k in ("dim", "bound", "ridge")): r.value or 0.0 for r in lost}
    with styled():
        drawn, axes = canvas(1, len(dims), width=2.6 * len(dims), height=2.8)
        for ax, dim in zip(axes[0], dims, strict=True):
            cells = [[shares[dim, bound, ridge] for ridge in ridges] for bound in bounds]
            ax.imshow(cells, vmin=0.0, vmax=1.0, cmap="Greys", aspect="auto")
            for down, line in enumerate(cells):
                for across, share in enumerate(line):
                    ink = "white" if share > 0.5 else "black"
                    ax.text(across, down, f"{share:.2f}", ha="center", va="center", color=ink)
            ax.set_xticks(range(len(ridges)), [f"{ridge:g}" for ridge in ridges])
            ax.set_yticks(range(len(bounds)), [f"{bound:g}" for bound in bounds])
            ax.grid(visible=False)
            ax.set(title=f"d = {dim}", xlabel="λ", ylabel="S")
        drawn.suptitle("share of runs that E_H loses (promised: at most 0.05)", fontsize=10)
    return {"certificates": drawn}
