"""New rows beside a run's: bets that hold at any time, classes that grew, rows that are new."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import boschloo_exact

from stacksl.api import Run, run
from stacksl.cli.entry import call
from stacksl.errors import DataError
from stacksl.models.watching import (
    confidence_bets,
    fall_found,
    fall_p,
    shifted_classes,
    together,
    told_after,
    unlike,
    vector_bets,
)
from stacksl.types import Item

from ..benchmarks import benchmark, marked_table, record
from ..tables import write_table
from .conftest import CLASSES, class_items, pair_items, sentence


def sphere(rng: np.random.Generator, count: int, shift: float = 0.0) -> np.ndarray:
    """Unit vectors whose first coordinate is shifted."""
    rows = rng.normal(size=(count, 8))
    rows[:, 0] += shift
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_equal_confidence_is_told_as_another_in_5_percent_at_most() -> None:
    """200 streams of 400 rows, at every row: beyond 18 of 200 has a probability below 1%."""
    ends, told = [], 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        capital = confidence_bets(rng.beta(4, 1, 60), rng.beta(4, 1, 400), seed)
        told += told_after(capital) is not None
        ends.append(float(np.exp(capital[20])))
    assert told <= 18
    assert abs(np.mean(ends) - 1) < 4 * np.std(ends) / np.sqrt(len(ends)), "no bet has a profit"


def test_ties_of_the_confidence_are_no_evidence() -> None:
    capital = confidence_bets(np.ones(50), np.ones(2_000), 0)
    assert told_after(capital) is None


def test_equal_vectors_are_told_as_others_in_5_percent_at_most() -> None:
    """12 streams of 100 rows: beyond 3 of 12 has a probability below 1%."""
    told, ends = 0, []
    for seed in range(12):
        rows = sphere(np.random.default_rng(seed), 300)
        capital = vector_bets(rows[:200], rows[200:], seed)
        told += told_after(capital) is not None
        ends.append(float(np.exp(capital[40])))
    assert told <= 3
    assert abs(np.mean(ends) - 1) < 4 * np.std(ends) / np.sqrt(len(ends))


@pytest.mark.parametrize("later", [33, 100])
def test_what_comes_later_changes_no_earlier_capital(later: int) -> None:
    """So a file that grows may be looked at as often as one likes."""
    rows = sphere(np.random.default_rng(0), 400, 0.5)
    sure = np.random.default_rng(1).random(400)
    for bets, old, new in (
        (vector_bets, rows[:250], rows[250:]),
        (confidence_bets, sure[:250], sure[250:]),
    ):
        assert np.allclose(bets(old, new, 3)[:later], bets(old, new[:later], 3), atol=1e-5)


def test_other_rows_are_told() -> None:
    rng = np.random.default_rng(0)
    vectors = vector_bets(sphere(rng, 400), sphere(rng, 200, 2.0), 0)
    confidence = confidence_bets(rng.beta(4, 1, 60), rng.beta(2, 2, 200), 0)
    for capital in (vectors, confidence, together([vectors, confidence])):
        rows = told_after(capital)
        assert rows < 120
    capital = vector_bets(sphere(rng, 100), sphere(rng, 200), 0)
    assert set(np.diff(capital[49:])) == {0}, "each old row is met once"
    assert np.any(np.diff(capital[:50]))


def test_classes_that_grew_or_shrank_beyond_chance_are_told() -> None:
    rng = np.random.default_rng(0)
    names = [f"class {k}" for k in range(20)]
    before = rng.integers(20, size=400)
    assert shifted_classes(before, rng.integers(20, size=400), names) == []
    now = np.where(rng.random(400) < 0.3, 7, rng.integers(19, size=400))
    grew, *rest = shifted_classes(before, now, names)
    assert grew["name"] == "class 7"
    assert grew["before"] < 0.1 < 0.2 < grew["now"] < 0.4
    assert [(each["name"], each["now"]) for each in rest] == [("class 19", 0)]


def test_rows_where_the_run_has_none_are_found() -> None:
    rng = np.random.default_rng(0)
    old, new = sphere(rng, 300), sphere(rng, 300)
    assert len(unlike(new, old)) == 0
    place = 2 * np.eye(8)[3]
    planted = place + 0.1 * rng.normal(size=(40, 8))
    new[100:140] = planted / np.linalg.norm(planted, axis=1, keepdims=True)
    found = unlike(new, old)
    assert set(range(100, 140)) <= set(found.tolist())
    assert len(found) < 60
    assert len(unlike(new[:10], old)) == 0, "too few for a group"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with 60 rows that were held out."""
    folder = tmp_path_factory.mktemp("watched")
    return run(*class_items(400), budget=110, audit=60, out=folder / "run")


