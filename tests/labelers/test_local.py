"""Labels from a language model in this process."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stacksl
from stacksl.cli.entry import call
from stacksl.lm.model import LanguageModel
from stacksl.lm.prompt.format import TEMPLATES
from stacksl.lm.settings import ModelChoices
from stacksl.runs.session import model_labels
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item
from stacksl_lab.sample import FOLDER as SAMPLE

WORDS = ["a list of numbers", "a file on disk", "the name of a class", "an open socket"]


def test_a_local_model_labels_by_its_log_likelihoods(tmp_path, monkeypatch) -> None:
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

    def interrupt(step: stacksl.runs.loop.game.Progress) -> None:
        if step.phase == "rounds" and step.spent >= 2:
            raise stop

    with pytest.raises(stop):
        stacksl.run(items, labeler="hf:folder", budget=5, out="run", progress=interrupt)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")  # the name of the folder was relative
    run = stacksl.Run.open(tmp_path / "run").resume()
    own = LanguageModel(ModelChoices(model=str(SAMPLE))).scores(items, "token_mean")
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


def test_it_answers_as_its_settings_say_and_many_at_once(tmp_path, monkeypatch) -> None:
    pytest.importorskip("torch")
    items = [Item(f"q{n}", f"Return {WORDS[n % 4]}, number {n}.", tuple(WORDS)) for n in range(9)]
    way: dict[str, Any] = {"dtype": "bfloat16", "batch_tokens": 100, "template": "question"}
    choices = ModelChoices(str(SAMPLE), **{**way, "template": TEMPLATES["question"]})
    model = LanguageModel(choices)
    expected = [int(np.argmax(each)) for each in model.scores(items, "token_mean")]
    asked, own = list[int](), LanguageModel.scores

    def scores(model: LanguageModel, items: Sequence[Item], kind: Any) -> Any:
        assert model.choices.batch_tokens == 100
        asked.append(len(items))
        return own(model, items, kind)

    monkeypatch.setattr(LanguageModel, "scores", scores)
    monkeypatch.setattr(LanguageModel, "_alone", lambda *_: pytest.fail("a premise was scored"))
    given = {f"lm.{name}": value for name, value in way.items()}
    settings: dict[str, Any] = {"budget": 6, "mode": "pool", "gate": "random", **given}
    run = stacksl.run(items, labeler=f"hf:{SAMPLE}", out=tmp_path / "run", **settings)
    assert asked == [6]
    labels = {row["item"]: row["label"] for row in run.labels().rows}
    assert len(labels) == 6
    for item, best in zip(items, expected, strict=True):
        assert labels.get(item.id, item.candidates[best]) == item.candidates[best]
    assert RunFolder(run.path).resolved()["label_verdict"].startswith("packed torch ")


def test_owned_labels_stop_a_model_that_is_worse_than_their_largest_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first session was cut off before the verdict."""
    pytest.importorskip("torch")
    texts = [f"Return {WORDS[n % 4]}, number {n}." for n in range(40)]
    items = [Item(f"q{n}", text, tuple(WORDS)) for n, text in enumerate(texts)]
    own = LanguageModel(ModelChoices(model=str(SAMPLE))).scores(items, "token_mean")
    named = {int(np.argmax(each)) for each in own}
    other = next(n for n in range(4) if n not in named)  # the model never names it
    owned = tmp_path / "owned.csv"
    rows = "".join(f'"{text}",{WORDS[other]}\n' for text in texts[:30])
    owned.write_text(f"text,label\n{rows}")
    given: dict[str, Any] = {"classes": WORDS, "budget": 4, "owned": str(owned)}
    stop, answers_to = KeyboardInterrupt, model_labels.LocalLabeler._answers_to

    def cut_off(labeler: model_labels.LocalLabeler, requests: Any) -> Any:
        answers_to(labeler, requests)
        raise stop

    monkeypatch.setattr(model_labels.LocalLabeler, "_answers_to", cut_off)
    with pytest.raises(stop):  # after the model answered
        stacksl.run(texts[30:], labeler=f"hf:{SAMPLE}", out=tmp_path / "run", **given)
    monkeypatch.undo()
    run = stacksl.Run.open(tmp_path / "run").resume()
    assert run.status()["state"] == "waiting"
    assert "0 of 30 labels that you own" in run.status()["sheets"][0]["why"]
    assert {row["purpose"] for row in run.labels().rows} == {"owned"}
    assert run.resume().status()["state"] == "finished"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--labeler", "hf:sample", "--chat"], "a tokenizer with a chat template"),
        (["--labeler", "hf:sample", "--dtype", "float8"], "float8"),
        (["--labeler", "hf:sample", "--set", "lm.epochs=2"], "lm.epochs belongs to"),
        (["--labeler", "hf"], "hf:FOLDER"),
        (["--labeler", "hf:/nowhere"], "not a folder"),
        (["--labeler", "hf:sample", "--audit", "3"], "answered by people"),
        (["--labeler", "hf:sample", "--url", "http://127.0.0.1:9"], "a model on a server"),
    ],
)
def test_what_a_local_model_cannot_be(words: list[str], said: str, tmp_path, capsys) -> None:
    assert call(["run", "--out", str(tmp_path / "run"), *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "run").exists()
