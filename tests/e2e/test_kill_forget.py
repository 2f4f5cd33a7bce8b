"""After kill -9 at any moment of `forget` the item is untouched, or the next command erases it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.cli.entry import call
from stacksl.errors import RunError
from stacksl.features.store import load_block
from stacksl.files.atomic import write_atomic
from stacksl.ledger.ledger import Ledger
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import DERIVED, RunFolder, note_derived, read_facts

from ..runs.conftest import pair_items
from ..runs.forgetting.forgetting_cases import ID, asked_by_people, holding, verify, with_canary
from .conftest import Worker, write_classes

FORGET, LABELS = "stacksl.runs.changes.forgetting", "stacksl.ledger"
ITEMS, CANARY = 48, 40
EVERY = [
    *("os:replace", "os:unlink", "os:rmdir", "os:fsync", "os:fchmod", "os:ftruncate"),
    "stacksl.files.atomic:replace_file",
    "numpy:memmap.flush",
    f"{LABELS}.store.database:Store.append",
    f"{LABELS}.store.database:Store.commit",
    f"{LABELS}.store.database:Store._pragma",
    f"{LABELS}.store.database:Store.close",
]
MOMENTS = {
    "before the mark": (f"{LABELS}.ledger:Ledger.begin_erasing", 1, "before"),
    "when the mark is committed": (f"{FORGET}:erase_rows", 1, "before"),
    "before the features": (f"{FORGET}:erase", 1, "before"),
    "in the middle of the features": ("numpy:memmap.flush", 1, "before"),
    "between features and vectors": (f"{FORGET}:erase_keys", 1, "before"),
    "when the vectors were erased": (f"{FORGET}:erase_keys", 1, "after"),
    "between the model and the report": ("shutil:rmtree", 1, "after"),
    "before the ledger forgets": (f"{LABELS}.ledger:Ledger.forget", 1, "before"),
    "before that is committed": (f"{LABELS}.ledger:Ledger.forget", 1, "after"),
    "when that is committed": (f"{LABELS}.ledger:Ledger.erased", 1, "before"),
    "before its file is built anew": (f"{LABELS}.store.database:Store.wipe", 1, "before"),
    "before it ends": (f"{LABELS}.ledger:Ledger.erased", 1, "after"),
}


@dataclass(frozen=True)
class Planted:
    """A finished run with an item to forget, and the item's features as bytes."""

    run: Path
    features: bytes

    @classmethod
    def of(cls, path: Path) -> Planted:
        spec = RunSpec.open(RunFolder(path))
        (row,) = (n for n, item in enumerate(spec.dataset.items) if item.id == ID)
        block: Any = load_block(path / "features")
        rows = block.phi[block.offsets[row] : block.offsets[row + 1]]
        return cls(path, np.asarray(rows).tobytes())

    def files(self, path: Path) -> dict[str, bytes]:
        """The files that hold the item, but those that a run writes by itself."""
        own = ("run.db", "run.db-wal", "run.db-shm", ".lock")
        found = {each.relative_to(path): each for each in path.rglob("*") if each.is_file()}
        kept = {name: each for name, each in found.items() if name.parts[0] not in own}
        return {str(name): each.read_bytes() for name, each in kept.items()}

    def features_in(self, path: Path) -> list[str]:
        """The names of the files that hold the item's features."""
        every = (each for each in path.rglob("*") if each.is_file())
        return [each.name for each in every if self.features in each.read_bytes()]


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A run of items made in Python, with arrays that were saved on the way."""
    items, answers = pair_items(ITEMS)
    answers[ID] = answers.pop(f"p{CANARY}")
    out = tmp_path_factory.mktemp("memory") / "r"
    settings: dict[str, Any] = {"budget": ITEMS, "mode": "stream", "checkpoint_every": 8}
    made = run(with_canary(items, CANARY), answers, out=out, **settings)
    warned = replace(read_facts(made.folder), warnings=(f"see the item '{ID}'",))
    write_atomic(out / "facts.json", warned.to_json())
    with Ledger.open(out / "run.db") as ledger:
        note_derived(made.folder, ledger, "facts.json")
    state = made.folder.read_state()
    made.folder.write_state(**{**state, "warnings": [f"see the item '{ID}'"]})
    made.report()
    assert {"facts.json", "report.html", "run.db"} <= holding(out)
    return Planted.of(out)


@pytest.fixture(scope="module")
def by_people(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A run whose labels are from sheets, with notes."""
    return Planted.of(asked_by_people(tmp_path_factory.mktemp("people"), until="finished")[1].path)


