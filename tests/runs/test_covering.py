"""Streams that ask by doubt and coverage: what they buy, and that every decision is replayed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.core.gates.registry import Margin
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec

from ..ledgers import rows_of
from ..saved_arrays import drop
from .conftest import class_items
from .forgetting.forgetting_cases import learned_of, stopping
from .people_cases import begin, expect_sound, fill, play, sheets, truth, wrong


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refit every four labels, as longer streams have it every 25."""
    monkeypatch.setattr("stacksl.runs.loop.linear_trainer.EVERY", 4)


def streamed(folder: Path, count: int = 60, **settings: Any) -> Run:
    """A finished stream of class items."""
    wanted = {"budget": 18, "mode": "stream", "audit": 0, "out": folder / "run"}
    return run(*class_items(count), **{**wanted, **settings})


def begin_stream(folder: Path, **settings: Any) -> Run:
    """A stream of people that waits for its first answers."""
    return begin(folder, **{"mode": "stream", "class_names": True, "audit": 0, **settings})


def refits(made: Run) -> list[int]:
    """The labels of the refits on the way."""
    return [row.payload["labels"] for row in rows_of(made, "refit") if not row.payload["tune"]]


def expect_replayed(made: Run) -> None:
    """Replayed without saved arrays, it decides the same and ends with the same model."""
    expect_sound(made)
    again = Run(shutil.copytree(made.path, made.path.with_name("again")))
    drop(again.path)
    for path in (again.path / "model").iterdir():
        path.unlink()
    again.folder.write_state("running", created="then")
    again.resume()
    for path in sorted((made.path / "model").iterdir()):
        assert path.read_bytes() == (again.path / "model" / path.name).read_bytes(), path.name
    shutil.rmtree(again.path)


def test_the_head_is_refitted_on_the_way_and_replayed(tmp_path: Path) -> None:
    made = streamed(tmp_path)
    assert refits(made) == [0, 4, 8, 12, 16]
    assert len(learned_of(made)) == 18
    assert {row.decision().reason for row in rows_of(made, "round")} <= {"gate", "must", "spent"}
    expect_replayed(made)


@pytest.mark.parametrize("other", [{"gate": "margin"}, {"class_names": False}, {"refit": False}])
def test_other_streams_ask_by_the_margin_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    covering, plain = tmp_path / "a", tmp_path / "b"
    rounds = [
        [row.decision() for row in rows_of(made, "round")]
        for made in (streamed(covering), streamed(plain, **other))
    ]
    assert refits(Run(plain / "run")) == []
    assert rounds[1][0].statistic == 0.0, "all scores are equal before the first label"
    assert [each.asked for each in rounds[0]] != [each.asked for each in rounds[1]]


@pytest.mark.parametrize("learned", [True, False])
def test_a_replay_begins_where_an_item_was_forgotten(tmp_path: Path, learned: bool) -> None:
    """Its features had a part in the statistics before: the rounds after it are played again."""
    answers = class_items(60)[1]
    with pytest.raises(KeyboardInterrupt):
        streamed(tmp_path, checkpoint_every=1000, labeler=stopping(answers, 9))
    made = Run(tmp_path / "run")
    rounds = {str(row.item): row.round or 0 for row in rows_of(made, "round")}
    before = rows_of(made, "round")[-1].seq
    item = next(name for name in list(rounds)[3:] if (name in learned_of(made)) is learned)
    forget(made.path, item)
    with pytest.raises(KeyboardInterrupt):
        made.resume(labeler=stopping(answers, 2))
    told = made.replay()
    assert told["after"] >= before
    assert told["rows"] >= told["rounds"] - len(rounds) > 0
    made.resume(labeler=stopping(answers, None))
    assert made.status()["state"] == "finished"
    assert made.replay()["rounds"] == 60


def test_corrections_make_a_refit_due(tmp_path: Path) -> None:
    waiting = begin_stream(tmp_path, open_questions=6)
    (sheet,) = sheets(waiting)
    waiting.answer(fill(sheet, wrong))
    before = len(refits(waiting))
    again = fill(sheet, truth)
    waiting.answer(again, correct=waiting.corrections(again))
    assert len(refits(waiting)) == before + 1
    done = play(waiting)
    expect_replayed(done)
    corrected = fill(sheet, wrong)
    done.answer(corrected, correct=done.corrections(corrected))
    expect_sound(done)


@pytest.mark.parametrize(("given", "pace"), [({}, 20 / 60), ({"gate.pace": 0.05}, 0.05)])
def test_the_gate_follows_the_statistic_at_its_pace(
    tmp_path: Path, given: dict[str, Any], pace: float
) -> None:
    made = streamed(tmp_path, **given)
    expect_replayed(made)
    with Session.open(RunSpec.open(made.folder)) as session:
        assert session.learner.gate == Margin(pace)
