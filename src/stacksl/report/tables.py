"""What the page lists: rows in the order that is read, long lists folded, text left out on wish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from stacksl.report import adapted, wording
from stacksl.report.facts import ClassRow, Facts, LanguageModel, SettingRow

__all__ = [
    "SECTIONS",
    "Folded",
    "Tile",
    "class_rows",
    "folded",
    "sections",
    "settings",
    "tiles",
    "without_text",
]

SECTIONS = (
    ("bought", "What the budget bought"),
    ("spending", "Spending over time"),
    ("before", "Accuracy before each label"),
    ("gate-score", "Gate score"),
    ("classes", "Classes and confusions"),
    ("calibration", "Calibration"),
    ("contested", "Most contested items"),
    ("settings", "Settings"),
    ("data", "Data card"),
    ("versions", "Versions"),
)

LANGUAGE = ("language-model", "Language model")

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Folded(Generic[Row]):
    """A list cut in two: what is shown, and what a reader may unfold."""

    shown: tuple[Row, ...]
    rest: tuple[Row, ...]


def folded(rows: Sequence[Row], most: int) -> Folded[Row]:
    """The first `most` rows and the rest; a rest of one or two is not worth a fold."""
    if len(rows) <= most + 2:
        return Folded(tuple(rows), ())
    return Folded(tuple(rows[:most]), tuple(rows[most:]))


def sections(facts: Facts) -> tuple[tuple[str, str], ...]:
    """(anchor, title) of the page's sections, the language model's where there is one."""
    return (SECTIONS[0], LANGUAGE, *SECTIONS[1:]) if facts.language else SECTIONS


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the headline, with its name and what stands under it."""

    name: str
    value: str
    note: str


def tiles(facts: Facts) -> tuple[Tile, ...]:
    """The numbers a reader looks for first."""
    budget = facts.budget
    spent = Tile("Labels bought", wording.count(budget.asked), _of_budget(facts))
    found = [_accuracy_tile(facts), *_base_tile(facts), spent]
    if budget.spent_money is not None:
        each = "" if budget.price is None else wording.money(budget.price, budget.currency)
        note = f"{each} a label" if each else "in all"
        found.append(Tile("Cost", wording.cost(facts), note))
    seen = (
        f"of {wording.count(budget.horizon)}" if budget.horizon != budget.rounds else "all of them"
    )
    found.append(Tile("Items seen", wording.count(budget.rounds), seen))
    return tuple(found)


def _of_budget(facts: Facts) -> str:
    budget = facts.budget
    left = f"{wording.count(budget.left)} left" if budget.left else "none left"
    return f"of a budget of {wording.count(budget.labels)}, {left}"


def _accuracy_tile(facts: Facts) -> Tile:
    test = facts.test
    if test is None:
        return Tile("Test accuracy", "unknown", "no test file")
    interval = f"{wording.percent(test.low)} to {wording.percent(test.high)}"
    return Tile("Test accuracy", wording.percent(test.accuracy), f"95% interval {interval}")


def _base_tile(facts: Facts) -> tuple[Tile, ...]:
    row = adapted.base_of(facts)
    if row is None:
        return ()
    interval = f"{wording.percent(row.base_low)} to {wording.percent(row.base_high)}"
    note = f"without a label, 95% interval {interval}"
    return (Tile("Base model", wording.percent(row.base_accuracy), note),)


def class_rows(facts: Facts) -> tuple[ClassRow, ...]:
    """The classes, worst recall first; without a test file the most bought first."""

    def key(row: ClassRow) -> tuple[float, int, str]:
        return (2.0 if row.recall is None else row.recall, -row.bought, row.name)

    return tuple(sorted(facts.classes, key=key))


def settings(facts: Facts) -> tuple[tuple[SettingRow, ...], tuple[SettingRow, ...]]:
    """The settings somebody chose, and those left at their defaults, each in the given order."""
    chosen = tuple(row for row in facts.settings if row.origin != "default")
    return chosen, tuple(row for row in facts.settings if row.origin == "default")


def without_text(facts: Facts, class_names: bool = False) -> Facts:
    """The facts without anything that the data or their owner worded, to be shown to others.

    Prompts, answers, ids, names of columns and a prompt's template are left out; classes go by
    their numbers unless `class_names` keeps their names.
    """
    numbers = {row.name: f"class {at}" for at, row in enumerate(facts.classes, 1)}
    if class_names:
        numbers = {name: name for name in numbers}
    return replace(
        facts,
        classes=tuple(replace(row, name=numbers[row.name]) for row in facts.classes),
        confusions=tuple(
            replace(
                row,
                gold=numbers.get(row.gold, "a class"),
                predicted=numbers.get(row.predicted, "a class"),
            )
            for row in facts.confusions
        ),
        contested=tuple(
            replace(row, item="", prompt="", choice="", label=None if row.label is None else "")
            for row in facts.contested
        ),
        data=replace(facts.data, columns=()),
        language=_without_template(facts.language),
        warnings=tuple(_without_names(warning) for warning in facts.warnings),
    )


def _without_template(model: LanguageModel | None) -> LanguageModel | None:
    if model is None:
        return None
    return replace(model, scoring=replace(model.scoring, template="(left out)"))


def _without_names(warning: str) -> str:
    """A warning as it is now; older facts have one that lists classes."""
    before, sign, _ = warning.partition("classes that differ only in case or spaces:")
    return f"{before}some classes differ only in case or spaces" if sign else warning
