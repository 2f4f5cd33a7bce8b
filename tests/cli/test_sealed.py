"""An audit is sealed until its run has finished: no output depends on what its answers say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.runs.storage import status as state

from ..ledgers import bought, handed_rows
from ..runs.people_cases import Row, answer_all, begin, fill, play, sheets, truth, write_pool, wrong

Shell = Callable[..., Any]

READING = (
    "status run",
    "status run --json",
    "ls",
    "ls --json",
    "ledger verify run --json",
    "ledger replay run --json",
    "report run",
    "export run --out exported",
    "export run --labels tasks.json",
    "export run --labels tasks.json --json",
    "predict run pool-0-0.csv",
    "change run --budget 40 --dry-run --json",
    "change run --add-class dawn --dry-run --json",
    "change run --reopen --dry-run --json",
)
PASSING = re.compile(r"[0-9a-f]{64}|\d{10}\.\d+")  # hashes of the chain, and times
COUNTED = re.compile(r'"(mapped|again)": \d+')
"""Answers of none of these on all sheets together: whoever enters the sheets knows them. Without
the audit's they would tell what one answer was for, as `test_one_answer` below has it."""


def printed(stacksl: Shell) -> list[object]:
    """What every reading command prints, how it ends, and the labels that one of them writes."""
    said = [stacksl(*words.split()) for words in READING]
    labels = [row | {"time": "-"} for row in json.loads(Path("tasks.json").read_text("utf-8"))]
    return [*((s.code, COUNTED.sub("-", PASSING.sub("-", s.out)), s.err) for s in said), labels]


def outputs_of(folder: Path, stacksl: Shell, say: Callable[[Row], str]) -> list[object]:
    """The outputs of a run from its beginning to its end, whose audit is answered by `say`."""
    waiting = begin(
        folder, out="run", audit=4, budget=12, open_questions=6, count=30, annotators="anna,ben"
    )
    audit = {str(row["item"]) for row in bought(waiting, purpose="audit")}
    seen: list[object] = [audit]
    while waiting.status()["state"] == "waiting":
        keys = {row.key for row in handed_rows(waiting) if row.item in audit}
        for path in sheets(waiting):
            fill(path, now_and_then)
            told = stacksl.told("answer", "run", fill(path, say, keys=keys))
            if told["state"] == "finished":
                return seen
            said = told.pop("accepted")  # what the sheet itself says
            seen += [told, sum(said.values()), printed(stacksl)]
        if len(seen) < 9:
            changed = stacksl.done("change", "run", "--add-class", "dusk", "--json", "--quiet")
            seen += [COUNTED.sub("-", changed.out), printed(stacksl)]
    return seen


def now_and_then(row: Row) -> str:
    """What is said of rows to train on: some name a class, which is then no news of the audit."""
    return "none: dusk" if int(row["prompt"].split()[-1]) % 2 else truth(row)


def no_label(row: Row) -> str:
    return ("[none]: dusk", "ambiguous")[len(row["prompt"]) % 2]


def test_no_output_depends_on_what_the_audit_says(tmp_path, stacksl: Shell, monkeypatch) -> None:
    monkeypatch.setattr(state, "now", lambda: "now")
    found = {}
    for say in (truth, wrong, no_label):
        folder = tmp_path / "day"  # one name for all, since outputs have paths
        folder.mkdir()
        monkeypatch.chdir(folder)
        found[say] = outputs_of(folder, stacksl, say)
        folder.rename(tmp_path / say.__name__)
    assert len(found[truth]) > 9
    assert found[wrong] == found[truth]
    assert found[no_label] == found[truth]
    first = next(each for each in found[truth] if isinstance(each, list))[:-1]
    codes = [code for code, _, _ in first]
    assert codes.count(0) >= 9, "most commands read something"
    assert "redicted" not in str(found[truth])


