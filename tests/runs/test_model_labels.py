"""Labels of a model in a run of people: confusions, soft labels, and where they come from."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.data import read
from stacksl.errors import DataError, LedgerCorrupt, SettingsError
from stacksl.models.confusion import confusion_of
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.loop.choosers import DRAWN_FIRST
from stacksl.runs.spec import RunSpec

from ..ledgers import accounts_of, rows_of
from ..tables import write_table
from .column_cases import facts_of
from .people_cases import copy_of

K = 12
SLOW = pytest.mark.slow


def simulated(rng: np.random.Generator, rates: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
    """(said, truth) of a labeler with these accuracies by class; its errors are even."""
    truth = rng.integers(0, len(rates), count)
    other = (truth + rng.integers(1, len(rates), count)) % len(rates)
    return np.where(rng.random(count) < rates[truth], truth, other), truth


@pytest.mark.parametrize("count", [100, *(pytest.param(n, marks=SLOW) for n in (25, 400))])
def test_the_interval_holds_the_accuracy_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    held = []
    for _ in range(400):
        rates = rng.beta(3.0, 1.0, K)  # the prior of the shrinkage at an accuracy of 0.75
        found = confusion_of(*simulated(rng, rates, count), K)
        held.append(found.accuracy[1] <= rates.mean() <= found.accuracy[2])
    assert 0.92 <= np.mean(held) <= 0.99


def test_soft_labels_are_calibrated() -> None:
    rng = np.random.default_rng(1)
    rates = rng.beta(3.0, 1.0, K)
    found = confusion_of(*simulated(rng, rates, 300), K)
    said, truth = simulated(rng, rates, 50_000)
    posterior, shares = found.soft(said)
    assert np.allclose(posterior.sum(axis=1), 1.0)
    assert shares.sum() == pytest.approx(1.0)
    claimed = posterior.max(axis=1)
    assert claimed.mean() == pytest.approx((posterior.argmax(axis=1) == truth).mean(), abs=0.04)


def test_a_class_without_answers_has_the_accuracy_of_all() -> None:
    truth = np.repeat([0, 1, 2], 20)
    said = np.where(np.arange(60) % 4 == 0, (truth + 1) % 3, truth)
    found = confusion_of(said, truth, 4)
    assert found.matrix[3, 3] == pytest.approx(found.accuracy[0])
    assert np.allclose(found.matrix.sum(axis=1), 1.0)
    assert found.matrix[0, 1] > found.matrix[0, 2]  # where its errors went
    assert found.count == 60


def test_a_useless_model_is_ignored() -> None:
    rng = np.random.default_rng(2)
    said, truth = simulated(rng, np.full(K, 1 / K), 200)
    found = confusion_of(said, truth, K)
    assert not found.tells
    assert found.seeds(said).max() < 0.02


# Runs --------------------------------------------------------------------------------------------

TOPICS = ("cards", "loans", "rates", "branches")


def write(path: Path, texts: list[str], said: list[int]) -> str:
    rows = [(text, TOPICS[each]) for text, each in zip(texts, said, strict=True)]
    return str(write_table(path, ("text", "label"), rows))


def write_files(folder: Path) -> dict[str, str]:
    """Items with people's labels, and the labels of a model that is right and of one by chance."""
    rng = np.random.default_rng(5)
    truth = [n % 4 for n in range(160)]
    seen = [each if rng.random() < 0.75 else int(rng.integers(4)) for each in truth]
    texts = [f"{TOPICS[each][:4]}{rng.integers(30)} w{rng.integers(9)} n{n}" for n, each in
             enumerate(seen)]  # fmt: skip
    told = {"data": truth, "right": truth, "chance": rng.integers(0, 4, 160).tolist()}
    return {name: write(folder / f"{name}.csv", texts, said) for name, said in told.items()}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return write_files(tmp_path)


def run_of(files: dict[str, str], out: Path, model: str | None, **settings: object) -> stacksl.Run:
    given: dict[str, Any] = {
        "features": "hashing",
        "mode": "pool",
        "price": "1",
        "open_questions": 10,
    }
    given |= {"budget": "$40", "audit": 0, "test": files["data"], "out": out}
    given |= {} if model is None else {"model_labels": files[model]}
    return stacksl.run(files["data"], **(given | settings))


