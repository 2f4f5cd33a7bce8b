"""Runs that were given more files, or fewer items, keep going on."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from stacksl import Run, run
from stacksl.runs.changes.forgetting import forget

WORDS = {"bread": "oven flour yeast", "sea": "tide anchor sail", "night": "moon lamp owl"}


def table(path: Path, start: int, rows: int) -> Path:
    """`rows` sentences of three topics in turn, their ids from `start`."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "topic"])
        for n in range(start, start + rows):
            topic = list(WORDS)[n % 3]
            writer.writerow([f"q{n}", f"{WORDS[topic].split()[n // 3 % 3]} {n}", topic])
    return path


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_an_item_of_a_later_file_is_forgotten_and_the_run_goes_on(tmp_path, mode) -> None:
    data, more = table(tmp_path / "a.csv", 0, 30), table(tmp_path / "b.csv", 100, 30)
    done = run(data, budget=6, mode=mode, out=tmp_path / "run")
    done.change(items=more, later=True)
    done.change(budget=12, later=True)
    done.resume()
    assert done.status()["asked"] == 12
    forget(done.path, "q110")
    done.change(items=table(tmp_path / "c.csv", 200, 12), later=True)
    done.change(budget=14, later=True)
    Run.open(done.path).resume()
    assert done.status()["state"] == "finished"
    assert done.status()["asked"] in (13, 14), "a stream may leave the forgotten item's label"
    with done.ledger as ledger:
        ledger.verify()


def test_labels_that_are_held_need_no_answer_of_the_oracle(tmp_path: Path) -> None:
    data, owned = table(tmp_path / "a.csv", 0, 30), table(tmp_path / "o.csv", 200, 9)
    done = run(data, budget=6, owned=str(owned), out=tmp_path / "run")
    assert (done.status()["asked"], done.status()["state"]) == (6, "finished")
    later = table(tmp_path / "p.csv", 300, 6)
    done.change(owned=later, later=True)
    done.resume()
    assert done.status()["state"] == "finished"
    with done.ledger as ledger:
        purposes = [row["purpose"] for row in ledger.export()]
    assert (purposes.count("owned"), purposes.count("train")) == (15, 6)
    assert done.replay()["labels"] == 21
