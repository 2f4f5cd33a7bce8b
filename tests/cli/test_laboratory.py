"""`stacksl-lab reproduce` for a study without a model: what is typed, what is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from stacksl.cli.live import Stopped
from stacksl.errors import RunError, SettingsError
from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.studies import LABORATORY
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
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[StreamStudy], None]:
    """Sets the study that every name means."""
    return lambda each: monkeypatch.setattr("stacksl_lab.studies.study_named", lambda _: each)


@pytest.fixture
def type_(tmp_path: Path, asked: Callable[[StreamStudy], None]) -> Callable[..., Any]:
    asked(study(noise=0.3))
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


def test_a_model_has_no_place_here(type_: Any) -> None:
    said = type_("toy", "--model", "sample", "--keep")
    assert isinstance(said.exception, SettingsError)
    assert str(said.exception).endswith("leave out --model, --keep")


def test_a_stop_says_how_to_go_on(type_: Any, asked: Any, tmp_path: Path) -> None:
    asked(study(stop=True))
    with pytest.raises(Stopped, match="the same command continues"):
        verb.reproduce("toy", seeds=1, jobs=1, out=tmp_path, quiet=True)


def test_figures_are_drawn_where_there_are_any(type_: Any, tmp_path: Path) -> None:
    said = type_("toy", "--figures", str(tmp_path / "drawn"))
    assert said.exit_code == 0
    assert "'toy' has no figure" in said.stderr


def with_figure(drawn: Callable[[], Any]) -> StreamStudy:
    return replace(study(noise=0.3), figures=lambda rows: {"toy": drawn()})


def figure() -> Any:
    from matplotlib.figure import Figure

    return Figure()


def test_a_folder_for_figures_is_tried_before_anything_is_measured(
    type_: Any, asked: Any, tmp_path: Path
) -> None:
    asked(with_figure(figure))
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        said = type_("toy", "--figures", str(folder))
        assert isinstance(said.exception, RunError)
        assert re.search("cannot draw in .*; give another folder", str(said.exception))
    assert not (tmp_path / "out").exists()


def test_the_table_is_printed_before_the_figures_are_drawn(
    type_: Any, asked: Any, tmp_path: Path
) -> None:
    def fail() -> Any:
        raise OSError(28, "No space left on device")

    asked(with_figure(fail))
    said = type_("toy", "--figures", str(tmp_path))
    assert "No space left on device" in str(said.exception)
    assert "| one |" in said.stdout
    asked(with_figure(figure))
    assert type_("toy", "--figures", str(tmp_path / "new" / "deep")).exit_code == 0
    assert {p.name for p in (tmp_path / "new" / "deep").iterdir()} == {"toy.svg", "toy.png"}


def test_regret_draws_vector_and_picture(tmp_path: Path) -> None:
    from stacksl_lab.figures.style import save
    from stacksl_lab.study.rows import Row

    drawing = LABORATORY["regret"].figures
    assert drawing is not None
    rows = [Row("regret", n, "regret_per_round", 0.01, 0.001, 3, paper=0.02) for n in "ab"]
    paths = save(drawing(rows), tmp_path)
    assert {p.suffix for p in paths} == {".svg", ".png"}
    assert all(p.stat().st_size > 1000 for p in paths)
    again = save(drawing(rows), tmp_path / "again")
    assert paths[0].read_bytes() == again[0].read_bytes(), "the same rows, the same file"
