"""An audit of new rows: one command begins it, and its status compares it with the first."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stacksl.api import Run, plan_audit, run
from stacksl.cli.entry import call
from stacksl.cli.verbs.run import shown_run
from stacksl.models.watching import fall_found, fall_p
from stacksl.report.facts import Facts
from stacksl.report.quality import AuditResult, SecondLook
from stacksl.report.sentences import settled_by
from stacksl.runs.finish import finish
from stacksl.runs.storage import status

from ..ledgers import items_bought
from .conftest import pair_items
from .people_cases import (
    Say,
    begin,
    erring,
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
    people = {"annotators": "anna,ben", "price": "2", "second_look": False, "sheets.overlap": 3}
    return play(begin(folder, count=150, budget=70, audit=40, open_questions=35, **people))


@pytest.fixture
def first(made: Run, tmp_path: Path) -> Run:
    return Run(shutil.copytree(made.path, tmp_path / "first"))


@pytest.fixture
def march(tmp_path: Path) -> Path:
    return write_pool(tmp_path, 90, seed=5, first=500).rename(tmp_path / "march.csv")


def found_in(right: int) -> str:
    """How often 30 new rows show a fall from so many right ones of 40."""
    cases = f"{100 * fall_found(right / 40, 40, 30):.0f}% of cases"
    return f"a fall of ten points is found in {cases}"


@pytest.mark.parametrize(("say", "fallen"), [(truth, "not lower beyond chance"), (wrong, "lower")])
def test_one_command_begins_it_and_its_status_compares(
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
    play(new, say)
    stated = new.status()["stated"]
    before = facts_of(first).audit
    assert (stated["n"], stated["correct"], stated["open"]) == (40, before.correct, 0)
    right = 0 if say is wrong else 30
    assert facts_of(new).column.audit.correct == right
    assert stated["now"] == {"correct": right, "n": 30, "open": 0}
    assert stated["p"] == stated["p_least"] == fall_p((before.correct, 40), (right, 30))
    assert stated["fell"] is (say is wrong)
    p = "p < 0.001" if say is wrong else f"p = {stated['p']:.3f}"
    sentence = (
        f"The new accuracy is {fallen} (one-sided {p}). {right} of 30 new rows"
        f" are right. {before.correct} of 40 rows of the audit of {first.path} are right."
    )
    if say is truth:
        sentence += f" With 40 audited rows then and 30 now, {found_in(before.correct)}."
    capsys.readouterr()
    assert call(["status", str(new.path)]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^New rows +{re.escape(sentence)}$", said, re.MULTILINE)
    assert "Final model" not in said
    assert call(command) == 2
    assert "holds a run already: give another --out" in capsys.readouterr().err


def test_the_runs_may_be_moved_together_and_the_first_one_deleted(
    first: Run, march: Path, tmp_path: Path
) -> None:
    """Here the audit begins in Python, and its pages name the judged model alone."""
    plan = plan_audit(first, first.read(march), {"audit": 30}, tmp_path / "first-march")
    new = play(plan.start())
    assert "stacksl predict" in shown_run(first)
    for said in (shown_run(new), (new.path / "report.html").read_text()):
        assert "stacksl predict" not in said
    assert new.status()["stated"]["n"] == 40
    (tmp_path / "away").mkdir()
    for name in ("first", "first-march"):
        shutil.move(tmp_path / name, tmp_path / "away" / name)
    new = Run(tmp_path / "away" / "first-march")
    assert str(tmp_path / "away" / "first") in new.status()["stated"]["sentence"]
    shutil.rmtree(tmp_path / "away" / "first")
    assert new.status()["stated"] is None


def test_money_for_more_rows_corrects_doubtful_labels(first: Run, march: Path, tmp_path) -> None:
    out = tmp_path / "elsewhere"
    words = ["--budget", "$90", "--annotators", "cleo", "--out", str(out)]
    assert call(["evaluate", str(first.path), str(march), *AUDIT, *words]) == 0
    new = play(Run(out))
    assert new.folder.resolved()["annotators"] == "cleo"
    assert new.folder.resolved()["second_look"] is False, "as in the first run"
    with new.ledger as ledger:
        assert (len(ledger.bought("audit")), ledger.accounts.spent) == (30, 45)
    assert new.status()["stated"]["n"] == 40


def test_a_person_who_is_away_gets_no_rows_of_it(first: Run, march: Path, tmp_path: Path) -> None:
    assert call(["change", str(first.path), "--away", "ben", "--quiet"]) == 0
    assert call(["evaluate", str(first.path), str(march), *AUDIT]) == 0
    assert Run(tmp_path / "first-march").folder.resolved()["annotators"] == "anna"


def test_the_dry_run_names_the_fall_that_this_audit_finds(first: Run, march: Path, capsys) -> None:
    command = ["evaluate", str(first.path), str(march), *AUDIT, "--dry-run"]
    assert call([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["labels"], told["audit"]) == (30, 30)
    right = facts_of(first).audit.correct
    sentence = (
        f"with 40 audited rows then and 30 now, {found_in(right)}, from the accuracy of"
        f" {first.path}"
    )
    assert sentence in told["warnings"]
    assert call(command) == 0
    said, told_too = capsys.readouterr()
    assert sentence in told_too
    assert re.search(r"^Cost +\$60.00 at most$", said, re.MULTILINE)
    assert not (first.path.parent / "first-march").exists()


def test_a_run_without_an_audit_has_nothing_to_compare(march: Path, tmp_path, capsys) -> None:
    first = play(begin(tmp_path, count=60, budget=20, audit=0, open_questions=20))
    command = ["evaluate", str(first.path), str(march), *AUDIT]
    for words in ([*command, "--dry-run"], command):
        assert call(words) == 0
        assert "no audit of random rows, and the looks of a promise" in capsys.readouterr().err
    assert play(Run(tmp_path / "run-march")).status()["stated"] is None


def test_rows_of_the_run_are_not_audited_again(first: Run, march: Path, tmp_path: Path) -> None:
    own = read_rows(first.folder.resolved()["data"])
    new = read_rows(march)
    both = write_rows(tmp_path / "both.csv", [*own, *new])
    assert call(["evaluate", str(first.path), str(both), *AUDIT]) == 0
    assert items_bought(Run(tmp_path / "first-both"), "audit") <= {row["id"] for row in new}
    alone = write_rows(tmp_path / "own.csv", own)
    assert call(["evaluate", str(first.path), str(alone), *AUDIT]) == 2


def test_what_cannot_be_audited_is_refused(first: Run, march: Path, tmp_path, capsys) -> None:
    command = ["evaluate", str(first.path), str(march)]
    for words, sentence in (
        (["--budget", "$9"], "--out and --dry-run are for an audit: give --audit N"),
        (["--audit", "0"], "--audit 0 asks nobody: give --audit N"),
        (["--audit", "many"], "audit must be a valid integer, not 'many'"),
        ([*AUDIT, "--out", str(first.path)], "holds a run already: give another --out"),
    ):
        assert call([*command, *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert "Traceback" not in said
    pairs = run(*pair_items(60), budget=20, audit=0, out=tmp_path / "pairs")
    lines = [json.dumps({"prompt": i.prompt, "candidates": i.candidates}) for i in pair_items(9)[0]]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert call(["evaluate", str(pairs.path), str(tmp_path / "pairs.jsonl"), *AUDIT]) == 2
    assert "--audit needs fixed classes, and each item of" in capsys.readouterr().err


# Open rows ---------------------------------------------------------------------------------------


def audit_of(n: int, agreeing: int, right: int, still: int, **more: int) -> AuditResult:
    """An audit in which two people agree on the differing rows, but for those `still` open."""
    counts = {"sampled": 0, "wrong": 0, "sampled_open": 0, "first_right": 0, **more}
    differing = {"differing": n - agreeing, "model_right": right, "differing_open": still}
    second = SecondLook(n=n, agreeing=agreeing, **differing, **counts)
    return AuditResult(n, agreeing, 0, 0, 0.8, 0.7, 0.9, 0.7, 0.9, second=second)


def settling(price: int, run: str) -> Callable[[int], str]:
    """What settles open rows of a run of 100 labels at a `price`."""
    budget = SimpleNamespace(price=price, labels=100)
    method = SimpleNamespace(python=False)
    return settled_by(cast(Facts, SimpleNamespace(budget=budget, method=method)), run)


def between(monkeypatch: pytest.MonkeyPatch, before: AuditResult, now: AuditResult) -> Any:
    known = "row of the audit of runs/first", before, settling(500_000, "runs/first")
    monkeypatch.setattr(status, "random_audit", lambda _: known)
    return status.stated(Path("runs/first"), now, settling(1_500_000, "runs/now"))


def test_open_rows_favor_neither_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """However they are settled, p is between the ends, and so no verdict is turned."""
    before, now = audit_of(60, 50, 2, 3, sampled=10, sampled_open=1), audit_of(60, 40, 4, 8)
    told = between(monkeypatch, before, now)
    assert (told["correct"], told["n"], told["open"]) == (51, 60, 4)
    assert told["now"] == {"correct": 44, "n": 60, "open": 8}
    settled = {
        (then, right): fall_p((then, 60), (right, 60))
        for then in range(51, 56)
        for right in range(44, 53)
    }
    assert told["p"] == max(settled.values()) == settled[51, 52]
    assert told["p_least"] == min(settled.values()) == settled[55, 44] <= 0.05
    assert told["fell"] is None
    assert "The new accuracy may be lower (one-sided p from 0.00" in told["sentence"]
    assert " This may change when open rows are settled. With 60 audited" in told["sentence"]
    for still, fell in ((audit_of(60, 20, 4, 8), True), (audit_of(60, 53, 1, 2), False)):
        assert between(monkeypatch, before, still)["fell"] is fell


def test_the_output_says_what_settles_open_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = audit_of(60, 50, 2, 3), audit_of(60, 40, 4, 8)
    now = replace(now, n=62, unknown=2, second=replace(now.second, askable=6))
    told = between(monkeypatch, before, now)["sentence"].partition("). ")[2]
    assert told.partition(" With 60 audited")[0] == (
        "44 of 60 new rows are right, besides 2 without a clear answer, with 8 open. No two"
        " people agree there, and 12 more labels for $18.00 may settle 6 of them: `stacksl change"
        " runs/now --budget 112`. 52 of 60 rows of the audit of"
        " runs/first are right, with 3 open. No two people agree there, and nobody else is left"
        " to ask unless you add an annotator, at most four answers a row. This may change when"
        " open rows are settled."
    )


def test_first_answers_are_compared_where_one_audit_has_no_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else people's errors would count as the model's in one of the audits alone."""
    before, agree = audit_of(60, 50, 8, 0), {"measures": "agreement with the annotator"}
    now = AuditResult(60, 49, 0, 0, 0.8, 0.7, 0.9, 0.7, 0.9, **agree)
    told = between(monkeypatch, before, now)
    assert (told["correct"], told["now"]["correct"]) == (50, 49)
    assert "50 of 60 rows of the audit of runs/first are right by first answers" in told["sentence"]
    told = between(monkeypatch, before, replace(now, measures="accuracy"))
    assert told["correct"] == 58, "answers of a file are right"


