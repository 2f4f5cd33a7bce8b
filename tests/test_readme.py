"""Tables of the documentation that a benchmark makes are those of its committed results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _stands_on(table: str, page: str) -> None:
    """The page has the table, and so has every other page that shows one with this head."""
    head = table.partition("\n")[0]
    assert table in (ROOT / page).read_text(encoding="utf-8")
    for other in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        text = other.read_text(encoding="utf-8")
        assert head not in text or table in text, other


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
    _stands_on(table, "docs/studies/gates.md")
    assert {row["seed"] for row in rows} == set(range(10))


def test_the_table_of_a_pool_is_made_from_the_committed_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = json.loads((ROOT / "benchmarks/results/label_efficiency_pool.json").read_text())["rows"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))  # it reads its neighbor's streams
    benchmark = _benchmark("label_efficiency_pool")
    _stands_on(benchmark.table(rows), "docs/studies/gates.md")
    assert {row["seed"] for row in rows} == set(range(10))
    assert all(row["asked"] == row["labels"] for row in rows)


def test_the_readmes_table_is_made_from_the_committed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((ROOT / "benchmarks/results/other_loops.json").read_text())["rows"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = _benchmark("other_loops")
    _stands_on(benchmark.short_table(rows), "README.md")
    _stands_on(benchmark.table(rows), "docs/studies/compare.md")
    model = [
        f"{benchmark.by_seed(rows, case, 'random, stacksl', labels).mean():.3f}"
        for case in benchmark.CASES
        for labels in benchmark.BUDGETS
        if (case.source, case.variant) == ("stackoverflow_titles", "plain")
    ]
    assert " / ".join(model) in (ROOT / "README.md").read_text(), "random, same model"
    seeds = {row["seed"] for row in rows}
    assert len(rows) == len(seeds) * len(benchmark.CASES) * len(benchmark.ARMS) * 3


def test_the_cascades_table_is_made_from_the_committed_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = json.loads((ROOT / "benchmarks/results/cascade.json").read_text())["rows"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = _benchmark("cascade")
    _stands_on(benchmark.table(rows), "docs/answering.md")
    assert {row["seed"] for row in rows} == set(range(10))
    for row in rows:  # the model's labels are paid from the same money
        labels = row.get("labels", 0)
        model = 0 if row["arm"] == "people" else benchmark.POOL * benchmark.PRICE
        assert labels + model <= row["money"] < labels + model + 1


def test_every_row_kept_its_budget_exactly() -> None:
    rows = json.loads((ROOT / "benchmarks/results/label_efficiency.json").read_text())["rows"]
    assert all(row["asked"] == row["labels"] for row in rows)


def test_the_language_models_table_is_made_from_the_committed_rows() -> None:
    kept = json.loads((ROOT / "benchmarks/results/language_model.json").read_text())
    _stands_on(_benchmark("language_model_table").table(kept), "docs/lm.md")
    for row in kept["rows"]:  # seeds that chose settings are not reported on
        assert (row["seed"] >= 100) == (row["pilot"] > 0)
        left = kept["items"] - (row["n"] if row["pilot"] else 0)
        assert row["labels"] == int(row["budget"] * left)
        losses = row.get("held_out_losses", {})  # of the weights of self-training, by name in JSON
        assert not losses or row["weight"] == float(min(losses, key=losses.get))


def test_the_choice_of_a_normalization_is_made_from_the_committed_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    kept = json.loads((ROOT / "benchmarks/results/normalization_choice.json").read_text())
    _stands_on(_benchmark("normalization_choice").table(kept), "docs/lm.md")
    kept = json.loads((ROOT / "benchmarks/results/stacked_scores.json").read_text())
    _stands_on(_benchmark("stacked_scores").table(kept), "docs/lm.md")
    assert {row["seed"] for row in kept["rows"]} == set(range(10))


def test_the_table_of_banks_is_made_from_the_committed_rows() -> None:
    rows = json.loads((ROOT / "benchmarks/results/bank.json").read_text())
    _stands_on(_benchmark("bank").table(rows), "docs/banks.md")


def test_the_floors_are_made_from_the_committed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((ROOT / "benchmarks/results/floors.json").read_text())["rows"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = _benchmark("floors")
    _stands_on(benchmark.table(rows), "docs/studies/compare.md")
    keys = ("set", "features", "variant", "pool", "seed", "arm", "labels")
    assert len(rows) == len({tuple(row[key] for key in keys) for row in rows})
    measured = {(row["set"], row["features"], row["variant"]) for row in rows}
    assert measured == {(c.source, c.features, c.variant) for c in benchmark.CASES}


def test_what_a_label_buys_is_made_from_the_committed_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    _stands_on(_benchmark("before_after").table(), "docs/what-a-label-buys.md")


def test_the_readme_fits_what_it_promises() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    for place in ("docs/paper.md", "docs/ledger.md", "docs/data.md", "docs/benchmarks.md"):
        assert f"({place})" in text
        assert (ROOT / place).is_file(), place
