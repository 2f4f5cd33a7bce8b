"""What the owner of a run does on the page: each act is an operation as the verbs have it."""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from stacksl.errors import StackslError
from stacksl.label.site import Refused, Site
from stacksl.report.wording import money, plural
from stacksl.runs.changes.change import Change, change_run
from stacksl.runs.changes.people import corrections, free_rows, own_label

T = TypeVar("T")

PATIENCE = 60.0  # seconds that the owner waits for a refit that is under way
NAMED = 3  # cells at fault that a reply names


class Form(BaseModel):
    """The base of what a browser may send: no unknown field, and no text of a field in an error."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Act(Form):
    """What the owner does; the other fields are what `act` needs."""

    act: str = Field(max_length=20)
    name: str | None = Field(default=None, max_length=1000)
    value: str | None = Field(default=None, max_length=2000)
    agreed: bool = False


def act_on(site: Site, act: Act) -> dict[str, Any]:
    """Do what the owner wants; a reply with a sentence, a link, or a question to agree to.

    Raises:
        Refused: it cannot be done.
    """
    if act.act not in _ACTS:
        raise Refused("the request is not of the form that the page sends", 422)
    return _or_refused(lambda: _ACTS[act.act](site, act))


def enter_sheet(site: Site, name: str, data: bytes) -> dict[str, Any]:
    """Enter the answers of a filled-in sheet, as `stacksl answer` does; a sentence on them.

    `name` is the file's, as the owner knows it; `data` is CSV or XLSX.

    Raises:
        Refused: it cannot be read as a sheet; no answer was entered.
    """
    file_name = re.sub(r"[^\w. -]", "_", name)[-100:].strip(". ") or "sheet"
    with tempfile.TemporaryDirectory() as folder:
        sheet = Path(folder) / file_name
        sheet.write_bytes(data)
        try:
            received = _or_refused(lambda: _outcome_of(site.player.receive([sheet])))
        except Refused as refusal:
            refusal.sentence = refusal.sentence.replace(f"{folder}/", "")
            raise
        faults = [line.replace(f"{folder}/", "") for line in received.faults]
    counts = {
        "accepted": sum(received.accepted.values()),
        "given before": received.repeated,
        "contradicting an accepted one, kept but not paid": received.disputed,
        "too late, kept but not paid": received.late,
    }
    entries = [f"{count} {word}" for word, count in counts.items() if count]
    if received.empty:
        entries.append(f"{plural(received.empty, 'row')} still empty")
    fault_text = f"; not readable: {'; '.join(faults[:NAMED])}" if faults else ""
    fault_text += f"; and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    sentence = f"Answers in {file_name}: {', '.join(entries) or 0}{fault_text}."
    return {"state": "done", "sentence": sentence}


def _or_refused(work: Callable[[], T]) -> T:
    """The result of `work`.

    Raises:
        Refused: it failed, or was not begun in time.
    """
    try:
        return work()
    except StackslError as fault:
        raise Refused(str(fault), 422) from None
    except TimeoutError:
        raise Refused("a refit is under way, nothing was changed: repeat it later", 503) from None


def _link(site: Site, act: Act) -> dict[str, Any]:
    return {"state": "done", "link": site.access.link(_annotator_of(site, act)), "name": act.name}


def _revoke(site: Site, act: Act) -> dict[str, Any]:
    site.access.revoke(_annotator_of(site, act))
    return {"state": "done", "sentence": "Sessions and links were ended."}


def _budget(site: Site, act: Act) -> dict[str, Any]:
    player, request = site.player, Change(budget=act.value or "")
    change = _outcome_of(player.do(lambda: change_run(player.folder, request, dry_run=True)))
    if not act.agreed:
        cost = "" if change.cost is None else f", for {money(change.cost)} more at most"
        labels = plural(change.labels, "label")
        return _question(f"The budget becomes {labels} in all, {change.more} more{cost}.")
    _outcome_of(player.do(lambda: change_run(player.folder, request, change), closes=True))
    return {"state": "done", "sentence": f"The budget is {plural(change.labels, 'label')} in all."}


def _annotator(site: Site, act: Act) -> dict[str, Any]:
    player, name = site.player, (act.name or "").strip()
    change = Change(annotators=(name,))
    _outcome_of(player.do(lambda: change_run(player.folder, change), closes=True))
    return {"state": "done", "link": site.access.link(name), "name": name}


def _class(site: Site, act: Act) -> dict[str, Any]:
    player, name = site.player, " ".join((act.name or "").split())
    change = Change(classes={name: ""})
    if not act.agreed:
        _outcome_of(player.do(lambda: change_run(player.folder, change, dry_run=True)))
        return _question(f"The run gets the class {name} for good; people see it on new rows.")
    _outcome_of(player.do(lambda: change_run(player.folder, change), closes=True))
    return {"state": "done", "sentence": f"The class was added: {name}."}


def _correct(site: Site, act: Act) -> dict[str, Any]:
    """An accepted answer by its row's key, as a sheet of one row would correct it."""
    player = site.player
    with tempfile.TemporaryDirectory() as folder:
        sheet = Path(folder) / "correction.csv"
        with sheet.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("key", "answer"), (act.name or "", act.value or "")])
        rows = _outcome_of(player.do(lambda: corrections(player.folder, [sheet])))
        if not rows:
            raise Refused(
                "no accepted answer of that row differs: is the key right, and the answer a sign or"
                " the text of one of its options?",
                422,
            )
        [row, *_] = rows
        sentence = f"{row.key}, {row.annotator}: {row.before} → {row.after}"
        if not act.agreed:
            return _question(sentence)
        _outcome_of(player.do(lambda: corrections(player.folder, [sheet], rows), closes=True))
    return {"state": "done", "sentence": f"Corrected: {sentence}"}


