"""The tables and the figure of `drift`: alarms, delays, and regret with and without a reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stacksl_lab.study.rows import Row
from stacksl_lab.study.tables import between, estimate, pivot, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def layout(rows: Sequence[Row]) -> str:
    """False alarms over all streams, then by stream; the change; regret with and without."""
    return "\n\n".join([_alarmed(rows), _by_stream(rows), _change(rows), _regret(rows)])


def _cases(rows: Sequence[Row], metric: str) -> dict[Case, Row]:
    return {case_of(row.row): row for row in rows if row.metric == metric}


def _learner(row: Row) -> str:
    return case_of(row.row).learner


def _kind(row: Row) -> str:
    return case_of(row.row).kind


def _alarmed(rows: Sequence[Row]) -> str:
    lines = [
        (_learner(row), _count(row), between(row), f"{row.settings['alarms'] / row.seeds:.2f}")
        for row in rows
        if row.metric == "runs_with_a_false_alarm"
    ]
    title = "Runs in which θ\\* never moves: those with an alarm, of how many"
    return table(["", "with an alarm", "share (95% interval)", "alarms a run"], lines, title)


def _count(row: Row) -> str:
    return f"{round((row.value or 0.0) * row.seeds)} of {row.seeds}"


def _by_stream(rows: Sequence[Row]) -> str:
    """Mean alarms a run while θ* had not moved."""
    title = "**False alarms a run, by stream** (`concept`: before its change)"
    alarms = [row for row in rows if row.metric == "false_alarms"]
    return f"{title}\n\n" + pivot(alarms, _learner, _kind, lambda row: f"{row.value:.2f}")


def _change(rows: Sequence[Row]) -> str:
    """Alarms after the change and as long before it, and the delays of those after it."""
    before, rounds, labels = (
        _cases(rows, name) for name in ("runs_alarmed_before", "delay_rounds", "delay_labels")
    )
    lines = [
        (case.learner, _count(row), between(row), _count(before[case]), between(before[case]),
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
    return pivot(plain, _learner, _kind, cell, title=title)


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Regret with a reset over that without, a panel for each feedback and budget."""
    from stacksl_lab.figures.style import canvas, dots, log_ratio, styled

    panels: dict[tuple[str, float], dict[str, list[Row]]] = {}
    for case, row in _cases(rows, "regret_per_round_over_none").items():
        panel = panels.setdefault((case.feedback, case.budget), {})
        panel.setdefault(f"{case.guard}, {case.gate}", []).append(row)
    with styled():
        figure, axes = canvas(1, len(panels), 2.2 + 1.9 * len(panels), 3.6)
        for ax, ((feedback, budget), series) in zip(axes[0], panels.items(), strict=True):
            kinds = list(dict.fromkeys(_kind(row) for mine in series.values() for row in mine))
            dots(ax, series, kinds, _kind, named=ax is axes[0, 0])
            ax.axvline(1.0, color="#444444", lw=0.8)
            log_ratio(ax)
            ax.set_title(f"{feedback}, budget {budget:g}")
        figure.supxlabel("regret a round with a reset / without (95% interval over seeds)",
                         fontsize=9)  # fmt: skip
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncol=len(labels), fontsize=8)
    return {"drift": figure}


GUARDS = ("no reset", "guarded", "unguarded")
"""No reset; with the guard of `DriftGuard`; with its leverage so high that it guards nothing."""

STILL = "no change"
"""In the place of a stream's kind: all those whose θ* never moves."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a row was measured under.

    Attributes:
        guard: one of `GUARDS`.
        gate: its name.
        kind, feedback: of the stream; the kind may be `STILL`.
        budget: labels / rounds.
    """

    guard: str
    gate: str
    kind: str
    feedback: str
    budget: float

    @property
    def row(self) -> str:
        """The name of its row; `case_of` reads it."""
        return f"{self.guard} · {self.gate} · {self.kind} · {self.feedback} · {self.budget:g}"

    @property
    def learner(self) -> str:
        """Everything but the stream's kind."""
        return f"{self.guard} · {self.gate} · {self.feedback} · {self.budget:g}"

    def under(self, guard: str) -> Case:
        """The same under another guard."""
        return replace(self, guard=guard)


def case_of(row: str) -> Case:
    """The case whose row has this name; what is derived of it has ` / ` and more behind.

    >>> case_of("guarded · random · iid · scalar · 0.1").gate
    'random'
    """
    guard, gate, kind, feedback, budget = row.partition(" / ")[0].split(" · ")
    return Case(guard, gate, kind, feedback, float(budget))
