"""Every example runs as printed."""

from __future__ import annotations

import runpy
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from stacksl.data import Dataset, sample

LINES = {"quickstart": 20, "first_day": 40}  # each example fits a screen
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def short_sample() -> tuple[Dataset, Dataset]:
    """The built-in sample with every sixth of its sentences."""
    train, test = sample()
    return replace(train, items=train.items[::6]), test


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(each, marks=pytest.mark.slow if each.stem == "first_day" else ())
        for each in EXAMPLES  # that of a day takes ten seconds
    ],
    ids=lambda path: path.stem,
)
def test_an_example_runs(script: Path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("stacksl.runs.items.sources.sample", short_sample)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "the report: " in said
    assert Path(said.split("the report: ")[1].strip()).is_file()
    assert len(script.read_text().splitlines()) < LINES[script.stem]
