"""Bought labels in the formats of other programs: who, when, price, and nothing private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.api.exporting import write_labels, write_pairs
from stacksl.data import read
from stacksl.errors import SettingsError
from stacksl.ledger.ledger import Ledger

from .people_cases import begin, bought, fill, play, sheets, truth, wrong


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return pytest.importorskip("datasets", reason="the extra 'hub' is not installed")


def people(folder: Path, **more: Any) -> Run:
    wanted = {
        "annotators": "anna,ben",
        "price": "anna=0.5,ben=0.2",
        "audit": 5,
        "sheets.overlap": 3,
    }
    return begin(folder, **{**wanted, **more})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of two people, which no test changes."""
    return play(people(tmp_path_factory.mktemp("people")))


def contents(path: Path) -> bytes:
    """Every byte of a file, or of all files of a folder, with their names."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return b"".join(p.name.encode() + p.read_bytes() for p in files)


def test_who_when_and_price_are_in_every_format(done: Run, tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a.jsonl"):
        assert write_labels(done, tmp_path / name) == 0
        assert b"anna" not in contents(tmp_path / name)
        assert str(tmp_path).encode() not in contents(tmp_path / name)
    table = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {row["labeler"] for row in table} == {"annotator 1", "annotator 2"}
    assert {(r["labeler"], r["price"]) for r in table} == {
        ("annotator 1", 0.5),
        ("annotator 2", 0.2),
    }
    kept = ("label", "labeler", "time", "price", "purpose")
    wanted = sorted([tuple(row[k] for k in kept) for row in table])
    answers = json.loads((tmp_path / "a.json").read_text())
    assert sorted([tuple(each[k] for k in kept) for each in answers]) == wanted
    assert write_labels(done, tmp_path / "named.jsonl", names=True) == 0
    assert b'"anna"' in contents(tmp_path / "named.jsonl")


def test_the_audit_is_sealed_until_the_end(tmp_path: Path) -> None:
    """The same run with an audit answered rightly or wrongly gives the same train answers."""
    seen = []
    for say in (truth, wrong):
        folder = tmp_path / say.__name__
        folder.mkdir()
        waiting = people(folder, open_questions=12)
        audit = {str(row["item"]) for row in bought(waiting, purpose="audit")}
        with waiting.ledger as ledger:
            keys = {row.key for row in ledger.private.handed() if row.item in audit}
        waiting.answer(*[fill(fill(path), say, keys=keys) for path in sheets(waiting)])
        assert bought(waiting, purpose="audit", state="answered")
        left_out = write_labels(waiting, folder / "a.json")
        assert left_out == len(bought(waiting, purpose="audit"))
        said = contents(folder / "a.json").decode(errors="replace")
        assert not any(f'"{item}"' in said for item in audit)
        seen.append([(r["item"], r["label"], r["purpose"]) for r in waiting.labels().rows])
    assert seen[0] == seen[1]


def test_an_export_is_read_again_with_the_same_labels(tmp_path: Path) -> None:
    done = play(people(tmp_path, sheets={"overlap": 0}))
    write_labels(done, tmp_path / "a.json")
    wanted = {row["item"]: row["label"] for row in done.labels().rows}
    again = read(tmp_path / "a.json", columns={"id": "item"})
    assert {i: again.classes[k] for i, k in again.answers.items()} == wanted  # type: ignore[index]
    columns = {"id": "item"}
    more = run(tmp_path / "a.json", budget=10, audit=0, out=tmp_path / "more", columns=columns)
    bought_again = {row["item"]: row["label"] for row in more.labels().rows}
    assert bought_again
    assert all(wanted[item] == label for item, label in bought_again.items())


def test_pairs_have_the_chosen_option_and_where_it_is_from(tmp_path: Path, hub: Any) -> None:
    options = ("yes it is", "no", "perhaps")
    items = [Item(f"q{n}", f"question {n}", (*options, f"other {n}")) for n in range(40)]
    answers = {item.id: n % 4 for n, item in enumerate(items)}
    done = run(items, answers, budget=12, audit=4, price="0.5", out=tmp_path / "run")
    taught = {row["item"]: row for row in done.labels().rows if row["purpose"] == "train"}
    assert write_pairs(done, tmp_path / "pairs.jsonl") == 3 * len(taught)
    loaded = hub.load_dataset("json", data_files=str(tmp_path / "pairs.jsonl"), split="train")
    assert loaded.column_names[:3] == ["prompt", "chosen", "rejected"]
    for row in loaded:
        item = items[int(row["item"][1:])]
        assert row["prompt"] == item.prompt
        assert row["chosen"] == item.candidates[answers[item.id]] == taught[item.id]["label"]
        assert row["rejected"] in set(item.candidates) - {row["chosen"]}
        assert (row["labeler"], row["price"]) == ("oracle", 0.5)
        assert row["time"]


def test_answers_that_are_set_aside_make_no_pairs(tmp_path: Path) -> None:
    items = [Item(f"q{n}", f"question {n}", ("yes it is", "no", f"other {n}")) for n in range(20)]
    more: dict[str, Any] = {"labeler": "file", "annotators": "anna,ben", "sheets.format": "csv"}
    waiting = run(
        items, budget=8, audit=0, open_questions=8, mode="pool", out=tmp_path / "run", **more
    )
    with Ledger.open(waiting.path / "run.db") as ledger:
        ledger.stand("set_aside", "ben")
    waiting.answer(*[fill(path, lambda _: "A") for path in sheets(waiting)])
    assert len(bought(waiting, state="answered", labeler="ben")) == 4
    assert write_pairs(waiting, tmp_path / "pairs.jsonl", names=True) == 2 * 4
    assert "ben" not in (tmp_path / "pairs.jsonl").read_text()
    waiting.people(keep="ben")
    assert write_pairs(waiting, tmp_path / "pairs.jsonl") == 2 * 8


def test_classes_make_no_pairs(tmp_path: Path) -> None:
    waiting = people(tmp_path)
    with pytest.raises(SettingsError, match="options of their own"):
        write_pairs(waiting, tmp_path / "pairs.jsonl")
    with pytest.raises(SettingsError, match="ends in one of"):
        write_labels(waiting, tmp_path / "a.doc")
