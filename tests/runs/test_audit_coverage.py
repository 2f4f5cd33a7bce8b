"""The measurement of the audit's interval: what it counts, and that its page shows its record."""

from __future__ import annotations

import importlib.util
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from stacksl.data import sample
from stacksl.models.audit import default_size
from stacksl.models.metrics import wilson

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "audit.md"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    path = ROOT / "benchmarks" / "audit_coverage.py"
    spec = importlib.util.spec_from_file_location("audit_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    text = (ROOT / "benchmarks" / "results" / "audit_coverage.json").read_text()
    return dict(json.loads(text))


def test_exact_coverage_is_the_share_of_all_audits_that_cover(benchmark: Any) -> None:
    """All 3,003 audits of 5 of 15 items, counted one by one."""
    right = np.array([1] * 6 + [0] * 9, dtype=bool)
    truth = float(right.mean())
    covered = [
        benchmark.covers(int(right[list(rows)].sum()), 5, truth)
        for rows in combinations(range(15), 5)
    ]
    exact = benchmark.exact(5, truth, lambda k: hypergeom(15, 6, 5).pmf(k))
    assert exact == pytest.approx(np.mean(covered))
    assert 0 < exact < 1


def test_simulated_coverage_is_the_exact_one_but_for_chance(benchmark: Any) -> None:
    """2,000 draws: four standard errors, exceeded once in 16,000 by a right simulation."""
    right = np.arange(90) % 3 > 0
    exact = benchmark.exact(20, 2 / 3, lambda k: hypergeom(90, 60, 20).pmf(k))
    error = np.sqrt(exact * (1 - exact) / benchmark.AUDITS)
    assert abs(benchmark.simulated(right, 20, 0) - exact) < 4 * error


def test_a_block_is_kept_from_the_run(benchmark: Any) -> None:
    everything, _ = sample()
    rest, block = benchmark.split(everything, 3)
    ids = {item.id for item in everything.items}
    assert {i.id for i in rest.items} | {i.id for i in block.items} == ids
    assert len(rest.items) + len(block.items) == len(ids)
    assert len(block.items) == len(ids) // 3
    assert set(block.answers) == {item.id for item in block.items}
    assert [i.id for i in benchmark.split(everything, 4)[1].items] != [i.id for i in block.items]


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
