"""People by file as a user types it: what is printed, what a script reads, how a call ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from stacksl.api import Run
from stacksl.report.quality import Differing
from stacksl.runs.session import session

from ..ledgers import accounts_of, bought
from ..runs.conftest import CLASSES
from ..runs.people_cases import (
    expect_sound,
    facts_of,
    fill,
    gold,
    read_rows,
    sheets,
    write_classes,
    write_pool,
    write_rows,
    wrong,
)

Shell = Callable[..., Any]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run of `waiting` is made once."""
    return tmp_path_factory.mktemp("begun")


@pytest.fixture
def waiting(
    run_folder: Path, tmp_path: Path, stacksl: Shell, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """A copy of a run of two people, in the working directory."""
    if not (run_folder / "run").exists():
        monkeypatch.chdir(run_folder)
        begin(run_folder, stacksl)
    shutil.copytree(run_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Run(Path("run"))


def begin(folder: Path, stacksl: Shell) -> None:
    words = ["run", write_pool(folder, 40), "--classes", write_classes(folder)]
    words += ["--labeler", "file", "--sheets", "csv", "--annotators", "anna,ben"]
    words += ["--price", "3", "--budget", "14", "--open-questions", "6"]
    words += ["--audit", "4", "--overlap", "2", "--mode", "pool"]
    said = stacksl.done(*words, "--no-class-names", "--yes", "--out", "run", "--json")
    told = json.loads(said.out)
    assert (told["state"], told["budget"], told["audit"]) == ("waiting", 14, None)
    assert sum(sheet["open"] for sheet in told["sheets"]) == 6
    assert "14 labels for $42.00 at most" in said.err
    assert "4 of the 14 labels are kept for an audit" in said.err
    assert "text: text · id: id\n" in said.err
    assert len(said.err.splitlines()) <= 10


def test_a_day_of_two_colleagues(waiting: Run, stacksl: Shell) -> None:
    status = stacksl.told("status", "run")
    assert status["sheets"] == [{"file": str(path), "open": 3} for path in sheets(waiting)]
    shown = stacksl("status", "run").out
    assert "14: answered 0, in sheets 6, reserved and not yet asked 2, left 6" in shown
    assert ["3", "rows", "in", str(sheets(waiting)[0])] in [
        line.split() for line in shown.splitlines()
    ]
    said = stacksl.done("answer", "run", fill(sheets(waiting)[0]), "--quiet")
    assert "Accepted" in said.out
    assert "3 with an option" in said.out
    assert "waiting for answers" in said.out
    assert "stacksl answer run FILE..." in said.out
    assert "stacksl label run" in said.out
    assert "which `stacksl answer run FILE...` leads" in stacksl("report", "run").err
    calls = 0
    while stacksl.told("status", "run")["state"] == "waiting":
        calls += 1
        said = stacksl.done("answer", "run", *map(fill, sheets(waiting)), "--json", "--quiet")
        told = json.loads(said.out)
        assert told["faults"] == []
        assert calls < 10
    assert (told["state"], told["spent"], told["left"], told["asked"]) == ("finished", 14, 0, 10)
    assert told["answered"] == 8  # two of the ten were second answers
    assert told["money"]["spent"] == 42.0
    shown = stacksl("resume", "run", "--quiet").out
    assert "14 of 14 bought" in shown
    assert "4 of them only to measure" in shown
    assert "By the audit" in shown
    assert "agrees with the annotator" in shown
    for verb in ("verify", "replay"):
        assert stacksl("ledger", verb, "run").code == 0
    for name in ("model", "facts.json"):  # `resume` makes them again
        path = Path("run", name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shown = stacksl("status", "run").out
        assert "14 of 14 bought, 4 of them only to measure" in shown
        assert "stacksl resume run" in shown
    stacksl.done("resume", "run", "--quiet")
    refit = stacksl.done("change", "run", "--train-on-audit", "--json")
    assert json.loads(refit.out)["trained_on_audit"] == 4


def test_a_run_of_other_rows_has_the_classes_that_its_config_has_now(
    waiting: Run, stacksl: Shell, tmp_path: Path
) -> None:
    stacksl.done("change", "run", "--add-class", "fruit", "--quiet")
    for path in tmp_path.glob("classes*"):
        path.unlink()
    table = write_pool(tmp_path, 40, seed=7, first=900)
    stacksl.done("run", table, "--config", "run", "--out", "second", "--yes", "--quiet")
    options = read_rows(sheets(Run.open("second"))[0])[0]["options"]
    assert options.split("\n")[-1].endswith("fruit")
    rows = ({"prompt": f"q{n}", "candidates": ["a", "b", f"c{n}"], "answer": 0} for n in range(9))
    Path("own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    stacksl.done("run", "own.jsonl", "--budget", "3", "--audit", "0", "--out", "own", "--quiet")
    refused = stacksl.refused("run", table, "--classes", "own", "--labeler", "file", "--yes")
    assert "was given none: name a file with a class on each line" in refused


def test_rows_that_were_given_up_are_not_counted_as_rows_still_to_be_asked(
    waiting: Run, stacksl: Shell
) -> None:
    numbers = "14: answered 0, in sheets 6, reserved{} 2, left 6"
    assert numbers.format(" and not yet asked") in stacksl("status", "run").out
    stacksl.done("change", "run", "--free", "anna", "--drop", "--quiet")
    status = stacksl.told("status", "run")
    with waiting.ledger as ledger:
        still_reserved = len(ledger.open_purchases()) - status["out"]
    assert 0 <= still_reserved < 2, "an audited row was given up, and is not asked again"
    assert (status["given_up"], status["spent"]) == (3, 8)
    shown = stacksl("status", "run").out
    assert numbers.format(", not yet asked or given up") in shown, "how many of which is secret"


def test_bad_cells_are_named_and_nothing_of_them_is_quoted(waiting: Run, stacksl: Shell) -> None:
    path = sheets(waiting)[0]
    rows = read_rows(path)
    rows[0]["answer"], rows[0]["note"] = "zyxright words", "zyxnote"
    rows[1]["answer"] = gold(rows[1]["prompt"])
    said = stacksl("answer", "run", write_rows(path, rows), "--json", "--quiet")
    assert said.code == 2
    told = json.loads(said.out)
    assert (told["accepted"], told["empty"]) == ({"label": 1}, 1)
    assert said.err.startswith(f"{path} row 2, column answer: ")
    assert told["faults"] == said.err.strip().splitlines()
    for word in ("zyx", *rows[0]["prompt"].split()[1:3]):
        assert word not in said.err
    rows[0]["answer"] = gold(rows[0]["prompt"]) + "x"
    said = stacksl("answer", "run", write_rows(path, rows), "--quiet")
    assert f") {gold(rows[0]['prompt'])}? Write a letter" in said.err
    said = stacksl("answer", "run", "gone.csv")
    assert (said.code, said.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["--away", "ben", "--budget", "20"],
        ["--free", "--drop", "--budget", "9", "--key", "abcd-e"],
        ["--train-on-audit", "--dry-run"],
    ],
    ids=" ".join,
)
def test_one_kind_of_change_at_a_time(waiting: Run, stacksl: Shell, words: list[str]) -> None:
    before = stacksl("status", "run", "--json").out
    assert "one kind of change" in stacksl.refused("change", "run", *words)
    assert stacksl("status", "run", "--json").out == before


def test_a_change_that_is_none_is_one_sentence(waiting: Run, stacksl: Shell) -> None:
    said = stacksl("change", "run")
    assert said.code == 2
    assert "expected something to change, got nothing: give --budget" in said.err
    for words in (["--description", "x"], ["--add-class", "x", "--add-class", "x"]):
        said = stacksl("change", "run", *words)
        assert (said.code, said.err.count("\n")) == (2, 1)


def test_that_a_class_stays_is_said_before_it_is_added(waiting: Run, stacksl: Shell) -> None:
    words, stays = ("change", "run", "--add-class", "dusk"), "a class cannot be removed from a run"
    assert stays in stacksl.done(*words, "--dry-run").out
    added = stacksl.done(*words, "--later")
    assert stays in added.err
    assert stays not in added.out
    assert stays not in stacksl.done("change", "run", "--budget", "30", "--later").err


def test_people_are_listed(waiting: Run, stacksl: Shell) -> None:
    stacksl("answer", "run", fill(sheets(waiting)[0]), "--quiet")
    before = [path.read_bytes() for path in sorted(waiting.path.glob("*.toml"))]
    told = stacksl.told("status", "run")
    assert [
        (row["name"], row["answered"], row["away"]) for row in told["people"]["annotators"]
    ] == [("anna", 3, False), ("ben", 0, False)]
    assert sum(row["open"] for row in told["people"]["annotators"]) == sum(
        s["open"] for s in told["sheets"]
    )
    assert [path.read_bytes() for path in sorted(waiting.path.glob("*.toml"))] == before
    told = stacksl.told("change", "run", "--away", "ben", "--quiet")
    assert [(row["away"], row["open"] == 0) for row in told["people"]["annotators"]] == [
        (False, False),
        (True, True),
    ]
    lines = [line.split() for line in stacksl("status", "run").out.splitlines()]
    assert ["Who", "Open", "Answered"] in lines
    assert ["ben", "0", "0", "away"] in lines
    assert stacksl("change", "run", "--back", "ben").out.startswith("ben gets rows again\n")
    assert "away" not in stacksl("status", "run").out


def test_a_change_of_everything_at_once(waiting: Run, stacksl: Shell, tmp_path: Path) -> None:
    more = write_pool(tmp_path, 10, seed=2, first=500)
    with more.open("a", encoding="utf-8") as file:
        file.write("i900,\n")
    owned = tmp_path / "owned.csv"
    owned.write_text("".join(["text,label\n", *(f"old {name} words,{name}\n" for name in CLASSES)]))
    words = ["change", "run", "--budget", "$60", "--items", more, "--owned", owned]
    words += ["--add-annotator", "carl", "--json", "--quiet"]
    said = stacksl(*words, "--dry-run")
    told = json.loads(said.out)
    assert (told["budget"], told["cost"], told["added"], told["owned"]) == (20, 18.0, 10, 3)
    assert told["annotators"] == ["anna", "ben", "carl"]
    [odd] = told["added_warnings"]
    assert odd.startswith(f"{more.stem}: 1 unusable row: ")
    assert f"warning: {odd}\n" in said.err
    assert "give at least" in stacksl.refused("change", "run", "--budget", "5")
    said = stacksl.done(*words)
    assert "6 more labels, 20 in all, for $18.00 more at most" in said.err
    assert f"warning: {odd}\n" in said.err
    told = json.loads(said.out)
    assert (told["state"], told["budget"], told["answered"]) == ("waiting", 20, 0)
    assert len(accounts_of(waiting).learned_labels) == 3
    assert f"has the file {more.name} already" in stacksl.refused("change", "run", "--items", more)
    assert stacksl("ledger", "replay", "run").code == 0
    said = stacksl("change", "run", "--budget", "21", "--later", "--yes")
    assert said.out.endswith("continue with: stacksl resume run\n")


def test_ctrl_c_after_the_answers_were_entered_does_not_deny_them(
    waiting: Run, stacksl: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [fill(path) for path in sheets(waiting)]
    with monkeypatch.context() as patch:
        patch.setattr(session.Session, "refit_if_due", Mock(side_effect=KeyboardInterrupt))
        said = stacksl("answer", "run", *files)
    assert (said.code, len(bought(waiting, state="answered"))) == (130, 6)
    kept = "what was recorded is kept: give the same command again, or `stacksl ls` if it"
    kept += " says that the run has ended"
    assert said.err.endswith(f"stacksl: stopped; {kept}\n")
    told = stacksl.told("answer", "run", *files)
    assert (told["repeated"], told["answered"], told["state"]) == (6, 6, "waiting")


def test_a_run_ends_with_the_answers_there_are(waiting: Run, stacksl: Shell) -> None:
    """Open questions are withdrawn in the transaction of the budget; audits count them unknown."""
    rows = sheets(waiting)
    stacksl.done("answer", "run", fill(rows[0]), "--quiet")
    answered = len(bought(waiting, state="answered"))
    open_now = len(bought(waiting, state="open"))
    late = fill(sheets(waiting)[0])
    words = ["change", "run", "--budget", str(answered)]
    refusal = stacksl.refused(*words)
    assert f"or withdraw the {open_now} open ones with --free --drop" in refusal
    assert f"give at least {answered}" in refusal
    said = stacksl.done(*words, "--free", "--drop", "--dry-run")
    assert said.out.endswith(f"{answered} labels in all\n{open_now} open questions withdrawn\n")
    assert len(bought(waiting, state="open")) == open_now
    told = stacksl.told(*words, "--free", "--drop", "--yes", "--quiet")
    assert (told["state"], told["spent"], told["left"]) == ("finished", answered, 0)
    assert not bought(waiting, state="open")
    unknown = facts_of(waiting).audit.unknown
    assert unknown == 4 - len(bought(waiting, purpose="audit", state="answered"))
    told = stacksl.told("answer", "run", late, "--quiet")
    assert told["late"] > 0
    assert len(bought(waiting, state="answered")) == answered
    expect_sound(waiting)


def test_corrections_are_listed_and_wait_for_consent(waiting: Run, stacksl: Shell) -> None:
    path = sheets(waiting)[0]
    assert stacksl("answer", "run", fill(path, wrong), "--quiet").code == 0
    key = read_rows(path)[0]["key"]
    command = ("answer", "run", fill(path, keys=[key]), "--correct", "--quiet")
    refused = stacksl.refused(*command, before=1)
    assert "would be replaced, and there is no terminal to ask on: add --yes" in refused
    assert f"{key}, " in refused
    row = next(row for row in read_rows(path) if row["key"] == key)
    assert f": {wrong(row)} -> {gold(row['prompt'])}" in refused
    assert waiting.corrections(path), "nothing was replaced"
    said = stacksl.done(*command, "--yes")
    assert "Corrected" in said.out
    assert waiting.corrections(path) == []
    told = stacksl.told(*command, "--yes")
    assert told["corrected"] == 0


def test_who_differs_from_the_others_is_named_with_what_to_do(
    waiting: Run, stacksl: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Differing("anna", 20, 1, 9.5, 0.0001)
    monkeypatch.setattr(session, "differing", lambda *given: (found,))
    for words in (("answer", *map(fill, sheets(waiting)), "--quiet"), ("status",)):
        said = stacksl(words[0], "run", *words[1:]).out
        assert "1 of 20 answers as predicted, while others have 9.5" in said
        assert "--set-aside anna or --keep anna" in said
    assert stacksl.told("status", "run")["differing"] == [asdict(found)]


def test_a_model_that_cannot_be_handed_over_is_refused_before_a_table_is_written(
    waiting: Run, stacksl: Shell
) -> None:
    while waiting.status()["state"] == "waiting":
        waiting.answer(*map(fill, sheets(waiting)))
    said = stacksl.refused("export", "run", "--table", "t.csv", "--model", "model")
    assert "--model expects" in said
    assert not Path("t.csv").exists()


def test_somebody_is_set_aside_and_kept(waiting: Run, stacksl: Shell) -> None:
    assert stacksl("answer", "run", *map(fill, sheets(waiting)), "--quiet").code == 0
    stacksl.done("change", "run", "--set-aside", "anna", "--quiet")
    told = stacksl.told("status", "run")
    assert [each["standing"] for each in told["people"]["annotators"]] == ["set_aside", ""]
    before = waiting.status()["spent"]
    stacksl.done("change", "run", "--keep", "anna", "--quiet")
    assert waiting.status()["spent"] >= before
    assert "kept" in stacksl("status", "run").out
