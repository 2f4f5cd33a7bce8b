"""The report as one HTML page: no script, no network, equal bytes for equal facts."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.report import adapted, audited, figures, tables, wording

if TYPE_CHECKING:
    import jinja2

    from stacksl.report.facts import Facts


EXCERPT = 280


def page(facts: Facts, *, text: bool = True, class_names: bool = False) -> str:
    """The page of a run's facts (`stacksl.report.render`); prompts may hold markup."""
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
    return {name: Markup(svg) for name, svg in drawn.items()}  # svg.py escapes


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
