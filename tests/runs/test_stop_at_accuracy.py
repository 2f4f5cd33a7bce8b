"""The stop rule `accuracy=A`: looks at the audit during a run, and what it may say of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, prepare, run
from stacksl.errors import SettingsError
from stacksl.labelers.protocol import Request
from stacksl.models.metrics import wilson, z_of_look
from stacksl.runs.changes.forgetting import forget

from ..ledgers import accounts_of, bought, handed_rows, open_leases, rows_of
from .conftest import class_items, pair_items
from .people_cases import (
    Row,
    answer_all,
    answer_until,
    begin,
    copy_of,
    cuts,
    ending_of,
    erring,
    expect_sound,
    facts_of,
    just_before,
    play,
    played_in_pieces,
    truth,
)

ITEMS, ANSWERS = class_items(300)
PLAN: dict[str, Any] = {"budget": 100, "audit": 40, "mode": "pool", "open_questions": 15}
PEOPLE: dict[str, Any] = {
    "count": 240,
    "budget": 110,
    "audit": 40,
    "open_questions": 30,
    "annotators": "anna,ben,carl",
}


def answering(share: float) -> Callable[[Request], int]:
    """The file's answers, but for the items of one purpose another class in a share of them."""

    def say(request: Request) -> int:
        errs = request.purpose == "audit" and random.Random(request.item).random() < share
        return (ANSWERS[request.item] + errs) % 3

    return say


def run_to_mark(folder: Path, mark: float, wrong: float = 0.0, **more: Any) -> Run:
    """A run that stops at an accuracy, of which a share of the audit's answers is wrong."""
    given = {**PLAN, "stop_when": f"accuracy={mark}", **more}
    return run(ITEMS, labeler=answering(wrong), out=folder / "run", **given)


def looks(made: Run) -> list[tuple[int, int, bool]]:
    """Number, training labels and outcome of each look."""
    rows = rows_of(made, "looked")
    return [(row.number or 0, row.payload["labels"], row.payload["reached"]) for row in rows]


# Answers of the file --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def above(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that stopped at its mark, which no test changes."""
    return run_to_mark(tmp_path_factory.mktemp("above"), 0.8)


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that missed its mark, which no test changes."""
    return run_to_mark(tmp_path_factory.mktemp("below"), 0.8, wrong=0.4)


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that stopped at its first look; a test that changes it copies it."""
    given = {**PLAN, "stop_when": "accuracy=0.5"}
    return run(ITEMS, ANSWERS, out=tmp_path_factory.mktemp("early") / "run", **given)


def test_a_run_stops_where_the_audit_shows_the_accuracy(above: Run) -> None:
    made = above
    status, facts = made.status(), facts_of(made)
    (*before, (number, labels, reached)) = looks(made)
    assert reached
    assert not any(each[2] for each in before)
    assert labels == status["asked"] < 60
    assert status["state"] == "finished"
    audit = status["audit"]
    low, high = audit["interval"]
    assert (audit["look"], high) == (number, 1.0)
    assert low == pytest.approx(wilson(audit["correct"], 40, z_of_look(number))[0])
    assert low >= 0.8
    assert facts.stopped.startswith(f"Buying stopped after {labels} training labels by stop_when")
    assert f"at least {100 * low:.1f}% in 95 of 100 runs" in (made.path / "report.html").read_text()
    expect_sound(made)


def test_the_model_of_the_look_is_the_one_that_is_saved(above: Run) -> None:
    made = above
    last = [row.event for row in rows_of(made, "refit", "learned", "looked")]
    assert last[-2:] == ["refit", "looked"]
    audited = [str(row["item"]) for row in bought(made, purpose="audit")]
    said = made.predict([item.prompt for item in ITEMS if item.id in audited])
    right = [ANSWERS[item.id] for item in ITEMS if item.id in audited]
    hits = sum(row["index"] == gold for row, gold in zip(said, right, strict=True))
    assert hits == made.status()["audit"]["correct"]


def test_a_run_below_its_mark_goes_on_to_its_end(below: Run) -> None:
    made = below
    quarters = [(number, 15 * number, False) for number in (1, 2, 3, 4)]
    assert looks(made) == quarters
    status = made.status()
    assert (status["left"], status["audit"]["look"]) == (0, 4)
    assert facts_of(made).stopped == ""
    low = wilson(status["audit"]["correct"], 40, z_of_look(4))[0]
    assert status["audit"]["interval"] == [pytest.approx(low), 1.0]
    expect_sound(made)


def test_what_is_bought_does_not_depend_on_the_audits_answers(above: Run, below: Run) -> None:
    """Until a look stops a run; so its models are as new to the audit as the first."""
    first, second = (
        [(row["item"], row["answer"]) for row in bought(each, purpose="train")]
        for each in (above, below)
    )
    assert len(first) < len(second)
    assert second[: len(first)] == first


