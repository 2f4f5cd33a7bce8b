"""Cards, each a README.md with front matter: of a run's model, and of exported labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacksl.report import wording
from stacksl.report.facts import Facts
from stacksl.report.html import environment
from stacksl.report.quality import ClassRow
from stacksl.report.tables import class_rows, never_seen, without_text


def model_card(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The card of a run's facts (`stacksl.report.card`); ends with a newline."""
    shown = facts if text else without_text(facts, class_names)
    found = (
        environment()
        .get_template("card.md.j2")
        .render(
            facts=shown,
            named_classes=text or class_names,
            never_seen=never_seen(shown),
            weakest=_weakest(shown),
        )
    )
    return wording.clean(found.rstrip("\n")) + "\n"


def data_card(numbers: Mapping[str, Any]) -> str:
    """The card of exported labels, with the front matter of the Hugging Face hub.

    Args:
        numbers: what the template `data.md.j2` shows.
    """
    made = environment()
    made.filters["price"] = lambda value: wording.money(round(value * wording.MICRO))
    found = made.get_template("data.md.j2").render(numbers)
    return wording.clean(found.rstrip("\n")) + "\n"


def _weakest(facts: Facts) -> str:
    """The classes whose recall is surely low: by the high end of its interval where it is known."""
    tested = [row for row in class_rows(facts) if row.recall is not None]

    def surely(row: ClassRow) -> tuple[float, float, str]:
        recall = row.recall or 0.0
        return (recall if row.high is None else row.high, recall, row.name)

    worst = sorted(tested, key=surely)[:3] if len(tested) > 3 else []
    return ", ".join(f"{wording.plain(row.name)} ({_recall(row)})" for row in worst)


def _recall(row: ClassRow) -> str:
    percent = wording.percent(row.recall)
    if row.low is None or row.high is None:
        return percent
    return f"{percent}, 95% interval {wording.interval(row.low, row.high)}"
