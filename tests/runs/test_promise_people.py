"""A promise of people's answers: their errors are part of it, and what is told of a look."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stacksl.api import Run
from stacksl.api.labeling import export_rows, label_own
from stacksl.cli.app import app
from stacksl.cli.entry import call
from stacksl.cli.verbs.run import shown_run
from stacksl.errors import RunError
from stacksl.ledger.ledger import Ledger
from stacksl.models.promise import MODEL, allowed_wrong, left_wrong
from stacksl.runs.finish import forecasting
from stacksl.runs.loop import linear_trainer
from stacksl.runs.loop.game import Progress
from stacksl.runs.loop.head_fitting import held_out_answers
from stacksl.runs.loop.linear_trainer import doubled_of
from stacksl.runs.storage.status import random_audit

from ..ledgers import bought, handed_rows, rows_of
from .people_cases import (
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
    just_before,
    open_rows,
    play,
    played_in_pieces,
    read_rows,
    sheets,
    texts_of,
    truth,
    write_pool,
    write_rows,
)
from .promise_cases import PEOPLE, THREE, looks


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of one person that ended by its promise; a test that changes it copies it."""
    folder = tmp_path_factory.mktemp("alone")
    return play(begin(folder, **{**PEOPLE, "annotators": "anna"}))


def test_a_correction_is_judged_by_the_same_audit_and_buys_nothing(tmp_path, alone: Run) -> None:
    """And one person's answers are only what that person would say."""
    made = copy_of(alone, tmp_path)
    before, first = made.status(), looks(made)
    assert (first[-1]["sample"], first[-1]["reached"]) == (0, True)
    assert "if whoever answered would say the same" in before["stopped"]
    key = read_rows(min((made.path / "ask").glob("0*.csv")))[0]["key"]
    correction = write_rows(tmp_path / "c.csv", [{"key": key, "answer": "broken"}])
    made.answer(correction, correct=made.corrections(correction))
    after, found = made.status(), looks(made)
    assert after["spent"] == before["spent"]
    numbers = [each["drawn"] for each in first]
    assert [each["drawn"] for each in found] == [*numbers, numbers[-1]]
    assert after["state"] == "finished"
    assert after["stopped"].startswith("At least 85.0%")
    expect_sound(made)


