"""The table of the pool's default beside names alone and random is that of its record."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from typing import Any

import pytest

from .pages_cases import PAGES, ROOT


@pytest.fixture(scope="module")
def benchmark() -> Any:
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("floors", folder / "floors.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def test_the_page_shows_the_whole_record(benchmark: Any) -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "floors.json").read_text())["rows"]
    cells = {(r["set"], r["features"], r["seed"], r["labels"]) for r in rows}
    wanted = {
        (*each, seed, n) for each in benchmark.SETS for seed in range(5) for n in benchmark.BUDGETS
    }
    assert cells == wanted
    assert len(rows) == len(cells)
    [shown] = re.findall(
        r"<!-- benchmark: floors -->\n(.*?)\n<!-- end -->",
        PAGES["docs/studies/compare.md"],
        re.DOTALL,
    )
    assert shown == benchmark.table(rows)
