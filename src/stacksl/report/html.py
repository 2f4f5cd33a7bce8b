"""The report as one HTML page, without script or network, and cards, each a README.md.

Equal facts give equal bytes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from stacksl.report import adapted, figures, sentences, wording
from stacksl.report.facts import Facts, SettingRow
from stacksl.report.language import STARTS_FROM
from stacksl.report.quality import Asking, ClassRow, ClassTotal

if TYPE_CHECKING:
    import jinja2


FEWEST = 10  # measured items of a class whose recall is shown


def render(facts: Facts, *, text: bool = True) -> str:
    """The report: one self-contained HTML page; names may hold markup.

    Args:
        facts: what to show; its numbers are finite, as those read from JSON are.
        text: False leaves out what the data's owner worded: prompts, candidates, ids, columns.
    """
    from markupsafe import Markup

    shown = facts if text else without_text(facts, class_names=False)
    drawn = {
        "curve": figures.accuracy_curve(shown),
        "calibration": figures.calibration(shown.calibration),
    }
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            facts=shown,
            named=text,
            plots={name: Markup(svg) for name, svg in drawn.items()},  # figures.py escapes
            totals=totals(shown),
            classes=class_rows(shown),
            never_seen=never_seen(shown),
        )
    )


def card(facts: Facts, *, text: bool = True, class_names: bool = False, handed: Any = None) -> str:
    """The model card of the run, in Markdown: the README.md of the run's folder.

    Without `text` it is as in `render`, but `class_names` keeps the names of classes; for `handed`
    see `right` of `portable.folder.write_folder`.
    """
    shown = facts if text else without_text(facts, class_names)
    markdown = (
        environment()
        .get_template("card.md.j2")
        .render(
            facts=shown,
            handed=handed,
            named_classes=text or class_names,
            never_seen=never_seen(shown),
        )
    )
    return wording.clean(markdown.rstrip("\n")) + "\n"


# What is shown of the classes ---------------------------------------------------------------------


def class_rows(facts: Facts) -> tuple[ClassRow, ...]:
    """The classes, worst recall first; where that is not known the most bought first.

    What was measured on fewer than ten items of a class says nothing of it, and is left out.
    """

    def key(row: ClassRow) -> tuple[float, int, str]:
        return (2.0 if row.recall is None else row.recall, -row.bought, row.name)

    unmeasured: dict[str, Any] = dict.fromkeys(("precision", "recall", "low", "high"))
    rows = [
        row if (row.test_n or 0) >= FEWEST else replace(row, **unmeasured) for row in facts.classes
    ]
    return tuple(sorted(rows, key=key))


def totals(facts: Facts) -> tuple[ClassTotal, ...]:
    """The classes by what people and the model say of them, the largest first."""
    rows = facts.own.totals if facts.own else ()
    return tuple(sorted(rows, key=lambda row: (-row.human - row.predicted, row.name)))


def never_seen(facts: Facts) -> tuple[str, ...]:
    """The names of the classes of which no label was bought; none where a column has labels."""
    return tuple(row.name for row in facts.classes if row.bought == 0 and facts.column is None)


# Templates ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Jinja for page and card: strict about names, with the project's way of writing numbers.

    HTML is escaped; in Markdown the filters `plain` and `sentence` do it.
    """
    import jinja2
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return wording.clean(value) if type(value) is str else value

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stacksl.report", "templates"),
        autoescape=lambda name: name is None or not name.endswith(".md.j2"),
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = environment.loader.get_source(environment, "style.css")[0]  # type: ignore[union-attr]
    environment.globals["style"] = Markup(source)  # our own file
    environment.globals.update(wording=wording, say=sentences, adapted=adapted)
    environment.filters.update(
        count=wording.count,
        percent=wording.percent,
        number=wording.number,
        duration=wording.duration,
        plain=wording.plain,
        sentence=wording.plain_sentence,
        fence=wording.fence,
        quoted=lambda value: json.dumps(wording.clean(value)),
        short=lambda value: wording.excerpt(value, 120),
    )
    return environment


# Without text -------------------------------------------------------------------------------------

LEFT_OUT = "(left out)"
PLAIN = ("gate.name", "scorer.name", "follower", "mode", "order", "seed", "stop_when")
"""Settings of words that the package chose; of all others, numbers alone are forwarded."""

OF_THE_RUN = ("labeler", "stop_when", "set")
"""Changes that are about no person."""


def without_text(facts: Facts, class_names: bool) -> Facts:
    """The facts without anything that the data or their owner worded, to be shown to others.

    Prompts, answers, ids, people, names of columns, files and folders, warnings, and a prompt's
    template are left out; people go by numbers, and so do classes unless `class_names` keeps their
    names.
    """
    rows = [row.name for row in facts.classes or (facts.own.totals if facts.own else ())]
    numbers = {name: name if class_names else f"class {at}" for at, name in enumerate(rows, 1)}
    model = facts.language
    if model is not None:
        name = LEFT_OUT if PurePath(model.base.source).is_absolute() else model.base.name
        base = replace(model.base, name=name, source=LEFT_OUT)
        training = tuple(
            replace(row, value=LEFT_OUT) if row.name == STARTS_FROM else row
            for row in model.training
        )
        scoring = replace(model.scoring, template=LEFT_OUT)
        model = replace(model, base=base, scoring=scoring, training=training)
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
        column=facts.column and replace(facts.column, name=LEFT_OUT, classes=()),
        data=replace(facts.data, name=LEFT_OUT, columns=()),
        settings=tuple(map(_without_words, facts.settings)),
        asking=_without_people(facts.asking),
        warnings=tuple("A warning is left out." for _ in facts.warnings),
        language=model,
    )


def _without_words(row: SettingRow) -> SettingRow:
    bare = row.value.replace(".", "").replace("-", "").replace("e", "").isdecimal()
    known = row.name in PLAIN or row.origin == "default" or row.value in ("True", "False", "none")
    return row if bare or known else replace(row, value=LEFT_OUT)


def _without_people(asking: Asking) -> Asking:
    named = [person.name for person in asking.differing]
    named += [row.who for row in asking.changes if row.who and row.kind not in OF_THE_RUN]
    people = dict.fromkeys([*(row.labeler for row in asking.costs), *named])
    numbers = {name: f"annotator {at}" for at, name in enumerate(people, 1)}
    return replace(
        asking,
        costs=tuple(replace(row, labeler=numbers[row.labeler]) for row in asking.costs),
        differing=tuple(replace(row, name=numbers[row.name]) for row in asking.differing),
        changes=tuple(
            replace(row, who=numbers.get(row.who, LEFT_OUT) if row.who else "")
            for row in asking.changes
        ),
    )
