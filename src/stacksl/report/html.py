"""The report as one HTML page, without script or network, and cards, each a README.md.

Equal facts give equal bytes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.report import answers, figures, sentences, wording
from stacksl.report.facts import Facts
from stacksl.report.quality import ClassRow, ClassTotal

if TYPE_CHECKING:
    import jinja2


FEWEST = 10  # measured items of a class whose recall is shown


def render(facts: Facts) -> str:
    """The report: one self-contained HTML page; names may hold markup.

    The numbers of `facts` are finite, as those read from JSON are.
    """
    from markupsafe import Markup

    return (
        environment()
        .get_template("report.html.j2")
        .render(
            facts=facts,
            curve=Markup(figures.accuracy_curve(facts.curve)),  # which has no text of the data
            totals=totals(facts),
            classes=class_rows(facts),
            never_seen=never_seen(facts),
        )
    )


def card(facts: Facts, handed: Any = None) -> str:
    """The model card of the run, in Markdown: the README.md of the run's folder.

    For `handed` see `right` of `portable.folder.write_folder`: that card has only what concerns the
    model, and of the data only the names of classes.
    """
    if handed is not None:
        column = facts.column and replace(facts.column, name="(left out)")
        facts = replace(facts, title="A run of stacksl", run="RUN", column=column, warnings=())
    markdown = (
        environment()
        .get_template("card.md.j2")
        .render(facts=facts, handed=handed, never_seen=never_seen(facts))
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
    environment.globals.update(wording=wording, say=sentences, answers=answers)
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
