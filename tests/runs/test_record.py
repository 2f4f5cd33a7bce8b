"""The record of a run: what is known of it whenever it is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import RunError
from stacksl.labelers.registry import make_labeler


class Cut(BaseException):
    """Ends a run as a kill does: nothing of the package handles it."""


def killed_as_soon_as_it_is_a_run(
    corpus: Any, out: Path, monkeypatch: pytest.MonkeyPatch, **given: Any
) -> Run:
    """A run of `corpus` of which `run.db` was the last thing written."""

    def cut(*_: Any, **__: Any) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr("stacksl.runs.session.session.Session.open", cut)
        with pytest.raises(Cut):
            run(corpus.items, corpus.answers, budget=12, out=out, **given)
    return Run.open(out)


def test_warnings_of_the_data_outlive_a_kill(
    classes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = (classes.items[:3], [classes.answers[item.id] for item in classes.items[:3]])
    made = killed_as_soon_as_it_is_a_run(classes, tmp_path / "run", monkeypatch, test=test)
    assert made.status()["state"] == "interrupted"
    facts = json.loads((made.resume().path / "facts.json").read_text())
    assert "3 of 3 test prompts are also in the data to label" in facts["warnings"]


def test_another_labeler_never_goes_on_for_an_object(
    classes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {item.id: len(item.candidates) for item in classes.items}
    who = make_labeler("oracle", answers=classes.answers, sizes=sizes, seed=0)
    made = killed_as_soon_as_it_is_a_run(classes, tmp_path / "run", monkeypatch, labeler=who)
    with pytest.raises(RunError, match="come from the labeler 'oracle', an object made in Python"):
        made.resume()
    assert made.resume(labeler=who).status()["asked"] == 12