def test_a_change_to_a_mark_that_its_audit_rarely_shows_is_warned_of(
    tmp_path: Path, early: Run
) -> None:
    made, given = copy_of(early, tmp_path), {**PLAN, "stop_when": "accuracy=0.8"}
    of_run = prepare(ITEMS, ANSWERS, settings=given).warnings
    (told,) = made.change(stop_when="accuracy=0.8", dry_run=True).warnings
    assert told in of_run
    assert "an audit of 40 items rarely shows an accuracy of 0.8" in told
    assert "with --audit 45 or more" in told
    assert made.change(stop_when="accuracy=0.6", dry_run=True).warnings == ()
    enough = prepare(ITEMS, ANSWERS, settings={**given, "audit": 45}).warnings
    assert not any("rarely shows" in each for each in enough)


ACCURACY, RIGHT = {"stop_when": "accuracy=0.9"}, {"stop_when": "right=90%", "audit": None}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**ACCURACY, "mode": "stream"}, "refits the final model at each look"),
    ({**ACCURACY, "refit": False}, "refits the final model at each look"),
    ({**ACCURACY, "audit": 0}, "needs an audit of 32 items .* has 0: start one with --audit N"),
    ({**ACCURACY, "audit": 31}, "needs an audit of 32 items .* this run has 31"),
    ({**ACCURACY, "labeler": "file"}, "with an accuracy needs it: give --annotators"),
    (
        {**ACCURACY, "labeler": "file", "annotators": "anna,ben", "second_look": False},
        "needs labels for second looks, and this run keeps none",
    ),
    ({"stop_when": "accuracy=90"}, "say .accuracy=90%."),
    ({**RIGHT, "mode": "stream"}, "does not go with mode=stream"),
    ({**RIGHT, "refit": False}, "does not go with refit=false"),
    ({**RIGHT, "class_names": False}, "class_names=false"),
    ({**RIGHT, "audit": 50}, "draws audits of its own, got an audit of 50"),
    (
        {**RIGHT, "labeler": "file", "annotators": "anna,ben"},
        "expected one annotator, or three or more, and got two",
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_a_run_that_cannot_keep_a_rule_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        prepare(ITEMS, ANSWERS, settings={**PLAN, "budget": "100", **settings})


def test_options_of_their_own_may_stop_at_an_accuracy_and_promise_nothing(tmp_path: Path) -> None:
    items, answers = pair_items(160)
    given = {**PLAN, "stop_when": "accuracy=0.3"}
    made = run(items, answers, out=tmp_path / "run", **given)
    assert looks(made)[-1][2]
    with pytest.raises(SettingsError, match="share their classes"):
        prepare(items, answers, settings={**PLAN, **RIGHT, "budget": "50"})
    expect_sound(made)


# Changes --------------------------------------------------------------------------------------


def test_a_finished_run_is_looked_at_once_it_has_the_rule(tmp_path: Path) -> None:
    made = run(ITEMS, ANSWERS, out=tmp_path / "run", **{**PLAN, "budget": 60})
    before = bought(made)
    made.change(stop_when="accuracy=0.5")
    assert looks(made) == [(1, 20, True)]
    assert bought(made) == before
    assert made.status()["audit"]["look"] == 1
    assert "accuracy=0.5 stops the run from here on" in (made.path / "report.html").read_text()
    expect_sound(made)


def test_another_mark_and_a_larger_budget_go_on(tmp_path: Path, early: Run) -> None:
    made = copy_of(early, tmp_path)
    learned, first = made.status()["asked"], len(looks(made))
    made.change(stop_when="accuracy=0.9")
    assert made.status()["asked"] > learned
    assert [number for number, _, _ in looks(made)] == list(range(1, len(looks(made)) + 1))
    made.change(stop_when="accuracy=0.5")
    learned, second = made.status()["asked"], len(looks(made))
    assert second > first
    made.change(budget=made.status()["budget"] + 40)
    assert made.status()["asked"] > learned
    assert len(looks(made)) > second
    expect_sound(made)


def test_a_change_that_people_could_not_answer_is_refused(tmp_path: Path) -> None:
    alone = begin(tmp_path, **{**PEOPLE, "annotators": "anna"})
    with pytest.raises(SettingsError, match="stop_when with an accuracy needs it"):
        alone.change(stop_when="accuracy=0.8")
    with pytest.raises(SettingsError, match="stop_when must be gain=G/N"):
        alone.change(stop_when="gain=x")
    (tmp_path / "two").mkdir()
    two = begin(tmp_path / "two", **{**PEOPLE, "annotators": "anna,ben"})
    with pytest.raises(SettingsError, match="this run keeps none: .*--budget B with it"):
        two.change(stop_when="accuracy=0.8")
    two.change(stop_when="accuracy=0.8", budget=130)
    assert two.folder.resolved()["budget_now"][3] > 0


def test_a_model_made_again_is_looked_at_again_and_nothing_is_bought(tmp_path, early: Run) -> None:
    """The label of an item that is erased was learned, so the model is another."""
    made = copy_of(early, tmp_path)
    before = made.status()["spent"]
    forget(made.path, str(bought(made, purpose="train")[0]["item"]))
    made.resume()
    assert [each[0] for each in looks(made)] == [1, 2]
    assert (made.status()["spent"], made.status()["audit"]["look"]) == (before, 2)
    assert made.refit_with_audit() == 40
    assert made.status()["audit"]["look"] == 2
    expect_sound(made)


# People ---------------------------------------------------------------------------------------


def looking(folder: Path, mark: float, say: Callable[[Row], str] = truth, **more: Any) -> Run:
    """A run of people that waits for the second answers of a look."""
    made = begin(folder, **{**PEOPLE, "stop_when": f"accuracy={mark}", **more})
    return answer_until(lambda: made.status()["state"] == "finished" or seconds(made), made, say)


def seconds(made: Run) -> int:
    with made.ledger as ledger:
        return len(ledger.second_looks())


def test_buying_pauses_until_further_people_have_looked(tmp_path: Path) -> None:
    made = looking(tmp_path, 0.8, erring(0.05))
    leases = open_leases(made)
    assert seconds(made) == len(leases) > 0, "nothing but second answers is out"
    status = made.status()
    assert (status["state"], status["audit"]) == ("waiting", None)
    assert not (made.path / "report.html").exists()
    assert not looks(made)
    asked = status["asked"]
    first = [row for row in bought(made, purpose="audit") if not row["slot"]]
    assert {row["state"] for row in first} == {"answered"}, "the whole audit is judged"
    while not looks(made):
        assert made.status()["asked"] == asked, "no label is bought before the look is over"
        answer_all(made, erring(0.05))
    play(made, erring(0.05))
    audit = made.status()["audit"]
    assert audit["measures"] == "accuracy"
    assert audit["second"]["n"] == 40
    assert audit["look"] == len(looks(made))
    pairs = Counter((row.item, row.annotator) for row in handed_rows(made))
    assert accounts_of(made).further <= int(made.folder.resolved()["further_labels"])
    assert max(pairs.values()) == 1
    assert made.status()["spent"] <= 110
    expect_sound(made)


def test_a_run_of_people_that_reaches_its_mark_stops(tmp_path: Path) -> None:
    made = play(looking(tmp_path, 0.6))
    assert looks(made)[-1][2]
    assert made.status()["left"] > 0
    assert made.status()["audit"]["interval"][0] >= 0.6
    before = bought(made)
    asked_again = next(row for row in bought(made, purpose="audit") if row["slot"])
    forget(made.path, str(asked_again["item"]))
    made.resume()
    assert (made.status()["state"], len(bought(made))) == ("finished", len(before))
    expect_sound(made)


def test_nobody_is_asked_again_while_the_mark_is_far(tmp_path: Path) -> None:
    say = erring(0.4)
    made = begin(tmp_path, **{**PEOPLE, "stop_when": "accuracy=0.88"})
    while len(looks(made)) < 3:
        assert not seconds(made)
        answer_all(made, say)
    assert not any(reached for _, _, reached in looks(made))
    answer_until(lambda: seconds(made), made, say)
    assert made.status()["left"] == int(made.folder.resolved()["further_labels"]) - seconds(made)
    play(made, say)
    assert made.status()["audit"]["measures"] == "accuracy", "the last model has its second look"
    expect_sound(made)


def test_agreement_alone_stops_nothing(tmp_path: Path) -> None:
    """Where nobody is left to look again, what people and model agree on is no accuracy."""
    made = begin(tmp_path, **{**PEOPLE, "annotators": "anna,ben", "stop_when": "accuracy=0.6"})
    with pytest.warns(UserWarning, match="no second look can measure the accuracy"):
        made.people(away="ben")
    play(made)
    assert looks(made)
    assert not any(reached for _, _, reached in looks(made))
    assert made.status()["audit"]["measures"] == "agreement with the annotators"
    assert made.status()["audit"]["interval"][0] > 0.6
    expect_sound(made)


CUT = cuts(
    ("take", "reserve", "hand_out", "save_arrays", "note_refit", "note_look", "show_audit"),
    often=[("note_look", "before")],
)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Any]:
    """A run of people whose first look comes with the answers of its next sheets, and its end."""
    folder = tmp_path_factory.mktemp("before")
    made = begin(folder, **{**PEOPLE, "stop_when": "accuracy=0.88"})
    found = just_before(made, erring(0.15), lambda: seconds(made))
    play(made, erring(0.15))
    assert len(looks(made)) > 2, "a look that does not stop it, and others"
    return found, ending_of(made)


@pytest.mark.parametrize(("name", "when"), CUT)
def test_a_run_killed_around_a_look_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[Run, Any], name: str, when: str
) -> None:
    made, end = before
    cut = copy_of(made, tmp_path)
    played_in_pieces(cut, monkeypatch, name, when, erring(0.15))
    expect_sound(cut)
    assert ending_of(cut) == end
