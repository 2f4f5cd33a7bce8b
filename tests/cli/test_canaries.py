"""Words planted in prompts, candidates and answers: no message, log or status ever shows them."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PROMPT, OPTION, ANSWER = "zyxprompt", "zyxoption", "zyxanswer"
CANARY = "zyx"  # in all of them
CLASSES = (f"{OPTION} bread", f"{OPTION} sea")
WORDS = ("flour dough oven loaf", "wave salt tide ship")


def expect_silence(text: str) -> None:
    """No canary, in whatever case."""
    at = text.lower().find(CANARY)
    assert at < 0, text[max(0, at - 80) : at + 80]


def rows(count: int, start: int = 0) -> list[list[str]]:
    """Prompts and labels of two classes."""
    picked = [(n, n % 2, WORDS[n % 2].split()[n // 2 % 4]) for n in range(start, start + count)]
    return [[f"{word} {PROMPT} {n}", CLASSES[k]] for n, k, word in picked]


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """The rows as CSV."""
    out = io.StringIO(newline="")
    csv.writer(out).writerows([*([header] if header else []), *body])
    return out.getvalue()


def lines(*changes: Mapping[str, Any]) -> str:
    """Native items as JSONL: ten sound ones, then one for each of the `changes`."""

    def item(n: int) -> dict[str, Any]:
        options = [f"{OPTION} {n} {k}" for k in range(3)]
        return {"id": f"i{n}", "prompt": f"{PROMPT} {n}", "candidates": options, "answer": 0}

    made = [item(n) for n in range(10)]
    made += [{**item(10 + n), **change} for n, change in enumerate(changes)]
    return "".join(json.dumps(row) + "\n" for row in made)


GOOD = table(("text", "topic"), rows(60))
FREE = [[f"{PROMPT} {n}", f"{n} {ANSWER}"] for n in range(40)]
TWICE = {"candidates": [f"{OPTION} a", f"{OPTION} b", f"{OPTION} a"]}
DATA = {
    "wrong-answer.jsonl": lines(*[{"answer": f"{ANSWER} x"}] * 3),
    "repeated-id.jsonl": lines(*[{"id": "i1"}] * 3),
    "equal-options.jsonl": lines(*[TWICE] * 3),
    "empty-option.jsonl": lines(*[{"candidates": [OPTION, ""]}] * 3),
    "nested-prompt.jsonl": lines(*[{"prompt": {"said": PROMPT}}] * 3),
    "nul.jsonl": lines(*[{"prompt": f"{PROMPT}\0"}] * 3),
    "bad-json.jsonl": lines() + f'{{"prompt": "{PROMPT}", \n' * 3,
    "bad-options.csv": table(("question", "options"), [[PROMPT, f'["{OPTION}", 1']] * 9),
    "letters.csv": table(
        ("question", "a", "b", "answer"),
        [[f"{PROMPT} {n}", OPTION, f"{OPTION} b", f"{ANSWER}"] for n in range(9)],
    ),
    "one-label.csv": table(("text", "topic"), [[row[0], CLASSES[0]] for row in rows(9)]),
    "several.csv": table(
        ("text", "topic"),
        [[f"{PROMPT} {n}", f"{CLASSES[n % 2]}|{CLASSES[n // 2 % 2]}"] for n in range(40)],
    ),
    "free-labels.csv": table(("text", "topic"), FREE),
    "no-label.csv": table(("text", "note"), FREE),
    "no-header.csv": table((), rows(40)),
    "no-header-three.csv": table((), [[f"{PROMPT} {n}, it says", "b", "c"] for n in range(40)]),
    "no-header-short.csv": table(
        (), [[f"{PROMPT} says a word too many {n}", OPTION, f"{ANSWER}{n}"] for n in range(40)]
    ),
    "no-header-words.csv": table(
        (), [[f"{PROMPT} {n}", "yes", OPTION + str(n)] for n in range(40)]
    ),
    "no-header-sick.csv": table((), [[f"{PROMPT} {n % 9}", f"{OPTION}", "x"] for n in range(40)]),
    "fields.csv": GOOD + "".join(f"{PROMPT},{OPTION},{ANSWER}\n" for _ in range(9)),
    "quote.csv": GOOD + f'"{PROMPT},{OPTION}\n',
}


@pytest.fixture
def searched(
    stacksl: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Callable[..., Any]:
    """A command whose stderr and log are searched already; the working directory is empty."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)

    def type_(*words: str | Path) -> Any:
        result = stacksl(*words)
        expect_silence(result.err)
        expect_silence(caplog.text)
        return result

    return type_


