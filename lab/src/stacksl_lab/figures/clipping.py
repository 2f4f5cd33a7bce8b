"""The tables, the rule of the verdict and the figure of the study `clipping`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.study.rows import Row, half_width
from stacksl_lab.study.tables import estimate, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


HEADS: Mapping[str, str] = {
    "mean_after": "mean loss, cut at ρ",
    "max_after": "largest loss, cut at ρ",
    "mean_loss": "mean loss, not cut",
    "max_loss": "largest loss, not cut",
    "clipped": "share above ρ",
    "accuracy": "accuracy of the last θ",
    "final_regret": "regret of the last θ",
}
"""The columns, by metric."""

CHANGING = ("mean_loss", "max_loss", "accuracy", "final_regret")
"""What is compared with the run without ρ, seed by seed."""


def layout(rows: Sequence[Row]) -> str:
    """Two tables for each share of wrong labels, the numbers and their changes; then the verdict.

    The paper's numbers are of a language model, and the stream was made to have such losses, so
    that its rows have none.
    """
    parts = []
    for share in dict.fromkeys(row.settings["share"] for row in rows):
        mine = [row for row in rows if row.settings["share"] == share]
        parts.append(f"**{share:.0%} of the labels wrong**\n\n" + _table(mine, HEADS))
        changes = {f"{metric}_change": f"{HEADS[metric]}, change" for metric in CHANGING}
        parts.append(_table([row for row in mine if row.metric in changes], changes))
    return "\n\n".join([*parts, _verdict(rows)])


def _table(rows: Sequence[Row], heads: Mapping[str, str]) -> str:
    lines = []
    for name in dict.fromkeys(row.row for row in rows):
        mine = {row.metric: row for row in rows if row.row == name}
        known = next(iter(mine.values())).settings
        cells = [estimate(mine.get(metric), ".4g", ".2g") for metric in heads]
        lines.append([f"{known['learning_rate']:g}", known["name"], *cells])
    return table(["η", "", *heads.values()], lines)


def _verdict(rows: Sequence[Row]) -> str:
    """At how many settings the intervals of the paired changes are on either side of 0."""
    lines = []
    for metric in ("max_loss_change", "accuracy_change", "final_regret_change"):
        mine = [row for row in rows if row.metric == metric and row.value is not None]
        signs = [_side(row) for row in mine]
        counts = f"raises it in {signs.count(1)}, lowers it in {signs.count(-1)}"
        head = HEADS[metric.removesuffix("_change")]
        lines.append(f"- {head}: clipping {counts}, no effect seen in {signs.count(0)} of "
                    f"{len(signs)} settings.")  # fmt: skip
    rule = "An effect is seen if the 95% interval of the change, paired by seed, excludes 0."
    return "\n".join([rule, "", *lines])


def _side(row: Row) -> int:
    half = half_width(row)
    if half is None or abs(row.value or 0.0) <= half:
        return 0
    return 1 if (row.value or 0.0) > 0 else -1


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Largest losses and regret of the last θ by clip: a panel each, a color a learning rate."""
    from stacksl_lab.figures.style import canvas, dots, styled

    shown = [row for row in rows if row.settings["share"] == 0.02]
    panels = ("max_after", "max_loss", "final_regret")
    with styled():
        drawn, axes = canvas(1, len(panels), width=9.0, height=3.2)
        for ax, metric in zip(axes[0], panels, strict=True):
            mine = [row for row in shown if row.metric == metric]
            rates = dict.fromkeys(row.settings["learning_rate"] for row in mine)
            series = {
                f"η = {rate:g}": [r for r in mine if r.settings["learning_rate"] == rate]
                for rate in rates
            }
            clips = list(dict.fromkeys(_clip(row) for row in mine))
            dots(ax, series, clips, _clip, named=metric == panels[0])
            head = HEADS[metric]
            ax.set_xlabel(f"{head} (nats)" if "loss" in head else head)
        names = axes[0, 0].get_legend_handles_labels()
        title = "2% of the labels wrong; means with 95% intervals over seeds"
        drawn.legend(*names, loc="outside upper center", ncols=2, title=title)
    return {"clipping": drawn}


def _clip(row: Row) -> str:
    return str(row.settings["name"])
