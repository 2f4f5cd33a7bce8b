"""The numbers of the pages are the measured ones, and the record is that of the script."""

from __future__ import annotations

import re

import pytest

from ..benchmarks import benchmark, record
from .pages_cases import PAGES

SCRIPT = benchmark("preset_differences")
RECORD = record("preset_differences")


def test_the_record_holds_every_cell_of_the_script() -> None:
    cells = {
        (study, cell.row, metric)
        for study, found in SCRIPT.STUDIES.items()
        for cell in found
        for metric in cell.metrics
    }
    assert {(r["study"], r["row"], r["metric"]) for r in RECORD["rows"]} == cells
    for row in RECORD["rows"]:
        assert len(row["values"]) == row["seeds"] == len(RECORD["seeds"]) >= 8
        assert row["value"] == pytest.approx(sum(row["values"]) / row["seeds"])
        cell = next(c for c in SCRIPT.STUDIES[row["study"]] if c.row == row["row"])
        assert row["settings"] == SCRIPT.describe(cell), "measured with what the script says"


@pytest.mark.parametrize("page", ["docs/paper.md", "docs/presets.md", "docs/negative-results.md"])
def test_the_numbers_are_the_measured_ones(page: str) -> None:
    assert SCRIPT.refreshed(PAGES[page], RECORD) == PAGES[page]
    bare = SCRIPT.INLINE.sub("", SCRIPT.BLOCK.sub("", PAGES[page]))
    assert not re.findall(r"\d ± \d", bare), "a number with an interval carries its marker"


def test_a_cell_measures_what_the_record_says() -> None:
    """Two cheap cells played again: the same arithmetic, up to the last digits of a BLAS."""
    seed = RECORD["seeds"][0]
    for study, row in (("llf", "κ = 1, capped"), ("clip at K = 200", "literal, ρ = 5")):
        cell = next(c for c in SCRIPT.STUDIES[study] if c.row == row)
        for metric, value in SCRIPT.measure(cell, seed).items():
            [kept] = [
                r["values"][0] for r in RECORD["rows"]
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


@pytest.mark.parametrize(("name", "workers"), [("ray_encoding", {1, 2}), ("ray_on_gpu", {1})])
def test_the_table_of_many_machines_is_the_record(
    name: str, workers: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("STACKSL_NO_CACHE", "OMP_NUM_THREADS", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(variable, "1")  # which the script sets: put back afterwards
    found = record(name)
    assert {row["workers"] for row in found["rows"]} == workers
    table = benchmark("ray_encoding").table(found["rows"], found["texts"])
    assert table in PAGES["docs/many-machines.md"]
