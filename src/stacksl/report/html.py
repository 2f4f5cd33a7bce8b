"""The report as one HTML page, without script or network, and cards, each a README.md.

Equal facts give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.report import adapted, audited, figures, tables, wording
from stacksl.report.facts import Facts
from stacksl.report.quality import ClassRow

if TYPE_CHECKING:
    import jinja2


EXCERPT = 280


def render(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The report: one self-contained HTML page; prompts may hold markup.

    Args:
        facts: what to show.
        text: False leaves out what the data's owner worded: prompts, candidates, ids, columns.
        class_names: True keeps the names of classes in a page without text.
    """
    shown = facts if text else tables.without_text(facts, class_names)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            facts=shown, text=text, named=text or class_names, plots=_plots(shown), **_tables(shown)
        )
    )


def _plots(facts: Facts) -> dict[str, str]:
    """Every figure by name; an empty string where there is nothing to draw."""
    from markupsafe import Markup

    drawn = {
        "curve": figures.accuracy_curve(facts),
        "spending": figures.spending(facts),
        "statistic": figures.statistic(facts),
        "calibration": figures.calibration(facts.calibration),
    }
    return {name: Markup(svg) for name, svg in drawn.items()}  # figures.py escapes


def _tables(facts: Facts) -> dict[str, Any]:
    """What the template loops over, sorted and split into what is shown and what is folded."""
    return {
        "tiles": tables.tiles(facts),
        "totals": tables.folded(tables.totals(facts), 8),
        "classes": tables.folded(tables.class_rows(facts), 8),
        "never_seen": tables.never_seen(facts),
        "measured": wording.measured_on(facts),
        "confusions": tables.folded(facts.confusions, 6),
        "contested": tables.folded(facts.contested, 3),
        "settings": tables.settings(facts),
        "outside": figures.statistic_range(facts)[1],
    }


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
    environment.globals.update(wording=wording, adapted=adapted, audited=audited)
    environment.filters.update(
        count=wording.count,
        percent=wording.percent,
        number=wording.number,
        duration=adapted.duration,
        plain=wording.plain,
        sentence=wording.plain_sentence,
        fence=wording.fence,
        quoted=lambda value: json.dumps(wording.clean(value)),
        excerpt=lambda value: wording.excerpt(value, EXCERPT),
        short=lambda value: wording.excerpt(value, 120),
    )
    return environment


def card(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The model card of the run, in Markdown: the README.md of the run's folder.

    Args:
        facts: what to show.
        text: False leaves out what the data's owner worded, class names included.
        class_names: True keeps those in a card without text.
    """
    shown = facts if text else tables.without_text(facts, class_names)
    found = (
        environment()
        .get_template("card.md.j2")
        .render(
            facts=shown,
            named_classes=text or class_names,
            never_seen=tables.never_seen(shown),
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
    tested = [row for row in tables.class_rows(facts) if row.recall is not None]

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
