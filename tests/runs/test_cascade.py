"""Models beside people: confusions, soft labels, and which labeler says most for its price."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.core.heads.spreading import neighbour_graph, spread
from stacksl.data import read
from stacksl.errors import DataError, RunError, SettingsError
from stacksl.files import arrays
from stacksl.models.cascade import best_buys, confusion_of, information
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.loop.choosers import DRAWN_FIRST

K = 12


def simulated(rng: np.random.Generator, rates: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
    """(said, truth) of a labeler with these accuracies by class; its errors are even."""
    truth = rng.integers(0, len(rates), count)
    other = (truth + rng.integers(1, len(rates), count)) % len(rates)
    return np.where(rng.random(count) < rates[truth], truth, other), truth


@pytest.mark.parametrize("count", [25, 100, 400])
def test_the_intervals_hold_the_accuracy_as_often_as_they_say(count: int) -> None:
    rng = np.random.default_rng(count)
    whole, each = [], []
    for _ in range(400):
        rates = rng.beta(3.0, 1.0, K)  # the prior of the shrinkage at an accuracy of 0.75
        found = confusion_of(*simulated(rng, rates, count), K)
        whole.append(found.accuracy[1] <= rates.mean() <= found.accuracy[2])
        each.append((found.classes[:, 1] <= rates) & (rates <= found.classes[:, 2]))
    assert 0.92 <= np.mean(whole) <= 0.99
    assert 0.90 <= np.mean(each) <= 0.98


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


def test_a_class_without_answers_has_the_accuracy_of_all_and_a_wide_interval() -> None:
    truth = np.repeat([0, 1, 2], 20)
    said = np.where(np.arange(60) % 4 == 0, (truth + 1) % 3, truth)
    found = confusion_of(said, truth, 4)
    assert found.classes[3, 0] == pytest.approx(found.accuracy[0])
    assert np.diff(found.classes[3, 1:]) > 2 * np.diff(found.classes[0, 1:])
    assert np.allclose(found.matrix.sum(axis=1), 1.0)
    assert found.matrix[0, 1] > found.matrix[0, 2]  # where its errors went
    assert found.count == 60


def test_information_is_what_an_answer_says() -> None:
    even = np.full((1, 4), 0.25)
    assert information(even, np.eye(4)) == pytest.approx([2.0])
    assert information(even, np.full((4, 4), 0.25)) == pytest.approx([0.0])
    assert information(np.eye(4)[:1], np.eye(4)) == pytest.approx([0.0])
    noisy = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    by_hand = 2.0 + 0.7 * np.log2(0.7) + 3 * 0.1 * np.log2(0.1)
    assert information(even, noisy) == pytest.approx([by_hand])


def test_a_useless_model_is_ignored() -> None:
    rng = np.random.default_rng(2)
    said, truth = simulated(rng, np.full(K, 1 / K), 200)
    found = confusion_of(said, truth, K)
    assert not found.tells
    assert found.seeds(said).max() < 0.02
    even = np.full((5, K), 1 / K)
    chance = np.full((K, K), 1 / K)
    buys, _ = best_buys(even, [np.eye(K), chance], [1.0, 0.002])
    assert buys.tolist() == [0] * 5


def test_a_perfect_model_takes_over() -> None:
    rng = np.random.default_rng(3)
    said, truth = simulated(rng, np.ones(K), 5000)
    found = confusion_of(said, truth, K)
    even = np.full((5, K), 1 / K)
    buys, rates = best_buys(even, [np.eye(K), found.matrix], [1.0, 0.002])
    assert buys.tolist() == [1] * 5
    assert rates == pytest.approx(information(even, found.matrix) / 0.002)
    assert found.seeds(said).max(axis=1).min() > 0.7  # nearly the weight of a person's label
    left, _ = found.soft(said)
    assert information(left, np.eye(K)).max() < 0.2  # little is left for people to say


def test_the_price_decides() -> None:
    even = np.full((1, 4), 0.25)
    noisy = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    for price, labeler in ((0.2, 1), (0.5, 0)):
        assert best_buys(even, [np.eye(4), noisy], [1.0, price])[0] == [labeler]


def test_weak_seeds_spread_and_a_persons_label_wins() -> None:
    rng = np.random.default_rng(4)
    h = np.concatenate([rng.normal(c, 0.3, (20, 3)) for c in ([5, 0, 0], [0, 5, 0])])
    graph = neighbour_graph(h)
    none = np.zeros(0, dtype=np.int64)
    weak = np.zeros((40, 2), dtype=np.float32)
    weak[0, 0] = weak[20, 1] = 0.1
    found = spread(graph, none, none, 2, weak=weak)
    assert found.argmax(axis=1).tolist() == [0] * 20 + [1] * 20
    people = spread(graph, np.array([0]), np.array([1]), 2, weak=weak)
    assert people[0].argmax() == 1  # its own weak seed is not read
    as_label = np.zeros((40, 2), dtype=np.float32)
    as_label[20, 1] = 1.0
    strong = spread(graph, np.array([20]), np.array([1]), 2)
    assert np.allclose(spread(graph, none, none, 2, weak=as_label), strong)


# Runs --------------------------------------------------------------------------------------------

TOPICS = ("cards", "loans", "rates", "branches")


def write(path: Path, texts: list[str], said: list[int]) -> str:
    with path.open("w", newline="") as file:
        rows = [(text, TOPICS[each]) for text, each in zip(texts, said, strict=True)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Items with people's labels, and the labels of a model that is right and of one by chance."""
    rng = np.random.default_rng(5)
    truth = [n % 4 for n in range(160)]
    seen = [each if rng.random() < 0.75 else int(rng.integers(4)) for each in truth]
    texts = [f"{TOPICS[each][:4]}{rng.integers(30)} w{rng.integers(9)} n{n}" for n, each in
             enumerate(seen)]  # fmt: skip
    told = {"data": truth, "right": truth, "chance": rng.integers(0, 4, 160).tolist()}
    return {name: write(tmp_path / f"{name}.csv", texts, said) for name, said in told.items()}


