"""The second look at an audit: further people answer rows of it, and its estimate uses that."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.cli import entry
from stacksl.cli.verbs.run import shown_run
from stacksl.errors import SettingsError
from stacksl.report import sentences
from stacksl.report.quality import SecondLook
from stacksl.runs.changes import people
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.session import session

from ..ledgers import bought, handed_rows, items_bought
from .conftest import CLASSES
from .people_cases import (
    Say,
    answer_all,
    answer_until,
    begin,
    copy_of,
    cuts,
    ending_of,
    erring,
    expect_sound,
    facts_of,
    fill,
    open_rows,
    play,
    played_in_pieces,
    read_rows,
    sheets,
    texts_of,
    truth,
    write_pool,
    write_rows,
    wrong,
)

AGREEMENT = "agreement with the annotators"
WANTED: dict[str, Any] = {
    "count": 160,
    "budget": 90,
    "audit": 24,
    "open_questions": 40,
    "price": "1",
    "annotators": "anna,ben,carl",
    "second_look": True,
}


def until_it_waits(made: Run, say: Say) -> Run:
    return answer_until(lambda: (made.status()["audit"] or {}).get("waits"), made, say)


Waits = Callable[..., Run]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Waits:
    """Plays each sort of run once, until its second look waits."""
    made: dict[str, Run] = {}

    def played(share: float = 0.0, **settings: Any) -> Run:
        key = f"{share} {sorted(settings.items())}"
        if key not in made:
            begun = begin(tmp_path_factory.mktemp("waits"), **{**WANTED, **settings})
            made[key] = until_it_waits(begun, erring(share))
        return made[key]

    return played


@pytest.fixture
def waits(once: Waits, tmp_path: Path) -> Waits:
    """Gives a run whose first answers are all in, and whose second look waits for its own."""

    def copied(share: float = 0.0, **settings: Any) -> Run:
        return copy_of(once(share, **settings), tmp_path)

    return copied


def expect_second_look(made: Run) -> None:
    """Nobody answers a row twice, four answers at most, and paid is what labels are kept for."""
    rows = bought(made, purpose="audit")
    ended = {(row["item"], row["slot"]): row["labeler"] for row in rows if row["state"] != "open"}
    handed = [(row.item, row.slot, row.annotator) for row in handed_rows(made)]
    asked = [(item, who) for item, slot, who in handed if ended.get((item, slot), who) == who]
    assert len(asked) == len({*asked}), "nobody was asked an item twice, but for rows taken back"
    answers = Counter(row["item"] for row in rows if row["state"] == "answered")
    assert max(answers.values()) <= 4
    further = [row for row in rows if row["slot"] and row["state"] in ("open", "answered")]
    status = made.status()
    assert len(further) <= int(made.folder.resolved()["further_labels"])
    assert status["spent"] <= status["budget"]
    expect_sound(made)


def test_a_run_of_three_people_looks_again_and_then_tells_the_accuracy(waits: Waits) -> None:
    made = waits(0.1)
    status = made.status()
    assert status["state"] == "waiting"
    assert status["audit"]["measures"] == AGREEMENT
    assert status["audit"]["waits"]
    assert status["asked"] == 90 - 24 - 10, "ten labels are kept for it from the start"
    assert "95 of 100 such" not in (made.path / "report.html").read_text()
    assert len(list(made.predict(["a text"]))) == 1
    first = {
        row["item"]: row["labeler"] for row in bought(made, purpose="audit") if not row["slot"]
    }
    asked = [row for row in bought(made, purpose="audit") if row["slot"]]
    assert 6 <= len(asked) <= 10
    agrees = {str(row["item"]): True for row in asked}
    assert set(agrees) <= set(map(str, first))
    play(made, erring(0.1))
    expect_second_look(made)
    status, facts = made.status(), facts_of(made)
    assert status["state"] == "finished"
    assert status["audit"]["measures"] == "accuracy"
    assert status["audit"]["second"] is not None
    assert facts.budget.spent == status["spent"]
    further = [row for row in bought(made, purpose="audit", state="answered") if row["slot"]]
    assert facts.budget.further == len(further)
    assert facts.audit.second.n == 24
    assert facts.audit.shown_before is False
    assert "95 of 100 such" in (made.path / "report.html").read_text()


def test_neither_labels_nor_sheets_tell_of_the_audit_until_it_is_judged(waits: Waits) -> None:
    """Whoever looks again is not to read what the first person said."""
    made = waits(0.1)
    known = {row.key: row.slot for row in handed_rows(made)}
    rows = [row for path in sheets(made) for row in read_rows(path)]
    assert [(row["answer"], known[row["key"]]) for row in rows] == [("", 1)] * len(rows)
    told = sentences.outcome(facts_of(made))
    assert "when further people have looked at some of these items" in told
    audit = {row["item"] for row in bought(made, purpose="audit")}
    shown = made.labels()
    assert shown.left_out == len(bought(made, purpose="audit"))
    assert not {row["item"] for row in shown.rows} & audit
    done = play(made)
    assert {row["item"] for row in done.labels().rows} > audit
    assert done.labels().left_out == 0


def test_second_answers_buy_no_label_of_the_audit_or_its_second_look(tmp_path: Path) -> None:
    made = begin(tmp_path, **{**WANTED, "sheets.overlap": 28})
    answer_all(made)
    audit = items_bought(made, "audit")
    audited = {row.key for row in handed_rows(made) if row.item in audit}
    made.people(
        keys=sorted(audited & {row["key"] for p in sheets(made) for row in read_rows(p)}), drop=True
    )
    status = until_it_waits(made, truth).status()
    trained = bought(made, purpose="train")
    assert sum(row["state"] == "answered" for row in trained) == status["asked"] == 90 - 24 - 10
    assert sum(row["slot"] for row in trained) > 20
    play(made)
    expect_second_look(made)


def test_two_people_leave_open_what_they_divide_on_and_the_range_is_told(
    waits: Waits,
) -> None:
    made = play(waits(0.05, annotators="anna,ben"), erring(0.05))
    expect_second_look(made)
    divided = 0
    by_item: dict[object, list[object]] = {}
    for row in bought(made, purpose="audit"):
        by_item.setdefault(row["item"], []).append(row["answer"])
    for answers in by_item.values():
        assert len(answers) <= 2
        divided += len(set(answers)) > 1
    second = made.status()["audit"]["second"]
    assert divided > 0
    assert second["sampled_open"] + second["differing_open"] >= divided
    audit = facts_of(made).audit
    worst, best = audit.second.ends
    assert worst < audit.accuracy < best


OFF: dict[str, dict[str, Any]] = {
    "one annotator": {"budget": 150, "annotators": "anna", "second_look": None},
    "too few labels": {"second_look": None},
    "not wanted": {"budget": 150, "second_look": False},
}


@pytest.mark.parametrize("name", OFF)
def test_without_a_second_look_it_is_agreement(tmp_path: Path, name: str) -> None:
    made = play(begin(tmp_path, **{**WANTED, "open_questions": 150, **OFF[name]}))
    status = made.status()
    agreement = AGREEMENT.removesuffix("s" * (name == "one annotator"))
    assert status["audit"]["measures"] == agreement
    assert status["audit"]["second"] is None
    assert status["left"] == 0
    assert "95 of 100 such" not in (made.path / "report.html").read_text()
    assert "further_labels" not in made.folder.resolved()


def test_settings_without_people_to_ask_are_refused(tmp_path: Path) -> None:
    for wanted in ({"annotators": "anna"}, {"audit": 0}):
        with pytest.raises(SettingsError, match="second_look asks other people"):
            begin(tmp_path, **{**WANTED, **wanted})
    with pytest.raises(SettingsError, match="second_look belongs to people who answer by file"):
        run(["a", "b"] * 20, [0, 1] * 20, second_look=True, out=tmp_path / "run")


def test_the_model_of_a_machine_is_never_the_second_person(waits: Waits) -> None:
    made = waits()
    with pytest.raises(SettingsError, match="an audit is answered by people"):
        made.change(labeler="hf:sample")


def test_the_report_is_not_made_again_at_each_answer(waits: Waits, monkeypatch) -> None:
    made = waits(0.1)
    calls: list[object] = []
    monkeypatch.setattr(session, "finish", lambda *given: calls.append(given))
    first = sheets(made)[0]
    row = read_rows(first)[0]
    made.answer(fill(first, keys=[row["key"]]))
    assert made.status()["state"] == "waiting"
    assert not calls


CUT = cuts(
    ("take", "reserve", "hand_out", "save_arrays", "show_audit", "note_derived"),
    often=(("take", "before"), ("hand_out", "before"), ("show_audit", "after")),
)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Any]:
    """A run whose last first answers are filled in, and how it ends where nobody is killed."""
    folder = tmp_path_factory.mktemp("looking")
    made = begin(folder, **WANTED)
    answer_until(lambda: made.status()["left"] <= 10, made, erring(0.1))
    shutil.copytree(made.path, folder / "twin")
    twin = play(Run(folder / "twin"), erring(0.1))
    expect_second_look(twin)
    assert twin.status()["audit"]["second"] is not None
    return made, ending_of(twin)


@pytest.mark.parametrize(("name", "when"), CUT)
def test_a_killed_second_look_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looking: tuple[Run, Any], name: str, when: str
) -> None:
    made, end = looking
    cut = copy_of(made, tmp_path)
    played_in_pieces(cut, monkeypatch, name, when, erring(0.1))
    expect_second_look(cut)
    assert ending_of(cut) == end


def test_an_item_that_is_forgotten_meanwhile_counts_as_unknown(waits: Waits) -> None:
    made = waits(0.1)
    looked = next(row for row in bought(made, purpose="audit") if row["slot"])
    forget(made.path, str(looked["item"]))
    assert not (made.path / "facts.json").exists()
    made.resume()
    assert made.status()["audit"]["measures"] == AGREEMENT
    play(made, erring(0.1))
    expect_second_look(made)
    status = made.status()
    assert status["audit"]["unknown"] >= 1
    assert status["audit"]["second"] is not None


def leave(made: Run, name: str, capsys: Any) -> None:
    """One of two people leaves; what that means for the accuracy is said, first by a dry run."""
    before = made.status()
    freed = sum(n for sheet, n in open_rows(made).items() if name in sheet)
    for words, done in ((["--dry-run"], "would be freed"), ([], "freed")):
        assert entry.call(["change", str(made.path), "--away", name, *words]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"{freed} rows {done}\n")
        assert "so no second look can measure the accuracy" in err
        for way in ("--add-annotator", "--back"):
            assert f"`stacksl change {made.path} {way} NAME`" in err
        assert (made.status() == before) is bool(words)


@pytest.mark.parametrize("way", ["killed", "joined"])
def test_a_second_look_that_had_nobody_left_goes_on(waits: Waits, way: str, capsys) -> None:
    made = waits(annotators="anna,ben")
    (old,) = (path for path in sheets(made) if "ben" in path.name)
    leave(made, "ben", capsys)
    play(made)
    audit = made.status()["audit"]
    second, spent = audit["second"], made.status()["spent"]
    assert (audit["measures"], second["errors"]) == (AGREEMENT, None)
    assert 0 < second["sampled_open"] < second["sampled"]
    assert second["nobody"] == second["sampled_open"] + second["differing_open"]
    page = (made.path / "report.html").read_text()
    assert f"Nobody is left to ask about {second['nobody']} rows of the second look" in page
    assert f"stacksl change {made.path} --add-annotator NAME" in page
    made.resume()
    assert made.status()["state"] == "finished"
    if way == "killed":  # after the change was recorded
        people.free_rows(made.folder, back=["ben"])
        made.resume()
    else:
        made.change(annotators="carl")
    assert made.status()["state"] == "waiting"
    who = "carl" if way == "joined" else "ben"
    assert [(who in name, n) for name, n in open_rows(made).items()] == [(True, second["nobody"])]
    late = made.answer(fill(old, wrong)).late  # of rows that were taken back
    assert late == len(read_rows(old)) > 0
    assert sum(open_rows(made).values()) == second["nobody"]
    play(made)
    expect_second_look(made)
    audit = made.status()["audit"]
    assert (audit["measures"], audit["second"]["nobody"]) == ("accuracy", 0)
    assert made.status()["spent"] == spent + second["nobody"]
    assert "Nobody is left" not in (made.path / "report.html").read_text()


def test_rows_that_only_their_owner_may_look_at_come_back_to_them(waits: Waits) -> None:
    made = waits(annotators="anna,ben")
    before, status = open_rows(made), made.status()
    freed = made.people(free="ben")
    assert freed > 0
    assert sum(open_rows(made).values()) == sum(before.values())
    assert made.status()["spent"] == status["spent"]
    play(made)
    expect_second_look(made)
    assert made.status()["audit"]["measures"] == "accuracy"


def test_dropped_rows_stay_open(waits: Waits) -> None:
    made = waits(0.1)
    looked = {row["item"] for row in bought(made, purpose="audit") if row["slot"]}
    made.people(free=True, drop=True)
    play(made, erring(0.1))
    rows = [row for row in bought(made, purpose="audit") if row["slot"]]
    assert {row["item"] for row in rows if row["state"] == "released"} == looked
    assert not looked & {row["item"] for row in rows if row["state"] == "answered"}
    expect_second_look(made)


@pytest.mark.parametrize(("budget", "number"), [(100, 1), (180, 2)])
def test_a_larger_budget_buys_another_audit_and_a_few_more_labels_keep_the_look(
    waits: Waits, budget: int, number: int
) -> None:
    made = waits(0.1, count=300)
    old = {row["item"] for row in bought(made, purpose="audit")}
    made.change(budget=budget)
    kept = [row for row in bought(made, purpose="audit") if row["item"] in old and row["slot"]]
    assert {row["state"] for row in kept} == {"released"}
    play(made, erring(0.1))
    status = made.status()
    assert status["audit"]["number"] == number
    assert status["audit"]["second"] is not None
    assert status["spent"] <= budget
    again = {row["item"] for row in bought(made, purpose="audit") if row["slot"]} - old
    assert bool(again) is (number == 2)
    expect_sound(made)


def test_rows_that_no_label_was_left_for_are_named_with_the_budget_that_asks_them(
    waits: Waits, capsys: pytest.CaptureFixture[str]
) -> None:
    made = play(waits(0.1), erring(0.1))
    audit = made.status()["audit"]
    lack = audit["second"]["askable"]
    assert (audit["measures"], lack > 1) == ("accuracy", True)
    call = f"stacksl change {made.path} --budget {90 + lack}"
    assert f"{lack} rows had no label left for another answer: `{call}`" in shown_run(made)
    page = unescape((made.path / "report.html").read_text())
    assert f"Ask further people about {lack} rows of the second look" in page
    assert entry.call([*call.split()[1:], "--dry-run"]) == 0
    told = f"of the added labels {lack} may ask further people about its open rows"
    assert told in capsys.readouterr().out
    assert sentences.unpaid(SecondLook(**audit["second"]), "accuracy", 1) == 0, "a look was judged"


def test_errors_of_each_person_are_told_from_fifty_rows_on(waits: Waits, monkeypatch) -> None:
    made = play(waits(0.3), erring(0.3))
    assert {(each.twice, each.wrong) for each in made.annotators()} == {(0, 0)}
    monkeypatch.setattr(people, "ENOUGH", 2)
    rows = [row for row in bought(made, purpose="audit") if row["state"] == "answered"]
    for person in made.annotators():
        twice = wrong = 0
        for item in {row["item"] for row in rows if row["labeler"] == person.name}:
            said = Counter(row["answer"] for row in rows if row["item"] == item)
            ((most, votes),) = said.most_common(1)
            mine = next(r for r in rows if (r["item"], r["labeler"]) == (item, person.name))
            twice += votes == 2
            wrong += votes == 2 and mine["answer"] != most
        assert (person.twice, person.wrong) == ((twice, wrong) if twice >= 2 else (0, 0))


def test_corrections_after_the_end_are_measured_beside_what_two_people_said(
    tmp_path: Path, waits: Waits
) -> None:
    made = play(waits())
    before = facts_of(made).audit
    texts = texts_of(write_pool(tmp_path, WANTED["count"]))
    with made.ledger as ledger:
        audited = [item for item, said in ledger.audited_by_all().items() if len(said) > 1][:4]
    table = [{"id": item, "answer": wrong({"prompt": texts[item]})} for item in audited]
    path = write_rows(tmp_path / "corrections.csv", table)
    made.answer(path, correct=made.corrections(path))
    after = facts_of(made).audit
    assert (after.revised, after.accuracy) == (4, pytest.approx(before.accuracy))


def test_correcting_training_rows_leaves_what_the_second_look_found(tmp_path, waits: Waits) -> None:
    made = play(waits(0.1), erring(0.1))
    before, asked = made.status()["audit"]["second"], len(bought(made))
    trained = {
        row["item"]: CLASSES[int(str(row["answer"]))] for row in bought(made, purpose="train")
    }
    table = [{"id": item, "answer": CLASSES[-1]} for item in trained if trained[item] != CLASSES[0]]
    path = write_rows(tmp_path / "corrections.csv", table)
    made.answer(path, correct=made.corrections(path))
    after = made.status()
    assert (after["state"], len(bought(made))) == ("finished", asked)
    second, audit = after["audit"]["second"], after["audit"]
    assert second.pop("accuracy") != (was := before.pop("accuracy"))
    assert second.pop("ends") != before.pop("ends"), "they are of that accuracy"
    assert second == before, "the model of now differs in other rows, and nobody looked at these"
    assert audit["accuracy"] < was[0] - 0.1
    expect_sound(made)


def test_a_second_look_that_hardly_took_place_tells_agreement(waits: Waits) -> None:
    made = waits(0.3)
    agreed = made.status()["audit"]["accuracy"]
    made.answer(fill(sheets(made)[0], keys=[read_rows(sheets(made)[0])[0]["key"]]))
    while made.status()["state"] == "waiting":
        made.people(free=True, drop=True)
        made.resume()
    audit = made.status()["audit"]
    assert (audit["measures"], audit["waits"]) == (AGREEMENT, False)
    assert audit["accuracy"] == pytest.approx(agreed)
    _, low, high = audit["second"]["accuracy"]
    assert high - low > 0.5
    assert audit["second"]["nobody"] == 0, "rows that were dropped never come back"
    told = f"only known to lie between {100 * low:.1f}% and {100 * high:.1f}%"
    text = " ".join((made.path / "report.html").read_text().split())
    assert told in text
    assert "95 of 100 such" not in text
