"""Classes that a run proposes: rows that look alike and like none of its classes."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.cli.verbs.run import notices
from stacksl.labelers.protocol import Request
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.session import noticing, session
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec

from .people_cases import begin, gold, play, truth

SKY = "the night sky"
WORDS = {
    "bread": "flour dough oven loaf",
    "sea": "wave salt tide ship",
    "night": "star moon owl dark",
}


def texts_of(count: int) -> dict[str, str]:
    """Different sentences, each with its class."""
    found = {}
    for n in range(count):
        topic = list(WORDS)[n % 3]
        words = WORDS[topic].split()
        found[f"{words[n % 4]} {words[n // 3 % 4]} {words[n // 5 % 4]} and {n}"] = topic
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run without the class of every third row."""
    label = texts_of(120)

    def answer(request: Request) -> str | None:
        topic = label[request.prompt]
        return None if topic == "night" else topic

    return run(
        list(label), labeler=answer, classes=["bread", "sea"], budget=40, audit=10,
        features="hashing", mode="pool", out=tmp_path_factory.mktemp("proposed") / "run",
    )  # fmt: skip


def test_rows_that_fit_no_class_are_proposed_as_one(made: Run) -> None:
    (found,) = made.status()["proposed"]
    assert 15 <= found["rows"] <= 40
    assert set(found["name"].split(", ")) <= set(WORDS["night"].split())
    ((rows, said),) = notices(made.status())
    assert rows == f"{found['rows']} rows"
    assert said.startswith(f"look alike and like no class: {found['name']}; to add them")
    assert said.endswith(f"stacksl change {made.path} --add-class '{found['name']}'")


def test_an_added_class_is_not_proposed_again_and_a_forgotten_text_is_not_named(
    made: Run, tmp_path: Path
) -> None:
    for name in ("changed", "forgotten"):
        shutil.copytree(made.path, tmp_path / name)
    changed, forgotten = Run(tmp_path / "changed"), Run(tmp_path / "forgotten")
    (found,) = made.status()["proposed"]
    changed.change(classes={found["name"]: ""}, later=True)
    changed.resume(labeler=lambda request: None)
    assert changed.status()["proposed"] == []
    forget(forgotten.path, "row-000003")
    assert forgotten.status()["proposed"] == []


def test_a_group_that_later_answers_dissolve_is_not_proposed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that stays open, as that of the page, writes what is proposed now."""
    group = {"rows": 20, "name": "star, owl"}
    proposals: list[list[dict[str, Any]]] = [[group], []]
    waiting = begin(tmp_path)
    monkeypatch.setattr(session, "proposed", lambda *given: proposals.pop(0))
    with Session.open(RunSpec.open(waiting.folder)) as opened:
        for expected in ([group], []):
            assert opened.play() == "waiting"
            assert waiting.status()["proposed"] == opened.facts["proposed"] == expected


def test_what_is_proposed_on_the_way_tells_nobody_what_a_row_was_for(tmp_path, monkeypatch) -> None:
    """Answers count by 25, and those of the audit never."""
    known: list[int] = []
    plain = noticing.nearest

    def seen(rest: Any, others: Any, count: int) -> Any:
        known.append(len(others))
        return plain(rest, others, count)

    monkeypatch.setattr(noticing, "nearest", seen)
    waiting = begin(tmp_path, count=120, budget=60, audit=20, open_questions=20, second_look=False)
    play(waiting, lambda row: "none" if gold(row["prompt"]) == "night" else truth(row))
    assert {*known[:-1]} == {25}
    assert known[-1] == 40, "at the end all, without the audit"


def told_by_people(folder: Path) -> Run:
    """A finished run in which people wrote a text of their own to rows of the class night."""
    wanted: dict[str, Any] = {"count": 90, "budget": 60, "audit": 10, "open_questions": 30}
    spellings = itertools.chain(["once", "once"], itertools.cycle([SKY, "  The  NIGHT sky"]))

    def say(row: dict[str, str]) -> str:
        return f"none: {next(spellings)}" if gold(row["prompt"]) == "night" else truth(row)

    return play(begin(folder, second_look=False, **wanted), say)


def test_what_people_wrote_names_a_class(tmp_path: Path) -> None:
    done = told_by_people(tmp_path)
    with done.ledger as ledger:
        train = {*ledger.bought("train")}
        wrote = [each for each in ledger.texts() if each.item in train]
        alike = [each for each in wrote if " ".join((each.text or "").casefold().split()) == SKY]
    assert len(alike) > 3
    proposed = done.status()["proposed"]
    (named,) = (each for each in proposed if each["name"].casefold() == SKY)
    assert named["written"] == len(alike), "without the answers of the audit"
    assert not any(each["name"] == "once" for each in proposed)
    (told,) = (said for _, said in notices(done.status()) if named["name"] in said)
    assert f"answered with none and the text: {named['name']}; to add" in told
    page = (done.path / "report.html").read_text() + (done.path / "README.md").read_text()
    assert SKY not in page.casefold(), "it is told to the owner alone"
    forget(done.path, alike[0].item)
    assert done.status()["proposed"] == []
    done.resume()
    assert [
        each["written"] for each in done.status()["proposed"] if each["name"].casefold() == SKY
    ] == [len(alike) - 1]
    done.change(classes={"the night SKY": ""})
    assert not any(each["name"].casefold() == SKY for each in done.status()["proposed"])