def played(files: dict[str, str], out: Path, model: str | None, **settings: object) -> stacksl.Run:
    given: dict[str, Any] = {"features": "hashing", "mode": "pool", "price": "1", "batch": 10}
    given |= {"budget": "$40", "audit": 0, "test": files["data"], "out": out}
    given |= {} if model is None else {"model_labels": files[model]}
    return stacksl.run(files["data"], **(given | settings))


def facts_of(run: stacksl.Run) -> dict[str, Any]:
    return dict(json.loads((run.path / "facts.json").read_text()))


def test_labels_are_drawn_for_the_comparison_and_the_report_says_what_the_model_is_worth(
    files: dict[str, str], tmp_path: Path
) -> None:
    run = played(files, tmp_path / "run", "right")
    with run.ledger as ledger:
        rounds = [row.decision() for row in ledger.rows() if row.event == "round"]
        assert ledger.spent_money == 40_000_000
    asked = [each for each in rounds if each.asked]
    assert len(asked) == 40
    assert [each.reason for each in asked].count("drawn") == DRAWN_FIRST
    said = facts_of(run)["refit"]["sentence"]
    assert "the model's label was people's in an estimated 98 %" in said
    assert "of the 2.0 bits" in said
    assert "as much as $0.9" in said
    assert run.replay()["labels"] == 40


def test_a_right_model_helps_and_one_by_chance_takes_no_part(
    files: dict[str, str], tmp_path: Path
) -> None:
    runs = {m: played(files, tmp_path / str(m), m, budget="$26") for m in ("right", "chance", None)}
    facts = {model: facts_of(run) for model, run in runs.items()}
    assert facts["right"]["test"]["accuracy"] > facts[None]["test"]["accuracy"] + 0.05
    assert "may be chance: its labels took no part" in facts["chance"]["refit"]["sentence"]
    assert "model's label" not in facts[None]["refit"]["sentence"]


def test_the_models_file_is_read_once(files: dict[str, str], tmp_path: Path) -> None:
    run = played(files, tmp_path / "run", "right")
    Path(files["right"]).unlink()
    assert run.replay()["labels"] == 40
    damaged = run.path / "features" / "model-labels.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(RunError, match="model-labels"):
        run.replay()


def test_a_forgotten_item_has_no_label_of_the_model(files: dict[str, str], tmp_path: Path) -> None:
    run = played(files, tmp_path / "run", "right")
    forget(run.path, read(files["data"]).items[2].id)
    said = arrays.load(run.path / "features" / "model-labels.safetensors")["said"]
    assert np.flatnonzero(said < 0).tolist() == [2]


@pytest.mark.parametrize("settings", [{"mode": "stream"}, {"names": False}, {"refit": False}])
def test_other_runs_are_refused(
    files: dict[str, str], tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match="model_labels needs a pool of texts"):
        played(files, tmp_path / "run", "right", **settings)
    assert not (tmp_path / "run").exists()


def test_labels_of_other_texts_are_refused(files: dict[str, str], tmp_path: Path) -> None:
    files["other"] = write(tmp_path / "other.csv", ["something else", "and more"], [0, 1])
    with pytest.raises(DataError, match="should have prompts of the data"):
        played(files, tmp_path / "run", "other")
