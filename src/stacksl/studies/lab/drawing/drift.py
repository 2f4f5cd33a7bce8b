"""How `drift` is shown: false alarms, delays, and regret with and without a reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl.studies.lab.claims.drift_rows import GUARDS, Case, case_of
from stacksl.studies.rows import Row, half_width
from stacksl.studies.tables import estimate, pivot, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def layout(rows: Sequence[Row]) -> str:
    """False alarms over all streams, then by stream; the change; regret with and without."""
    return "\n\n".join([_alarmed(rows), _by_stream(rows), _change(rows), _regret(rows)])


def _cases(rows: Sequence[Row], metric: str) -> dict[Case, Row]:
    return {case_of(row.row): row for row in rows if row.metric == metric}


def _player(row: Row) -> str:
    return case_of(row.row).player


def _kind(row: Row) -> str:
    return case_of(row.row).kind


def _alarmed(rows: Sequence[Row]) -> str:
    lines = [
        (_player(row), _count(row), _share(row), f"{row.settings['alarms'] / row.seeds:.2f}")
        for row in rows
        if row.metric == "runs_with_a_false_alarm"
    ]
    title = "Runs in which θ\\* never moves: those with an alarm, of how many"
    return table(["", "with an alarm", "share (95 % interval)", "alarms a run"], lines, title)


def _count(row: Row) -> str:
    return f"{round((row.value or 0.0) * row.seeds)} of {row.seeds}"


def _share(row: Row) -> str:
    low, high = row.settings["interval"]
    return f"{row.value:.2f} [{low:.2f}, {high:.2f}]"


def _by_stream(rows: Sequence[Row]) -> str:
    """Mean alarms a run while θ* had not moved."""
    title = "**False alarms a run, by stream** (`concept`: before its change)"
    found = [row for row in rows if row.metric == "false_alarms"]
    return f"{title}\n\n" + pivot(found, _player, _kind, lambda row: f"{row.value:.2f}")


def _change(rows: Sequence[Row]) -> str:
    """Alarms after the change and as long before it, and the delays of those after it."""
    before, rounds, labels = (
        _cases(rows, name) for name in ("runs_alarmed_before", "delay_rounds", "delay_labels")
    )
    lines = [
        (case.player, _count(row), _share(row), _count(before[case]), _share(before[case]),
         *(estimate(delay.get(case), ".0f") or "never" for delay in (rounds, labels)))
        for case, row in _cases(rows, "runs_alarmed_after").items()
    ]  # fmt: skip
    head = (
        "", "after", "share", "before", "share", "found: rounds later", "found: labels later",
    )  # fmt: skip
    title = "The change of θ\\* halfway: runs with an alarm in the half after it, and before it"
    return table(head, lines, title)


def _regret(rows: Sequence[Row]) -> str:
    """Regret a round without a reset, and each guard's over it, stream by stream."""
    over = _cases(rows, "regret_per_round_over_none")

    def cell(row: Row) -> str:
        case = case_of(row.row)
        if case.guard == GUARDS[0]:
            return estimate(row, ".3f", times=1000.0)
        return estimate(over[case], ".2f") or "never"

    title = "Regret a round on the way: without a reset × 1000; with one, over that without"
    plain = [row for row in rows if row.metric == "regret_per_round"]
    return pivot(plain, _player, _kind, cell, title=title)


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Regret with a reset over that without, a panel for each feedback and budget."""
    from stacksl.studies.lab.drawing.style import canvas, styled

    found = _cases(rows, "regret_per_round_over_none")
    panels = list(dict.fromkeys((case.feedback, case.budget) for case in found))
    with styled():
        figure, axes = canvas(1, len(panels), 2.2 + 1.9 * len(panels), 3.6)
        for ax, (feedback, budget) in zip(axes[0], panels, strict=True):
            mine = {c: r for c, r in found.items() if (c.feedback, c.budget) == (feedback, budget)}
            _panel(ax, mine, named=ax is axes[0, 0])
            ax.set_title(f"{feedback}, budget {budget:g}")
        figure.supxlabel("regret a round with a reset / without (95 % interval over seeds)",
                         fontsize=9)  # fmt: skip
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncol=len(labels), fontsize=8)
    return {"drift": figure}


def _panel(ax: Axes, found: Mapping[Case, Row], *, named: bool) -> None:
    """Each guard and gate over the streams, whose names stand on the left where `named`."""
    from stacksl.studies.lab.drawing.style import COLOURS, MARKERS

    kinds = list(dict.fromkeys(case.kind for case in found))
    for number, (guard, gate) in enumerate(dict.fromkeys((c.guard, c.gate) for c in found)):
        mine = {case.kind: row for case, row in found.items() if (guard, gate) == _which(case)}
        ax.errorbar(
            [mine[kind].value or float("nan") for kind in kinds],
            [place + 0.16 * (number - 1.5) for place in range(len(kinds))],
            xerr=[half_width(mine[kind]) or 0.0 for kind in kinds],
            fmt=MARKERS[number],
            color=COLOURS[number],
            ms=4,
            capsize=2,
            label=f"{guard}, {gate}",
        )
    _ruled(ax, kinds if named else [""] * len(kinds))


def _which(case: Case) -> tuple[str, str]:
    return case.guard, case.gate


def _ruled(ax: Axes, names: Sequence[str]) -> None:
    """Streams from the top down, a line at the ratio 1."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    ax.axvline(1.0, color="#444444", lw=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    ax.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.xaxis.set_minor_formatter(NullFormatter())
