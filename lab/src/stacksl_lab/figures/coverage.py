"""The tables and the figure of the study `coverage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl_lab.statistics.intervals import interval_of, promise_verdict
from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import between, estimate, pivot, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PROMISES = {
    "covered": "the set",
    "certified": "the certificate of all rounds together",
    "certified_rounds": "the certificate of every single round",
}
RULE = (
    "The share is compared with 1 − δ = 0.95: a promise holds if its whole exact 95% interval is"
    " at least 0.95, fails if the whole interval is below, and is open otherwise."
)


def layout(rows: Sequence[Row]) -> str:
    """Sets, then certificates: a learner and its purchases a line, a budget a column; verdicts."""
    shares = "Runs in which θ* is in the set in every round"
    bounds = "Runs in which the certificate bounds the regret"
    parts = [
        _table(rows, shares, "covered", _share),
        _table(rows, f"{shares}, its radius counting rounds", "covered_rounds", _share),
        _table(rows, "Rounds in which θ* is in the set, mean share", "covered_time", _number),
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
    of_metric = [row for row in rows if row.metric == metric]
    if len({shown(row) for row in of_metric}) == 1:
        return f"**{title}:** {shown(of_metric[0])} in each of {len(of_metric)} settings."
    return pivot(of_metric, _family, lambda row: f"β = {row.budget_fraction:g}", shown, title=title)


def _share(row: Row) -> str:
    return between(row, interval_of(row))


def _number(row: Row) -> str:
    return estimate(row, ".3g", ".2g")


def _verdicts(rows: Sequence[Row]) -> str:
    """A line for each learner and V: at how many settings each promise of 1 − δ is kept."""
    lines = []
    for group in dict.fromkeys(str(row.settings["group"]) for row in rows):
        mine = [row for row in rows if row.settings["group"] == group]
        lines.append(
            [group, *(_verdict_counts([r for r in mine if r.metric == m]) for m in PROMISES)]
        )
    title = "Settings in which a promise holds / fails / is open"
    return table(["", *PROMISES.values()], lines, title)


def _verdict_counts(rows: Sequence[Row]) -> str:
    verdicts = [promise_verdict(row, 1.0 - float(row.settings["delta"])) for row in rows]
    return " / ".join(str(verdicts.count(name)) for name in ("holds", "fails", "open"))


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Left the share of runs covered with its exact interval, right certificate / regret."""
    from stacksl_lab.figures.style import canvas, dots, ends_of, styled

    families = list(dict.fromkeys(_family(row) for row in rows))
    always = "runs in which θ* is always in the set\n(exact 95% interval; dotted: 1 − δ)"
    ratio = "certificate / regret\n(mean, 95% interval; dotted: 1)"
    with styled():
        drawn, axes = canvas(1, 2, width=8.6, height=1.4 + 0.34 * len(families))
        left, right = axes[0]
        covered = _by_budget(rows, "covered")
        dots(left, covered, families, _family, interval_of)
        dots(right, _by_budget(rows, "certificate_ratio"), families, _family, ends_of, named=False)
        right.set_xscale("log")
        for ax, promised, label in ((left, 0.95, always), (right, 1.0, ratio)):
            ax.axvline(promised, color="black", lw=0.8, ls=":")
            ax.set_xlabel(label)
        names = left.get_legend_handles_labels()
        drawn.legend(*names, loc="outside upper center", ncols=len(covered))
    return {"coverage": drawn}


def _family(row: Row) -> str:
    return str(row.settings["family"])


def _by_budget(rows: Sequence[Row], metric: str) -> dict[str, list[Row]]:
    by_budget: dict[str, list[Row]] = {}
    for row in rows:
        if row.metric == metric:
            by_budget.setdefault(f"β = {row.budget_fraction:g}", []).append(row)
    return by_budget