@pytest.mark.parametrize("name", sorted(DATA))
def test_a_file_that_cannot_be_used(searched, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(DATA[name], encoding="utf-8")
    for words in (["run", name], ["run", name, "--dry-run"]):
        result = searched(*words)
        assert result.code == 2, (words, result)
        assert "stacksl: " in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("change", [{"answer": ANSWER}, TWICE, {"id": "i1"}])
def test_a_row_is_named_by_its_number_and_its_fault(searched, tmp_path: Path, change) -> None:
    (tmp_path / "data.jsonl").write_text(lines(*[change] * 3), encoding="utf-8")
    assert "row 11" in searched("run", "data.jsonl").err
    listed = searched("run", "data.jsonl", "--dry-run").out
    expect_silence(listed)
    assert all(f"row {n}" in listed for n in (11, 12, 13))


def test_a_run_from_its_start_to_its_end(searched, tmp_path: Path) -> None:
    odd = [*rows(60), [f"{PROMPT} odd", CLASSES[0].upper()], [f"{PROMPT} odd", CLASSES[0].upper()]]
    (tmp_path / "data.csv").write_text(table(("text", "topic"), odd), encoding="utf-8")
    (tmp_path / "test.csv").write_text(table(("text", "topic"), rows(9, 90)), encoding="utf-8")
    strange = [[f"{PROMPT} {n}", f"{ANSWER} {n % 2}"] for n in range(9)]
    (tmp_path / "strange.csv").write_text(table(("text", "topic"), strange), encoding="utf-8")
    (tmp_path / "own.jsonl").write_text(lines(), encoding="utf-8")
    words = ["run", "data.csv", "--budget", "10", "--out"]
    assert "but none of them is one" in searched(*words, "s", "--test", "strange.csv").err
    made = searched(*words, "r", "--test", "test.csv")
    assert made.code == 0, made
    assert "2 classes differ only in case" in made.err
    expect_silence(made.out)
    for asked in (
        ["status", "r"],
        ["status", "r", "--json"],
        ["status", "r", "--settings"],
        ["status", "r", "--settings", "--json"],
        ["status", "r", "--settings", "--toml"],
        ["ledger", "verify", "r"],
        ["ledger", "verify", "r", "--json"],
        ["ls", "--folder", "."],
        ["report", "r"],
        ["evaluate", "r", "test.csv", "--json"],
        ["evaluate", "r", "strange.csv"],
        ["resume", "r"],
        ["run", "data.csv", "--out", "r"],
    ):
        expect_silence(searched(*asked).out)
    searched("predict", "r", "own.jsonl")
    searched("evaluate", "r", "own.jsonl")
    report = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert OPTION in report
    assert PROMPT not in report
    with closing(sqlite3.connect(tmp_path / "r" / "run.db")) as database:
        settings = "settings WHERE name != 'class_list'"
        for table_ in ("state", settings, "terms", "events"):
            expect_silence(repr(database.execute(f"SELECT * FROM {table_}").fetchall()))


def test_an_item_is_forgotten_without_a_word_of_it(searched, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(GOOD, encoding="utf-8")
    assert searched("run", "data.csv", "--budget", "10", "--out", "r").code == 0
    assert searched("forget", "r", "--id", "row-000099").code == 2
    told = searched("forget", "r", "--id", "row-000003")
    assert (told.code, told.err) == (0, "")
    expect_silence(told.out)
    assert "its row in your data is yours to delete" in told.out
    assert "`stacksl resume` makes them again without it once all answers are there" in told.out
    as_json = json.loads(searched("forget", "r", "--id", "row-000004", "--json").out)
    told_of = {"run", "name", "learned", "remains"}
    assert told_of == set(as_json)
    assert re.search(r"Labels +10 of 10 bought\n", searched("status", "r").out)
    for asked in (
        ["status", "r", "--json"],
        ["resume", "r"],
        ["ledger", "replay", "r"],
        ["ledger", "verify", "r"],
    ):
        done = searched(*asked)
        assert done.code == 0, done
        expect_silence(done.out)


def test_a_fault_that_quotes_the_data(searched, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "data.csv").write_text(GOOD, encoding="utf-8")

    def fail(*_: object, **__: object) -> None:
        raise ValueError(f"no such word: {PROMPT}")

    monkeypatch.setattr("stacksl.runs.session.session.finish", fail)
    made = searched("run", "data.csv", "--out", "r")
    assert made.code == 1
    assert "unexpected ValueError in test_canaries.py, line " in made.err
    status = searched("status", "r", "--json").out
    expect_silence(status)
    assert "unexpected ValueError in test_canaries.py, line " in status


def test_a_class_name_commands_no_terminal(searched, tmp_path: Path) -> None:
    body = [[f"word {n}", f"\x1b]0;gone\x07a\u202e{n % 2}"] for n in range(20)]
    (tmp_path / "data.csv").write_text(table(("text", "topic"), body), encoding="utf-8")
    shown = searched("run", "data.csv", "--dry-run").out
    assert "\\x1b]0;gone\\x07a\\u202e0" in shown
    assert "\x1b" not in shown
