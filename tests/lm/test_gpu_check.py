"""The check of a GPU: its script runs on a CPU too, and the page has what it measured."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    path = ROOT / "benchmarks" / "gpu_check.py"
    spec = importlib.util.spec_from_file_location("gpu_check", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_jobs_of_a_tiny_model_give_their_rows(script: Any, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        case = script.case_of("tiny", tmp_path / "tiny", hub=False)
    played = script.runs(case, "plain", "play", beside="plain")
    rows = [*played, *script.paths(case, cpu=True), *script.window(case, "tiny")]
    rows += [*script.options(case), *script.steps(case), *script.passes(case, "float32")]
    own = rows[0]
    assert (own["replayed"], own["labels"], own["adapters"]) == (12, [12, 12], [2, 2])
    assert own["features"][0] == own["features"][1] > 2
    assert own["tested"]
    exact = [row for row in rows if row["job"] == "paths" and row["dtype"] == "float32"]
    assert {row["path"] for row in exact} == {"naive", "padded", "packed"}
    assert max(row["naive_largest"] for row in exact) < 1e-4
    assert [row["pass"] for row in rows if row["job"] == "passes"] == [
        "score", "score, states", "refit", "refit, checkpointing"
    ]  # fmt: skip
    through = [row for row in rows if row["job"] == "window" and row["dtype"] == "float32"]
    assert [row["taken"] for row in through] == ["packed", "padded"]
    assert max(row["naive_largest"] for row in through) < 1e-4
    first, kept = (row for row in rows if row["job"] == "options")
    assert first["passes"] > 128 > 16 >= kept["passes"]
    shown = script.tables({"device": "CPU", "versions": {}, "rows": rows})
    assert "| plain | plain | 12 of 12 | 2 of 2 |" in shown


def test_the_page_has_the_tables_of_the_record(script: Any) -> None:
    path = ROOT / "benchmarks" / "results" / "gpu_check.json"
    tables = script.tables(json.loads(path.read_text(encoding="utf-8")))
    assert tables in (ROOT / "docs" / "lm.md").read_text(encoding="utf-8")
