"""Tables of the page: sorted rows, folded lists, and facts without text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from stacksl.report import adapted, wording
from stacksl.report.asking import Asking
from stacksl.report.facts import Facts, SettingRow
from stacksl.report.language import LanguageModel
from stacksl.report.quality import ClassRow

SECTIONS = (
    ("accuracy", "How good it is"),
    ("bought", "What the budget bought"),
    ("answers", "Answers"),
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
    return (*SECTIONS[:2], LANGUAGE, *SECTIONS[2:]) if facts.language else SECTIONS


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the headline, with its name and a note."""

    name: str
    value: str
    note: str


def tiles(facts: Facts) -> tuple[Tile, ...]:
    """The numbers a reader looks for first."""
    budget = facts.budget
    spent = Tile("Labels bought", wording.count(wording.bought_in_all(facts)), _of_budget(facts))
    found = [*_accuracy_tiles(facts), *_base_tile(facts), spent]
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
    kept = f"; {wording.count(budget.audit)} for the audit" if budget.audit else ""
    kept += f"; {wording.count(budget.progress)} to watch progress" if budget.progress else ""
    return f"of a budget of {wording.count(budget.labels)}, {left}{kept}"


def _accuracy_tiles(facts: Facts) -> list[Tile]:
    """The audited accuracy first, since it was paid for; the test file's beside it."""
    found = []
    audit, test = facts.audit, facts.test
    if audit is not None:
        wide = f"95% interval {wording.interval(audit.low, audit.high)}"
        wide += "; of the model before it learnt the audit" if audit.trained_on else ""
        found.append(Tile("Audited accuracy", wording.percent(audit.accuracy), wide))
    if test is not None:
        wide = f"95% interval {wording.interval(test.low, test.high)}"
        found.append(Tile("Test accuracy", wording.percent(test.accuracy), wide))
    return found or [Tile("Accuracy on new items", "not known", "no audit, no test file")]


def _base_tile(facts: Facts) -> tuple[Tile, ...]:
    row = adapted.base_of(facts)
    if row is None:
        return ()
    interval = f"{wording.percent(row.base_low)} to {wording.percent(row.base_high)}"
    note = f"without a label, 95% interval {interval}"
    return (Tile("Base model", wording.percent(row.base_accuracy), note),)


def class_rows(facts: Facts) -> tuple[ClassRow, ...]:
    """The classes, worst recall first; where that is not known the most bought first."""

    def key(row: ClassRow) -> tuple[float, int, str]:
        return (2.0 if row.recall is None else row.recall, -row.bought, row.name)

    return tuple(sorted(facts.classes, key=key))


def never_seen(facts: Facts) -> tuple[str, ...]:
    """The names of the classes of which no label was bought, in the order of the classes."""
    return tuple(row.name for row in facts.classes if row.bought == 0)


def settings(facts: Facts) -> tuple[tuple[SettingRow, ...], tuple[SettingRow, ...]]:
    """The settings chosen for the run, and those left at their defaults, in the given order."""
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
        settings=tuple(map(_without_words, facts.settings)),
        asking=_without_people(facts.asking),
        language=_without_template(facts.language),
    )


WORDED = ("prompt_column", "label_column", "classes", "owned", "annotators", "ask_dir", "price")
"""Settings whose values the owner of the data worded: columns, files, people."""


def _without_words(row: SettingRow) -> SettingRow:
    worded = row.name in WORDED and row.origin != "default"
    plain = row.name == "price" and "=" not in row.value
    return replace(row, value="(left out)") if worded and not plain else row


def _without_people(asking: Asking | None) -> Asking | None:
    """The facts with numbers for the names of annotators."""
    if asking is None:
        return None
    costs = (replace(row, labeler=f"labeler {at}") for at, row in enumerate(asking.costs, 1))
    return replace(asking, costs=tuple(costs))


def _without_template(model: LanguageModel | None) -> LanguageModel | None:
    if model is None:
        return None
    return replace(model, scoring=replace(model.scoring, template="(left out)"))
