"""The measurement of the audit's interval: what it counts, and that its page shows its record."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from stacksl.models.audit import default_size
from stacksl.models.metrics import wilson

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "audit.md"


def _loaded(name: str) -> Any:
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def benchmark() -> Any:
    return _loaded("audit_coverage")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    text = (ROOT / "benchmarks" / "results" / "audit_coverage.json").read_text()
    return dict(json.loads(text))


def test_the_record_is_whole_and_of_default_audits(record: dict[str, Any], benchmark: Any) -> None:
    cells = {(row["set"], row["seed"]) for row in record["rows"]}
    assert cells == {(name, seed) for name in benchmark.SETS for seed in range(10)}
    for row in record["rows"]:
        assert row["audit"] == default_size(row["labels"])
        assert row["labels"] == row["items"] // 10
        assert row["audits"] == 2000
        n, correct, size = row["block"], row["correct"], row["audit"]
        exact = benchmark.exact(size, correct / n, lambda k: hypergeom(n, correct, size).pmf(k))  # noqa: B023
        assert row["exact"] == pytest.approx(exact, abs=1e-12)


def test_the_page_shows_the_record(record: dict[str, Any], benchmark: Any) -> None:
    block = r"<!-- benchmark: audit_coverage -->\n(.*?)<!-- end -->"
    found = re.search(block, PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1].strip() == benchmark.table(record["rows"]).strip()


def test_the_widths_on_the_page_are_wilsons() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 5
    for words in rows:
        n, half, near = (int(word) for word in words)
        for share, said in ((0.5, half), (0.9, near)):
            low, high = wilson(round(share * n), n)
            assert said == round(50 * (high - low))


# Where people err ----------------------------------------------------------------------------


def test_the_page_shows_the_record_of_people_who_err(benchmark: Any) -> None:
    record = json.loads((ROOT / "benchmarks/results/audit_people.json").read_text())
    for name, table in (("people", benchmark.people_table), ("both", benchmark.both_table)):
        block = rf"<!-- benchmark: audit_{name} -->\n(.*?)<!-- end -->"
        found = re.search(block, PAGE.read_text(), re.DOTALL)
        assert found is not None
        assert found[1].strip() == table(record["rows"]).strip()
    assert record["goals"] == benchmark.people_goals(record["rows"])
    assert record["goals_both"] == benchmark.people_goals(record["rows"], *benchmark.BOTH)
    cells = {(row["set"], row["errors"], row["audit"], row["people"]) for row in record["rows"]}
    assert len(cells) == len(record["rows"]) == 270


@pytest.mark.parametrize("crew", [2, 3])
def test_the_low_end_is_seldom_above_the_truth(benchmark: Any, crew: int) -> None:
    """Of 400 redraws 16 would be 4%: 29 have a chance of one in a thousand then."""
    rng = np.random.default_rng(0)
    gold = rng.integers(20, size=2000)
    said = np.where(rng.random(2000) < 0.85, gold, (gold + 1) % 20)
    sure = np.clip(0.8 * (said == gold) + 0.3 * rng.random(2000), 0.05, 1)
    errors = {"rate": 0.05, "times": 3, "along": 0.5}
    model = benchmark.Answered(said, gold, 20, sure, 6000)
    found = benchmark.people_cell(model, errors, 100, crew, 400, 0)
    for holds, over in (("holds", "over"), benchmark.BOTH):
        assert 400 * found[over] < 29
        assert found[holds] > 0.93
    assert found["both_width"] < found["width"], "the probabilities tell which answers are right"
    assert found["plain"] < 0.9
    assert found["answers"] <= 0.4


# The model's own probabilities ------------------------------------------------------------------


def test_the_page_shows_the_record_of_probabilities() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        powered = _loaded("audit_powered")
    finally:
        sys.path.pop(0)
    rows = json.loads((ROOT / "benchmarks/results/audit_powered.json").read_text())["rows"]
    found = re.search(
        r"<!-- benchmark: audit_powered -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL
    )
    assert found is not None
    assert found[1].strip() == powered.table(rows).strip()
    cells = {(row["audit"], row["set"], row["labels"]) for row in rows}
    assert cells == set(product(powered.SIZES, powered.SETS, powered.LABELS))
    assert len(rows) == len(cells)


# A stop at an accuracy --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopping() -> Any:
    return _loaded("accuracy_stop")


def test_the_page_shows_the_record_of_stops(stopping: Any) -> None:
    rows = json.loads((ROOT / "benchmarks/results/accuracy_stop.json").read_text())["rows"]
    found = re.search(
        r"<!-- benchmark: accuracy_stop -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL
    )
    assert found is not None
    assert found[1].strip() == stopping.table(rows).strip()
    assert len(rows) == 2 * len(stopping.SIZES) * sum(map(len, stopping.PATHS.values()))
    for row in rows:
        assert row["runs"] == 1000
        assert row["false"] <= 50, "the goal: 5% of false decisions"
        if (row["path"], row["final"]) == ("rises", 0.94):
            assert 0 <= sum(row["decided"]) <= 200


@pytest.mark.parametrize("people", [False, True])
def test_a_model_just_below_the_mark_is_seldom_let_through(stopping: Any, people: bool) -> None:
    """Of 150 runs 7.5 would be 5%: 17 have a chance of one in a thousand then."""
    found = stopping.cell([0.899] * 4, 60, people=people, runs=150, seed=1)
    assert sum(found["decided"]) == found["false"] < 17
    sure = stopping.cell([0.8, 0.999], 100, people=people, runs=20, seed=1)
    assert sum(sure["decided"]) > 0
    assert sure["false"] == 0
