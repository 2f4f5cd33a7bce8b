"""The HTML of the page; every text of the data is escaped, and its hidden characters are shown."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.data import Classes
from stacksl.label.asked import page_of
from stacksl.label.site import OWNER, Site
from stacksl.labelers.sheets.cells import LETTERED, sign, visible
from stacksl.labelers.sheets.rows import SheetRow
from stacksl.report.wording import money

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

# Marks, embeddings, overrides and isolates of direction, and spaces without a width. The joiners
# stay: Persian, Indic scripts and emoji are written with them.
_HIDDEN = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def visible_html(text: str) -> Markup:
    """A text of the data as HTML, with control and direction characters as signs.

    >>> str(visible_html("a<b\\u202ec\\x00"))
    'a&lt;b<span class="sign">U+202E</span>c␀'
    """
    from markupsafe import Markup, escape

    def escape_sign(match: re.Match[str]) -> str:
        return f'<span class="sign">U+{ord(match[0]):04X}</span>'

    return Markup(_HIDDEN.sub(escape_sign, str(escape(visible(text)))))


def rendered(name: str, **values: Any) -> str:
    """A page, or a part of one, by the name of its template."""
    return _environment().get_template(f"{name}.html.j2").render(**values)


def page(site: Site, name: str, csrf: str) -> str:
    """The page of an annotator, or of the owner."""
    values = {"run": site.player.folder.path.name, "csrf": csrf, **page_values(site, name)}
    if name == OWNER:
        return rendered("owner", **values)
    classes, shared = site.player.view.classes, []
    if classes is not None and len(classes.names) > LETTERED:  # once, for all questions
        shared = options(tuple(classes.names), classes)
    return rendered("label", who=name, shared=shared, guidelines=site.guidelines, **values)


def rows_page(site: Site, number: int, find: str, csrf: str) -> str:
    """A page of the rows of a finished run, for its owner; the last one for a higher number."""
    folder, changed = site.player.folder, site.player.view.changed
    rows = {"csrf": csrf, "changed": changed, **page_of(folder, number, find)}
    return rendered("asked", run=folder.path.name, **rows)


def page_values(site: Site, name: str) -> dict[str, Any]:
    """What the changing part of the page of an annotator, or of the owner, shows."""
    player, view = site.player, site.player.view
    if name != OWNER:
        own = {"me": view.of(name), "rows": rows(player.questions(name), view.classes)}
        return {"view": view, "hours": hours(view.hours), **own}
    doing = {"open": "is paused" if player.paused else "goes on", "finished": "has finished"}
    return {
        "view": view,
        "paused": player.paused,
        "state": doing.get(view.state, "has stopped"),
        "hours": hours(view.hours),
        "path": str(player.folder.path),
    }


def hours(time: float | None) -> str:
    """A time in words, or nothing.

    >>> hours(0.4), hours(3.2), hours(None)
    ('24 min', '3 h 12 min', '')
    """
    if time is None:
        return ""
    full, minutes = divmod(max(1, round(60 * time)), 60)
    return f"{full} h {minutes} min" if full else f"{minutes} min"


def rows(questions: tuple[SheetRow, ...], classes: Classes | None) -> list[dict[str, Any]]:
    """What the template shows of each question.

    Lists of more than 26 classes are on the page once: the first `count` of them are the options.
    """
    rows_of_page = []
    for question in questions:
        count = len(question.options)
        shared = classes is not None and count > LETTERED
        row = {"key": question.key, "prompt": question.prompt, "count": count}
        own_options = [] if shared else options(question.options, classes)
        rows_of_page.append({**row, "options": own_options})
    return rows_of_page


def options(texts: tuple[str, ...], classes: Classes | None) -> list[tuple[str, str, str]]:
    """The sign, the text and the description of each option, in the order shown."""
    descriptions = classes.descriptions if classes is not None else ()
    return [
        (sign(n, texts), text, (descriptions[n] if n < len(descriptions) else None) or "")
        for n, text in enumerate(texts)
    ]


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stacksl.label", "web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible_html": visible_html, "money": money}
    return environment
