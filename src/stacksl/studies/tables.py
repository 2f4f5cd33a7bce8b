"""Rows of a study to a markdown table: ours with its interval, the paper's beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stacksl.errors import DataError
from stacksl.studies.rows import Row, half_width

HEADINGS: Mapping[str, str] = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "accuracy_sd": "s.d. over seeds",
    "used_fraction": "labels used",
    "percent_of_full": "% of full",
    "gain": "over base",
    "gain_kept": "share of gain kept",
    "mean_loss": "mean loss, nats",
    "max_loss": "largest loss, nats",
    "clipped": "share clipped",
    "regret_per_round": "regret / T",
    "final_regret": "regret of the last model",
}
"""What a metric is called at the head of its column."""

HEADLINE = "laboratory"
"""The name under which a page shows `lab.headline` in place of one record."""

WIDEST = 0.02
"""The half-width of an accuracy above which the share of the gain it keeps says nothing."""

_PERCENT = ("percent_of_full",)
_LOSSES = ("mean_loss", "max_loss")
_BLOCK = re.compile(r"<!-- study: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def markdown(rows: Sequence[Row], papers: bool | None = None) -> str:
    """The rows of one study as a table, a metric a column, its marks as notes below.

    Args:
        rows: of one study.
        papers: whether each metric has a column for the paper's number; None where any row has
            one. A number that was not measured is "not measured".
    """
    metrics = list(dict.fromkeys(row.metric for row in rows))
    shown = {m: any(r.paper is not None for r in rows if r.metric == m) for m in metrics}
    if papers is not None:
        shown = {m: papers and found for m, found in shown.items()}
    header = ["", "N", "seeds"]
    for metric in metrics:
        name = HEADINGS.get(metric, metric)
        header += [f"{name}, ours", f"{name}, paper"] if shown[metric] else [name]
    notes: list[str] = []
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name in dict.fromkeys(row.row for row in rows):
        mine = {row.metric: row for row in rows if row.row == name}
        lines.append(_line(name, mine, metrics, shown, rows, notes))
    below = [f"{n}. {note}." for n, note in enumerate(notes, 1)]
    return "\n".join([*lines, *([""] if below else []), *below])


def _line(
    name: str,
    mine: Mapping[str, Row],
    metrics: Sequence[str],
    shown: Mapping[str, bool],
    rows: Sequence[Row],
    notes: list[str],
) -> str:
    first = next(iter(mine.values()))
    marks = first.settings.get("marks") or []
    for mark in marks:
        if mark not in notes:
            notes.append(mark)
    numbers = sorted(notes.index(mark) + 1 for mark in marks)
    label = name + (f" ({', '.join(map(str, numbers))})" if numbers else "")
    count = first.settings.get("N")
    cells = [label, _count(count), str(first.seeds) if first.seeds else ""]
    for metric in metrics:
        row = mine.get(metric)
        cells.append(_shown(row, rows))
        if shown[metric]:
            cells.append("" if row is None else _number(metric, row.paper))
    return "| " + " | ".join(cells) + " |"


def _count(value: object) -> str:
    if isinstance(value, list):
        value = value[0] if len(set(value)) == 1 else " to ".join(f"{v:,}" for v in sorted(value))
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _shown(row: Row | None, rows: Sequence[Row]) -> str:
    """A number with the half-width of its 95 % interval."""
    if row is None:
        return ""
    if row.value is None:
        return "not measured"
    if row.metric == "gain_kept" and _inconclusive(row, rows):
        return "inconclusive"
    half = half_width(row)
    number = _number(row.metric, row.value)
    return number if half is None else f"{number} ± {_number(row.metric, half)}"


def _inconclusive(row: Row, rows: Sequence[Row]) -> bool:
    """Whether the gain of all labels is within three standard errors, or an interval is wide."""
    full = next((r for r in rows if r.metric == "gain" and r.budget_fraction == 1.0), None)
    if full is None or full.value is None or full.se is None or full.seeds < 2:
        return True
    own = next(r for r in rows if r.row == row.row and r.metric == "accuracy")
    return full.value <= 3 * full.se or (half_width(own) or 0.0) > WIDEST


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    if metric in _PERCENT:
        return f"{value:.2f}"
    return f"{value:.2f}" if metric in _LOSSES else f"{value:.4f}"


def _shown_as_its_study(rows: Sequence[Row]) -> str:
    from stacksl.studies import STUDIES

    study = STUDIES.get(rows[0].study) if rows else None
    return markdown(rows) if study is None else study.shown(rows)


def refreshed(text: str, records: Mapping[str, Sequence[Row]]) -> str:
    """`text` with its tables as the records have them.

    A table stands between `<!-- study: NAME -->` and `<!-- end -->`, NAME being that of a record,
    or `laboratory`, which all records make.

    Raises:
        DataError: there is no such record.
    """

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name == HEADLINE:
            from stacksl.studies.lab.headline import headline

            return f"<!-- study: {name} -->\n{headline(records)}\n<!-- end -->"
        if name not in records:
            raise DataError(f"a page shows the record '{name}', and there is none: make it again")
        rows = records[name]
        return f"<!-- study: {name} -->\n{_shown_as_its_study(rows)}\n<!-- end -->"

    return _BLOCK.sub(table, text)
