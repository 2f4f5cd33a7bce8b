"""Bought labels in the formats of other programs: who, when, price, and nothing private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.api.labeling import bought_answers, export_rows
from stacksl.data import read
from stacksl.errors import SettingsError

from ..ledgers import bought, handed_rows
from .people_cases import begin, fill, play, sheets, truth, wrong


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return pytest.importorskip("datasets", reason="the extra 'hub' is not installed")


def people(folder: Path, **more: Any) -> Run:
    wanted = {
        "annotators": "anna,ben",
        "price": "0.5",
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


def write_labels(made: Run, path: Path, *, names: bool = False) -> int:
    return export_rows(made, path, lambda: bought_answers(made, names=names)[1]).left_out


def test_who_when_and_price_are_in_every_format(done: Run, tmp_path: Path) -> None:
    for name in ("a.json", "a.csv", "a.jsonl"):
        assert write_labels(done, tmp_path / name) == 0
        assert b"anna" not in contents(tmp_path / name)
        assert str(tmp_path).encode() not in contents(tmp_path / name)
    table = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {row["labeler"] for row in table} == {"annotator 1", "annotator 2"}
    assert {(r["labeler"], r["price"]) for r in table} == {
        ("annotator 1", 0.5),
        ("annotator 2", 0.5),
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
        keys = {row.key for row in handed_rows(waiting) if row.item in audit}
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


def test_the_end_of_the_name_says_the_format(tmp_path: Path) -> None:
    waiting = people(tmp_path)
    with pytest.raises(SettingsError, match="ends in one of"):
        write_labels(waiting, tmp_path / "a.doc")
