"""The numbers of the pages are the measured ones, and the record is that of the script."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from typing import Any

import pytest

from .pages_cases import PAGES, ROOT


@pytest.fixture(scope="module")
def benchmark() -> types.ModuleType:
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("shown", folder / "preset_differences.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    path = ROOT / "benchmarks" / "results" / "preset_differences.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_the_record_holds_every_cell_of_the_script(benchmark: Any, record: dict[str, Any]) -> None:
    cells = {
        (study, cell.row, metric)
        for study, found in benchmark.STUDIES.items()
        for cell in found
        for metric in cell.metrics
    }
    assert {(r["study"], r["row"], r["metric"]) for r in record["rows"]} == cells
    for row in record["rows"]:
        assert len(row["values"]) == row["seeds"] == len(record["seeds"]) >= 8
        assert row["value"] == pytest.approx(sum(row["values"]) / row["seeds"])
        cell = next(c for c in benchmark.STUDIES[row["study"]] if c.row == row["row"])
        assert row["settings"] == benchmark.describe(cell), "measured with what the script says"


@pytest.mark.parametrize("page", ["docs/paper.md", "docs/presets.md", "docs/negative-results.md"])
def test_the_numbers_are_the_measured_ones(
    page: str, benchmark: Any, record: dict[str, Any]
) -> None:
    assert benchmark.refreshed(PAGES[page], record) == PAGES[page]
    bare = benchmark.INLINE.sub("", benchmark.BLOCK.sub("", PAGES[page]))
    assert not re.findall(r"\d ± \d", bare), "a number with an interval carries its marker"


def test_a_cell_measures_what_the_record_says(benchmark: Any, record: dict[str, Any]) -> None:
    """Two cheap cells played again: the same arithmetic, up to the last digits of a BLAS."""
    seed = record["seeds"][0]
    for study, row in (("llf", "κ = 1, capped"), ("clip at K = 200", "literal, ρ = 5")):
        cell = next(c for c in benchmark.STUDIES[study] if c.row == row)
        for metric, value in benchmark.measure(cell, seed).items():
            [kept] = [
                r["values"][0] for r in record["rows"]
                if (r["study"], r["row"], r["metric"]) == (study, row, metric)
            ]  # fmt: skip
            assert value == pytest.approx(kept, rel=0.02, abs=1e-3)


@pytest.mark.parametrize("page", [page for page in PAGES if "anking77" in PAGES[page]])
def test_numbers_of_banking77_say_that_its_training_rows_chose_defaults(page: str) -> None:
    """Beside them: in the same section, or the test part of a set that chose settings flatters."""
    for section in re.split(r"\n(?=#+ )", PAGES[page]):
        lines = [line for line in section.splitlines() if "anking77" in line]
        listed = page == "docs/studies/README.md"  # which names the set and has no number of it
        if lines and re.search(r"\.\d\d|\d points", section) and not listed:
            assert "training rows" in section, lines
