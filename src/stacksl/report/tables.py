"""Tables of the page: sorted rows, folded lists, and facts without text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Generic, TypeVar

from stacksl.report import adapted, wording
from stacksl.report.codec import Named
from stacksl.report.facts import Facts, SettingRow
from stacksl.report.language import LanguageModel
from stacksl.report.quality import Asking, ClassRow, ClassTotal

FEWEST = 10  # measured items of a class whose recall is shown

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


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the headline, with its name and a note."""

    name: str
    value: str
    note: str


def tiles(facts: Facts) -> tuple[Tile, ...]:
    """The numbers a reader looks for first."""
    budget = facts.budget
    left = f"{wording.count(budget.left)} left" if budget.left else "none left"
    of = f"of a budget of {wording.count(budget.labels)}, {left}"
    found = [*_accuracy_tiles(facts), *_base_tile(facts)]
    found.append(Tile("Labels spent", wording.count(budget.spent), of))
    if budget.spent_money is not None:
        each = "" if budget.price is None else wording.money(budget.price, budget.currency)
        note = f"{each} a label" if each else "in all"
        found.append(Tile("Cost", wording.cost(facts), note))
    return tuple(found)


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
    """The classes, worst recall first; where that is not known the most bought first.

    What was measured on fewer than ten items of a class says nothing of it, and is left out.
    """

    def key(row: ClassRow) -> tuple[float, int, str]:
        return (2.0 if row.recall is None else row.recall, -row.bought, row.name)

    rows = (row if (row.test_n or 0) >= FEWEST else _unmeasured(row) for row in facts.classes)
    return tuple(sorted(rows, key=key))


def _unmeasured(row: ClassRow) -> ClassRow:
    return replace(row, precision=None, recall=None, low=None, high=None)


def totals(facts: Facts) -> tuple[ClassTotal, ...]:
    """The classes by their number of items, the largest first."""
    rows = facts.own.totals if facts.own else ()

    def size(row: ClassTotal) -> float:
        return -(row.human + row.predicted if row.total is None else row.total)

    return tuple(sorted(rows, key=lambda row: (size(row), row.name)))


def never_seen(facts: Facts) -> tuple[str, ...]:
    """The names of the classes of which no label was bought, in the order of the classes."""
    return tuple(row.name for row in facts.classes if row.bought == 0)


def settings(facts: Facts) -> tuple[tuple[SettingRow, ...], tuple[SettingRow, ...]]:
    """The settings chosen for the run, and those left at their defaults, in the given order."""
    chosen = tuple(row for row in facts.settings if row.origin != "default")
    return chosen, tuple(row for row in facts.settings if row.origin == "default")


LEFT_OUT = "(left out)"
PLAIN = ("aim", "gate", "scorer", "follower", "mode", "order", "seed")
"""Settings of words that the package chose; of all others, numbers alone are forwarded."""


def without_text(facts: Facts, class_names: bool) -> Facts:
    """The facts without anything that the data or their owner worded, to be shown to others.

    Prompts, answers, ids, people, names of columns, files and folders, warnings, and a prompt's
    template are left out; people go by numbers, and so do classes unless `class_names` keeps their
    names.
    """
    rows = [row.name for row in facts.classes or (facts.own.totals if facts.own else ())]
    numbers = {name: name if class_names else f"class {at}" for at, name in enumerate(rows, 1)}
    own = facts.own and replace(
        facts.own, totals=tuple(replace(row, name=numbers[row.name]) for row in facts.own.totals)
    )
    return replace(
        facts,
        title="A run of stacksl",
        run="RUN",
        own=own,
        test=facts.test and replace(facts.test, file=LEFT_OUT),
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
        data=replace(facts.data, name=LEFT_OUT, columns=()),
        method=replace(
            facts.method, features=facts.method.features.split(":")[0], labeler=LEFT_OUT
        ),
        settings=tuple(map(_without_words, facts.settings)),
        asking=_without_people(facts.asking, numbers if class_names else {}),
        warnings=tuple("A warning is left out." for _ in facts.warnings),
        language=_without_template(facts.language),
    )


def _without_words(row: SettingRow) -> SettingRow:
    bare = row.value.replace(".", "").replace("-", "").replace("e", "").isdecimal()
    known = row.name in PLAIN or row.origin == "default" or row.value in ("True", "False", "none")
    return row if bare or known else replace(row, value=LEFT_OUT)


def _without_people(asking: Asking | None, classes: Mapping[str, str]) -> Asking | None:
    """The facts with numbers for the names of annotators."""
    if asking is None:
        return None
    named = [each.name for row in asking.disagreements for each in row.answers]
    named += [each.name for each in asking.differing]
    people = dict.fromkeys([*(row.labeler for row in asking.costs), *named])
    numbers = {name: f"annotator {at}" for at, name in enumerate(people, 1)}
    return replace(
        asking,
        costs=tuple(replace(row, labeler=numbers[row.labeler]) for row in asking.costs),
        differing=tuple(replace(row, name=numbers[row.name]) for row in asking.differing),
        disagreements=tuple(
            replace(
                row,
                item="",
                prompt="",
                answers=tuple(
                    Named(numbers[each.name], classes.get(each.value, LEFT_OUT))
                    for each in row.answers
                ),
            )
            for row in asking.disagreements
        ),
    )


def _without_template(model: LanguageModel | None) -> LanguageModel | None:
    if model is None:
        return None
    folder = PurePath(model.base.source).is_absolute()
    return replace(
        model,
        base=replace(model.base, name=LEFT_OUT if folder else model.base.name, source=LEFT_OUT),
        scoring=replace(model.scoring, template=LEFT_OUT),
    )