def _own(site: Site, act: Act) -> dict[str, Any]:
    player, item, label = site.player, act.name or "", act.value or ""
    _outcome_of(player.do(lambda: own_label(player.folder, item, label), closes=True))
    return {"state": "done", "sentence": "The row has your label."}


def _play_again(site: Site, act: Act) -> dict[str, Any]:
    site.player.play_again()
    return {"state": "done", "sentence": "Model and report are made again."}


def _judge(site: Site, act: Act) -> dict[str, Any]:
    player, name = site.player, _annotator_of(site, act)
    if act.act == "keep":
        _outcome_of(player.do(lambda: free_rows(player.folder, keep=[name]), closes=True))
        return {"state": "done", "sentence": f"The answers of {name} count."}
    if not act.agreed:
        return _question(
            f"No answer of {name} is trained on or measures an audit; open rows go to others."
        )
    _outcome_of(player.do(lambda: free_rows(player.folder, set_aside=[name]), closes=True))
    return {"state": "done", "sentence": f"{name} is set aside."}


_ACTS: dict[str, Callable[[Site, Act], dict[str, Any]]] = {
    "link": _link,
    "revoke": _revoke,
    "budget": _budget,
    "annotator": _annotator,
    "class": _class,
    "correct": _correct,
    "own": _own,
    "again": _play_again,
    "set_aside": _judge,
    "keep": _judge,
}


def _question(sentence: str) -> dict[str, Any]:
    return {"state": "asked", "sentence": sentence}


def _annotator_of(site: Site, act: Act) -> str:
    if act.name not in site.player.annotators:
        raise Refused("no annotator of this run has that name", 422)
    return act.name


def _outcome_of(outcome: Future[T]) -> T:
    """The outcome of an operation that the player carries out between two steps.

    Raises:
        TimeoutError: it was not begun in time, and is not carried out later.
    """
    try:
        return outcome.result(PATIENCE)
    except TimeoutError:
        if outcome.cancel():
            raise
        return outcome.result()  # it has begun
