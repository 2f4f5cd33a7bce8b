"""The tables of docs/many-machines.md are the records of its benchmark."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from .pages_cases import PAGES, ROOT


@pytest.mark.parametrize(("name", "workers"), [("ray_encoding", {1, 2}), ("ray_on_gpu", {1})])
def test_the_table_is_the_record(name: str, workers: set[int], monkeypatch) -> None:
    for variable in ("STACKSL_NO_CACHE", "OMP_NUM_THREADS", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(variable, "1")  # which the script sets: put back afterwards
    path = ROOT / "benchmarks" / "ray_encoding.py"
    spec = importlib.util.spec_from_file_location("ray_encoding", path)
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    record = json.loads((path.parent / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert {row["workers"] for row in record["rows"]} == workers
    assert script.table(record["rows"], record["texts"]) in PAGES["docs/many-machines.md"]
