"""What the owner of a run does on the page: each act is an operation as the verbs have it."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stacksl.api.handover import expect_done
from stacksl.errors import StackslError
from stacksl.label.forms import Act
from stacksl.label.orders import Order
from stacksl.label.site import Refused, Site
from stacksl.report.wording import money, plural
from stacksl.runs.changes.change import Change, change_run, preview
from stacksl.runs.changes.correcting import list_corrections, record_corrections

PATIENCE = 60.0  # seconds that the owner waits for a refit that is under way


def act_on(site: Site, act: Act) -> dict[str, Any]:
    """Do what the owner wants; a reply with a sentence, a link, or a question to agree to.

    Raises:
        Refused: it cannot be done.
    """
    try:
        return _ACTS[act.act](site, act)
    except StackslError as fault:
        raise Refused(str(fault), 422) from None
    except TimeoutError:
        raise Refused("a refit is under way, nothing was changed: repeat it later", 503) from None


def _pause(site: Site, act: Act) -> dict[str, Any]:
    site.player.paused = act.act == "pause"
    return {"state": "done"}


def _link(site: Site, act: Act) -> dict[str, Any]:
    return {"state": "done", "link": site.access.link(_known(site, act)), "name": act.name}


def _revoke(site: Site, act: Act) -> dict[str, Any]:
    site.access.revoke(_known(site, act))
    return {"state": "done", "sentence": "Sessions and links were ended."}


def _budget(site: Site, act: Act) -> dict[str, Any]:
    wanted = Change(budget=act.value or "")
    found = _ordered(site, preview, change=wanted)
    if not act.agreed:
        cost = "" if found.cost is None else f", for {money(found.cost)} more at most"
        labels = plural(found.labels, "label")
        return _question(f"The budget becomes {labels} in all, {found.more} more{cost}.")
    _ordered(site, change_run, change=wanted, agreed=found)
    return {"state": "done", "sentence": f"The budget is {plural(found.labels, 'label')} in all."}


def _annotator(site: Site, act: Act) -> dict[str, Any]:
    name = (act.name or "").strip()
    wanted = Change(annotators={name: act.value or None})
    _ordered(site, change_run, change=wanted, agreed=None)
    return {"state": "done", "link": site.access.link(name), "name": name}


def _correct(site: Site, act: Act) -> dict[str, Any]:
    """An accepted answer by its row's key, as a sheet of one row would correct it."""
    with tempfile.TemporaryDirectory() as folder:
        sheet = Path(folder) / "correction.csv"
        with sheet.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("key", "answer"), (act.name or "", act.value or "")])
        found = _ordered(site, list_corrections, files=[sheet])
        if not found:
            raise Refused(
                "no accepted answer of that row differs: is the key right, and the answer a sign or"
                " the text of one of its options?",
                422,
            )
        said = f"{found[0].key}, {found[0].annotator}: {found[0].before} → {found[0].after}"
        if not act.agreed:
            return _question(said)
        _ordered(site, record_corrections, files=[sheet], agreed=found)
    return {"state": "done", "sentence": f"Corrected: {said}"}


_ACTS: dict[str, Callable[[Site, Act], dict[str, Any]]] = {
    "pause": _pause,
    "resume": _pause,
    "link": _link,
    "revoke": _revoke,
    "budget": _budget,
    "annotator": _annotator,
    "correct": _correct,
}


def _question(sentence: str) -> dict[str, Any]:
    return {"state": "asked", "sentence": sentence}


def _known(site: Site, act: Act) -> str:
    if act.name not in site.player.annotators:
        raise Refused("no annotator of this run has that name", 422)
    return act.name


def _ordered(site: Site, function: Callable[..., Any], **words: Any) -> Any:
    """The result of an operation that the player carries out between two steps.

    Raises:
        TimeoutError: it was not begun in time, and is not carried out later.
    """
    order = Order(function, words)
    site.player.order(order)
    try:
        reply = order.outcome.result(PATIENCE)
    except TimeoutError:
        if order.outcome.cancel():
            raise
        reply = order.outcome.result()  # it has begun
    expect_done(reply)
    return order.result
