"""`stacksl change` as it is typed: a class more, the price of asking once more, the money first."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from stacksl.runs.storage.folder import RunFolder

from .test_contract import KEYS, write

RUN = "runs/people"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("classes")


@pytest.fixture
def waiting(stacksl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of people that misses a class, its first sheet answered."""
    monkeypatch.chdir(folder)
    if not (folder / RUN).exists():
        lines = write(folder / "labelled.csv", 30).read_text(encoding="utf-8").splitlines()
        texts = "\n".join(line.rsplit(",", 1)[0] for line in lines)
        (folder / "data.csv").write_text(texts + "\n", encoding="utf-8")
        (folder / "two.txt").write_text("bread\nsea\n", encoding="utf-8")
        words = [
            "run",
            "data.csv",
            "--classes",
            "two.txt",
            "--labeler",
            "file",
            "--sheets",
            "csv",
            "--mode",
            "pool",
        ]
        words += ["--budget", "16", "--batch", "9", "--audit", "0", "--price", "0.5", "--no-names"]
        assert stacksl(*words, "--out", RUN, "--yes").code == 0
        assert stacksl("answer", RUN, filled(folder / RUN / "ask" / "0001.csv")).code == 0
    return folder / RUN


def filled(sheet: Path) -> Path:
    """The first two rows name the class, the next two name none, the rest are bread."""
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for n, row in enumerate(rows):
        row["answer"] = "[none]: Night" if n < 2 else "[none]" if n < 4 else "bread"
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return sheet


def test_one_class_more_and_what_it_would_cost_to_ask_again(stacksl, waiting: Path) -> None:
    said = stacksl("change", RUN, "--add-class", "night")
    assert said.code == 0, said.err
    old = Path(RUN, "ask", "0002.csv")
    assert f"tell anna ({old}): these sheets do not list what was added" in said.out
    assert "the run has 3 classes now" in said.out
    assert "2 answers named it and are learnt, for nothing" in said.out
    assert f"buys 2 more labels for $1.00: stacksl change {RUN} --reopen" in said.out
    classes = RunFolder(waiting).classes()
    assert classes is not None
    assert "night" in classes.names


def test_the_contract_of_its_json(stacksl, waiting: Path) -> None:
    said = stacksl("change", RUN, "--add-class", "dawn", "--description", "first light", "--json")
    told = json.loads(said.out)
    assert set(told) == KEYS["status"] - {"forecast", "people"} | KEYS["change"]
    assert (told["classes"], told["mapped"], told["again"], told["reopened"]) == (4, 0, 2, 0)
    old = str(Path(RUN, "ask", "0002.csv"))
    assert told["outdated_sheets"] == [{"annotator": "anna", "file": old}]


def test_asking_once_more_shows_the_price_first(stacksl, waiting: Path) -> None:
    said = stacksl("change", RUN, "--reopen", "--json")
    assert said.code == 2, "the labels of the budget are out: 9 answered, 7 more on a sheet"
    assert "has 0 labels left: raise it as well with --budget" in said.err
    before = RunFolder(waiting).settings()
    said = stacksl("change", RUN, "--reopen", "--budget", "20", "--dry-run", "--json")
    told = json.loads(said.out)
    assert set(told) == KEYS["change"] | {"run", "budget"}
    assert (told["budget"], told["cost"], told["reopened"]) == (20, 2.0, 2)
    assert RunFolder(waiting).settings() == before, "nothing was written"
    said = stacksl("change", RUN, "--reopen", "--budget", "20", "--json")
    assert "4 more labels, 20 in all, for $2.00 more at most" in said.err
    assert "2 more labels for $1.00 at most, within the budget" in said.err
    told = json.loads(said.out)
    assert (told["reopened"], told["again"], told["spent"]) == (2, 0, 18)
    said = stacksl("change", RUN, "--reopen")
    assert said.code == 2
    assert "no item to ask for once more" in said.err


def test_mistakes_are_one_sentence(stacksl, waiting: Path) -> None:
    said = stacksl("change", RUN)
    assert said.code == 2
    assert "expected something to change, got nothing: give --budget" in said.err
    for words in (["--description", "x"], ["--add-class", "x", "--add-class", "x"]):
        said = stacksl("change", RUN, *words)
        assert (said.code, said.err.count("\n")) == (2, 1)
    said = stacksl("change", RUN, "--add-class", "BREAD")
    assert said.code == 2
    assert "there already, as number 1" in said.err
    assert "BREAD" not in said.err.replace("--add-class BREAD", "")