@pytest.fixture
def killed(worker: Worker, tmp_path: Path) -> Iterator[Callable[..., bool]]:
    """Forget the item of a copy with a kill, look at the copy, and let the next command go on."""

    def play(planted: Planted, kill: tuple[object, int, str]) -> bool:
        out = tmp_path / "r"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(planted.run, out)
        reply = worker.play(out=str(out), forget=ID, kill=kill)
        if RunFolder(out).erasing():
            refused = pytest.raises(RunError, match=f"such as `stacksl status {out}`")
            with refused, RunFolder(out).locked():
                pass
        elif knows(out):
            expect_untouched(planted, out)
            worker.play(out=str(out), forget=ID)
        Run.open(out)
        expect_forgotten(planted, out)
        return bool(reply["killed"])

    yield play
    shutil.rmtree(tmp_path, ignore_errors=True)


def knows(out: Path) -> bool:
    """Whether the run still has the item."""
    with Ledger.open(out / "run.db", readonly=True) as ledger:
        return ID in ledger.items


def expect_untouched(planted: Planted, out: Path) -> None:
    assert not RunFolder(out).erasing()
    drafts = {name for name in planted.files(out) if ".tmp-" in name}
    left = {k: v for k, v in planted.files(out).items() if k not in drafts}
    assert left == planted.files(planted.run)
    verify(out)
    assert Run.open(out).resume().status()["state"] == "finished"


def expect_forgotten(planted: Planted, out: Path) -> None:
    assert not knows(out)
    assert not RunFolder(out).erasing()
    assert holding(out) == set()
    assert not [name for name in DERIVED if (out / name).exists()]
    assert planted.features_in(out) == []
    verify(out)
    made = Run.open(out)
    assert made.resume().status()["state"] == "finished"
    assert made.folder.has_results()
    assert holding(out) == set()
    assert made.replay()["rounds"] > 0


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(each, marks=pytest.mark.slow if number % 3 else ())
        for number, each in enumerate(MOMENTS)
    ],
)
def test_forgetting_killed_at_a_step(killed, in_memory, moment) -> None:
    assert killed(in_memory, MOMENTS[moment]), "the moment never came"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["in_memory", "by_people"])
def test_forgetting_killed_at_every_write(killed, request, kind) -> None:
    planted = request.getfixturevalue(kind)
    for number in range(1, 400):
        if not killed(planted, (EVERY, number, "before")):
            assert number > 40, "no write was seen"
            return
    pytest.fail("forgetting writes fewer than 400 times")


COMMANDS = [
    ["resume", "r"],
    ["status", "r"],
    ["report", "r"],
    ["predict", "r", "c.csv"],
    ["evaluate", "r", "c.csv"],
    ["answer", "r", "c.csv"],
    ["change", "r", "--train-on-audit"],
    ["run", "--config", "r", "--out", "again", "--quiet"],
    ["ledger", "verify", "r"],
    ["ledger", "requests", "r"],
    ["ledger", "replay", "r"],
    ["ledger", "path", "r"],
    ["forget", "r", "--id", "p1"],
    ["forget", "r", "--id", ID],
]
QUICKLY = ("resume r", "status r", "predict r c.csv", "ledger verify r", "forget r --id p1")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=() if " ".join(words) in QUICKLY else pytest.mark.slow)
        for words in COMMANDS
    ],
    ids=" ".join,
)
def test_every_command_first_erases_an_item_forgotten_by_halves(
    halved, tmp_path, capsys, monkeypatch, words
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(halved, "r")
    write_classes(Path("c.csv"), 4)
    code, told = call(words), capsys.readouterr().err
    assert code == 0 or (code == 2 and told.count("\n") == 1), told
    assert "interrupted" not in told
    assert not RunFolder(Path("r")).erasing()
    assert holding(Path("r")) == set()


@pytest.fixture(scope="module")
def halved(worker: Worker, in_memory: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has marked an item to be forgotten, with all its copies."""
    out = tmp_path_factory.mktemp("halved") / "r"
    shutil.copytree(in_memory.run, out)
    worker.play(out=str(out), forget=ID, kill=MOMENTS["when the mark is committed"])
    assert {"facts.json", "report.html"} <= holding(out)
    return out


def test_the_same_command_again_finishes_and_then_knows_no_item(halved, tmp_path, capsys) -> None:
    out = tmp_path / "r"
    shutil.copytree(halved, out)
    assert call(["forget", str(out)]) == 2
    assert "--id" in capsys.readouterr().err
    assert RunFolder(out).erasing()
    assert call(["forget", str(out), "--id", ID]) == 0
    assert "Forgotten" in capsys.readouterr().out
    assert call(["forget", str(out), "--id", ID]) == 2
    assert "knows no item" in capsys.readouterr().err
