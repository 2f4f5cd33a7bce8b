"""The check of a GPU: its script runs on a CPU too, and the page has what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..benchmarks import ROOT, benchmark, record

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


@pytest.mark.slow
def test_the_jobs_of_a_tiny_model_give_their_rows(tmp_path: Path) -> None:
    script = benchmark("gpu_check")
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
    assert first["passes"] > 64 > 16 >= kept["passes"]
    shown = script.tables({"device": "CPU", "versions": {}, "rows": rows})
    assert "| plain | 12 of 12 | 2 of 2 |" in shown


@pytest.mark.slow
def test_every_architecture_of_the_check_scores_and_trains(tmp_path: Path) -> None:
    script = benchmark("gpu_check")
    with torch.random.fork_rng():
        rows = list(script.kinds(script.case_of("tiny", tmp_path / "tiny", hub=False)))
    assert {row["path"] for row in rows} == {"packed", "padded"}, "no fault"
    assert len(rows) == 3 * len(script.KINDS)
    assert max(row["naive_largest"] for row in rows if row["dtype"] == "float32") < 1e-5


def test_the_page_has_the_tables_of_the_record() -> None:
    tables = benchmark("gpu_check").tables(record("gpu_check"))
    assert tables in (ROOT / "docs" / "lm.md").read_text(encoding="utf-8")
