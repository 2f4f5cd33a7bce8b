"""Runs over a bank of answers: what is retrieved, learnt, kept and refused."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from stacksl import Run, run
from stacksl.api.exporting import write_pairs
from stacksl.api.planning import prepare
from stacksl.data import read, read_bank
from stacksl.errors import DataError, SettingsError
from stacksl.features import rows
from stacksl.runs.items.reading import retrieved

WORDS = "card loan fee rate limit phone app code pin cash atm visa wire".split()  # noqa: SIM905
ANSWERS = [f"{a} {b} help: how to {a} the {b}" for a in WORDS for b in WORDS if a != b]


def written(path: Path, header: list[str], lines: list[list[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Questions with the ids of their answers, and the bank."""
    draw = random.Random(0)
    bank = [[f"a{n}", text] for n, text in enumerate(ANSWERS)]
    asked = []
    for _ in range(60):
        name, text = draw.choice(bank)
        asked.append([f"my {text.split()[0]}, and {text.split()[1]}? {draw.choice(WORDS)}", name])
    return (
        written(tmp_path / "faq.csv", ["question", "answer_id"], asked),
        written(tmp_path / "answers.csv", ["id", "text"], bank),
    )


def played(files: tuple[Path, Path], out: Path, **more: object) -> Run:
    faq, bank = files
    return run(faq, bank=str(bank), budget=20, k=4, audit=0, test=faq, out=out, **more)


def test_a_run_ranks_what_it_retrieved(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = played(files, tmp_path / "r")
    bank = read_bank(files[1])
    asked = read(files[0], bank=bank)
    narrow = retrieved(asked, bank, "hashing", 4)
    assert {len(item.candidates) for item in narrow.items} == {4}
    inside, outside = len(narrow.answers), len(narrow.unknown)
    assert outside > 0
    assert inside + outside == len(asked.items)

    assert write_pairs(done, tmp_path / "pairs.jsonl") > 0
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    kept = {item.prompt: item.candidates for item in narrow.items}
    assert all({row["chosen"], row["rejected"]} <= set(kept[row["prompt"]]) for row in pairs)
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
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = played(files, tmp_path / "whole")
    monkeypatch.setattr(rows, "LARGE", 0)
    two = played(files, tmp_path / "lazy")
    assert (two.path / "features" / "index.npy").is_file()
    head = "model/head.safetensors"
    assert (one.path / head).read_bytes() == (two.path / head).read_bytes()


def test_a_resumed_run_encodes_nothing(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = played(files, tmp_path / "r")

    def fail(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr("stacksl.runs.items.reading._search", fail)
    assert Run(done.path).resume().status()["state"] == "finished"


def test_the_run_has_its_bank(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = played(files, tmp_path / "r")
    before = [row["choice"] for row in done.predict(files[0])]
    files[1].unlink()
    assert [row["choice"] for row in done.predict(files[0])] == before


def test_a_run_over_a_bank_forgets_an_item(files: tuple[Path, Path], tmp_path: Path) -> None:
    from stacksl.runs.changes.forgetting import forget

    done = played(files, tmp_path / "r")
    forget(done.path, "row-000003")
    assert Run(done.path).resume().status()["state"] == "finished"


def test_a_text_that_is_there_twice_is_one_answer(tmp_path: Path) -> None:
    path = written(tmp_path / "b.csv", ["id", "text"], [["1", "x y"], ["2", "z"], ["3", "x y"]])
    bank = read_bank(path)
    assert bank.texts == ("x y", "z")
    assert [bank.places[name] for name in ("1", "2", "3", "z")] == [0, 1, 0, 1]


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
        read_bank(written(tmp_path / "b.csv", header, lines))


def test_a_gold_that_is_not_in_the_bank(files: tuple[Path, Path], tmp_path: Path) -> None:
    faq = tmp_path / "other.csv"
    faq.write_text(files[0].read_text() + "what now?,a99999\n")
    found = read(faq, bank=read_bank(files[1]))
    assert [row.kind for row in found.rejected] == ["unknown answer"]


def test_a_bank_smaller_than_k_is_given_whole(files: tuple[Path, Path], tmp_path: Path) -> None:
    plan = prepare(files[0], settings={"bank": str(files[1]), "k": 100_000, "audit": 0})
    assert {len(item.candidates) for item in plan.dataset.items} == {len(ANSWERS)}


def test_another_language_is_ranked_by_what_it_shares(tmp_path: Path) -> None:
    texts = [*ANSWERS, *(f"{word} виза карта" for word in ("оплата", "новая", "старая", "моя"))]
    bank = read_bank(written(tmp_path / "b.csv", ["text"], [[text] for text in texts]))
    asked = [["моя виза карта", texts[-1]], ["貸款", texts[9]]]
    faq = written(tmp_path / "q.csv", ["text", "answer"], asked)
    found = retrieved(read(faq, bank=bank), bank, "hashing", 2)
    assert found.items[0].candidates[0] == texts[-1]
    assert found.items[1].candidates == bank.texts[:2]  # nothing known: the first ones
    assert found.unknown == {"row-000002": texts[9]}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"follower": "nearest"}, "give --bank FILE"),
        ({"bank": "b.csv", "follower": "hard"}, "leave it out"),
        ({"bank": "b.csv", "k": 1}, "must be 2 or more"),
        ({"bank": "b.csv", "classes": "c.csv"}, "exclude each other"),
        ({"bank": "b.csv", "model": "sample"}, "leave --model"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        prepare("faq.csv", settings=settings)


def test_items_in_python_have_candidates_already() -> None:
    with pytest.raises(SettingsError, match="give its path as DATA"):
        prepare([], settings={"bank": "b.csv"})


def test_no_more_items(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = played(files, tmp_path / "r")
    more = tmp_path / "more.csv"
    more.write_bytes(files[0].read_bytes())
    with pytest.raises(DataError, match="takes no more items"):
        done.change(items=more)


def test_real_questions(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "medquad_faq"
    bank = read_bank(folder / "bank.jsonl.gz")
    found = read(folder / "test.jsonl.gz", bank=bank)
    assert (len(bank.texts), len(found.answers)) == (15801, len(found.items))
    assert json.dumps(found.columns) == json.dumps(
        {"prompt": "prompt", "label": "answer_bank_id", "id": "id"}
    )
