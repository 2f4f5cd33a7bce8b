"""`stacksl-lab reproduce` for a study without a model: what is typed, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.study.rows import KEYS
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.verbs import reproduce as verb


def stream(seed: int, **source: Any) -> None:
    if source.get("stop"):
        raise KeyboardInterrupt


def measure(_: None, line: Line, seed: int) -> Numbers:
    return {"regret_per_round": 0.1 + 0.01 * seed, "asked_fraction": 0.25}


def study(**source: Any) -> StreamStudy:
    trial = Trial(source, (Line("one", budget_fraction=0.25, paper={"regret_per_round": 0.2}),))
    return StreamStudy(
        "toy", "Toy", "it works", "1 s", ("regret_per_round",), 3, lambda _: [trial], measure,
        stream,
    )  # fmt: skip


@pytest.fixture
def set_study(monkeypatch: pytest.MonkeyPatch) -> Callable[[StreamStudy], None]:
    """Sets the study that every name means."""
    return lambda each: monkeypatch.setattr("stacksl_lab.studies.study_named", lambda _: each)


@pytest.fixture
def type_(tmp_path: Path, set_study: Callable[[StreamStudy], None]) -> Callable[..., Any]:
    set_study(study(noise=0.3))
    app = typer.Typer()
    app.command()(verb.reproduce)
    more = ["--out", str(tmp_path / "out"), "--jobs", "1"]
    return lambda *words: CliRunner().invoke(app, [*words, *more])


def test_it_prints_the_table_and_the_time_left(type_: Any) -> None:
    said = type_("toy")
    assert said.exit_code == 0, said.output
    assert said.stdout.startswith("Toy. Claimed: it works.")
    assert "| one |  | 3 | 0.1100 ± 0.0248 | 0.2000 |" in said.stdout
    assert "3 of 3 (seed 2)" in said.stderr
    assert type_("toy", "--quiet").stderr == ""


def test_its_json_is_the_record(type_: Any) -> None:
    found = json.loads(type_("toy", "--seeds", "2", "--json").stdout)
    assert found["command"] == "stacksl-lab reproduce toy --seeds 2 --json"
    [row] = found["rows"]
    assert tuple(row) == KEYS
    assert (row["value"], row["asked_fraction"], row["paper"]) == (0.105, 0.25, 0.2)
