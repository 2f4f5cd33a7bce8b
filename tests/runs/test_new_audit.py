"""An audit of new rows: one command begins it, says what it waits for, and compares it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from stacksl.api import Run, run
from stacksl.api.watching import stated
from stacksl.cli.entry import call
from stacksl.cli.verbs.run import shown_run
from stacksl.errors import RunError
from stacksl.models.watching import fall_found

from .conftest import CLASSES, pair_items
from .people_cases import (
    Say,
    begin,
    facts_of,
    play,
    read_rows,
    truth,
    write_pool,
    write_rows,
    wrong,
)

AUDIT = ["--audit", "30", "--quiet", "--yes"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("first")
    people = {"annotators": "anna,ben", "price": "2", "second_look": False}
    return play(begin(folder, count=150, budget=70, audit=40, open_questions=35, **people))


@pytest.fixture
def first(made: Run, tmp_path: Path) -> Run:
    return Run(shutil.copytree(made.path, tmp_path / "first"))


@pytest.fixture
def march(tmp_path: Path) -> Path:
    return write_pool(tmp_path, 90, seed=5, first=500).rename(tmp_path / "march.csv")


@pytest.mark.parametrize(("say", "fallen"), [(truth, "not lower beyond chance"), (wrong, "lower")])
def test_the_same_command_begins_waits_and_compares(
    say: Say, fallen: str, first: Run, march: Path, capsys
) -> None:
    command = ["evaluate", str(first.path), str(march), *AUDIT]
    assert call(command) == 0
    new = Run(first.path.parent / "first-march")
    assert f"stacksl answer {new.path} FILE..." in capsys.readouterr().out
    settings = new.folder.resolved()
    assert [settings[name] for name in ("annotators", "price", "audit_labels", "money_micro")] == [
        "anna,ben", "2", 30, 60_000_000,
    ]  # fmt: skip
    dry = [*command, "--dry-run"]  # nothing more would be bought
    for words in (command, dry, ["evaluate", str(first.path), str(new.path)]):
        assert call(words) == 0
        assert "waiting for answers" in capsys.readouterr().out
    play(new, say)
    found = first.evaluate(new.path)
    assert (found["n"], found["stated"]["n"]) == (30, 40)
    assert found["correct"] == (0 if say is wrong else 30)
    capsys.readouterr()
    for words in (command, dry, ["evaluate", str(first.path), str(new.path)]):
        assert call(words) == 0
        assert f"the new accuracy is {fallen} (" in capsys.readouterr().out
    for words in (["status", str(new.path)], ["resume", str(new.path), "--quiet"]):
        assert call(words) == 0
        assert f"stacksl evaluate {first.path} {new.path}" in capsys.readouterr().out


def test_money_for_more_rows_corrects_doubtful_labels(first: Run, march: Path, tmp_path) -> None:
    out = tmp_path / "elsewhere"
    words = ["--budget", "$90", "--annotators", "cleo", "--out", str(out)]
    assert call(["evaluate", str(first.path), str(march), *AUDIT, *words]) == 0
    new = play(Run(out))
    assert new.folder.resolved()["annotators"] == "cleo"
    assert new.folder.resolved()["second_look"] is False, "as in the first run"
    with new.ledger as ledger:
        assert (len(ledger.bought("audit")), ledger.accounts.spent) == (30, 45)
    assert first.evaluate(out)["n"] == 30


def test_the_dry_run_names_the_fall_that_this_audit_finds(first: Run, march: Path, capsys) -> None:
    command = ["evaluate", str(first.path), str(march), *AUDIT, "--dry-run"]
    assert call([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    before = told["stated"]
    assert (told["labels"], told["audit"], before["n"]) == (30, 30, 40)
    chance = fall_found(before["correct"] / 40, 40, 30)
    assert before["found"] == pytest.approx(chance)
    assert call(command) == 0
    said = capsys.readouterr().out
    assert f"would be found with a probability of {100 * chance:.0f}%" in said
    assert re.search(r"^Cost +\$60.00 at most$", said, re.MULTILINE)
    assert not (first.path.parent / "first-march").exists()


def test_a_run_without_an_audit_has_nothing_to_compare(march: Path, tmp_path, capsys) -> None:
    first = play(begin(tmp_path, count=60, budget=20, audit=0, open_questions=20))
    command = ["evaluate", str(first.path), str(march), *AUDIT]
    for words in ([*command, "--dry-run"], command):
        assert call(words) == 0
        assert "has no audit of random rows" in capsys.readouterr().err
    play(Run(tmp_path / "run-march"))
    assert call(command) == 0
    said = capsys.readouterr().out
    assert "Accuracy" in said
    assert "Right in the audit" not in said


def test_rows_of_the_run_are_not_audited_again(first: Run, march: Path, tmp_path: Path) -> None:
    own = read_rows(first.folder.resolved()["data"])
    new = read_rows(march)
    both = write_rows(tmp_path / "both.csv", [*own, *new])
    assert call(["evaluate", str(first.path), str(both), *AUDIT]) == 0
    with Run(tmp_path / "first-both").ledger as ledger:
        audited = set(ledger.bought("audit"))
    assert audited <= {row["id"] for row in new}
    alone = write_rows(tmp_path / "own.csv", own)
    assert call(["evaluate", str(first.path), str(alone), *AUDIT]) == 2


def test_what_cannot_be_audited_is_refused(first: Run, march: Path, tmp_path, capsys) -> None:
    command = ["evaluate", str(first.path), str(march)]
    for words, sentence in (
        (["--budget", "$9"], "--budget, --out and --dry-run are for an audit: give --audit N"),
        (["--audit", "0"], "give --audit N"),
        (["--audit", "many"], "audit must be a valid integer, not 'many'"),
        ([*AUDIT, "--out", str(first.path)], "holds another run: give another --out"),
    ):
        assert call([*command, *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert "Traceback" not in said
    assert call([*command, *AUDIT]) == 0
    write_pool(tmp_path, 60, seed=6, first=900).rename(march)
    assert call([*command, *AUDIT]) == 2
    assert "holds another run: give another --out" in capsys.readouterr().err, "of other rows"
    pairs = run(*pair_items(60), budget=20, audit=0, out=tmp_path / "pairs")
    lines = [json.dumps({"prompt": i.prompt, "candidates": i.candidates}) for i in pair_items(9)[0]]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert call(["evaluate", str(pairs.path), str(tmp_path / "pairs.jsonl"), *AUDIT]) == 2
    assert "--audit needs fixed classes, and each item of" in capsys.readouterr().err


def test_labels_that_are_not_the_models_are_no_labels_of_its(
    first: Run, march: Path, tmp_path: Path
) -> None:
    """Those of a column are compared with the column that the first run judged."""
    rows = [{**row, "said": CLASSES[n % len(CLASSES)]} for n, row in enumerate(read_rows(march))]
    write_rows(tmp_path / "said.csv", rows)
    given = {"annotators": "anna", "second_look": False, "audit": 20, "budget": 20}
    given |= {"model_labels": "said", "open_questions": 20, "features": "hashing"}
    given |= {"sheets.format": "csv"}
    other = play(run(str(tmp_path / "said.csv"), out=tmp_path / "other", **given))
    with pytest.raises(RunError, match="are not those of the model of"):
        first.evaluate(other.path)
    again = play(run(str(tmp_path / "said.csv"), out=tmp_path / "again", seed=5, **given))
    found = other.evaluate(again.path)
    judged = facts_of(other).column.audit
    assert found["column"]
    assert (found["stated"]["correct"], found["stated"]["n"]) == (judged.correct, judged.n)


def test_the_rows_of_a_look_are_not_compared_with_new_rows(tmp_path: Path, march: Path) -> None:
    given = {"count": 400, "budget": 380, "open_questions": 40, "stop_when": "right=85%"}
    made = play(begin(tmp_path, **given, class_names=True, annotators="anna"))
    assert facts_of(made).audit is not None
    told = list(stated(made.folder, 30) or ())
    assert not told
    assert call(["evaluate", str(made.path), str(march), *AUDIT, "--dry-run"]) == 0


def test_the_audit_of_new_rows_names_the_judged_model_alone(first: Run, march: Path) -> None:
    assert call(["evaluate", str(first.path), str(march), *AUDIT]) == 0
    new = play(Run(first.path.parent / "first-march"))
    assert "stacksl predict" in shown_run(first)
    for said in (shown_run(new), (new.path / "report.html").read_text()):
        assert "stacksl predict" not in said