def texts(count: int, seed: int, strange: float = 0.0) -> list[str]:
    rng = random.Random(seed)
    words = ["invoice", "tax", "receipt", "refund", "payment", "bank"]
    return [
        " ".join(rng.choices(words, k=4)) + f" {n}"
        if rng.random() < strange
        else f"{sentence(rng, rng.choice(CLASSES))} {rng.randrange(400)}"
        for n in range(count)
    ]


def test_rows_of_the_same_source_are_alike(audited: Run) -> None:
    found = audited.evaluate(texts(200, 1))
    assert (found["told_after"], found["held_out"]) == (None, 60)
    assert (found["classes"], found["unlike"], found["groups"]) == ([], 0, [])
    assert found["confidence"] is None, "hashing was fitted on the rows held out"


def test_other_rows_are_told_and_shown(audited: Run, tmp_path, capsys) -> None:
    new = texts(200, 2, strange=0.4)
    found = audited.evaluate(new)
    assert 32 < found["told_after"] < 200
    said = {word for group in found["groups"] for word in group["name"].split(", ")}
    assert said & {"invoice", "tax", "receipt", "refund", "payment", "bank"}
    (tmp_path / "new.csv").write_text("\n".join(["text", *new]) + "\n", encoding="utf-8")
    assert call(["evaluate", str(audited.path), str(tmp_path / "new.csv"), "--quiet"]) == 0
    out = capsys.readouterr().out
    rows = f"{audited.path} {tmp_path / 'new.csv'}"
    buy = f"\nNext:\n  stacksl evaluate {rows} --audit 60  # People say"
    assert f"{buy} whether the accuracy fell\n" in out
    assert f"the rows differ from the run's, as the first {found['told_after']} show" in out
    assert found["groups"][0]["examples"][0]["text"] in out


def test_rows_of_the_run_itself_are_left_out_and_counted(audited: Run) -> None:
    new = [Item(f"n{n}", text, CLASSES) for n, text in enumerate(texts(200, 1))]
    found = audited.evaluate([*class_items(400)[0], *new])
    assert (found["known"], found["n"], found["told_after"]) == (400, 200, None)
    with pytest.raises(DataError, match=r"expected 50 new rows without answers, .* got 0 and 400"):
        audited.evaluate(class_items(400)[0])


def test_texts_of_the_run_under_other_ids_are_counted(audited: Run, tmp_path, capsys) -> None:
    items, answers = class_items(400)
    old = [[f"other{n}", item.prompt, item.candidates[answers[item.id]]]
           for n, item in enumerate(items[:90])]  # fmt: skip
    file = write_table(tmp_path / "old.csv", ("id", "text", "label"), old)
    assert call(["evaluate", str(audited.path), str(file), "--quiet"]) == 0
    words = r"Rows of the run +90 of 90 rows with the text of a row of the run"
    assert re.search(words + r"\. The model may have learned such rows", capsys.readouterr().out)
    assert audited.evaluate(texts(60, 5))["shared"] == 0


def test_few_rows_are_not_compared(audited: Run) -> None:
    with pytest.raises(DataError, match=r"got 49 and 400: give more rows that are not the run's"):
        audited.evaluate(texts(49, 3))


def test_an_audit_that_was_learned_is_held_out_no_more(tmp_path) -> None:
    made = run(*class_items(150), budget=80, audit=60, out=tmp_path / "run")
    assert made.evaluate(texts(60, 4))["held_out"] == 60
    made.refit_with_audit()
    found = made.evaluate(texts(60, 4))
    assert (found["held_out"], found["classes"], found["told_after"]) == (0, None, None)