def test_an_export_has_the_audit_when_the_run_has_finished(tmp_path: Path, stacksl: Shell) -> None:
    waiting = begin(tmp_path, count=140, audit=5, budget=15, open_questions=40)
    first = {str(row["item"]) for row in bought(waiting, purpose="audit")}

    def exported(sealed: set[str]) -> set[str]:
        table = tmp_path / "labels.jsonl"
        told = stacksl.told("export", waiting.path, "--labels", table)
        assert told["left_out"] == sum(row["item"] in sealed for row in bought(waiting))
        lines = table.read_text(encoding="utf-8").splitlines()
        return {json.loads(line)["item"] for line in lines}

    keys = {row.item: row.key for row in handed_rows(waiting)}
    last = min(first)
    waiting.answer(fill(sheets(waiting)[0], keys=[key for i, key in keys.items() if i != last]))
    assert exported(first) == keys.keys() - first
    play(waiting)
    assert exported(set()) > first
    waiting.change(budget=95, items=write_pool(tmp_path, 20, seed=1, first=600))
    answer_all(waiting)
    second = {str(row["item"]) for row in bought(waiting, purpose="audit")} - first
    assert len(second) == 20
    assert any(row["state"] == "answered" for row in bought(waiting) if row["item"] in second)
    shown = exported(second)
    assert shown > first, "what was shown stays shown"
    assert not shown & second
    audit = Run(waiting.path).status()["audit"]
    assert (audit["n"], audit["number"]) == (5, 1)


def no_class(row: Row) -> str:
    return "none"


def named_class(row: Row) -> str:
    return "none: dusk"


@pytest.mark.parametrize("say", [truth, no_class, named_class])
@pytest.mark.parametrize(
    ("budget", "batch"), [(17, 17), pytest.param(35, 9, marks=pytest.mark.slow)]
)
def test_one_answer_does_not_show_whether_its_row_is_of_the_audit(
    tmp_path: Path, stacksl: Shell, monkeypatch: pytest.MonkeyPatch, budget, batch, say
) -> None:
    monkeypatch.setattr(state, "now", lambda: "now")
    found: dict[str, list[object]] = {}
    for purpose in ("audit", "train"):
        folder = tmp_path / "day"
        folder.mkdir()
        monkeypatch.chdir(folder)
        wanted = {"audit": 5, "budget": budget, "open_questions": batch, "annotators": "anna,ben"}
        begin(folder, out="run", count=50, **wanted)
        waiting = Run.open("run")
        of = {str(row["item"]): row["purpose"] for row in bought(waiting)}
        row = next(
            r for r in handed_rows(waiting) if of[r.item] == purpose and r.annotator == "ben"
        )
        sheet = next(path for path in sheets(waiting) if "ben" in path.name)
        found[purpose] = one_answer(stacksl, fill(sheet, say, keys=[row.key]))
        folder.rename(tmp_path / purpose)
    for after_audit, after_train in zip(found["audit"], found["train"], strict=True):
        assert after_audit == after_train


def one_answer(stacksl: Shell, sheet: Path) -> list[object]:
    """What commands and Python objects show after the only answer on a sheet.

    Not here: what lists or counts rows of the ledger one by one.
    """
    waiting = Run.open("run")
    said = stacksl.done("answer", "run", sheet)
    again = stacksl("answer", "run", sheet, "--json")
    of_python = [waiting.status(), waiting.annotators(), waiting.corrections()]
    offered = waiting.change(classes="dusk", dry_run=True)
    of_python += [replace(offered, again=("",) * len(offered.again)), waiting.labels().left_out]
    commands = [words for words in READING if not words.startswith("ledger")]
    commands += ["export run --table own.csv", "export run --labels labels.csv"]
    seen = [stacksl(*words.split()) for words in commands]
    assert ": answered 1, " in seen[0].out
    asked_again = stacksl("change", "run", "--add-class", "dusk", "--reopen", "--json")
    waiting.change(budget=40, later=True)
    seen += [asked_again, stacksl("change", "run", "--reopen", "--json"), waiting.status()]
    return [said.out, said.err, again.out, again.err, *of_python, *seen]