# What the run leaves -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, Path]:
    """A run and an audit of new rows, by two people who err, and the file of the new rows."""
    folder = tmp_path_factory.mktemp("looked")
    people = {"annotators": "anna,ben", "price": "2", "second_look": True}
    first = play(begin(folder, count=150, budget=90, audit=40, **people), erring(0.1))
    rows = [{"nr": f"N{n}", "desk": "mail", **row} for n, row in enumerate(read_rows(
        write_pool(folder, 90, seed=5, first=500)))]  # fmt: skip
    own = read_rows(first.folder.resolved()["data"])[:5]
    rows[7:7] = [{"nr": f"O{n}", "desk": "phone", **row} for n, row in enumerate(own)]
    march = write_rows(folder / "march.csv", rows)
    assert call(["evaluate", str(first.path), str(march), *AUDIT, "--budget", "$100"]) == 0
    return first, play(Run(folder / "run-march"), erring(0.2)), march


def test_the_table_comes_back_as_it_was_with_the_models_labels(
    looked: tuple[Run, Run, Path], tmp_path: Path
) -> None:
    first, new, march = looked
    assert call(["export", str(new.path), "--table", str(tmp_path / "labels.csv")]) == 0
    assert call(["predict", str(first.path), str(march), "--out", str(tmp_path / "said.csv")]) == 0
    rows, said, given = (
        read_rows(tmp_path / "labels.csv"),
        read_rows(tmp_path / "said.csv"),
        read_rows(march),
    )
    assert [{name: row[name] for name in given[0]} for row in rows] == given
    by_model = [(row, other) for row, other in zip(rows, said, strict=True) if row["doubtful"]]
    assert len(by_model) > 20
    for row, other in by_model:
        assert {name: row[name] for name in other} == other
    own = [row for row in rows if row["nr"].startswith("O")]
    assert {(row["label"], row["source"]) for row in own} == {("", "")}
    sources = Counter(row["source"] for row in rows)
    assert f"{sources['model']} by the model) an estimated" in new.status()["table"]["sentence"]


