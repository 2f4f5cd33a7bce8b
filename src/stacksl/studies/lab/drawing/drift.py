"""How `drift` is shown: false alarms, delays, and regret with and without a reset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from stacksl.studies.lab.claims.drift_rows import GUARDS, Case, case_of
from stacksl.studies.rows import Row, half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figures", "layout"]

_WHOLE = "no change"  # what the rows over all stationary streams end with


def layout(rows: Sequence[Row]) -> str:
    """False alarms over all streams, then by stream; the change; regret with and without."""
    blocks = [_alarmed(rows), _by_stream(rows), _delays(rows), _regret(rows)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _alarmed(rows: Sequence[Row]) -> Iterator[str]:
    yield "**Runs in which θ* never moves: alarms**"
    yield ""
    yield "| | runs | with an alarm | share, at most (95 %) | alarms a run |"
    yield "|---|---|---|---|---|"
    for row in rows:
        if row.metric == "runs_with_a_false_alarm":
            runs, limit = row.settings["runs"], row.settings["limit"]
            count = round((row.value or 0.0) * runs)
            alarms = row.settings["alarms"] / runs
            name = row.row.removesuffix(f", {_WHOLE}")
            yield f"| {name} | {runs} | {count} | {limit:.3f} | {alarms:.2f} |"


def _cases(rows: Sequence[Row], metric: str) -> dict[Case, Row]:
    return {
        case_of(row.row): row
        for row in rows
        if row.metric == metric and not row.row.endswith(_WHOLE)
    }


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
        name = f"{case.guard} · {case.gate} · {case.feedback} · {case.budget:g}"
        groups.setdefault(name, {})[case.kind] = row
    return list(groups.items())


def _delays(rows: Sequence[Row]) -> Iterator[str]:
    found = {name: _cases(rows, name) for name in ("detected", "delay_rounds", "delay_labels")}
    yield "**After the change of θ\\* halfway: found, and how late**"
    yield ""
    yield "| | found | rounds later | labels later |"
    yield "|---|---|---|---|"
    for case, row in found["detected"].items():
        rounds = _shown(found["delay_rounds"].get(case), 0)
        labels = _shown(found["delay_labels"].get(case), 0)
        name = f"{case.guard} · {case.gate} · {case.feedback} · {case.budget:g}"
        yield f"| {name} | {row.value:.0%} of {row.seeds} | {rounds} | {labels} |"


def _regret(rows: Sequence[Row]) -> Iterator[str]:
    """Regret a round without a reset, and each guard's over it, stream by stream."""
    plain = _cases(rows, "regret_per_round")
    over = _cases(rows, "regret_per_round_over_none")
    kinds = list(dict.fromkeys(case.kind for case in plain))
    yield "**Regret a round on the way: × 1000 without a reset, and as a ratio to that with one**"
    yield ""
    yield f"| | {' | '.join(kinds)} |"
    yield "|---|" + "---|" * len(kinds)
    for name, mine in _grouped(plain):
        if name.startswith(GUARDS[0]):
            cells = [_shown(mine[kind], 3, 1000.0) for kind in kinds]
        else:
            again = {case.kind: row for case, row in over.items() if _name(case) == name}
            cells = [_shown(again[kind], 2) for kind in kinds]
        yield f"| {name} | {' | '.join(cells)} |"


def _name(case: Case) -> str:
    return f"{case.guard} · {case.gate} · {case.feedback} · {case.budget:g}"


def _shown(row: Row | None, digits: int, times: float = 1.0) -> str:
    if row is None or row.value is None:
        return "never"
    half = half_width(row)
    number = f"{times * row.value:.{digits}f}"
    return number if half is None else f"{number} ± {times * half:.{digits}f}"


def figures(rows: Sequence[Row]) -> Mapping[str, Figure]:
    """Regret with a reset over that without, a panel for each feedback and budget."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    from stacksl.studies.lab.drawing.style import COLOURS, MARKERS, canvas, styled

    found = _cases(rows, "regret_per_round_over_none")
    panels = list(dict.fromkeys((case.feedback, case.budget) for case in found))
    kinds = list(dict.fromkeys(case.kind for case in found))
    shown = list(dict.fromkeys((case.guard, case.gate) for case in found))
    with styled():
        figure, axes = canvas(1, len(panels), 2.2 + 1.9 * len(panels), 3.6)
        for ax, (feedback, budget) in zip(axes[0], panels, strict=True):
            for number, (guard, gate) in enumerate(shown):
                picked = [found[Case(guard, gate, kind, feedback, budget)] for kind in kinds]
                ax.errorbar(
                    [row.value for row in picked],
                    [place + 0.16 * (number - 1.5) for place in range(len(kinds))],
                    xerr=[half_width(row) or 0.0 for row in picked],
                    fmt=MARKERS[number],
                    color=COLOURS[number],
                    ms=4,
                    capsize=2,
                    label=f"{guard}, {gate}",
                )
            ax.axvline(1.0, color="#444444", lw=0.8)
            ax.set_title(f"{feedback}, budget {budget:g}")
            ax.set_yticks(range(len(kinds)), kinds if ax is axes[0, 0] else [""] * len(kinds))
            ax.invert_yaxis()
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
            ax.xaxis.set_major_formatter(FormatStrFormatter("%g"))
            ax.xaxis.set_minor_formatter(NullFormatter())
        figure.supxlabel("regret a round with a reset / without (mean, 95 % interval over seeds)",
                         fontsize=9)  # fmt: skip
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncol=len(shown), fontsize=8)
    return {"drift": figure}
