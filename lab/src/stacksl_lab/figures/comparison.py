"""Figure of a comparison of strategies: accuracy against labels, a panel for each final model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.figures.style import canvas, curve, styled
from stacksl_lab.pools.tables import TITLES
from stacksl_lab.study.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """`compare`: the mean accuracy of each strategy over its budgets, with 95% intervals."""
    shown = [row for row in rows if row.metric == "accuracy"]
    models = list(dict.fromkeys(str(row.settings["model"]) for row in shown))
    names = list(dict.fromkeys(row.row for row in shown if row.row != "all labels"))
    with styled():
        figure, axes = canvas(1, len(models), width=4.2 * len(models))
        for ax, model in zip(axes[0], models, strict=True):
            mine = [row for row in shown if row.settings["model"] == model]
            for number, name in enumerate(names):
                line = [row for row in mine if row.row == name]
                curve(ax, line, [row.settings["labels"] for row in line], name, number)
            full = next(row for row in mine if row.row == "all labels")
            ax.axhline(full.value or 0.0, color="#000000", lw=0.8, ls=":", label="all labels")
            ax.set_xscale("log")
            ax.set_xlabel("labels")
            ax.set_title(TITLES[model].replace("`", ""))
        axes[0, 0].set_ylabel("test accuracy")
        axes[0, 0].legend()
    return {"compare": figure}
