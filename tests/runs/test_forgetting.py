"""An item that is forgotten is nowhere any more, and the run goes on."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.errors import FeatureError, RunError, RunLocked
from stacksl.features.cache import VectorCache, erase_texts, text_key
from stacksl.game.inputs import PairBlock
from stacksl.labels.ledger import Ledger
from stacksl.labels.purchases import Answer, Head, Purchase
from stacksl.runs.checkpoints import heads
from stacksl.runs.folder import RunFolder
from stacksl.runs.forgetting import Forgotten, forget
from stacksl.runs.frozen import erase, freeze, thaw
from stacksl.runs.job import Job
from stacksl.runs.tombstones import TOMBSTONES

from .conftest import Finished, class_items, pair_items

CANARY = "zyx"
ID, PROMPT, OPTION, RIGHT, NOTE = (CANARY + w for w in ("id", "prompt", "option", "right", "note"))


def write_items(path: Path, count: int, canary: int | None) -> Path:
    """Questions with options of their own; item number `canary` is the one to forget."""
    items, answers = pair_items(count)
    with path.open("w", encoding="utf-8") as file:
        for n, item in enumerate(items):
            row = {"id": item.id, "prompt": item.prompt, "candidates": list(item.candidates)}
            if n == canary:
                row |= {"id": ID, "prompt": f"{item.prompt}, {PROMPT} at length"}
                row["candidates"] = [f"{OPTION} {k}" for k in range(len(item.candidates))]
            file.write(json.dumps({**row, "answer": answers[item.id]}) + "\n")
    return path


def drop(path: Path, id: str = ID) -> None:
    """The user deletes a row."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["id"] != id]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(kept), encoding="utf-8")


def holding(*places: Path) -> set[str]:
    """The names of the files that hold a canary, read as bytes; of tables their cells, too."""
    import pyarrow.parquet as pq

    found = set()
    for place in places:
        for path in (p for p in place.rglob("*") if p.is_file()):
            told = path.read_bytes().lower()
            if path.suffix == ".parquet":  # it may be compressed
                told += repr(pq.read_table(path).to_pydict()).encode()
            if CANARY.encode() in told or CANARY in path.name:
                found.add(path.name)
    return found


