"""Rows of a study to a markdown table: ours with its interval, the paper's next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stacksl_lab.study.rows import Row, half_width

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

WIDEST = 0.02
"""The half-width of an accuracy above which the share of the gain it keeps says nothing."""

_ROUGH = ("percent_of_full", "mean_loss", "max_loss")


def table(head: Iterable[str], lines: Iterable[Iterable[str]], title: str = "") -> str:
    """A markdown table, below its `title` in bold where there is one."""
    head = list(head)
    above = [f"**{title}**", ""] if title else []
    rule = "|" + "---|" * len(head)
    return "\n".join([*above, _joined(head), rule, *map(_joined, lines)])


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def pivot(
    rows: Iterable[Row],
    down: Callable[[Row], str],
    across: Callable[[Row], str],
    cell: Callable[[Row], str],
    *,
    corner: str = "",
    title: str = "",
) -> str:
    """Rows as a table: the line, the column and the text of each, both in order of occurrence.

    Of rows with the same place the first is shown.
    """
    cells: dict[str, dict[str, str]] = {}
    columns: dict[str, None] = {}
    for row in rows:
        column = across(row)
        columns.setdefault(column)
        cells.setdefault(down(row), {}).setdefault(column, cell(row))
    lines = ([name, *(mine.get(head, "") for head in columns)] for name, mine in cells.items())
    return table([corner, *columns], lines, title)


def estimate(row: Row | None, digits: str, half: str | None = None, times: float = 1.0) -> str:
    """A value with the half-width of its 95% interval; "" where there is none.

    >>> estimate(Row("s", "r", "m", 0.5), ".2f")
    '0.50'
    """
    if row is None or row.value is None:
        return ""
    width = half_width(row)
    shown = f"{times * row.value:{digits}}"
    return shown if width is None else f"{shown} ± {times * width:{half or digits}}"


def between(row: Row, interval: tuple[float, float] | None = None, digits: str = ".2f") -> str:
    """A value with the ends of its 95% interval, the row's own unless another is given."""
    low, high = interval or row.settings["interval"]
    return f"{row.value or 0.0:{digits}} [{low:{digits}}, {high:{digits}}]"


def means(row: Row, text: str) -> str:
    """What stands below tables: of how many seeds they are, `text`, and the marks of `row`."""
    marks = "".join(f" ({mark})" for mark in row.settings.get("marks", []))
    return f"{row.seeds} seeds{text}{marks}"


def markdown(rows: Sequence[Row]) -> str:
    """The rows of one study as a table, a metric a column, its marks as notes below.

    A metric of which any row has the paper's number has a column for it.
    """
    metrics = list(dict.fromkeys(row.metric for row in rows))
    shown = {m: any(r.paper is not None for r in rows if r.metric == m) for m in metrics}
    header = ["", "N", "seeds"]
    for metric in metrics:
        name = HEADINGS.get(metric, metric)
        header += [f"{name}, ours", f"{name}, paper"] if shown[metric] else [name]
    notes: list[str] = []
    lines = []
    for name in dict.fromkeys(row.row for row in rows):
        mine = {row.metric: row for row in rows if row.row == name}
        lines.append(_line(name, mine, metrics, shown, rows, notes))
    below = [f"{n}. {note}." for n, note in enumerate(notes, 1)]
    return "\n".join([table(header, lines), *([""] if below else []), *below])


def _line(
    name: str,
    mine: Mapping[str, Row],
    metrics: Sequence[str],
    shown: Mapping[str, bool],
    rows: Sequence[Row],
    notes: list[str],
) -> list[str]:
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
    return cells


def _count(value: object) -> str:
    if isinstance(value, list):
        value = value[0] if len(set(value)) == 1 else " to ".join(f"{v:,}" for v in sorted(value))
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _shown(row: Row | None, rows: Sequence[Row]) -> str:
    """A number with the half-width of its 95% interval."""
    if row is None:
        return ""
    if row.value is None:
        return "not measured"
    if row.metric == "gain_kept" and _inconclusive(row, rows):
        return "inconclusive"
    return estimate(row, _digits(row.metric))


def _inconclusive(row: Row, rows: Sequence[Row]) -> bool:
    """Whether the gain of all labels is within three standard errors, or an interval is wide."""
    full = next((r for r in rows if r.metric == "gain" and r.budget_fraction == 1.0), None)
    if full is None or full.value is None or full.se is None or full.seeds < 2:
        return True
    accuracy = next(r for r in rows if r.row == row.row and r.metric == "accuracy")
    return full.value <= 3 * full.se or (half_width(accuracy) or 0.0) > WIDEST


def _number(metric: str, value: float | None) -> str:
    return "" if value is None else f"{value:{_digits(metric)}}"


def _digits(metric: str) -> str:
    return ".2f" if metric in _ROUGH else ".4f"
