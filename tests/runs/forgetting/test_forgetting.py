"""Items that are forgotten: what is left of them, and how a run goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from openpyxl import Workbook, load_workbook

from stacksl.api import Run, run
from stacksl.core.blocks import PairBlock
from stacksl.errors import FeatureError, LedgerError, RunError, RunLocked
from stacksl.features.cache import VectorCache, erase_keys, text_key
from stacksl.features.store import erase, load_block, save_block
from stacksl.labelers.sheets.erasing import erase_rows
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import SheetRow
from stacksl.labelers.sheets.writing import write_sheet
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.database import Store
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.storage import folder as storage

from ...ledgers import bought, open_leases, rows_of
from ..conftest import Finished, class_items
from ..people_cases import read_rows, write_rows
from .forgetting_cases import (
    ID,
    NOTE,
    PROMPT,
    RIGHT,
    asked_by_people,
    drop,
    fill,
    holding,
    learned_of,
    oracle_of,
    stopping,
    verify,
    write_items,
)


def test_a_sheet_keeps_every_other_byte(tmp_path: Path) -> None:
    rows = ["key;prompt;answer\r\n", 'a2a2-a;"two\nlines; ümläut";b\r\n', "K7F3-Q;zyx\u2028y;a\r\n"]
    rows += ['c3c3-c;"he said ""x""";\r\n']
    ask = tmp_path / "ask"
    ask.mkdir()
    for name, encoding in (("w.csv", "cp1252"), ("u.csv", "utf-8-sig"), ("x.csv", "utf-16")):
        text = "".join(rows) if encoding != "cp1252" else "".join(rows).replace("\u2028", "")
        (ask / name).write_bytes(text.encode(encoding))
    (ask / "README.txt").write_text("how to answer")
    os.chmod(ask / "u.csv", 0o640)
    assert erase_rows(ask, ["k7f3-q"]) == []
    for name, encoding in (("w.csv", "cp1252"), ("u.csv", "utf-8-sig"), ("x.csv", "utf-16")):
        assert (ask / name).read_bytes().decode(encoding) == rows[0] + rows[1] + rows[3]
    assert (ask / "u.csv").stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in ask.iterdir()) == ["README.txt", "u.csv", "w.csv", "x.csv"]
    times = [path.stat().st_mtime_ns for path in ask.iterdir()]
    assert erase_rows(ask, ["k7f3-q"]) == []
    assert [path.stat().st_mtime_ns for path in ask.iterdir()] == times


def test_a_workbook_loses_the_row_its_choices_and_its_shared_texts(tmp_path: Path) -> None:
    own, shared = ("the zyx choice", "another"), ("yes", "no")
    rows = [SheetRow("k7f3-q", "zyx, all of it", own)]
    rows += [SheetRow(key, f"prompt {key}", shared) for key in ("a2a2-a", "c3c3-c")]
    path = tmp_path / "0001-anna.xlsx"
    write_sheet(path, rows, mode=0o640)
    assert erase_rows(tmp_path, ["k7f3-q"]) == []
    assert path.stat().st_mode & 0o777 == 0o640
    with ZipFile(path) as archive:
        assert not any(b"zyx" in archive.read(name) for name in archive.namelist())
    known = {row.key: row for row in rows}
    assert read_sheet(path, known).empty == 2
    left = load_workbook(path)["Questions"].data_validations.dataValidation
    assert [str(each.sqref) for each in left] == ["A2:A4", "D3 D4"]
    before = path.read_bytes()
    assert erase_rows(tmp_path, ["k7f3-q"]) == []
    assert path.read_bytes() == before


def test_a_sheet_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "0001.xlsx").write_bytes(b"PK\x03\x04\xff\xfe\x00")
    (tmp_path / "0002.csv").write_text("key,prompt,answer\nk7f3-q,zyx,a\na2a2-a,another,b\n")
    torn = 'key,prompt,answer\na2a2-a,"another,b\nk7f3-q,zyx,a\n'
    (tmp_path / "0003.csv").write_text(torn)
    (tmp_path / "0004.csv").write_text(torn + "x" * 200_000)
    assert erase_rows(tmp_path, ["k7f3-q"]) == ["0001.xlsx", "0003.csv", "0004.csv"]
    assert (tmp_path / "0003.csv").read_text() == torn
    assert (tmp_path / "0002.csv").read_text() == "key,prompt,answer\na2a2-a,another,b\n"
    assert erase_rows(tmp_path / "none", ["k7f3-q"]) == []