def verify(path: Path) -> None:
    with Ledger.open(path / "ledger.db", readonly=True) as ledger:
        ledger.verify(Head(*mark) for mark in heads(path / "checkpoints"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(sheet: Path) -> Path:
    """The colleague's copy of a sheet: notes everywhere, and of the canary none is right once."""
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        mine = PROMPT in row["prompt"]
        wrong = mine and sheet.name.endswith("anna.csv")
        row["answer"] = f"[none]: {RIGHT}" if wrong else "a"
        row["note"] = NOTE if mine else "fine"
    copy = sheet.parents[2] / "answers" / sheet.name
    copy.parent.mkdir(exist_ok=True)
    with copy.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return copy


def asked_by_people(folder: Path, *, until: str) -> tuple[Path, Run]:
    """A run whose people were asked for the canary, both of them, and the data."""
    for canary in range(24):  # the one whose item is in the first sheets is as good as any other
        data = write_items(folder / "data.jsonl", 24, canary)
        plan = {"mode": "pool", "batch": 6, "labeler": "file", "annotators": "anna,ben"}
        made = run(data, budget=16, out=folder / "r", overlap=3, audit=0, **plan)
        sheets = sorted((folder / "r" / "ask").glob("*-*.csv"))
        if sum(PROMPT in sheet.read_text(encoding="utf-8") for sheet in sheets) == 2:
            break
        shutil.rmtree(folder / "r")
    done: set[Path] = set()
    while until == "finished" and made.status()["state"] == "waiting":
        new = [s for s in sorted((folder / "r" / "ask").glob("0*.csv")) if s not in done]
        assert new, "the run waits, and nobody is asked"
        done.update(new)
        made.answer(*map(fill, new))
    assert made.status()["state"] == until
    return data, made


def test_nothing_is_left_of_an_item_that_people_answered(tmp_path: Path, cache: Path) -> None:
    data, made = asked_by_people(tmp_path, until="finished")
    path = made.path
    made.report(text=False)
    keep = (path / "ask" / "0001-ben.csv").read_bytes()
    before = holding(path)
    assert {"ledger.db", "rounds.parquet", "0001-anna.csv", "0001-ben.csv"} <= before
    with Ledger.open(path / "ledger.db", readonly=True) as ledger:
        texts = ledger.texts(ID)
    assert {(RIGHT, NOTE), (None, NOTE)} == {(a.text, a.note) for a in texts}

    told = forget(path, ID)
    assert holding(path, cache) == set()
    assert told.learnt
    assert {"rounds.parquet", "ask/0001-anna.csv", "ask/0001-ben.csv"} <= set(told.changed)
    assert any("learnt its label" in sentence for sentence in told.models)
    assert any(str(data) in sentence for sentence in told.yours)
    rows = [row for row in keep.split(b"\r\n") if PROMPT.encode() not in row]
    assert (path / "ask" / "0001-ben.csv").read_bytes() == b"\r\n".join(rows)
    for state in ("the row still there", "the row deleted"):
        verify(path)
        again = made.replay()
        assert again["rounds"] == 24, state
        assert made.resume().status()["state"] == "finished"
        assert len([*made.predict(data)]) in (23, 24)
        if "still" in state:
            drop(data)


def test_a_run_that_waits_goes_on_without_the_item(tmp_path: Path) -> None:
    data, made = asked_by_people(tmp_path, until="waiting")
    spent = made.status()["asked"]
    with made.ledger as ledger:
        leases = [each for each in ledger.open_purchases() if each.item == ID]
    told = forget(made.path, ID)
    drop(data)
    assert not told.learnt
    assert holding(made.path) == set()
    assert any("files of answers" in sentence for sentence in told.yours)
    assert made.status()["asked"] == spent - len(leases) == spent - 2
    made.resume()
    assert holding(made.path) == set()
    while made.status()["state"] == "waiting":
        made.answer(*map(fill, sorted((made.path / "ask").glob("0*.csv"))))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    assert json.loads((made.path / "facts.json").read_text())["budget"]["answered"] > 0
    verify(made.path)


class Stopping:
    """Who answers what the data file says, and gives up after so many answers."""

    name = "oracle of a test"
    repeatable = True

    def __init__(self, answers: Mapping[str, int], after: int | None) -> None:
        self._answers, self._left = answers, after
        self._asked: dict[tuple[str, int], Purchase] = {}

    def ask(self, purchases: Sequence[Purchase]) -> None:
        self._asked |= {(each.item, each.token): each for each in purchases}

    def answers(self) -> list[Answer]:
        asked, self._asked = self._asked, {}
        if self._left is not None:
            self._left -= len(asked)
            if self._left < 0:
                raise KeyboardInterrupt
        return [
            Answer(p.item, p.slot, p.token, self._answers[p.item], self.name)
            for p in asked.values()
        ]


def stopped(folder: Path, kind: str, after: int, **settings: Any) -> tuple[Path, Run]:
    """A stream that was stopped after so many labels, without a checkpoint, and its data."""
    data = write_items(folder / "data.jsonl", 60, None)
    if kind == "classes":
        items, answers = class_items(60)
        rows = [{"text": i.prompt, "label": i.candidates[answers[i.id]]} for i in items]
        data = folder / "data.csv"
        with data.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("text", "label"))
            writer.writeheader()
            writer.writerows(rows)
    job = {"budget": 24, "audit": 0, "mode": "stream", "checkpoint_every": 1000, **settings}
    with pytest.raises(KeyboardInterrupt):
        run(data, out=folder / "r", labeler=Stopping(oracle_of(data), after), **job)
    return data, Run(folder / "r")


def oracle_of(data: Path) -> Mapping[str, int]:
    from stacksl.data import read

    return read(data).answers


def learnt_of(made: Run) -> dict[str, int]:
    """The items learnt so far and their rounds, in order."""
    with made.ledger as ledger:
        rounds = {r.item: r.round for r in ledger.rows() if r.event == "round"}
        return {str(r.item): rounds[r.item] or 0 for r in ledger.rows() if r.event == "learnt"}


@pytest.mark.parametrize("kind", ["pairs", "classes"])
def test_a_stream_goes_on_and_names_what_it_cannot_rebuild(tmp_path: Path, kind: str) -> None:
    data, made = stopped(tmp_path, kind, after=9)
    learnt = learnt_of(made)
    item, round = list(learnt.items())[4]
    last = max(learnt.values())
    told = forget(made.path, item)
    assert (told.round, told.learnt) == (round, True)
    if kind == "pairs":
        drop(data, item)
    else:  # without ids, those behind the deleted row move up
        lines = data.read_text(encoding="utf-8").splitlines(keepends=True)
        del lines[int(item.removeprefix("row-"))]
        data.write_text("".join(lines), encoding="utf-8")
    made.resume(labeler=Stopping(moved(oracle_of(data), item), None))
    assert made.status()["state"] == "finished"
    assert made.status()["left"] == 0
    verify(made.path)
    again = made.replay()
    (first, stop), *rest = again["lost_rounds"]
    assert (first, rest) == (round, [])
    assert last <= stop < 60, "from the checkpoint that forgetting wrote, rounds are played again"
    assert item not in learnt_of(made)


def moved(answers: Mapping[str, int], item: str) -> Mapping[str, int]:
    """Answers by the ids of the run, where those of the file have moved up behind `item`."""
    if not item.startswith("row-"):
        return answers
    cut, rows = int(item[4:]), {int(name[4:]): label for name, label in answers.items()}
    return {f"row-{n if n < cut else n + 1:06d}": label for n, label in rows.items()}


def test_an_item_that_no_round_had_seen_is_not_asked(tmp_path: Path) -> None:
    data, made = stopped(tmp_path, "pairs", after=5)
    with made.ledger as ledger:
        unseen = [i.id for i in Job.open(made.folder).dataset.items if not ledger.seen(i.id)]
    assert len(unseen) > 20
    told = [forget(made.path, item) for item in unseen[:2]]
    assert {(t.round, t.learnt) for t in told} == {(None, False)}
    drop(data, unseen[0])
    made.resume(labeler=Stopping(oracle_of(data), None))
    status = made.status()
    assert (status["state"], status["rounds"]) == ("finished", 58)
    assert status["left"] <= 2, "the pace counts on the rounds there were"
    assert made.replay()["lost_rounds"] == []
    verify(made.path)


def test_the_learner_is_what_it_was_when_the_item_was_forgotten(tmp_path: Path) -> None:
    """The one that goes on after it is that of a run that was resumed without forgetting."""
    data, made = stopped(tmp_path, "pairs", after=9)
    other = Run(shutil.copytree(made.path, tmp_path / "other"))
    with made.ledger as ledger:
        skipped = [r.item for r in ledger.rows() if r.event == "round" and not r.decision().asked]
    forget(made.path, str(skipped[0]))
    for each in (made, other):
        each.resume(labeler=Stopping(oracle_of(data), None))
    arrays = [each.folder.model / "online.safetensors" for each in (made, other)]
    assert arrays[0].read_bytes() == arrays[1].read_bytes()
    assert learnt_of(made) == learnt_of(other)
    (round,) = made.replay()["lost_rounds"]
    assert round[0] == round[1]


def test_items_in_memory_leave_the_copy_in_the_folder(
    pairs: Finished, spoil: Callable[[Finished], Run]
) -> None:
    made = spoil(pairs)
    item = pairs.items[3]
    resolved = made.path / "resolved.toml"  # the copy is told that it lies elsewhere
    resolved.write_text(resolved.read_text().replace(str(pairs.run.path), str(made.path)))
    assert item.prompt in (made.path / "data.jsonl").read_text(encoding="utf-8")
    told = forget(made.path, item.id)
    left = (made.path / "data.jsonl").read_text(encoding="utf-8")
    assert "data.jsonl" in told.changed
    assert item.prompt not in left
    assert left.count("\n") == len(pairs.items) - 1
    assert not any("delete the row" in sentence for sentence in told.yours)
    assert made.resume().status()["state"] == "finished"


def test_the_report_shows_it_no_more(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made = spoil(pairs)
    facts = json.loads((made.path / "facts.json").read_text())
    entry = facts["contested"][2]
    item = next(each for each in pairs.items if each.id == entry["item"])
    page = (made.path / "report.html").read_text(encoding="utf-8")
    assert item.prompt in page
    told = forget(made.path, item.id)
    assert {"facts.json", "report.html", "README.md"} <= set(told.changed)
    facts["contested"].remove(entry)
    assert json.loads((made.path / "facts.json").read_text()) == facts
    assert item.prompt not in (made.path / "report.html").read_text(encoding="utf-8")
    again = Run(pairs.run.path)  # the run that was copied is as it was
    assert item.prompt in (again.path / "report.html").read_text(encoding="utf-8")


def test_a_call_that_was_cut_off_is_finished_by_the_next(
    pairs: Finished, spoil: Callable[[Finished], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, item = spoil(pairs), pairs.items[5]

    def cut_off(self: Ledger, item: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "forget", cut_off)
        with pytest.raises(KeyboardInterrupt):
            forget(made.path, item.id)
    for use in (made.resume, made.replay):
        with pytest.raises(RunError, match="cut off.*repeat `stacksl forget"):
            use()
    told = forget(made.path, item.id)
    assert told.name in (made.path / TOMBSTONES).read_text()
    assert made.resume().status()["state"] == "finished"
    assert item.prompt.encode() not in (made.path / "report.html").read_bytes()


def test_what_is_refused(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made, item = spoil(pairs), pairs.items[5]
    with pytest.raises(RunError, match="knows no item 'p999'"):
        forget(made.path, "p999")
    with made.folder.locked(), pytest.raises(RunLocked, match="is held by"):
        forget(made.path, item.id)
    drop(made.path / "data.jsonl", item.id)
    with pytest.raises(RunError, match="no longer has the item 'p5'.*--data"):
        forget(made.path, item.id, data=str(made.path / "data.jsonl"))
    assert not (made.path / TOMBSTONES).exists()
    shutil.copy(pairs.run.path / "data.jsonl", made.path)
    name = forget(made.path, item.id).name
    for gone in (item.id, name):
        with pytest.raises(RunError, match="knows no item"):
            forget(made.path, gone)
    (made.path / "ledger.db").unlink()
    with pytest.raises(RunError, match="has no ledger yet"):
        forget(made.path, item.id)


def test_an_id_in_a_sentence_is_replaced(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made, item = spoil(pairs), pairs.items[5]
    said = ["12 texts were cut", "3 are gone (p1, p5, p50)", "see the item 'p5'", "xp5 p5-x"]
    made.folder.write_state("failed", warnings=said, sentence=f"so {item.prompt} it is")
    name = forget(made.path, item.id).name
    state = made.folder.read_state()
    expected = [said[0], f"3 are gone (p1, {name}, p50)", f"see the item '{name}'", said[3]]
    assert state["warnings"] == expected
    assert state["sentence"] == "so (forgotten) it is"


def test_a_sheet_keeps_every_other_byte(tmp_path: Path) -> None:
    from stacksl.runs.erasing import Marks, erase_sheets

    marks = Marks("q", "forgotten-1", frozenset(), frozenset({"k7f3-q"}))
    rows = ["key;prompt;answer\r\n", 'a2a2-a;"two\nlines; ümläut";b\r\n', "K7F3-Q;zyx\u2028y;a\r\n"]
    rows += ['c3c3-c;"he said ""x""";\r\n']
    ask = tmp_path / "ask"
    ask.mkdir()
    for name, encoding in (("w.csv", "cp1252"), ("u.csv", "utf-8-sig"), ("x.csv", "utf-16")):
        text = "".join(rows) if encoding != "cp1252" else "".join(rows).replace("\u2028", "")
        (ask / name).write_bytes(text.encode(encoding))
    (ask / "k7f3-q.txt").write_text("zyx, all of it")
    (ask / "README.txt").write_text("how to answer")
    os.chmod(ask / "u.csv", 0o640)
    assert set(erase_sheets(ask, marks)) == {"w.csv", "u.csv", "x.csv", "k7f3-q.txt"}
    for name, encoding in (("w.csv", "cp1252"), ("u.csv", "utf-8-sig"), ("x.csv", "utf-16")):
        assert (ask / name).read_bytes().decode(encoding) == rows[0] + rows[1] + rows[3]
    assert (ask / "u.csv").stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in ask.iterdir()) == ["README.txt", "u.csv", "w.csv", "x.csv"]
    assert erase_sheets(ask, marks) == []


def test_the_rows_of_an_item_are_zero_and_the_others_stand(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    offsets = np.array([0, 2, 5, 7])
    phi = rng.normal(size=(7, 3)).astype(np.float32) / 9
    freeze(tmp_path, PairBlock(phi, offsets, rng.normal(size=7)), "map", ["a", "b", "c"])
    before = (tmp_path / "base.npy").read_bytes()
    erase(tmp_path, 1, ["a", "gone", "c"])
    erase(tmp_path, 1, ["a", "gone", "c"])  # again, as after a crash
    block = thaw(tmp_path, "map", ["a", "gone", "c"])
    assert isinstance(block, PairBlock)
    assert not block.phi[2:5].any()
    assert np.array_equal(np.delete(block.phi, slice(2, 5), axis=0), np.delete(phi, slice(2, 5), 0))
    assert block.base is not None
    assert not block.base[2:5].any()
    assert (tmp_path / "base.npy").read_bytes() != before
    with pytest.raises(FeatureError, match="in the same order"):
        thaw(tmp_path, "map", ["a", "b", "c"])


def test_no_byte_of_a_text_stays_in_the_cache(cache: Path) -> None:
    vectors = {f"text {n}": np.full(8, n, np.float32) for n in range(400)}
    for identity in ("one", "two"):
        store = VectorCache(identity)
        store.put([(text_key(text), (vector, False)) for text, vector in vectors.items()])
    key = text_key("text 7")
    files = [cache / "stacksl" / "vectors-1" / f"{name}.sqlite" for name in ("one", "two")]
    assert all(key in file.read_bytes() for file in files)
    assert erase_texts(["text 7", "never seen"]) == 2
    for file in files:
        assert key not in file.read_bytes()
        assert vectors["text 7"].tobytes() not in file.read_bytes()
    assert len(VectorCache("one").get([text_key(text) for text in vectors])) == 399
    files[0].write_bytes(b"no database at all" * 100)
    with pytest.raises(FeatureError, match="delete that file"):
        erase_texts(["text 8"])


def test_a_language_model_goes_on_without_the_item(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from .lm_cases import QUICK, questions, tiny_model

    items, answers = questions(24)
    job = {**QUICK, "model": str(tiny_model(tmp_path / "model")), "adapt": "lora", "audit": 0}
    job |= {"refit_at": "0.5,1", "mode": "stream", "budget": 8, "kl_on_skips": True}
    with pytest.raises(KeyboardInterrupt):
        run(items, answers, out=tmp_path / "r", labeler=Stopping(answers, 5), **job)
    made = Run(tmp_path / "r")
    learnt = learnt_of(made)
    assert len(learnt) == 5
    with made.ledger as ledger:
        unseen = [item.id for item in items if not ledger.seen(item.id)]
    told = forget(made.path, next(iter(learnt)))
    assert any("adapters of the refits 1 were" in sentence for sentence in told.models)
    forget(made.path, unseen[0])
    assert not list(made.folder.adapters.glob("*.part"))
    made.resume(labeler=Stopping(answers, None))
    assert made.status()["state"] == "finished"
    assert made.replay()["labels"] == 7
    verify(made.path)
    texts = {item.prompt for item in items if item.id in (next(iter(learnt)), unseen[0])}
    for path in (p for p in made.path.rglob("*") if p.is_file()):
        assert not any(f'"{text}"'.encode() in path.read_bytes() for text in texts), path


@pytest.fixture(autouse=True)
def _tidy(tmp_path: Path) -> Iterator[None]:
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_what_is_told_is_plain(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made = spoil(pairs)
    told = forget(made.path, pairs.items[0].id)
    assert isinstance(told, Forgotten)
    assert told.name.startswith("forgotten-")
    assert RunFolder(made.path).path.stat().st_mode & 0o777 == 0o700
    for path in made.path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
