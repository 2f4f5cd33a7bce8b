"""The README's numbers are those of the committed results, and its table is made from them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _benchmark(name: str):
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_table_is_made_from_the_committed_rows() -> None:
    rows = json.loads((ROOT / "benchmarks/results/label_efficiency.json").read_text())["rows"]
    table = _benchmark("label_efficiency").table(rows)
    assert table in (ROOT / "README.md").read_text()
    assert {row["seed"] for row in rows} == set(range(10))


def test_the_pools_table_is_made_from_the_committed_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = json.loads((ROOT / "benchmarks/results/label_efficiency_pool.json").read_text())["rows"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))  # it reads its neighbour's streams
    table = _benchmark("label_efficiency_pool").table(rows)
    assert table in (ROOT / "README.md").read_text()
    assert {row["seed"] for row in rows} == set(range(10))
    assert all(row["asked"] == row["labels"] for row in rows)


def test_every_row_kept_its_budget_exactly() -> None:
    rows = json.loads((ROOT / "benchmarks/results/label_efficiency.json").read_text())["rows"]
    assert all(row["asked"] == row["labels"] for row in rows)


def test_the_language_models_table_is_made_from_the_committed_rows() -> None:
    kept = json.loads((ROOT / "benchmarks/results/language_model.json").read_text())
    table = _benchmark("language_model").table(kept["rows"], kept["base"]["pmi"])
    assert table in (ROOT / "docs" / "lm.md").read_text()
    assert all(row["asked"] == row["labels"] for row in kept["rows"])


def test_the_readme_fits_what_it_promises() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    for place in ("docs/paper.md", "docs/ledger.md", "docs/data.md", "benchmarks/README.md"):
        assert f"({place})" in text
        assert (ROOT / place).is_file(), place