def test_a_sheet_that_is_named_comes_back_too(first: Run, march: Path, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for name, rows in (("notes", [{"a": "b"}]), ("march", read_rows(march))):
        sheet = book.create_sheet(name)
        for row in (list(rows[0]), *(list(each.values()) for each in rows)):
            sheet.append(row)
    book.save(tmp_path / "book.xlsx")
    command = ["evaluate", str(first.path), str(tmp_path / "book.xlsx"), *AUDIT]
    assert call([*command, "--worksheet", "march"]) == 0
    table = play(Run(tmp_path / "first-book")).table()
    assert table.columns[:2] == ("id", "text")
    assert [row["text"] for row in table.rows] == [row["text"] for row in read_rows(march)]


def test_the_report_begins_with_the_answer_and_counts_each_row_once(
    looked: tuple[Run, Run, Path],
) -> None:
    _, new, _ = looked
    stated, column = new.status()["stated"], facts_of(new).column
    right, known, still = column.audit.counted()
    assert still > 0
    assert stated["now"] == {"correct": right, "n": known, "open": still}
    counts = f"{right} of {known} audited labels are right, with {still} open"
    assert counts in new.status()["column"]["sentence"]
    assert sum(row.right for row in column.classes) == right
    assert sum(row.open for row in column.classes) == still


def test_a_page_names_no_folder_of_the_run_before(
    looked: tuple[Run, Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, new, _ = looked
    call = f"`stacksl change {first.path} --budget 90`"
    words = "are right, with 3 open. No two people agree there, and 6 more labels may settle 3"
    words += " of them"
    sentence = f"May be lower: 52 of 60 rows of the audit of {first.path} {words}: {call}."
    told = {"run": str(first.path), "sentence": sentence}
    monkeypatch.setattr(finish, "stated", lambda *_: told)
    page = unescape(new.report().read_text(encoding="utf-8"))
    assert f"May be lower: 52 of 60 rows of the audit of the run before {words}." in page
    assert call not in page
