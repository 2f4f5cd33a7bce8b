"""Labels from a language model in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import stacksl
from stacksl.cli.entry import call
from stacksl.lm import LanguageModel, ModelChoices
from stacksl.types import Item
from stacksl_lab.sample import FOLDER as SAMPLE

WORDS = ["a list of numbers", "a file on disk", "the name of a class", "an open socket"]


def test_a_local_model_labels_by_its_log_likelihoods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    shutil.copytree(SAMPLE, tmp_path / "folder")
    monkeypatch.chdir(tmp_path)
    items = [
        Item(f"q{n}", f"Return {WORDS[n % 4]}, number {n}.", tuple(WORDS[n % 3 :]))
        for n in range(9)
    ]
    stop = KeyboardInterrupt

    def connect(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", connect)
    monkeypatch.setattr("stacksl.runs.loop.progress.OFTEN", 0.0)

    def interrupt(step: stacksl.runs.loop.progress.Progress) -> None:
        if step.phase == "rounds" and step.spent >= 2:
            raise stop

    with pytest.raises(stop):
        stacksl.run(items, labeler="hf:folder", budget=5, out="run", progress=interrupt)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")  # the name of the folder was relative
    run = stacksl.Run.open(tmp_path / "run").resume()
    own = LanguageModel(ModelChoices(model=str(SAMPLE))).scores(items)["token_mean"]
    best = {
        item.id: item.candidates[np.argmax(each)] for item, each in zip(items, own, strict=True)
    }
    rows = run.labels().rows
    assert len(rows) == 5
    for row in rows:
        assert row["label"] == best[row["item"]]
        assert row["labeler"] == "hf:folder"
    assert len({row["label"] for row in rows}) > 1
    assert any("no audit by people" in each for each in run.status()["warnings"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--labeler", "hf"], "hf:FOLDER"),
        (["--labeler", "hf:/nowhere"], "not a folder"),
        (["--labeler", "hf:sample", "--audit", "3"], "answered by people"),
        (["--labeler", "hf:sample", "--url", "http://127.0.0.1:9"], "a model on a server"),
    ],
)
def test_what_a_local_model_cannot_be(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "--out", str(tmp_path / "run"), *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "run").exists()
