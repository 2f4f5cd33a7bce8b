"""`stacksl reproduce` for a study without a model: what is typed, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from stacksl.cli import reproduce as verb
from stacksl.cli.entry import Stopped
from stacksl.cli.laboratory import reproduce_lab
from stacksl.errors import RunError, SettingsError
from stacksl.studies import lab
from stacksl.studies.lab.trial import LabStudy, Line, Numbers, Trial
from stacksl.studies.rows import KEYS


def play(world: Mapping[str, Any], lines: Sequence[Line], seed: int) -> list[Numbers]:
    if world.get("stop"):
        raise KeyboardInterrupt
    return [{"regret_per_round": 0.1 + 0.01 * seed, "asked_fraction": 0.25} for _ in lines]


def study(**world: Any) -> LabStudy:
    trial = Trial(world, (Line("one", budget_fraction=0.25, paper={"regret_per_round": 0.2}),))
    return LabStudy(
        "toy", "Toy", "it works", "1 s", ("regret_per_round",), 3, lambda _: [trial], play
    )


@pytest.fixture
def type_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr("stacksl.studies.study_named", lambda _: study(noise=0.3))
    app = typer.Typer()
    app.command()(verb.reproduce)
    more = ["--out", str(tmp_path / "out"), "--jobs", "1"]
    return lambda *words: CliRunner().invoke(app, [*words, *more])


def test_it_prints_the_table_and_the_time_left(type_: Any) -> None:
    said = type_("toy")
    assert said.exit_code == 0, said.output
    assert said.stdout.startswith("Toy. Claimed: it works.")
    assert "| one |  | 3 | 0.1100 ± 0.0248 | 0.2000 |" in said.stdout
    assert "3 of 3 streams" in said.stderr
    assert type_("toy", "--quiet").stderr == ""


def test_its_json_is_the_record(type_: Any) -> None:
    found = json.loads(type_("toy", "--seeds", "2", "--json").stdout)
    assert found["command"] == "stacksl reproduce toy --seeds 2 --json"
    [row] = found["rows"]
    assert tuple(row) == KEYS
    assert (row["value"], row["asked_fraction"], row["paper"]) == (0.105, 0.25, 0.2)


def test_a_model_has_no_place_here(type_: Any) -> None:
    said = type_("toy", "--model", "sample", "--keep")
    assert isinstance(said.exception, SettingsError)
    assert str(said.exception).endswith("leave out --model, --keep")


def test_a_stop_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="the same command goes on"):
        reproduce_lab(study(stop=True), 1, False, 1, None, tmp_path, False, True)


def test_figures_are_drawn_where_there_are_any(type_: Any, tmp_path: Path) -> None:
    said = type_("toy", "--figures", str(tmp_path / "drawn"))
    assert said.exit_code == 0
    assert "'toy' has no figure" in said.stderr


def with_figure(drawn: Callable[[], Any]) -> LabStudy:
    return replace(study(noise=0.3), figures=lambda rows: {"toy": drawn()})


def figure() -> Any:
    from matplotlib.figure import Figure

    return Figure()


def test_a_folder_for_figures_is_tried_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(RunError, match="cannot draw in .*; give another folder"):
            reproduce_lab(with_figure(figure), 1, False, 1, folder, tmp_path / "out", False, True)
    assert not (tmp_path / "out").exists()


def test_the_table_is_printed_before_the_figures_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Any:
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="No space left on device"):
        reproduce_lab(with_figure(fail), 1, False, 1, tmp_path, tmp_path, False, True)
    assert "| one |" in capsys.readouterr().out
    reproduce_lab(with_figure(figure), 1, False, 1, tmp_path / "new" / "deep", tmp_path, True, True)
    assert {p.name for p in (tmp_path / "new" / "deep").iterdir()} == {"toy.svg", "toy.png"}


def test_regret_draws_vector_and_picture(tmp_path: Path) -> None:
    from stacksl.studies.lab.drawing.style import save
    from stacksl.studies.rows import Row

    drawing = lab.LABORATORY["regret"].figures
    assert drawing is not None
    rows = [Row("regret", n, "regret_per_round", 0.01, 0.001, 3, paper=0.02) for n in "ab"]
    paths = save(drawing(rows), tmp_path)
    assert {p.suffix for p in paths} == {".svg", ".png"}
    assert all(p.stat().st_size > 1000 for p in paths)
    again = save(drawing(rows), tmp_path / "again")
    assert paths[0].read_bytes() == again[0].read_bytes(), "the same rows, the same file"
