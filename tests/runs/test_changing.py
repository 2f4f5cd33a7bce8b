"""A run that is given another budget, more items, or labels held elsewhere, on its way or after."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from openpyxl import Workbook
from typer.testing import CliRunner

from stacksl.api import Run, run
from stacksl.cli.app import app as cli
from stacksl.cli.verbs.run import shown_run
from stacksl.errors import DataError, LabelerError, RunError, SettingsError
from stacksl.labelers.protocol import Request
from stacksl.ledger.store.settings import Setting
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.spec import RunSpec

from ..ledgers import bought
from ..tables import write_table
from .changing_cases import POOL, audits, finished, labeled
from .conftest import class_items
from .people_cases import (
    answer_all,
    begin,
    expect_sound,
    facts_of,
    gold,
    open_rows,
    play,
    read_rows,
    texts_of,
    write_classes,
    write_pool,
    write_rows,
)


def test_money_left_by_answers_that_cost_less_buys_more(tmp_path: Path) -> None:
    def cheap(request: Request) -> tuple[str, int]:
        return gold(request.prompt), 2

    def bought_by(name: str, count: int, budget: str | int) -> Run:
        (tmp_path / name).mkdir()
        data, classes = write_pool(tmp_path / name, count), str(write_classes(tmp_path / name))
        wanted = {"classes": classes, "mode": "pool", "class_names": False, "audit": 0}
        out = tmp_path / name / "run"
        return run(data, labeler=cheap, price=3, budget=budget, out=out, **wanted)

    done = bought_by("money", 60, "$30")
    assert done.status()["money"] == {"price": 3.0, "budget": 30.0, "spent": 20.0}
    shown = shown_run(done)
    assert "$20.00 of $30.00" in shown
    assert "change(budget='$30', labeler=...)" in shown
    sentence = "3 more labels, 13 in all, for $9.00 more at most"
    command = ["change", str(done.path), "--budget", "$30", "--dry-run"]
    assert CliRunner().invoke(cli, command).stdout.splitlines()[1] == sentence
    assert done.change(budget="$30", dry_run=True).cost == 9_000_000
    assert done.change(budget="$30", later=True).labels == 13
    done.resume(labeler=cheap)
    assert (done.status()["spent"], done.status()["left"]) == (13, 0)
    assert done.status()["money"]["spent"] == 26.0
    for name, count, budget in (("counted", 60, 10), ("all", 11, "$33")):
        shown = shown_run(bought_by(name, count, budget))
        assert "change(budget='$" not in shown, "labels were meant, or none is left"
    expect_sound(done)


def test_a_label_of_a_forgotten_item_was_bought_all_the_same(tmp_path: Path) -> None:
    done = finished(tmp_path, count=40, budget="all", audit=0)
    forget(done.path, str(bought(done)[0]["item"]))
    done.change(items=labeled(tmp_path / "more.csv", ids=True, first=700, count=2), later=True)
    assert done.change(budget="all", later=True).labels == 42
    assert done.resume().status()["spent"] == 42
    expect_sound(done)


def test_added_items_with_texts_of_the_run_are_counted(tmp_path: Path) -> None:
    done = finished(tmp_path, count=40, budget=10, audit=0)
    rows = [(f"new{n}", item.prompt, "sea") for n, item in enumerate(class_items(40)[0][:7])]
    rows.append(("n7", "no such text", "sea"))
    more = write_table(tmp_path / "more.csv", ("id", "text", "label"), rows)
    known = "more: 7 of 8 rows with the text of an item of the run (each stays its own item)"
    assert known in done.change(items=more, later=True).warnings


@pytest.mark.parametrize(("mode", "ids"), [("pool", False), ("stream", True)])
def test_more_items_are_chosen_from(tmp_path: Path, mode: str, ids: bool) -> None:
    data = labeled(tmp_path / "data.csv", ids=ids, first=0, count=50)
    more = labeled(tmp_path / "more.csv", ids=ids, first=50, count=40, seed=6)
    done = run(
        data,
        budget=20,
        open_questions=10,
        mode=mode,
        class_names=False,
        out=tmp_path / "run",
        columns={"label": "label"},
    )
    outcome = done.change(items=more, later=True)
    assert (outcome.items, outcome.warnings) == (40, ())
    done.change(budget=80, later=True)
    done.resume()
    assert done.status()["spent"] == (80 if mode == "pool" else 20 + 40)  # the first 50 are gone by
    assert done.status()["rounds"] == (80 if mode == "pool" else 90)
    late = [row for row in bought(done) if str(row["item"]).startswith(("more-", "i5", "i6"))]
    assert len(late) >= 10
    assert done.path.joinpath("features", "more-1").is_dir()
    expect_sound(done)


@pytest.mark.parametrize("ids", [False, True])
def test_a_label_of_no_class_is_none_of_these_in_an_added_file_as_well(
    tmp_path: Path, ids: bool
) -> None:
    """So it is in the first file; the label counts once its class is added."""
    data = labeled(tmp_path / "data.csv", ids=ids, first=0, count=30)
    more = labeled(tmp_path / "more.csv", ids=ids, first=30, count=12, seed=6)
    lines = more.read_text().splitlines()
    lines[3] = f"{lines[3].rpartition(',')[0]},hills"
    more.write_text("\n".join(lines) + "\n")
    classes, item = write_classes(tmp_path), "i32" if ids else "more-1/row-000003"
    done = run(data, classes=str(classes), budget="all", mode="pool", audit=0, out=tmp_path / "run")
    done.change(items=more, budget=42)
    answers = {str(row["item"]): row["kind"] for row in bought(done)}
    assert [name for name, said in answers.items() if said == "none"] == [item]
    done.change(classes={"hills": ""}, later=True)
    sources = RunSpec.open(done.folder).sources
    assert [name for name, label in sources.dataset.answers.items() if label == 3] == [item]


def test_the_report_counts_unusable_rows_of_every_file(tmp_path: Path) -> None:
    data = labeled(tmp_path / "data.csv", ids=False, first=0, count=30)
    more = labeled(tmp_path / "more.csv", ids=False, first=30, count=12, seed=6)
    owned = labeled(tmp_path / "owned.csv", ids=False, first=50, count=5, seed=7)
    for path, blank in ((data, 1), (more, 2), (owned, 3)):
        path.write_text(path.read_text() + ",bread\n" * blank)
    settings = {"mode": "pool", "features": "hashing", "audit": 0, "out": tmp_path / "run"}
    done = run(data, budget=8, owned=str(owned), **settings)
    assert (facts_of(done).data.items, facts_of(done).data.rejected_total) == (35, 1 + 3)
    done.change(items=more, budget=12)
    assert (facts_of(done).data.items, facts_of(done).data.rejected_total) == (47, 1 + 2 + 3)


def test_the_report_tells_every_change_and_what_the_audit_leaves_out(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna,ben", audit=4, count=110, open_questions=14)
    answer_all(waiting)
    waiting.people(away="ben")
    waiting.people(back="ben")
    waiting.people(free=True, drop=True)
    waiting.change(items=write_pool(tmp_path, 20, seed=7, first=500), later=True)
    waiting.change(classes={"fruit": ""}, annotators="carl", budget=30, later=True)
    done = play(waiting.resume())
    key = next(row["key"] for row in read_rows(sorted((done.path / "ask").glob("0001-anna*"))[0]))
    correction = write_rows(tmp_path / "c.csv", [{"key": key, "answer": "broken"}])
    done.answer(correction, correct=done.corrections(correction))
    found = [(each.kind, each.count, each.who) for each in facts_of(done).asking.changes]
    assert found == [
        ("away", 1, "ben"),
        ("back", 1, "ben"),
        ("dropped", 10, ""),
        ("pool", 20, ""),
        ("joined", 1, "carl"),
        ("class", 4, ""),
        ("budget", 30, ""),
        ("corrected", 1, ""),
    ]
    page = (done.path / "report.html").read_text()
    assert "The audit says nothing about 20 of 130 rows and 1 of 4 classes added after it" in page
    done.change(items=write_pool(tmp_path, 5, seed=8, first=600), later=True)
    status = done.status()["audit"]
    assert (status["rows"], status["rows_after"], status["classes_after"]) == (135, 25, 1)
    assert "25 of 135 rows and 1 of 4 classes added after it was drawn." in status["sentence"]
    offered = re.search(r"stacksl change \S+/run --budget (\d+)", page)
    assert offered
    done.change(budget=offered[1], later=True)
    play(done.resume())
    assert done.status()["audit"]["number"] == 2
    assert done.status()["audit"]["rows_after"] == 0
    expect_sound(done)


def test_terms_that_changed_twice_are_both_taken_up_behind_saved_arrays(tmp_path: Path) -> None:
    waiting = begin(tmp_path, count=20, mode="stream", budget=18)
    waiting.change(budget=12, later=True)
    waiting.resume()
    waiting.change(items=write_pool(tmp_path, 30, seed=7, first=100), later=True)
    waiting.change(budget=30, later=True)
    done = play(waiting.resume())
    assert done.status()["rounds"] == 50
    done.change(items=write_pool(tmp_path, 5, seed=8, first=200), later=True)
    done = play(done.resume())  # the saved arrays are of round 50, the first change had 20 in sight
    assert (done.status()["state"], done.status()["rounds"]) == ("finished", 55)
    expect_sound(done)


def test_a_pool_has_as_many_open_questions_as_it_is_changed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stacksl.runs.changes.change.expect_room", None
    )  # loads torch, which such a run may lack
    waiting = begin(tmp_path, audit=4)
    assert sum(open_rows(waiting).values()) == 6
    waiting.change(settings={"open_questions": 10})
    assert sum(open_rows(waiting).values()) == 10
    answer_all(waiting)
    waiting.change(settings={"open_questions": 3})
    assert sum(open_rows(waiting).values()) == 10, "rows that people have stay with them"
    answer_all(waiting)
    assert sum(open_rows(waiting).values()) == 3
    expect_sound(play(waiting))


def test_a_stream_keeps_its_open_questions_which_its_gate_reads(tmp_path: Path) -> None:
    waiting = begin(tmp_path, mode="stream")
    with pytest.raises(SettingsError, match="open_questions; what --set can change is none of its"):
        waiting.change(settings={"open_questions": 10})
    with pytest.raises(
        SettingsError, match="keeps its budget; .*: give --budget in place of --set"
    ):
        waiting.change(settings={"budget": 10})


def test_added_items_without_the_runs_columns_are_refused_by_their_names(tmp_path: Path) -> None:
    rows = [
        (f"{gold(text)} said", gold(text)) for text in texts_of(write_pool(tmp_path, 60)).values()
    ]
    data = write_table(tmp_path / "data.csv", ("mail body", "topic"), rows)
    columns = {"columns.prompt": "mail body", "columns.label": "topic"}
    done = run(data, budget=10, audit=0, out=tmp_path / "run", **columns)
    other = write_table(tmp_path / "other.csv", ("mail", "topic"), rows)
    bare = write_table(tmp_path / "bare.csv", rows[0], rows[1:])
    book, sheets = Workbook(), tmp_path / "two.xlsx"
    for sheet in (book.active, book.create_sheet()):
        sheet.append(["mail body", "topic"])
        sheet.append(rows[0])
    book.save(sheets)
    names = r"name its columns as those of the data \(mail body, topic\)$"
    for file, said in ((other, names), (bare, names), (sheets, "keep the rows of one sheet only$")):
        with pytest.raises(DataError, match=rf"file of more items {file.name}: .*{said}"):
            done.change(items=file, dry_run=True)


def test_what_cannot_be_added_is_refused_before_anything_changes(tmp_path: Path) -> None:
    done = finished(tmp_path, count=40)
    table = done.folder.settings()
    taken = labeled(tmp_path / "taken.csv", ids=True, first=5, count=3)
    with pytest.raises(DataError, match="ids of their own"):
        done.change(items=taken, later=True)
    with pytest.raises(SettingsError, match="belongs to people who answer by file: give --labeler"):
        done.change(annotators="ben")
    with pytest.raises(SettingsError, match=r"unknown setting 'lm\.epoch': did you mean"):
        done.change(settings={"lm.epoch": 2})
    with pytest.raises(SettingsError, match=r"its lm\.epochs; .* is open_questions:"):
        done.change(settings={"lm.epochs": 2})
    with pytest.raises(LabelerError, match="answer"):
        done.change(items=write_pool(tmp_path, 5, first=700), later=True)
    with pytest.raises(DataError):
        done.change(items=tmp_path / "gone.csv", later=True)
    assert done.folder.settings() == table
    assert done.status()["state"] == "finished"
    new = labeled(tmp_path / "new.csv", ids=True, first=700, count=5)
    done.change(items=new, later=True)
    with pytest.raises(RunError, match="already"):
        done.change(items=new, later=True)
    done.resume()
    expect_sound(done)


@POOL
def test_what_is_held_is_not_bought_nor_measured_by(tmp_path: Path, mode: str) -> None:
    waiting = begin(tmp_path, mode=mode, audit=6, budget=20)
    measuring = set(audits(waiting))
    texts = texts_of(tmp_path / "pool-0-0.csv")
    rows = [(f"held-{name}", text, gold(text)) for name, text in texts.items()]
    held = write_table(tmp_path / "held.csv", ("id", "text", "label"), rows)
    before = {str(row["item"]) for row in bought(waiting)}
    waiting.change(owned=held, later=True)
    done = play(waiting.resume())
    assert {str(row["item"]) for row in bought(done) if row["purpose"] != "owned"} == before
    learned = {str(row["item"]).rpartition("-")[2] for row in bought(done, purpose="owned")}
    assert learned == {f"i{n}" for n in range(60)} - measuring
    assert done.status()["state"] == "finished"
    expect_sound(done)


def test_a_run_that_has_not_begun_cannot_change(tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        cut = Mock(side_effect=KeyboardInterrupt)
        patch.setattr("stacksl.runs.session.session.Session.open", cut)
        with pytest.raises(KeyboardInterrupt):
            finished(tmp_path)
    begun = Run.open(tmp_path / "run")
    for use in (
        lambda: begun.change(budget=50, later=True),
        lambda: forget(begun.path, "i3"),
        begun.replay,
    ):
        with pytest.raises(RunError, match="asked nothing yet: `stacksl resume"):
            use()
    assert begun.resume().status()["state"] == "finished"
    begun.change(budget=50, later=True)


def test_a_budget_with_a_plus_adds_to_that_of_the_settings(tmp_path: Path) -> None:
    run = finished(tmp_path, price="2", audit=0)
    run.change(budget="+10")
    assert run.status()["spent"] == 30
    assert run.folder.settings()["budget"] == Setting("30", "flag")
    [row] = [row for row in facts_of(run).settings if row.name == "budget"]
    assert (row.value, row.origin) == ("30", "flag")
    assert run.folder.config()["budget"] == "30"
    command = ["change", str(run.path), "--budget", "+$8.50", "--yes", "--quiet"]
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert (run.status()["spent"], run.folder.resolved()["budget"]) == (34, "$68.50")
