"""The HTML of the page; every text of the data is escaped, and its hidden characters are shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.api import Run
from stacksl.api.labeling import by_model, column_labels, human_labels
from stacksl.data import Classes
from stacksl.label.site import OWNER, Site
from stacksl.labelers.sheets.cells import LETTERED, sign, visible
from stacksl.labelers.sheets.rows import SheetRow
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Head
from stacksl.ledger.store.database import opened
from stacksl.models.adapted import is_adapted
from stacksl.models.linear import Model
from stacksl.report.wording import money
from stacksl.runs.finish.answers import OWNER as BY_OWNER
from stacksl.runs.items.stored import never_asked
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Decision, Item

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

PAGE = 50  # rows on a page
EXCERPT = 600  # characters of a prompt

_WHY = {
    "gate": "the gate asked",
    "must": "as many labels were left as items",
    "rank": "uncertain",
    "doubt": "its label is doubtful",
    "coverage": "covers uncertain items",
    "order": "first batch, in the order of the items",
    "drawn": "drawn at random",
    "audit": "audit, drawn at random",
    "owned": "nobody was asked; the label is yours",
}
_KIND = {"late": "not counted", "corrected": "correction"}

# Marks, embeddings, overrides and isolates of direction, and spaces without a width. The joiners
# stay: Persian, Indic scripts and emoji are written with them.
_HIDDEN = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def visible_html(text: str) -> Markup:
    """A text of the data as HTML, with control and direction characters as signs.

    >>> str(visible_html("a<b\\u202ec\\x00"))
    'a&lt;b<span class="sign">U+202E</span>c␀'
    """
    from markupsafe import Markup, escape

    template = '<span class="sign">U+{:04X}</span>'
    escaped = str(escape(visible(text)))
    return Markup(_HIDDEN.sub(lambda match: template.format(ord(match[0])), escaped))


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
    path = shlex.quote(str(folder.path))  # as the command named it
    return rendered("asked", run=folder.path.name, path=path, **rows)


def page_values(site: Site, name: str) -> dict[str, Any]:
    """What the changing part of the page of an annotator, or of the owner, shows."""
    player, view = site.player, site.player.view
    if name != OWNER:
        questions = rows(view.rows.get(name, ()), view.classes)
        return {"view": view, "me": view.of(name), "rows": questions}
    state = {"open": "goes on", "finished": "has finished"}.get(view.state, "has stopped")
    return {"view": view, "state": state, "path": str(player.folder.path)}


def rows(questions: tuple[SheetRow, ...], classes: Classes | None) -> list[dict[str, Any]]:
    """What the template shows of each question.

    Lists of more than 26 classes are on the page once: the first `count` of them are the options.
    """
    rows_of_page = []
    for question in questions:
        count = len(question.options)
        is_shared = classes is not None and count > LETTERED
        row = {"key": question.key, "prompt": question.prompt, "count": count}
        own_options = [] if is_shared else options(question.options, classes)
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


# What its owner reads of a finished run: why rows were asked, what model and people said ----------


def page_of(folder: RunFolder, number: int, find: str = "") -> dict[str, Any]:
    """What a page shows of the rows in which a text is found; the last one beyond the end.

    Those that were asked come first, as `_rows_asked` has them, then all others in their order.

    Raises:
        StackslError: the run or its model cannot be read.
    """
    with opened(folder.database, readonly=True) as store:
        head = store.tail()
    asked, answers = _rows_asked(folder, head)
    matches = [row for row in asked if find.casefold() in row["found"]]
    start = (number - 1) * PAGE
    rows = matches[start : start + PAGE]
    other_count, items = never_asked(folder, find, max(0, start - len(matches)), PAGE - len(rows))
    pages = max(1, -(-(len(matches) + other_count) // PAGE))
    option_lists = {*(row["options"] for row in matches), *(item.candidates for item in items)}
    if number > pages:
        return page_of(folder, pages, find)
    labels = _now(folder, items)
    for item in items:
        owned = answers.get(item.id)  # the label of another row with its text
        row = _row(item, "owned" if owned else "nobody was asked") | labels.get(item.id, {})
        rows.append(row | {"words": [(BY_OWNER, owned["label"], "", (), None)] if owned else []})
    return {
        "rows": rows,
        "total": len(matches),
        "others": other_count,
        "differing": sum(row["differs"] for row in matches),
        "number": number,
        "pages": pages,
        "find": find,
        "shared": next(iter(option_lists)) if len(option_lists) == 1 else (),
    }


def _now(folder: RunFolder, items: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """What the final model says of items, if it is linear; a language model takes too long."""
    if not items or is_adapted(folder.model):
        return {}
    model = Run(folder.path).model
    assert isinstance(model, Model)
    labels = by_model(model, items, None)
    return {id: {"now": row["label"], "sure": row["confidence"]} for id, row in labels.items()}


def _row(item: Item, reason: str, decision: Decision | None = None) -> dict[str, Any]:
    """An item, why it was asked, and its label before; the answers follow in `words`."""
    cut = len(item.prompt) > EXCERPT
    return {
        **{"item": item.id, "number": "", "now": "", "sure": None, "differs": False},
        "prompt": item.prompt[:EXCERPT] + ("…" if cut else ""),
        "why": _WHY.get(reason, reason),
        "free": reason in ("nobody was asked", "owned"),
        "before": "" if decision is None else item.candidates[decision.choice],
        "sure_before": None if decision is None else decision.probability,
        "words": [],
        "options": item.candidates,
    }


@lru_cache(maxsize=1)
def _rows_asked(
    folder: RunFolder, head: Head | None
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """All usable items that were asked in a finished run, while the ledger has this `head`.

    First those on which people and model differ, the surest first, then the others as they were
    asked. A language model would have to score every item: what it says of them is left out.
    Also the labels of the exported table that are not a model's.
    """
    spec, run = RunSpec.open(folder), Run(folder.path)
    items = spec.sources.usable
    with run.ledger as ledger:
        rows_by_id = _asked_rows(ledger, items, spec.sources.owned)
    answers, table_labels = human_labels(run, spec), column_labels(run, spec)
    labels = _now(folder, [items[id] for id in rows_by_id])
    for number, (id, row) in enumerate(rows_by_id.items(), 1):
        answer = answers.get(id, {})
        row |= {"number": number} | labels.get(id, {})
        if row["sure_before"] is None and (table_label := table_labels.get(id)):  # of an audit
            row |= {"before": table_label["label"], "sure_before": table_label["confidence"]}
        human_label = answer.get("label") or ("" if answer.get("source") == "human: none" else None)
        row["differs"] = id in labels and human_label is not None and human_label != row["now"]
        texts = (id, items[id].prompt, row["now"], *(" ".join(entry[:2]) for entry in row["words"]))
        row["found"] = "\n".join(texts).casefold()
    by_doubt = sorted(rows_by_id.values(), key=lambda row: -row["sure"] if row["differs"] else 1)
    return by_doubt, answers


def _asked_rows(
    ledger: Ledger, items: Mapping[str, Item], from_files: Container[str]
) -> dict[str, dict[str, Any]]:
    """The items that were asked or labeled by the owner, in that order, with what was said of each.

    Owned items `from_files` are left out.
    """
    keys = {(row.item, row.slot, row.annotator): row.key for row in ledger.private.handed()}
    rows_by_id: dict[str, dict[str, Any]] = {}
    for row in ledger.rows():
        id = str(row.item)
        if row.item not in items or row.item in from_files:
            continue
        item = items[id]
        if row.event == "round":
            decision = row.decision()
            if decision.asked:
                rows_by_id[id] = _row(item, decision.reason, decision)
        elif row.event == "reserved":
            rows_by_id.setdefault(id, _row(item, str(row.purpose)))
        elif row.event in ("answered", "late", "corrected"):
            word = row.payload["index" if "index" in row.payload else "kind"]
            text = item.candidates[word] if isinstance(word, int) else word
            kind, annotator = _KIND.get(row.event, ""), str(row.labeler)
            key = keys.get((id, row.slot or 0, annotator)) if row.event == "answered" else None
            rows_by_id[id]["words"].append((annotator, text, kind, ledger.remarks(row), key))
        elif row.event == "released" and (remarks := ledger.remarks(row)):
            rows_by_id[id]["words"].append(("", str(row.payload["reason"]), "", remarks, None))
    return rows_by_id
