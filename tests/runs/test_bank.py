"""Runs over a bank of answers: what is retrieved, learned, kept and refused."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from stacksl import Run, run
from stacksl.api.planning import prepare
from stacksl.data import read, read_bank
from stacksl.errors import DataError, SettingsError
from stacksl.features import rows
from stacksl.runs.items.reading import retrieved

from ..saved_arrays import drop
from ..tables import write_table

WORDS = "card loan fee rate limit phone app code pin cash atm visa wire".split()  # noqa: SIM905
ANSWERS = [f"{a} {b} help: how to {a} the {b}" for a in WORDS for b in WORDS if a != b]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bank")


@pytest.fixture(scope="module")
def files(folder: Path) -> tuple[Path, Path]:
    """Questions with the ids of their answers, and the bank."""
    draw = random.Random(0)
    bank = [[f"a{n}", text] for n, text in enumerate(ANSWERS)]
    asked = []
    for _ in range(60):
        name, text = draw.choice(bank)
        asked.append([f"my {text.split()[0]}, and {text.split()[1]}? {draw.choice(WORDS)}", name])
    return (
        write_table(folder / "faq.csv", ["question", "answer_id"], asked),
        write_table(folder / "answers.csv", ["id", "text"], bank),
    )


@pytest.fixture(scope="module")
def whole(files: tuple[Path, Path], folder: Path) -> Run:
    """A finished run, which no test changes."""
    return played(files, folder / "run")


@pytest.fixture
def done(whole: Run, tmp_path: Path) -> Run:
    """A copy of it."""
    return Run(shutil.copytree(whole.path, tmp_path / "r"))


def played(files: tuple[Path, Path], out: Path, **more: object) -> Run:
    faq, bank = files
    return run(faq, bank=str(bank), budget=20, top_k=4, audit=0, test=faq, out=out, **more)


def test_a_run_ranks_what_it_retrieved(done: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    bank = read_bank(files[1])
    asked = read(files[0], bank=bank)
    narrow = retrieved(asked, bank, "hashing", 4)
    assert {len(item.candidates) for item in narrow.items} == {4}
    inside, outside = len(narrow.answers), len(narrow.unknown)
    assert outside > 0
    assert inside + outside == len(asked.items)

    kept = {item.prompt: item.candidates for item in narrow.items}
    rows = [row for row in done.labels().rows if row["label"]]
    assert rows
    assert all(row["label"] in kept[row["text"]] for row in rows)
    found = done.evaluate(files[0])
    assert found["unknown_classes"] == outside
    assert found["correct"] <= inside
    labels = done.ledger.export()
    said = [row["said"] for row in labels]
    gone = [row["item"] for row in labels if row["said"] == "none"]
    assert len(said) == 20
    assert set(gone) == narrow.unknown.keys() & {row["item"] for row in labels}
    assert len(gone) > 0

    first = next(done.predict(files[0]))
    assert first["choice"] in narrow.items[0].candidates


def test_features_are_gathered_with_the_same_result(
    whole: Run, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LARGE", 0)
    two = played(files, tmp_path / "lazy")
    assert (two.path / "features" / "index.npy").is_file()
    head = "model/head.safetensors"
    assert (whole.path / head).read_bytes() == (two.path / head).read_bytes()


def test_a_resumed_run_encodes_nothing(done: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(done.path)
    done.folder.write_state("stopped")

    def fail(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("stacksl.runs.items.reading._search", fail)
    assert Run(done.path).resume().status()["state"] == "finished"


def test_the_run_has_its_bank(done: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    before = [row["choice"] for row in done.predict(files[0])]
    bank = files[1].rename(tmp_path / "elsewhere.csv")
    try:
        assert [row["choice"] for row in done.predict(files[0])] == before
    finally:
        bank.rename(files[1])


def test_a_run_over_a_bank_forgets_an_item(done: Run) -> None:
    from stacksl.runs.changes.forgetting import forget

    forget(done.path, "row-000003")
    assert Run(done.path).resume().status()["state"] == "finished"


@pytest.mark.parametrize(
    ("header", "lines", "sentence"),
    [
        (["id", "text"], [], "two different answers or more"),
        (["id", "text"], [["1", "x"], ["2", "x"]], "two different answers or more, but has 1"),
        (["id", "text"], [["1", "x"], ["1", "y"]], "an id of its own"),
        (["a", "b"], [["1", "x"], ["1", "y"]], "a column 'text' or 'answer'"),
    ],
)
def test_a_bank_that_is_none(
    tmp_path: Path, header: list[str], lines: list[list[str]], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        read_bank(write_table(tmp_path / "b.csv", header, lines))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"follower": "nearest"}, "give --bank FILE"),
        ({"bank": "b.csv", "follower": "hard"}, "leave it out"),
        ({"bank": "b.csv", "top_k": 1}, "must be 2 or more"),
        ({"bank": "b.csv", "classes": "c.csv"}, "exclude each other"),
        ({"bank": "b.csv", "lm.model": "sample"}, "leave --model"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        prepare("faq.csv", settings=settings)


def test_what_a_bank_cannot_be_with(done: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give its path as DATA"):
        prepare([], settings={"bank": "b.csv"})
    with pytest.raises(DataError, match="takes no more items"):
        done.change(items=shutil.copy(files[0], tmp_path / "more.csv"))
