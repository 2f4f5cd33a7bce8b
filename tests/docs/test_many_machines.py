"""The table of docs/many-machines.md is the record of its benchmark."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from .pages_cases import PAGES, ROOT


def test_the_table_is_the_record(monkeypatch) -> None:
    for name in ("STACKSL_NO_CACHE", "OMP_NUM_THREADS", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "1")  # which the script sets: put back afterwards
    path = ROOT / "benchmarks" / "ray_encoding.py"
    spec = importlib.util.spec_from_file_location("ray_encoding", path)
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    record = json.loads((path.parent / "results" / "ray_encoding.json").read_text(encoding="utf-8"))
    assert {row["workers"] for row in record["rows"]} == set(script.WORKERS)
    assert script.table(record["rows"], record["texts"]) in PAGES["docs/many-machines.md"]