@pytest.fixture(scope="module")
def helped(tmp_path_factory: pytest.TempPathFactory) -> stacksl.Run:
    """A run with labels of the right model, whose file is gone; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("helped")
    files = write_files(folder)
    made = run_of(files, folder / "run", "right")
    Path(files["right"]).unlink()
    return made


def test_labels_are_drawn_for_the_comparison_and_the_report_says_how_often_it_is_right(
    helped: stacksl.Run,
) -> None:
    run = helped
    rounds = [row.decision() for row in rows_of(run, "round")]
    assert accounts_of(run).spent_money == 40_000_000
    asked = [each for each in rounds if each.asked]
    assert len(asked) == 40
    assert [each.reason for each in asked].count("drawn") == DRAWN_FIRST
    said = facts_of(run)["refit"]["sentence"]
    assert "the model's label was people's in an estimated 98%" in said
    assert run.replay()["labels"] == 40, "the file was read once"


def test_a_right_model_helps_and_one_by_chance_takes_no_part(
    files: dict[str, str], tmp_path: Path
) -> None:
    for path in map(Path, files.values()):  # names that say nothing, or they alone are right
        text = path.read_text()
        for number, topic in enumerate(TOPICS):
            text = text.replace(f",{topic}", f",k{number}")
        path.write_text(text)
    runs = {m: run_of(files, tmp_path / str(m), m, budget="$26") for m in ("right", "chance", None)}
    facts = {model: facts_of(run) for model, run in runs.items()}
    assert facts["right"]["test"]["accuracy"] > facts[None]["test"]["accuracy"] + 0.05
    assert "may be chance: its labels took no part" in facts["chance"]["refit"]["sentence"]
    assert "model's label" not in facts[None]["refit"]["sentence"]


def test_an_edited_label_of_the_model_is_found(helped: stacksl.Run, tmp_path: Path) -> None:
    run = copy_of(helped, tmp_path)
    with closing(sqlite3.connect(run.path / "run.db")) as database, database:
        database.execute("UPDATE items SET model = 1 - model WHERE place = 4")
    with pytest.raises(LedgerCorrupt, match="row 5 of the table 'items'"):
        run.replay()


def test_labels_of_a_models_file_that_are_no_class_are_told(
    files: dict[str, str], tmp_path: Path
) -> None:
    path = Path(files["right"])
    header, first, second, *rest = path.read_text().splitlines()
    wrong = [f"{first.rpartition(',')[0]},card", f"{second.rpartition(',')[0]},tram"]
    path.write_text("\n".join([header, *wrong, *rest]))
    run = run_of(files, tmp_path / "run", "right")
    assert [row for row, label in enumerate(said_in(run)) if label < 0] == [0, 1]
    told = "2 labels in right.csv left out as none of the 4 classes: 'card' in "
    [warning] = [each for each in run.status()["warnings"] if each.startswith(told)]
    assert "did you mean 'cards'?; 'tram' in " in warning


def test_a_forgotten_item_has_no_label_of_the_model(helped: stacksl.Run, tmp_path: Path) -> None:
    run = copy_of(helped, tmp_path)
    forget(run.path, RunSpec.open(run.folder).dataset.items[2].id)
    assert [row for row, label in enumerate(said_in(run)) if label < 0] == [2]


@pytest.mark.parametrize("settings", [{"mode": "stream"}, {"class_names": False}, {"refit": False}])
def test_other_runs_are_refused(files: dict[str, str], tmp_path, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="model_labels needs a pool of texts"):
        run_of(files, tmp_path / "run", "right", **settings)
    assert not (tmp_path / "run").exists()


def test_labels_of_other_texts_are_refused(files: dict[str, str], tmp_path: Path) -> None:
    files["other"] = write(tmp_path / "other.csv", ["something else", "and more"], [0, 1])
    with pytest.raises(DataError, match="should have prompts of the data"):
        run_of(files, tmp_path / "run", "other")


# A model's run -----------------------------------------------------------------------------------


def labeled(files: dict[str, str], out: Path, data: str = "data", **settings: Any) -> stacksl.Run:
    """A run whose labels come from the model that names the topic in the text, but one in five."""

    def model(request: stacksl.labelers.protocol.Request) -> str | None:
        word, number = request.prompt.split()[0], int(request.prompt.split(" n")[-1])
        place = next(n for n, topic in enumerate(TOPICS) if word.startswith(topic[:4]))
        named = TOPICS[(place + (number % 5 == 0)) % 4]
        return named if named in request.candidates and number != 7 else None

    given: dict[str, Any] = {
        "features": "hashing",
        "mode": "pool",
        "open_questions": 200,
        "audit": 0,
    }
    given |= {"budget": "all", "labeler": model, "out": out}
    return stacksl.run(files[data], **(given | settings))


def bought(run: stacksl.Run) -> list[tuple[str, str, int | None]]:
    with run.ledger as ledger:
        rounds = [row.decision() for row in ledger.rows() if row.event == "round"]
        return [(e.item, e.reason, ledger.label_of(e.item)) for e in rounds if e.asked]


def test_a_models_run_serves_as_its_file_does(files: dict[str, str], tmp_path: Path) -> None:
    model = labeled(files, tmp_path / "model")
    rows = [(row["text"], row["label"]) for row in model.labels().rows]
    assert len(rows) == 160
    [unnamed] = [text for text, label in rows if label is None]
    assert unnamed.endswith(" n7")
    write_table(tmp_path / "said.csv", ("text", "label"), (row for row in rows if row[1]))
    files |= {"run": str(model.path), "said": str(tmp_path / "said.csv")}
    by_run, by_file = (run_of(files, tmp_path / name, name) for name in ("run", "said"))
    assert bought(by_run) == bought(by_file)
    assert facts_of(by_run)["refit"] == facts_of(by_file)["refit"]
    assert facts_of(by_run)["test"] == facts_of(by_file)["test"]
    shutil.rmtree(model.path)  # it was read once
    assert by_run.replay()["labels"] == 40


def said_in(run: stacksl.Run) -> list[int]:
    return list(RunSpec.open(run.folder).sources.model_labels)


def test_what_counts_of_a_models_run_is_what_it_bought(files: dict[str, str], tmp_path) -> None:
    """In any order of the classes; none of its owned labels, and nothing of a forgotten item."""
    classes = tmp_path / "classes.txt"
    classes.write_text("\n".join(TOPICS))
    texts = [item.prompt for item in read(files["data"]).items]
    owned = write(tmp_path / "owned.csv", texts[:20], [n % 4 for n in range(20)])
    model = labeled(files, tmp_path / "model", classes=str(classes), owned=owned, budget=100)
    with model.ledger as ledger:
        bought = {item: ledger.label_of(item) for item in ledger.bought("train")}
    assert len(bought) == 100
    forgotten = next(item for item, label in bought.items() if label is not None)
    forget(model.path, forgotten)
    files["run"] = str(model.path)
    run = run_of(files, tmp_path / "run", "run")
    own = read(files["data"])
    names = tuple(sorted(TOPICS))
    assert own.classes == names != TOPICS
    expected = [bought.get(item.id) for item in own.items if item.id != forgotten]
    found = [c for c, item in zip(said_in(run), own.items, strict=True) if item.id != forgotten]
    assert found == [-1 if e is None else names.index(TOPICS[e]) for e in expected]
    assert said_in(run)[[item.id for item in own.items].index(forgotten)] == -1


def without_labels(files: dict[str, str], out: Path) -> None:
    stacksl.run(files["data"], labeler="file", budget=5, audit=0, out=out, features="hashing")


def of_other_classes(files: dict[str, str], out: Path) -> None:
    classes = out.parent / "classes.txt"
    classes.write_text("\n".join([*TOPICS, "tickets"]))
    labeled(files, out, classes=str(classes), budget=5)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _, out: out.mkdir(), "in the model's run model: .* is not a run's"),
        (without_labels, "model has no label yet: `stacksl resume .*` first"),
        (of_other_classes, "has the class 'tickets', which is none of the 4 of the data"),
    ],
)
def test_a_folder_that_gives_no_labels_is_a_sentence(
    make: Callable[[dict[str, str], Path], None],
    sentence: str,
    files: dict[str, str],
    tmp_path: Path,
) -> None:
    make(files, tmp_path / "model")
    files["model"] = str(tmp_path / "model")
    with pytest.raises(DataError, match=sentence):
        run_of(files, tmp_path / "run", "model")
    assert not (tmp_path / "run").exists()
