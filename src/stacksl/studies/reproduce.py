"""A study from its grid to its rows: measured under every seed, pooled, coinciding rows marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stacksl.studies.bench import Bench, Pace, Wanted
from stacksl.studies.cells import Cell
from stacksl.studies.rows import Row, pooled
from stacksl.studies.study import Setting, Study

__all__ = ["reproduce"]


def reproduce(
    study: Study,
    bench: Bench,
    seeds: Sequence[int],
    tell: Callable[[Pace], None] | None = None,
) -> list[Row]:
    """The rows of `study`, each the mean over `seeds`.

    Rows of the base model as it is have one seed: another would give the same number.
    """
    settings = study.settings(bench.setup)
    asked = [(each, s) for each in settings for s in (seeds if each.repeats else seeds[:1])]
    while True:
        found, wanted = _ask(study, asked, bench)
        if not wanted:
            break
        bench.measure(wanted, tell)
    papers = bench.setup.papers
    rows = [row for each in settings for row in _pooled(study, each, found[each.row], papers)]
    return list(_marked(rows))


def _ask(
    study: Study, asked: Iterable[tuple[Setting, int]], bench: Bench
) -> tuple[dict[str, list[Row]], list[Cell]]:
    """What can be said already, by row, and the cells that are still wanted."""
    found: dict[str, list[Row]] = {}
    wanted: list[Cell] = []
    for setting, seed in asked:
        try:
            found.setdefault(setting.row, []).extend(study.run(setting, seed, bench))
        except Wanted as more:
            wanted.extend(more.cells)
    return found, wanted


def _pooled(study: Study, setting: Setting, rows: Sequence[Row], papers: bool) -> list[Row]:
    """Rows of single seeds to one row a metric; `papers` as in `Setup`."""
    found = []
    for metric in study.metrics:
        same = [row for row in rows if row.metric == metric]
        if same:
            found.append(_pool(same))
    spread = [row for row in found if row.metric == "accuracy" and row.seeds > 1]
    if study.spread and spread:
        found.append(_spread(spread[0], setting.paper.get("accuracy_sd") if papers else None))
    return found


def _pool(rows: Sequence[Row]) -> Row:
    numbers = [(row, row.value) for row in rows if row.value is not None]
    settings = _common([row.settings for row in rows])
    if not numbers:
        return replace(rows[0], value=None, se=None, seeds=0, settings=settings)
    share = rows[0].metric == "accuracy"
    items = numbers[0][0].settings.get("n_test") if share else None
    value, se = pooled([value for _, value in numbers], items)
    asked = [row.asked_fraction for row, _ in numbers if row.asked_fraction is not None]
    return replace(
        rows[0],
        value=value,
        se=se,
        seeds=len(numbers),
        asked_fraction=sum(asked) / len(asked) if asked else None,
        settings=settings,
    )


def _spread(accuracy: Row, paper: float | None) -> Row:
    """The seeds' standard deviation of the accuracy, beside the paper's."""
    deviation = None if accuracy.se is None else accuracy.se * accuracy.seeds**0.5
    return replace(accuracy, metric="accuracy_sd", value=deviation, se=None, paper=paper)


def _common(all_settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of several seeds in one: what differs becomes the list of its values."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(n for settings in all_settings for n in settings):
        values = [settings.get(name) for settings in all_settings]
        if name == "marks":
            found[name] = list(dict.fromkeys(mark for marks in values for mark in marks or ()))
        elif name == "cell":
            found["cells"] = list(dict.fromkeys(values))
        else:
            distinct = list(dict.fromkeys(values))
            found[name] = distinct[0] if len(distinct) == 1 else values
    return found


def _marked(rows: Iterable[Row]) -> Iterable[Row]:
    """Rows that are the same runs as an earlier row say so."""
    first: dict[tuple[str, ...], str] = {}
    for row in rows:
        cells = tuple(row.settings["cells"])
        other = first.setdefault(cells, row.row)
        marks = row.settings["marks"]
        if other != row.row and not any("computed once" in mark for mark in marks):
            marks = [*marks, f"the same run as '{other}': computed once"]
        yield replace(row, settings={**row.settings, "marks": marks})