def test_the_rows_of_an_item_are_zero_and_the_others_stand(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    offsets = np.array([0, 2, 5, 7])
    phi = rng.normal(size=(7, 3)).astype(np.float32) / 9
    save_block(tmp_path, PairBlock(phi, offsets, rng.normal(size=7)), "map", ["a", "b", "c"])
    before = (tmp_path / "base.npy").read_bytes()
    erase(tmp_path, 1, ["a", "gone", "c"])
    erase(tmp_path, 1, ["a", "gone", "c"])  # again, as after a crash
    block = load_block(tmp_path, "map", ["a", "gone", "c"])
    assert not block.phi[2:5].any()
    assert np.array_equal(np.delete(block.phi, slice(2, 5), axis=0), np.delete(phi, slice(2, 5), 0))
    assert not block.base[2:5].any()
    assert (tmp_path / "base.npy").read_bytes() != before
    with pytest.raises(FeatureError, match="in the same order"):
        load_block(tmp_path, "map", ["a", "b", "c"])


def test_no_byte_of_a_text_stays_in_the_cache(cache: Path) -> None:
    vectors = {f"text {n}": np.full(8, n, np.float32) for n in range(400)}
    for identity in ("one", "two"):
        store = VectorCache(identity)
        store.put([(text_key(text), (vector, False)) for text, vector in vectors.items()])
    key = text_key("text 7")
    files = [cache / "stacksl" / "vectors-1" / f"{name}.sqlite" for name in ("one", "two")]
    assert all(key in file.read_bytes() for file in files)
    assert erase_keys([key, text_key("never seen")]) == 2
    for file in files:
        assert key not in file.read_bytes()
        assert vectors["text 7"].tobytes() not in file.read_bytes()
    assert len(VectorCache("one").get([text_key(text) for text in vectors])) == 399
    files[0].write_bytes(b"no database at all" * 100)
    with pytest.raises(FeatureError, match="delete that file"):
        erase_keys([text_key("text 8")])


def test_nothing_is_left_of_an_item_that_people_answered(tmp_path: Path, cache: Path) -> None:
    data, made = asked_by_people(tmp_path, until="finished")
    path = made.path
    made.report()
    rounds = made.status()["rounds"]
    keep = (path / "ask" / "0001-ben.csv").read_bytes()
    before = holding(path)
    assert {"run.db", "0001-anna.csv", "0001-ben.csv"} <= before
    with Ledger.open(path / "run.db", readonly=True) as ledger:
        texts = [answer for answer in ledger.texts() if answer.item == ID]
    assert {(RIGHT, NOTE), (None, NOTE)} == {(a.text, a.note) for a in texts}

    told = forget(path, ID)
    assert holding(path, cache) == set()
    assert told.learned
    assert any("learned its label" in sentence for sentence in told.remains)
    rows = [row for row in keep.split(b"\r\n") if PROMPT.encode() not in row]
    assert (path / "ask" / "0001-ben.csv").read_bytes() == b"\r\n".join(rows)
    for state in ("the row still there", "the row deleted"):
        verify(made.path)
        again = made.replay()
        assert again["rounds"] == rounds, state
        assert made.resume().status()["state"] == "finished"
        assert holding(path, cache) == set(), state
        assert len([*made.predict(data)]) in (23, 24)
        if "still" in state:
            drop(data)


def test_a_run_that_waits_goes_on_without_the_item(tmp_path: Path) -> None:
    data, made = asked_by_people(tmp_path, until="waiting")
    kept = {path: path.read_bytes() for path in sorted((made.path / "ask").glob("0*.csv"))}
    spent = made.status()["asked"]
    leases = [each for each in open_leases(made) if each.item == ID]
    told = forget(made.path, ID)
    drop(data)
    assert not told.learned
    assert holding(made.path) == set()
    assert any("copies of sheets" in sentence for sentence in told.remains)
    status = made.status()
    assert status["asked"] == spent - len(leases) == spent - 2
    assert sum(sheet["open"] for sheet in status["sheets"]) == status["out"]
    for path, before in kept.items():
        rows = [row for row in before.split(b"\r\n") if PROMPT.encode() not in row]
        assert path.read_bytes() == b"\r\n".join(rows)
    made.resume()
    assert holding(made.path) == set()
    while made.status()["state"] == "waiting":
        made.answer(*map(fill, sorted((made.path / "ask").glob("0*.csv"))))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    assert json.loads((made.path / "facts.json").read_text())["budget"]["answered"] > 0
    verify(made.path)


@pytest.mark.parametrize("copy", [None, "{} (1).csv", "{} copy.CSV", "mine.tsv", "{} (1).xlsx"])
def test_an_answer_in_a_sheet_is_entered_before_its_row_is_taken_out(
    tmp_path: Path, copy: str | None
) -> None:
    _, made = asked_by_people(tmp_path, until="waiting")
    sheets = sorted((made.path / "ask").glob("0*.csv"))
    first = next(sheet for sheet in sheets if PROMPT.encode() in sheet.read_bytes())
    filled = fill(first)
    first = first if copy is None else first.with_name(copy.format(first.stem))
    if first.suffix == ".xlsx":
        book, rows = Workbook(), read_rows(filled)
        for cells in ([*rows[0]], *([*row.values()] for row in rows)):
            book.worksheets[0].append(cells)
        book.save(first)
    else:
        first.write_bytes(filled.read_bytes())
    held = holding(made.path)

    def uses(item: str = ID) -> Counter[object]:
        return Counter(each["state"] for each in bought(made) if each["item"] == item)

    call = f"`stacksl answer {made.path} {shlex.quote(str(first))}` first, or empty"
    with pytest.raises(RunError, match=re.escape(call)):
        forget(made.path, ID)
    assert holding(made.path) == held, "nothing was erased"
    made.answer(first)
    assert uses() == {"answered": 1, "open": 1}
    name = forget(made.path, ID).name
    assert holding(made.path) == set()
    assert uses(name) == {"answered": 1, "released": 1}, "who answered is paid all the same"


def stopped(folder: Path, kind: str, after: int, **settings: Any) -> tuple[Path, Run]:
    """A stream that was stopped after so many labels, without saved arrays, and its data."""
    data = write_items(folder / "data.jsonl", 60, None)
    if kind == "classes":
        items, answers = class_items(60)
        rows = [{"text": i.prompt, "label": i.candidates[answers[i.id]]} for i in items]
        data = write_rows(folder / "data.csv", rows)
    spec = {"budget": 24, "audit": 0, "mode": "stream", "checkpoint_every": 1000, **settings}
    with pytest.raises(KeyboardInterrupt):
        run(data, out=folder / "r", labeler=stopping(oracle_of(data), after), **spec)
    return data, Run(folder / "r")


@pytest.mark.parametrize("kind", [pytest.param("pairs", marks=pytest.mark.slow), "classes"])
def test_a_stream_goes_on_and_is_replayed_from_there(tmp_path: Path, kind: str) -> None:
    data, made = stopped(tmp_path, kind, after=9)
    learned = learned_of(made)
    item = list(learned)[4]
    told = forget(made.path, item)
    assert told.learned
    answers = oracle_of(data)
    data.unlink()
    with pytest.raises(KeyboardInterrupt):
        made.resume(labeler=stopping(answers, 9))
    again = made.replay()
    with made.ledger as ledger:
        later = [row for row in ledger.rows(again["after"]) if row.event == "round"]
    assert 0 < len(later) < 60
    assert again["rows"] >= len(later)
    made.resume(labeler=stopping(answers, None))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    verify(made.path)
    assert item not in learned_of(made)


@pytest.mark.parametrize("gate", ["margin", pytest.param("llf", marks=pytest.mark.slow)])
def test_the_learner_is_what_it_was_when_the_item_was_forgotten(tmp_path: Path, gate: str) -> None:
    """The one that goes on after it is that of a run that was resumed without forgetting.

    The scale of the gate `llf` was calibrated on the first items, this one among them.
    """
    data, made = stopped(tmp_path, "pairs", after=9, gate=gate)
    other = Run(shutil.copytree(made.path, tmp_path / "other"))
    rounds = rows_of(made, "round")
    seen = [row.item for row in rounds if gate == "llf" or not row.decision().asked]
    forget(made.path, str(seen[0]))
    for each in (made, other):
        each.resume(labeler=stopping(oracle_of(data), None))
    arrays = [each.folder.model / "online.safetensors" for each in (made, other)]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()
    assert [*learned_of(made).values()][-9:] == [*learned_of(other).values()][-9:]
    assert made.replay()["after"] > other.replay()["after"] == 0


def test_what_is_refused(
    pairs: Finished, spoil: Callable[[Finished], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, item = spoil(pairs), pairs.items[5]
    with pytest.raises(RunError, match="knows no item 'p999'"):
        forget(made.path, "p999")
    monkeypatch.setattr(storage, "WAIT", 0.0)
    with made.folder.locked(), pytest.raises(RunLocked, match="is held by"):
        forget(made.path, item.id)
    name = forget(made.path, item.id).name
    for gone in (item.id, name):
        with pytest.raises(RunError, match="knows no item"):
            forget(made.path, gone)
    (made.path / "run.db").unlink()
    with pytest.raises(RunError, match=r"has no run\.db.*from a copy"):
        forget(made.path, item.id)


def test_a_reader_in_the_way_leaves_the_mark_alone(
    pairs: Finished, spoil: Callable[[Finished], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, item = spoil(pairs), pairs.items[5]

    def busy(self: Store) -> None:
        raise LedgerError("the ledger is read by another process")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "wipe", busy)
        for command in (lambda: forget(made.path, item.id), lambda: Run.open(made.path)):
            with pytest.raises(LedgerError, match="read by another process"):
                command()
            assert made.folder.erasing(), "what is left are bytes in the database"
            assert not made.folder.has_results()
    with pytest.raises(RunError, match="any command on the run finishes it"):
        made.resume()
    assert Run.open(made.path).resume().status()["state"] == "finished"
    assert item.prompt.encode() not in (made.path / "run.db").read_bytes()


def test_a_language_model_goes_on_without_the_item(tmp_path: Path) -> None:
    from ..lm_cases import QUICK, questions, tiny_model

    items, answers = questions(24)
    spec = {
        **QUICK,
        "lm.model": str(tiny_model(tmp_path / "model")),
        "lm.adapt": "lora",
        "audit": 0,
    }
    spec |= {"lm.refit_at": "0.5,1", "mode": "stream", "budget": 8, "update.kl_on_skips": True}
    with pytest.raises(KeyboardInterrupt):
        run(items, answers, out=tmp_path / "r", labeler=stopping(answers, 5), **spec)
    made = Run(tmp_path / "r")
    learned = learned_of(made)
    assert len(learned) == 5
    with made.ledger as ledger:
        unseen = [item.id for item in items if not ledger.has_decision(item.id)]
    told = forget(made.path, next(iter(learned)))
    assert any("every adapter trained since" in sentence for sentence in told.remains)
    forget(made.path, unseen[0])
    made.resume(labeler=stopping(answers, None))
    assert made.status()["state"] == "finished"
    assert made.replay()["labels"] == 7
    verify(made.path)
    texts = {item.prompt for item in items if item.id in (next(iter(learned)), unseen[0])}
    for path in (p for p in made.path.rglob("*") if p.is_file()):
        assert not any(f'"{text}"'.encode() in path.read_bytes() for text in texts), path


def test_the_final_model_is_fitted_again_without_its_label(tmp_path: Path) -> None:
    """And on every label that is bought afterwards."""
    items, answers = class_items(60)
    made = run(items, answers, budget=12, out=tmp_path / "run", features="hashing", mode="pool")
    before = (made.folder.model / "head.safetensors").read_bytes()
    learned = rows_of(made, "learned")
    forget(made.path, str(learned[4].item))
    made.resume()
    assert (made.folder.model / "head.safetensors").read_bytes() != before
    left = {item.id: answers[item.id] for item in items if item.id != learned[4].item}
    made.change(budget=14, labeler=lambda request: left[request.item])
    last = [row.payload for row in rows_of(made, "refit")][-1]
    assert (last["labels"], last["tune"]) == (13, True)
