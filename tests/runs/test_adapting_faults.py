"""What goes wrong where a language model is adapted: one sentence each, and the state is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.cli.entry import call
from stacksl.errors import DataError, RunError, SettingsError, StackslError
from stacksl.lm.training.adapters import WEIGHTS
from stacksl.runs.loop.language_trainer import expect_adapters
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import read_facts

from .lm_cases import QUICK, questions, tiny_model, write_corpus
from .people_cases import answer_all

SHORT: dict[str, Any] = {**QUICK, "budget": 4, "lm.refit_at": "1", "lm.adapt": "lora"}


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def failed(fault: type[StackslError], out: Path, model: Path | str, **settings: Any) -> str:
    """The sentence of a run that fails, which its state holds too."""
    with pytest.raises(fault) as caught:
        run(*questions(12), out=out, **{"lm.model": str(model)}, **{**SHORT, **settings})
    sentence = str(caught.value)
    assert "\n" not in sentence
    status = Run.open(out).status()
    assert (status["state"], status["sentence"]) == ("failed", sentence)
    assert status["resume"] == f"stacksl resume {out}"
    return sentence


def test_what_cannot_be_adapted_is_refused_before_a_folder_is_made(
    model: Path, tmp_path: Path
) -> None:
    """The test file, too: it is scored when all labels are paid, and no setting could help then.

    The hub is off in all tests, so a name there cannot be fetched.
    """
    items, answers = questions(12)
    odd = Item(id="odd", prompt="q", candidates=("a" * 200, "b"))
    twins = Item("twins", "salt", ("wave wave wave wave tide", "wave wave wave wave star"))
    tested = {"test": ([*items, odd], {**answers, "odd": 1})}
    same = {"items": [*items, twins], "answers": {**answers, "twins": 0}, "lm.max_len_choice": 4}
    faults: list[tuple[type[StackslError], dict[str, Any], str]] = [
        (DataError, tested, "item 'odd' has an option of 200 tokens, which leaves no room"),
        (DataError, same, "candidates 1 and 2 of item 'twins'"),
        (SettingsError, {"lm.lora_targets": "q_proj,nonsense"}, "nonsense"),
        (SettingsError, {"lm.model": "nobody/nothing"}, "nobody/nothing"),
    ]
    for fault, settings, sentence in faults:
        given = {"items": items, "answers": answers, "lm.model": str(model), **SHORT, **settings}
        with pytest.raises(fault) as caught:
            run(out=tmp_path / "run", **given)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_keeps_what_was_bought(model: Path, tmp_path: Path) -> None:
    given = {
        "update.learning_rate": 100,
        "lm.weight_decay": 1e38,
        "lm.batch_size": 1,
        "lm.warmup_share": 0.0,
        "lm.epochs": 3,
    }
    sentence = failed(RunError, tmp_path / "run", model, **given)
    assert "finite" in sentence
    made = Run.open(tmp_path / "run")
    assert made.status()["asked"] == 4
    with pytest.raises(StackslError, match="finite"):
        made.resume()
    assert made.status()["asked"] == 4, "nothing is bought again"
    made.change(settings={"update.learning_rate": 1e-4, "lm": {"weight_decay": 0.0}})
    status = made.status()
    assert (status["state"], status["asked"]) == ("finished", status["budget"])
    changes = read_facts(made.folder).asking.changes
    assert [each.who for each in changes] == ["update.learning_rate=0.0001", "lm.weight_decay=0.0"]
    assert made.folder.resolved()["update.learning_rate"] == 1e-4
    assert made.replay()["labels"] == status["budget"]
    with pytest.raises(RunError, match="asks nothing more"):
        made.change(settings={"lm.epochs": 1})


def test_a_damaged_model_and_its_cure(original: Path, model: Path, tmp_path: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    failed(SettingsError, tmp_path / "run", model)
    shutil.copy(original / "model.safetensors", weights)
    assert Run.open(tmp_path / "run").resume().status()["state"] == "finished"


def test_another_base_at_resume_is_refused_and_the_right_one_goes_on(
    original: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stacksl.lm.model import LanguageModel

    def broken(*_: Any) -> None:
        raise RunError("the disk is full: make room")

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "save", broken)
        assert "disk" in failed(RunError, tmp_path / "run", model)
    made = Run.open(tmp_path / "run")
    shutil.rmtree(model)
    tiny_model(model, seed=8)
    with pytest.raises(
        StackslError, match=r"run began with the weights \w{12}, but .*: restore its weights"
    ):
        made.resume()
    shutil.rmtree(model)
    shutil.copytree(original, model)
    assert made.resume().status()["asked"] == 4


def test_answers_are_taken_without_reading_the_weights(model: Path, tmp_path, monkeypatch) -> None:
    """Files that were touched are hashed again, and noted; only a refit reads them into a model."""
    from stacksl.lm import loading

    items, answers = questions(12)
    texts = {item.prompt: item.candidates[answers[item.id]] for item in items}
    more = {"labeler": "file", "sheets": "csv", "mode": "pool", "open_questions": 2, "audit": 0}
    made = run(items, out=tmp_path / "run", **{"lm.model": str(model)}, **{**SHORT, **more})
    recorded = made.folder.resolved()
    weights = model / "model.safetensors"

    def answered() -> str:
        answer_all(made, lambda row: texts[row["prompt"]])
        return str(made.status()["state"])

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the weights were read")

    with monkeypatch.context() as patch:
        patch.setattr(loading, "read_weights", refuse)
        os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 10**9))
        assert answered() == "waiting"
        touched = made.folder.resolved()
        assert touched["lm_weights"] != recorded["lm_weights"]
        assert {**touched, "lm_weights": ""} == {**recorded, "lm_weights": ""}
        with pytest.raises(AssertionError, match="were read"):
            answered()
    made.resume()
    assert made.status()["state"] == "finished"


def test_verify_finds_another_or_a_damaged_adapter(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SHORT, "lm.refit_at": "0.5,1"}
    made = run(*questions(12), out=tmp_path / "run", **{"lm.model": str(model)}, **settings)
    with made.ledger as ledger:
        expect_adapters(made.folder, ledger)
    first, second = (made.path / "adapters" / number / WEIGHTS for number in ("01", "02"))
    shutil.copy(first, second)
    assert call(["ledger", "verify", str(made.path)]) != 0
    assert "02 has other weights than its refit left" in capsys.readouterr().err
    first.write_bytes(first.read_bytes()[:-1])
    assert call(["ledger", "verify", str(made.path)]) != 0
    assert "01 cannot be read" in capsys.readouterr().err
    shutil.rmtree(made.path / "adapters")
    assert call(["ledger", "verify", str(made.path)]) == 0, "`resume` makes them again"


@pytest.mark.parametrize("lost", [["adapters"], ["adapters/01"]])
def test_a_missing_adapter_is_trained_again(model: Path, tmp_path: Path, lost: list[str]) -> None:
    settings = {**SHORT, "lm.refit_at": "0.5,1"}
    made = run(*questions(12), out=tmp_path / "run", **{"lm.model": str(model)}, **settings)
    kept = {path.name: path.read_bytes() for path in made.folder.model.glob("*.safetensors")}
    for place in [*lost, "model"]:
        path = made.path / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    made.resume()
    assert {p.name: p.read_bytes() for p in made.folder.model.glob("*.safetensors")} == kept
    said = [each for each in made.status()["warnings"] if "was missing" in each]
    assert said == [
        f"the adapter of refit {number} was missing and was trained again"
        for number in ((1, 2) if lost == ["adapters"] else (1,))
    ]
    made.replay()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"lm.adapt": "lora"}, "give --model NAME_OR_DIR"),
        ({"lm.lora_rank": 4}, "lora_rank belongs to a language model: give --model"),
        (
            {"lm.objective": "ce", "lm.epochs": 2},
            "lm.epochs, lm.objective belong to a language model",
        ),
        ({"lm.model": "m", "features": "hashing"}, "makes its own features"),
        ({"lm.model": "m", "scorer": "ridge"}, "the gate's head is 'newton', not 'ridge'"),
        ({"lm.model": "m", "lm.objective": "ce-hard"}, "give --set top_k=4"),
        (
            {"lm.model": "m", "lm.objective": "ce", "update.kl_weight": 0.2},
            "belongs to the objective 'stacksl'",
        ),
        ({"lm.model": "m", "lm.adapt": "full"}, "adapt must be 'lora'"),
        ({"model": "m", "shard": True}, "unknown setting 'shard'"),
        ({"lm.model": "m", "lm.refit_at": "1,0.5"}, "refit_at should be shares"),
        (
            {"lm.model": "m", "lm.answer_format": "leter"},
            "lm.answer_format must be 'option' or 'letter'",
        ),
    ],
)
def test_settings_at_odds(settings: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        run(*questions(6), out=tmp_path / "run", budget=2, **settings)
    assert told in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_item_of_more_options_than_letters_is_unusable(tmp_path: Path) -> None:
    items, answers = questions(8)
    items[3] = Item("many", "which?", tuple(f"option {n}" for n in range(30)))
    answers["many"] = 29
    path = write_corpus(tmp_path / "data.jsonl", (items, answers))
    kept = {item.id: answers[item.id] for item in items}
    model = tiny_model(tmp_path / "model", max_position_embeddings=512)
    given = {
        **QUICK,
        "lm.answer_format": "letter",
        "read.max_candidates": 2000,
        "budget": 2,
        "lm.refit_at": "1",
    }
    given["lm.model"] = str(model)
    with pytest.raises(DataError, match="has 26 letters, and item 'many' has 30 candidates: use"):
        run(items, kept, out=tmp_path / "refused", **given)
    assert not (tmp_path / "refused").exists()
    made = run(str(path), out=tmp_path / "run", **given)
    assert made.status()["state"] == "finished"
    (row,) = RunSpec.open(made.folder).dataset.rejected
    assert row.id == "many"
    assert row.reason == "too many options: 30, at most 26 are read"