def test_a_run_that_goes_on_says_so_and_gives_the_table_of_its_last_end(
    tmp_path: Path, three: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once the rows of the next look are drawn, some of which people have answered before."""
    monkeypatch.setattr(forecasting, "unpayable", lambda spec, game: False)
    (never, ended), made = three, copy_of(three[1], tmp_path)
    with pytest.raises(RunError, match="is waiting: its table can be written once it has ended"):
        export_rows(never, tmp_path / "never.csv", lambda: label_own(never))
    export_rows(made, tmp_path / "before.csv", lambda: label_own(made))
    assert never.status()["last_report"] is made.status()["last_report"] is None
    spent = made.status()["spent"]

    def drawn() -> bool:
        found = [row for row in rows_of(made, "settings") if "look" in row.payload]
        return len(found) > len(looks(ended))

    made.change(budget=470, stop_when="right=93%")
    export = ["export", str(made.path), "--table", str(tmp_path / "now.csv")]
    for happened in (lambda: True, drawn):
        answer_until(happened, made, erring(0.03))
        told = made.status()["last_report"]
        assert f"with {spent} labels: accuracy, model and table are of then; the run goes" in told
        for words in (["status", str(made.path)], export):
            assert f" {told}\n" in CliRunner().invoke(app, words).stdout
        assert (tmp_path / "now.csv").read_bytes() == (tmp_path / "before.csv").read_bytes()
    assert made.status()["state"] == "waiting"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run of people whose next answers bring a look, and its end."""
    folder = tmp_path_factory.mktemp("three")
    made = begin(folder, **THREE)
    before = just_before(made, erring(0.03), lambda: bought(made, purpose="audit"))
    return before, play(made, erring(0.03))


def test_peoples_errors_are_part_of_the_promise(tmp_path: Path, three: tuple[Run, Run]) -> None:
    made = three[1]
    last = looks(made)[-1]
    assert last["sample"] >= 30
    assert last["reached"]
    rows, texts = made.table().rows, texts_of(made.path.parent / "pool-0-0.csv")
    wrong = sum(row["label"] != truth({"prompt": texts[str(row["id"])]}) for row in rows)
    assert wrong <= last["left"] <= allowed_wrong(0.85, len(rows))
    table = Counter(row["label"] for row in rows)
    totals = {row.name: row.human + row.predicted for row in facts_of(made).own.totals}
    assert totals == {name: table[name] for name in totals}, "the report counts the table's labels"
    pairs = Counter((row.item, row.annotator) for row in handed_rows(made))
    assert max(pairs.values()) == 1, "nobody is asked a row twice"
    assert "if whoever answered would say the same" not in made.status()["stopped"]
    assert made.status()["spent"] <= 400
    learned = len({row["item"] for row in bought(made, purpose="train")})
    assert made.status()["measuring"] == made.status()["spent"] - learned > 2 * last["audit"]
    assert made.status()["asked"] == learned, "no label is in both counts"
    expect_sound(made)


def test_a_look_that_shows_too_little_is_told_on_the_way(tmp_path: Path, three) -> None:
    """With what was wrong of the model's rows and of people's."""
    people = {"annotators": "anna,ben,carl", "price": "1"}  # who answer 40 rows at a time
    made = begin(tmp_path, **{**PEOPLE, "count": 400, "budget": 580, **people})
    while not bought(made, purpose="audit"):
        assert not made.status()["stopped"]
        answer_all(made, erring(0.03))
    drawn = Counter(row["purpose"] for row in bought(made, state="open"))
    begun = f"Look 1 of 3 has begun: {drawn['audit']} rows of the model and {drawn['train']} of"
    spent = made.status()["money"]["spent"]
    assert made.status()["stopped"].startswith(f"{begun} people were drawn at random. Each row")

    more = f"and at least {drawn['audit']} more for ${drawn['audit']}.00 will be asked for after"
    assert f": 0 answers received, {drawn.total()} awaited, {more}" in made.status()["stopped"]
    steps: list[Progress] = []
    while not looks(made):
        assert made.status()["stopped"].startswith(begun)
        filled = [fill(path, erring(0.2)) for path in sheets(made)]
        received = made.answer(*filled, progress=steps.append)
    assert made.status()["money"]["spent"] >= spent + drawn["audit"]
    last, said = looks(made)[-1], received.status["stopped"]
    assert not last["reached"]
    assert made.status()["state"] == "waiting"
    assert said == made.status()["stopped"]
    assert said.startswith("Look 1 of 3 showed that at least ")
    assert f"{last['wrong']} of {last['audit']} rows of the model and {last['differ']} of" in said
    model = left_wrong(last["wrong"], last["audit"], last["rows"], MODEL)
    people = last["left"] - model
    assert f"at most {model} errors of the model and {people} of people (or unclear" in said
    assert said in shown_run(made)
    [*_, step] = (step for step in steps if step.phase == "labels")
    assert (step.done, step.total) == (made.status()["spent"], 580), "looks included"


def test_rows_left_blank_before_a_look_are_told(tmp_path: Path) -> None:
    """Nothing else is handed out then, which a sheet that comes back with a blank does not show."""
    made = begin(tmp_path, **THREE)
    blank = read_rows(sheets(made)[0])[0]["key"]
    for _ in range(20):
        rows = sum(open_rows(made).values())
        assert ("No other rows are asked about" in made.status()["stopped"]) == (rows == 1)
        if rows == 1:
            break
        answer_all(made, lambda row: "" if row["key"] == blank else truth(row))
    assert f"`stacksl change {made.path} --free` hands the open rows" in shown_run(made)
    assert not bought(made, purpose="audit")
    answer_all(made, truth)
    assert made.status()["stopped"].startswith("Look 1 of 3 has begun")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of four people, once the rows of its first look were drawn; each test copies it."""
    four = {**THREE, "annotators": "anna,ben,carl,dora"}
    made = begin(tmp_path_factory.mktemp("drawn"), **four)
    return answer_until(lambda: bought(made, purpose="audit"), made)


@pytest.mark.parametrize(
    "meanwhile", [{"budget": 410}, {"away": "ben"}, {"free": True, "drop": True}]
)
def test_a_change_during_a_look_leaves_it_whole(
    meanwhile: dict[str, Any], drawn: Run, tmp_path: Path
) -> None:
    """Nobody errs, so every row of the look is right once two people have answered it."""
    made = copy_of(drawn, tmp_path)
    if "budget" in meanwhile:
        made.change(**meanwhile)
    else:
        answer_until(lambda: any(row.slot == 1 for row in handed_rows(made)), made)
        made.people(**meanwhile)
    play(made, truth)
    last = looks(made)[0]
    if "drop" not in meanwhile:  # else audited rows have no second answer
        assert last["wrong"] == 0
    assert last["differ"] == 0
    expect_sound(made)


@pytest.mark.parametrize("at_once", [True, False])
def test_nobody_confirms_their_own_answer_where_all_others_leave_during_a_look(
    drawn: Run, tmp_path: Path, *, at_once: bool
) -> None:
    """The rows that only somebody else could confirm are not asked, and count as wrong."""
    made = copy_of(drawn, tmp_path)
    if not at_once:
        answer_until(lambda: any(row.slot == 1 for row in handed_rows(made)), made)
    with pytest.warns(UserWarning, match="Fewer than two annotators are left"):
        made.people(away=["ben", "carl", "dora"])
    play(made, truth)
    pairs = Counter((row["item"], row["labeler"]) for row in bought(made, state="answered"))
    assert max(pairs.values()) == 1
    assert looks(made)[0]["differ"] > 0
    expect_sound(made)


def test_what_people_err_too_often_for_is_said_and_not_bought(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(forecasting, "unpayable", lambda spec, game: False)  # may come before
    given = {**THREE, "stop_when": "right=97%", "price": "2"}
    given |= {"sheets.overlap": 40}
    made = begin(tmp_path, **given)
    play(made, erring(0.3))
    said, status = made.status()["stopped"], made.status()
    assert said.startswith(
        "97.0% is probably not reachable with one answer per row: people seem to err in about "
    )
    rows = len({row["item"] for row in bought(made)})
    assert f"cost {rows} more labels for ${2 * rows:,.2f}" in said
    assert "7 of all may be wrong" in said
    assert not looks(made)
    assert not bought(made, purpose="audit")
    assert status["left"] > 0
    [lower] = re.findall(r"--stop-when right=(\d+)%`", said)
    assert int(lower) < 90, "the rows of its look are counted, too: 16 of 400 are wrong now"
    made.change(stop_when=f"right={lower}%")
    assert made.status()["state"] == "waiting", "a lower share may be promised"
    expect_sound(made)


def test_a_second_look_at_an_audit_tells_how_often_people_err(tmp_path: Path) -> None:
    """The change says so before it asks, and the run ends before each row has an answer."""
    given = {**THREE, "budget": 180, "audit": 60, "stop_when": None}
    made = play(begin(tmp_path, **given), erring(0.1))
    second = facts_of(made).audit.second
    assert second is not None
    with Ledger.open(made.folder.database) as ledger:
        assert doubled_of(ledger) == (second.differing - second.first_right, second.n)
    told = made.change(budget=400, stop_when="right=97%", dry_run=True).measures
    assert "By rows that two people answered, people err in about 5.4% of answers: 94.6% of" in told
    made.change(budget=400, stop_when="right=97%")
    play(made, erring(0.1))
    assert made.status()["stopped"].startswith("97.0% is probably not reachable with one answer")
    assert made.status()["spent"] == 257
    assert not looks(made)
    expect_sound(made)


def test_a_run_without_a_promise_says_when_one_answer_to_each_row_was_paid(tmp_path: Path) -> None:
    """With the share that such a table has by people's rate of errors, which is no promise."""
    given = {**THREE, "count": 100, "budget": 150, "stop_when": "right=95%", "sheets.overlap": 75}
    made = play(begin(tmp_path, **given), erring(0.1))
    said = made.status()["stopped"]
    assert "150 labels were spent, and one answer to each row takes 100: people seem to err" in said
    [rate, share] = re.findall(r"([\d.]+)% (?:of single answers|right\.)", said)
    assert 4 < float(rate) < 16
    assert float(rate) + float(share) == pytest.approx(100)
    assert "people seem to err" in (made.path / "report.html").read_text("utf-8")


@pytest.mark.parametrize(("annotators", "left_out"), [("anna", False), ("anna,ben,carl", True)])
def test_folds_leave_out_the_rows_never_asked_where_people_err(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, annotators: str, left_out: bool
) -> None:
    seen = []

    def spied(source: Any, rows: Any, gold: Any, others: Any) -> Any:
        seen.append(len(others))
        return held_out_answers(source, rows, gold, others)

    monkeypatch.setattr(linear_trainer, "held_out_answers", spied)
    play(begin(tmp_path, **{**PEOPLE, "annotators": annotators, "budget": 120}))
    assert seen == ([200, 160, 120] if left_out else [0, 0, 0])


CUT = cuts(
    ("take", "reserve", "hand_out", "save_arrays", "note_look", "change_settings"),
    often=[("reserve", "after")],
)


@pytest.mark.parametrize(("name", "when"), CUT)
def test_a_run_killed_around_a_look_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, three: tuple[Run, Run], name: str, when: str
) -> None:
    before, undisturbed = three
    cut = played_in_pieces(copy_of(before, tmp_path), monkeypatch, name, when, erring(0.03))
    expect_sound(cut)
    assert ending_of(cut) == ending_of(undisturbed)


def test_the_rows_of_a_look_are_not_compared_with_new_rows(
    tmp_path: Path, alone: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    march = write_pool(tmp_path, 90, seed=5, first=500)
    assert facts_of(alone).audit is not None
    assert random_audit(alone.folder) is None
    words = ["evaluate", str(alone.path), str(march), "--audit", "30", "--yes", "--dry-run"]
    assert call(words) == 0
    assert "has no audit of random rows" in capsys.readouterr().err
