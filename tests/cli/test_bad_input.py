"""Bad input, as a user would give it: one sentence, code 2, no traceback, nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from stacksl.api import prepare
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

GOOD = "text,topic\n" + "".join(f"word{n} and {n % 5},{'ab'[n % 2]}\n" for n in range(40))


def refused(said, *hints: str) -> None:
    """What every refusal looks like."""
    assert said.code == 2, said
    assert said.out == ""
    last = said.err.splitlines()[-1]
    assert last.startswith("stacksl: ")
    assert "Traceback" not in said.err
    for hint in hints:
        assert hint in last, last


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with one good file; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(GOOD, encoding="utf-8")
    return tmp_path


def files(home: Path) -> dict[str, bytes]:
    row = {"id": "a", "prompt": "p", "candidates": ["x", "y"], "answer": 0}
    native = "".join(json.dumps({**row, "id": str(n)}) + "\n" for n in range(40))
    single = json.dumps({**row, "candidates": ["x"]}) + "\n"
    return {
        "empty.csv": b"",
        "blank.jsonl": b"\n\n",
        "binary.csv": bytes(range(256)) * 20,
        "truncated.jsonl.gz": gzip.compress(native.encode())[:60],
        "truncated.parquet": b"PAR1" + b"\x00" * 40,
        "single.jsonl": (single * 3).encode(),
        "nothing.jsonl": b'{"id": 1}\n{"id": 2}\n{"id": 3}\n',
        "half.jsonl": native.encode()[:-20] + b'{"id": \n' * 9,
        "header.csv": b"text,topic\n",
        "labels.json": b"[1, 2",
    }


RUN = ("blank.jsonl", "nothing.jsonl", "half.jsonl", "header.csv", "labels.json")
"""Files that `run` refuses; others are in `tests/e2e/test_bad_input.py`."""


@pytest.mark.parametrize("name", RUN)
def test_a_file_that_no_run_can_be_of(stacksl, home, name: str) -> None:
    (home / name).write_bytes(files(home)[name])
    refused(stacksl("run", name))
    assert not (home / "runs").exists()


@pytest.mark.parametrize("name", sorted(files(Path())))
def test_a_file_that_cannot_be_checked(stacksl, home, name: str) -> None:
    (home / name).write_bytes(files(home)[name])
    said = stacksl("run", name, "--dry-run")
    assert said.code == 2, said
    assert "Traceback" not in said.err
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["good.csv", "--format", "cvs"], "csv"),
        (["good.csv", "--max-candidates", "1"], "max_candidates"),
        (["good.csv", "--budget", "nan"], "budget"),
        (["good.csv", "--budget", "$1", "--price", "2"], "no label"),
        (["good.csv", "--budget", "$x", "--price", "2"], "budget"),
        (["good.csv", "--price", "cheap"], "price"),
        (["good.csv", "--price=-1"], "price"),
        (["good.csv", "--aim", "modle"], "model"),
        (["good.csv", "--mode", "lake"], "stream"),
        (["good.csv", "--set", "order=any"], "shuffled"),
        (["good.csv", "--seed=-1"], "seed"),
        (["good.csv", "--preset", "papr"], "did you mean 'paper'"),
        (["good.csv", "--set", "rigde=1"], "did you mean 'ridge'"),
        (["good.csv", "--set", "kl_weight=0.1"], "sgd"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(  # more: tests/e2e
    stacksl, home, words, hint
) -> None:
    refused(stacksl("run", *words, "--quiet"), hint)
    assert sorted(path.name for path in home.iterdir()) == ["good.csv"]


def test_an_oracle_needs_every_answer(stacksl, home) -> None:
    (home / "some.csv").write_text(GOOD + "word and,\nword or,\n", encoding="utf-8")
    refused(stacksl("run", "some.csv", "--quiet"), "2")
    assert not (home / "runs").exists()


def test_a_folder_is_never_two_runs_and_never_a_file(stacksl, home) -> None:
    assert stacksl("run", "good.csv", "--out", "one", "--quiet").code == 0
    before = (home / "one" / "run.db").read_bytes()
    refused(stacksl("run", "good.csv", "--out", "one", "--quiet"), "another run")
    assert (home / "one" / "run.db").read_bytes() == before
    refused(stacksl("run", "good.csv", "--out", "good.csv", "--quiet"), "good.csv")
    (home / "mine").mkdir()
    (home / "mine" / "thesis.txt").write_text("years of work")
    refused(stacksl("run", "good.csv", "--out", "mine", "--quiet"), "not empty and is no run")
    assert [path.name for path in (home / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_may_not_be_written(stacksl, home) -> None:
    (home / "locked").mkdir(mode=0o500)
    refused(stacksl("run", "good.csv", "--out", "locked/run", "--quiet"), "locked")


def test_a_run_that_somebody_holds_says_who(stacksl, home) -> None:
    assert stacksl("run", "good.csv", "--out", "one", "--quiet").code == 0
    folder = RunFolder(home / "one")
    folder.write_state("stopped")
    with folder.locked():
        refused(stacksl("resume", "one", "--quiet", "--wait", "0"), str(os.getpid()))


def test_evaluation_needs_answers(stacksl, home) -> None:
    assert stacksl("run", "good.csv", "--out", "one", "--quiet").code == 0
    (home / "bare.csv").write_text("text\nhello there\n", encoding="utf-8")
    refused(stacksl("evaluate", "one", "bare.csv", "--quiet"), "answer")
    assert stacksl("predict", "one", "bare.csv", "--quiet").code == 0


def test_a_file_with_other_columns_says_which_file_and_which_flag(stacksl, home) -> None:
    (home / "other.csv").write_text(GOOD.replace("text,topic", "said,about"), encoding="utf-8")
    hints = "no column 'text'", "the file has said, about", "--prompt-column"
    refused(stacksl("run", "good.csv", "--test", "other.csv", "--quiet"), "other.csv", *hints)
    assert stacksl("run", "good.csv", "--out", "one", "--quiet").code == 0
    refused(stacksl("evaluate", "one", "other.csv", "--quiet"), *hints)
    flags = "--prompt-column", "said", "--label-column", "about"
    assert stacksl("evaluate", "one", "other.csv", *flags, "--quiet").code == 0


def test_a_file_in_another_encoding_says_what_to_do(stacksl, home) -> None:
    latin = GOOD.replace("word", "Wörter ").encode("latin-1")
    (home / "latin.csv").write_bytes(latin)
    refused(stacksl("run", "latin.csv", "--quiet"), "not UTF-8; save the file as UTF-8")


def test_plans_made_at_once_play_in_folders_of_their_own(home) -> None:
    plans = [prepare("good.csv", settings={"budget": 4}) for _ in range(2)]
    assert plans[0].out == plans[1].out
    assert not plans[0].out.exists(), "a plan writes nothing"
    assert plans[0].start().path != plans[1].start().path


def test_one_item_is_not_one_items(stacksl, home) -> None:
    (home / "few.csv").write_text("text,label\na b,x\nc d,y\n", encoding="utf-8")
    assert "'x' (1 item)" in stacksl("run", "few.csv", "--budget", "all", "--dry-run").out


def test_a_long_prompt_only_warns(stacksl, home) -> None:
    (home / "long.csv").write_text(GOOD + "word " * 200_000 + ",a\n", encoding="utf-8")
    said = stacksl("run", "long.csv", "--quiet")
    assert said.code == 0
    assert "warning: " in said.err


def test_strict_stops_at_one_row_that_is_otherwise_set_aside(stacksl, home) -> None:
    (home / "one.csv").write_text(GOOD + ",a\n", encoding="utf-8")
    refused(stacksl("run", "one.csv", "--strict", "--quiet"), "41")
    assert stacksl("run", "one.csv", "--out", "here", "--quiet").code == 0
    kept = RunSpec.open(RunFolder.open(home / "here")).sources.pool.rejected
    assert [each.row for each in kept] == [41]
    told = json.loads((home / "here" / "facts.json").read_text(encoding="utf-8"))["data"]
    assert (told["items"], told["rejected_total"]) == (40, 1)


@pytest.mark.parametrize(
    "change",
    [
        "update events set time = time + 1 where seq = 7",
        "delete from events where seq = 7",
        "delete from events where seq = (select max(seq) from events)",
    ],
    ids=["edited", "a row gone", "the tail cut"],
)
def test_a_ledger_that_was_tampered_with_is_found(stacksl, home, change: str) -> None:
    import sqlite3
    from contextlib import closing

    assert stacksl("run", "good.csv", "--out", "one", "--quiet").code == 0
    assert stacksl("ledger", "verify", "one").code == 0
    with closing(sqlite3.connect(home / "one" / "run.db")) as database:
        assert database.execute(change).rowcount == 1
        database.commit()
    refused(stacksl("ledger", "verify", "one"))


def test_an_example_of_a_class_that_is_an_item(stacksl, home) -> None:
    (home / "classes.csv").write_text("name,examples\na,Word0  and 0\nb,\n", encoding="utf-8")
    hint = "1 items of the data have the text of one"
    refused(stacksl("run", "good.csv", "--classes", "classes.csv", "--quiet"), hint)
    said = stacksl("run", "good.csv", "--classes", "classes.csv", "--dry-run")
    assert said.code == 2
    assert hint in said.err
    assert not (home / "runs").exists()
