"""How `drift` is shown: false alarms, delays, and regret with and without a reset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl.studies.lab.claims.drift_rows import GUARDS, Case, case_of
from stacksl.studies.rows import Row, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def layout(rows: Sequence[Row]) -> str:
    """False alarms over all streams, then by stream; the change; regret with and without."""
    blocks = [_alarmed(rows), _by_stream(rows), _change(rows), _regret(rows)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _cases(rows: Sequence[Row], metric: str) -> dict[Case, Row]:
    return {case_of(row.row): row for row in rows if row.metric == metric}


def _alarmed(rows: Sequence[Row]) -> Iterator[str]:
    yield "**Runs in which θ\\* never moves: those with an alarm, of how many**"
    yield ""
    yield "| | with an alarm | share (95 % interval) | alarms a run |"
    yield "|---|---|---|---|"
    for case, row in _cases(rows, "runs_with_a_false_alarm").items():
        alarms = row.settings["alarms"] / row.seeds
        yield f"| {case.player} | {_count(row)} | {_share(row)} | {alarms:.2f} |"


def _count(row: Row) -> str:
    return f"{round((row.value or 0.0) * row.seeds)} of {row.seeds}"


def _share(row: Row) -> str:
    low, high = row.settings["interval"]
    return f"{row.value:.2f} [{low:.2f}, {high:.2f}]"


def _by_stream(rows: Sequence[Row]) -> Iterator[str]:
    """Mean alarms a run while θ* had not moved."""
    found = _cases(rows, "false_alarms")
    kinds = list(dict.fromkeys(case.kind for case in found))
    yield "**False alarms a run, by stream** (`concept`: before its change)"
    yield ""
    yield f"| | {' | '.join(kinds)} |"
    yield "|---|" + "---|" * len(kinds)
    for name, mine in _grouped(found):
        cells = [f"{mine[kind].value:.2f}" if kind in mine else "" for kind in kinds]
        yield f"| {name} | {' | '.join(cells)} |"


def _grouped(found: Mapping[Case, Row]) -> list[tuple[str, dict[str, Row]]]:
    """Rows by everything but the stream, whose kind is the inner key."""
    groups: dict[str, dict[str, Row]] = {}
    for case, row in found.items():
        groups.setdefault(case.player, {})[case.kind] = row
    return list(groups.items())


def _change(rows: Sequence[Row]) -> Iterator[str]:
    """Alarms after the change and as long before it, and the delays of those after it."""
    before, rounds, labels = (
        _cases(rows, name) for name in ("runs_alarmed_before", "delay_rounds", "delay_labels")
    )
    yield "**The change of θ\\* halfway: runs with an alarm in the half after it, and before it**"
    yield ""
    yield "| | after | share | before | share | found: rounds later | found: labels later |"
    yield "|---|---|---|---|---|---|---|"
    for case, row in _cases(rows, "runs_alarmed_after").items():
        shares = " | ".join(f"{_count(one)} | {_share(one)}" for one in (row, before[case]))
        delays = f"{_shown(rounds.get(case), 0)} | {_shown(labels.get(case), 0)}"
        yield f"| {case.player} | {shares} | {delays} |"


def _regret(rows: Sequence[Row]) -> Iterator[str]:
    """Regret a round without a reset, and each guard's over it, stream by stream."""
    plain = _cases(rows, "regret_per_round")
    over = _cases(rows, "regret_per_round_over_none")
    kinds = list(dict.fromkeys(case.kind for case in plain))
    yield "**Regret a round on the way: without a reset × 1000; with one, over that without**"
    yield ""
    yield f"| | {' | '.join(kinds)} |"
    yield "|---|" + "---|" * len(kinds)
    for name, mine in _grouped(plain):
        if name.startswith(GUARDS[0]):
            cells = [_shown(mine[kind], 3, 1000.0) for kind in kinds]
        else:
            again = {case.kind: row for case, row in over.items() if case.player == name}
            cells = [_shown(again[kind], 2) for kind in kinds]
        yield f"| {name} | {' | '.join(cells)} |"


def _shown(row: Row | None, digits: int, times: float = 1.0) -> str:
    if row is None or row.value is None:
        return "never"
    half = half_width(row)
    number = f"{times * row.value:.{digits}f}"
    return number if half is None else f"{number} ± {times * half:.{digits}f}"


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
