"""The ids of a table, through the life of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run

from ..ledgers import bought
from ..runs.people_cases import read_rows
from ..tables import write_table

WORDS = {"sea": "sand wave shell tide", "wood": "moss fern pine root"}


def rows(count: int, name: str, start: int = 0) -> list[list[Any]]:
    found = []
    for n in range(start, start + count):
        label = list(WORDS)[n % 2]
        words = WORDS[label].split()
        found.append([f"{name}{n:05d}", f"{words[n % 4]} {words[n // 4 % 4]} {n}", label])
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    header = ["ticket_id", "text", "label"]
    write_table(tmp_path / "train.csv", header, rows(60, "T", 1))
    write_table(tmp_path / "numbered.csv", ["nr", *header[1:]], rows(60, "N"))
    write_table(tmp_path / "test.csv", header[1:], [row[1:] for row in rows(12, "", 90)])
    write_table(tmp_path / "owned.csv", header, rows(6, "O", 200))
    write_table(tmp_path / "more.csv", header, rows(6, "M", 300))
    write_table(tmp_path / "bare.csv", header[1:], [row[1:] for row in rows(4, "", 400)])
    return tmp_path


def items(run: str) -> set[str]:
    return {str(row["item"]) for row in bought(Run.open(run))}


def test_ids_of_the_file_name_its_rows_everywhere(stacksl, here: Path) -> None:
    words = ["--budget", "20", "--owned", "owned.csv", "--test", "test.csv", "--out", "r"]
    stacksl.done("run", "train.csv", *words)
    bought = items("r")
    assert {"owned/O00200"} <= bought
    assert all(name.startswith(("T000", "owned/O002")) for name in bought)
    assert stacksl("export", "r", "--labels", "labels.csv").code == 0
    assert {row["item"] for row in read_rows(here / "labels.csv")} == bought
    said = stacksl("predict", "r", "more.csv", "--quiet").out.splitlines()
    assert json.loads(said[0])["id"] == "M00300"
    said = stacksl("predict", "r", "bare.csv", "--quiet").out.splitlines()
    assert json.loads(said[0])["id"] == "row-000001"
    said = stacksl("predict", "r", "numbered.csv", "--id-column", "nr", "--quiet").out.splitlines()
    assert json.loads(said[0])["id"] == "N00000"
    assert stacksl("predict", "r", "bare.csv", "--id-column", "nr").code == 2
    assert stacksl("predict", "r", "more.csv", "--out", "out.csv").code == 0
    assert (here / "out.csv").read_text(encoding="utf-8").splitlines()[1].startswith("M00300,")

    stacksl.done(
        "change", "r", "--items", "more.csv", "--items", "bare.csv", "--budget", "all", "--yes"
    )
    bought = items("r")
    assert {"M00300", "more-2/row-000001"} <= bought

    assert stacksl("forget", "r", "--id", "T00001").code == 0
    lines = (here / "train.csv").read_text(encoding="utf-8").splitlines()
    (here / "train.csv").write_text("\n".join([lines[0], *lines[2:]]), encoding="utf-8")
    for words in (["resume", "r"], ["ledger", "verify", "r"], ["ledger", "replay", "r"]):
        stacksl.done(*words)
    assert "T00001" not in items("r")