def test_rows_with_options_of_their_own_have_no_classes_to_compare(tmp_path: Path) -> None:
    made = run(*pair_items(150), budget=80, audit=60, out=tmp_path / "run")
    found = made.evaluate(pair_items(120, seed=1)[0])
    assert (found["told_after"], found["held_out"], found["classes"]) == (None, 60, None)
    assert found["unlike"] == 0


def test_a_fall_is_found_as_often_as_told() -> None:
    rng = np.random.default_rng(0)
    for fall, told in ((0.1, fall_found(0.9, 40, 60)), (0.0, fall_found(0.9, 40, 60, 0.0))):
        drawn = rng.binomial((40, 60), (0.9, 0.9 - fall), size=(4_000, 2))
        pairs, counts = np.unique(drawn, axis=0, return_counts=True)
        shown = [fall_p((int(a), 40), (int(b), 60)) <= 0.05 for a, b in pairs]
        assert abs(counts @ shown / 4_000 - told) < 4 * np.sqrt(told * (1 - told) / 4_000)
    assert fall_found(0.9, 400, 300) > 0.95
    assert fall_found(0.8, 100, 150, unsettled=0.1) == pytest.approx(fall_found(0.8, 100, 150, 0.0))
    assert fall_p((10, 10), (12, 12)) == 1.0


@pytest.mark.parametrize(("before", "now"), [((54, 60), (45, 60)), ((9, 10), (200, 300))])
def test_the_p_value_of_a_fall_is_boschloos(before: tuple[int, int], now: tuple[int, int]) -> None:
    (right, n), (later, m) = before, now
    expected = boschloo_exact([[right, later], [n - right, m - later]], "greater").pvalue
    assert fall_p(before, now) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("first", "new"), [(60, 60), (30, 150)])
def test_a_fall_is_told_by_chance_in_5_percent_of_cases_at_most(first: int, new: int) -> None:
    """Exactly so, at every accuracy; a test of two pooled proportions has up to 11%."""
    assert max(fall_found(share / 100, first, new, 0.0) for share in range(1, 100)) <= 0.05


def test_a_file_with_answers_is_compared_with_the_audit(audited: Run) -> None:
    items, answers = class_items(90, seed=7)
    assert audited.evaluate(items, answers)["stated"]["p"] > 0.05
    wrong = {name: (index + 1) % 3 for name, index in answers.items()}
    assert audited.evaluate(items, wrong)["stated"]["p"] < 0.001


def test_rows_that_cannot_be_read_are_no_fall(audited: Run, tmp_path: Path) -> None:
    """They count as wrong, but the audit had none of them."""
    items, answers = class_items(90, seed=7)
    lines = [f"{item.prompt},{CLASSES[answers[item.id]]}" for item in items]
    blank = [f",{CLASSES[0]}"] * 90
    file = tmp_path / "new.csv"
    file.write_text("\n".join(["text,label", *lines, *blank]) + "\n", encoding="utf-8")
    found = audited.evaluate(file)
    assert (found["n"], found["scored"]) == (180, 90)
    assert found["stated"]["p"] > 0.05


def test_rows_that_are_all_the_same_are_one_group(audited: Run) -> None:
    found = audited.evaluate(["tax receipt refund"] * 120)
    assert found["told_after"]
    assert found["unlike"] == 120
    (group,) = found["groups"]
    assert (group["rows"], len(group["examples"])) == (120, 1)


def test_the_page_shows_the_record() -> None:
    module = benchmark("watching")
    for name, table in (("watching", module.table), ("watching_audits", module.power_table)):
        assert marked_table("docs/watching.md", name) == table(record("watching")).strip()


def test_confidence_is_compared_where_no_row_made_the_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items, answers = class_items(300)
    centers = rng.normal(size=(3, 6))

    def rows(labels: Any) -> np.ndarray:
        return centers[labels] + 0.6 * rng.normal(size=(len(labels), 6))

    given = rows([answers[item.id] for item in items])
    made = run(items, answers, budget=100, audit=60, features=given, out=tmp_path / "run")
    labels = rng.integers(3, size=150)
    alike = made.evaluate([f"new {n}" for n in range(150)], features=rows(labels))
    assert alike["told_after"] is None
    assert len(alike["confidence"]) == 2
    noise = 0.3 * rng.normal(size=(150, 6))
    assert made.evaluate([f"new {n}" for n in range(150)], features=noise)["told_after"]
