"""The tables and the figure of `learners`: learners against budgets, and loss sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import estimate, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


REFERENCE = "newton"
"""The learner whose mean the others' are divided by."""

METRICS: Mapping[str, str] = {
    "regret_per_round": "on the way",
    "final_regret": "of the last estimate",
}


FOLLOWED: Mapping[str, str] = {
    "regret_per_round": "regret to the best presented",
    "regret_of_all": "to the best of all",
    "final_regret": "of the last estimate, to the best of all",
    "covered": "θ* in the set",
    "norm": "‖θ‖/‖θ*‖",
    "outside": "gold outside C_t",
}


def layout(rows: Sequence[Row]) -> str:
    """A table a metric, learners against budgets with the ratio to `newton`; then the loss sets."""
    plain, followed = _split(rows)
    tables = [_table(plain, metric, about) for metric, about in METRICS.items()]
    cells = {(row.row, row.metric): row for row in followed}
    lines = [
        [name, *(estimate(cells.get((name, metric)), ".4f") for metric in FOLLOWED)]
        for name in dict.fromkeys(row.row for row in followed)
    ]
    head = ["a label is learned over", *FOLLOWED.values()]
    return "\n\n".join([*tables, table(head, lines, "A follower that hides candidates")])


def _split(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of learners, and those of loss sets."""
    followed = [row for row in rows if "loss" in row.settings]
    return [row for row in rows if "loss" not in row.settings], followed


def _table(rows: Sequence[Row], metric: str, about: str) -> str:
    mine = {_place(row): row for row in rows if row.metric == metric}
    over = {_place(row): row for row in rows if row.metric == f"{metric}_over_{REFERENCE}"}
    budgets = list(dict.fromkeys(budget for _, budget in mine))
    heads = [head for b in budgets for head in (f"budget {b}", f"over {REFERENCE}")]
    lines = [
        [name, *(cell for b in budgets for cell in (
            estimate(mine[name, b], ".5f"), estimate(over.get((name, b)), ".2f")
        ))]
        for name in dict.fromkeys(name for name, _ in mine)
    ]  # fmt: skip
    return table(["", *heads], lines, f"Regret a round {about}")


def _place(row: Row) -> tuple[str, str]:
    """The learner and the budget of a row, or of one derived from it."""
    name, _, budget = row.row.removesuffix(f" / {REFERENCE}").rpartition(" · ")
    return name, budget


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Regret against the share of labels bought, on the way and of the last estimate."""
    from stacksl_lab.figures.style import canvas, styled

    with styled():
        figure, axes = canvas(1, 2, 8.4, 4.0)
        for ax, (metric, about) in zip(axes[0], METRICS.items(), strict=True):
            _panel(ax, [row for row in _split(rows)[0] if row.metric == metric])
            ax.set_title(f"Regret a round {about}")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncol=3, fontsize=8)
    return {"learners": figure}


def _panel(ax: Axes, rows: Sequence[Row]) -> None:
    from stacksl_lab.figures.style import curve

    names = list(dict.fromkeys(row.row.rpartition(" · ")[0] for row in rows))
    for number, name in enumerate(name for name in names if name != "ridge on rewards"):
        mine = [row for row in rows if row.row.rpartition(" · ")[0] == name]
        aside = 1.06 ** (number - 3.5)  # so that intervals do not hide one another
        curve(ax, mine, [aside * (row.budget_fraction or 0.0) for row in mine], name, number)
    ax.set_xscale("log")
    ax.set_yscale("log")
    shares = sorted({row.budget_fraction or 0.0 for row in rows})
    ax.set_xticks(shares, [f"{share:g}" for share in shares])
    ax.minorticks_off()
    ax.set_xlabel("labels / rounds")
