"""`--normalization auto`: labels bought first, or owned, choose how scores are made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, prepare, run
from stacksl.errors import DataError, LabelerError, SettingsError
from stacksl.features.store import load_block
from stacksl.labelers.registry import OracleLabeler
from stacksl.lm.model import LanguageModel
from stacksl.lm.scoring.normalize import NORMALIZATIONS, calibrated_loss, fitted_temperature
from stacksl.lm.settings import Lesson, ModelChoices
from stacksl.runs.loop.language_trainer import way_chosen
from stacksl.runs.session.language import CHOOSE_BY
from stacksl.runs.spec import RunSpec

from ..ledgers import rows_of
from .lm_cases import (
    QUICK,
    Corpus,
    Refusing,
    blocks,
    questions,
    tiny_model,
    told_labels,
    write_corpus,
)
from .people_cases import facts_of, read_rows, sheets, write_rows
from .test_adapting_budget import write_more
from .test_adapting_pool import bought_of, margin

FIRST, CORPUS = 6, questions(24)


@pytest.fixture(autouse=True, scope="module")
def _few() -> Iterator[None]:
    """Fewer labels choose, in less time."""
    assert CHOOSE_BY == 25
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stacksl.runs.session.language.CHOOSE_BY", FIRST)
        patch.setattr("stacksl.runs.loop.language_trainer.CHOOSE_BY", FIRST)
        yield


def begin_choice(model: Path, folder: Path, labeler: Any = None, **settings: Any) -> Run:
    folder.mkdir(exist_ok=True)
    data = write_corpus(folder / "data.jsonl", CORPUS)
    given = {**QUICK, "budget": 10, "open_questions": 4, "lm.normalization": "auto", **settings}
    return run(
        data,
        out=folder / "run",
        **{"lm.model": str(model), "lm.adapt": "lora"},
        labeler=labeler,
        **given,
    )


def left_after(model: Path, folder: Path, after: int, **settings: Any) -> Run:
    """A run whose labeler left after so many answers."""
    with pytest.raises(LabelerError, match="gone home"):
        begin_choice(model, folder, Refusing(CORPUS, after), **settings)
    return Run.open(folder / "run")


def choice_of(made: Run) -> dict[str, Any]:
    with made.ledger as ledger:
        return dict(way_chosen(ledger) or {})


def way_of(made: Run) -> tuple[str, str]:
    found = choice_of(made)
    return found["normalization"], found["pmi_context"]


def losses_by(model: Path, corpus: Corpus) -> dict[tuple[str, str], float]:
    """How unlikely each way makes the labels of a corpus."""
    items, answers = corpus
    gold, found = [answers[item.id] for item in items], {}
    for premise in ("template", "last_line", "empty"):
        base = LanguageModel(ModelChoices(str(model), device="cpu", pmi_context=premise))  # type: ignore[arg-type]
        for kind in NORMALIZATIONS:
            found[kind, premise] = calibrated_loss(base.scores(items, kind), gold)
    return found


def test_without_a_token_to_begin_with_the_empty_premise_is_not_tried(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    tokenizer = folder / "tokenizer_config.json"
    about = json.loads(tokenizer.read_text())
    del about["eos_token"]
    tokenizer.write_text(json.dumps(about))
    made = begin_choice(folder, tmp_path / "one")
    kind, premise = way_of(made)
    assert (made.status()["state"], kind == "pmi" and premise == "empty") == ("finished", False)
    with pytest.raises(DataError, match="no token to begin with: .* or choose another template"):
        begin_choice(folder, tmp_path / "two", **{"lm.template": "plain"})


def test_labels_drawn_first_choose_before_anything_else(model: Path, tmp_path, monkeypatch) -> None:
    lessons: list[list[Lesson]] = []
    refit = LanguageModel.refit

    def kept(self: LanguageModel, bought: Any, *words: Any) -> Any:
        lessons.append(list(bought))
        return refit(self, bought, *words)

    monkeypatch.setattr(LanguageModel, "refit", kept)
    made = begin_choice(
        model, tmp_path, test=write_corpus(tmp_path / "test.jsonl", questions(8, 1))
    )
    bought = bought_of(made)
    assert [each.reason for each in bought] == ["drawn"] * FIRST + ["rank"] * 4
    rows = rows_of(made)
    (row,) = (row for row in rows if row.event == "refreshed")
    before = [each for each in rows if each.seq < row.seq]
    assert sum(each.event == "learned" for each in before) == FIRST
    assert sum(each.event == "reserved" for each in before) == FIRST, "nothing else is bought"
    assert not any(each.event == "refit" for each in before)

    known = {item.id: item for item in CORPUS[0]}
    drawn = [known[each.item] for each in bought[:FIRST]]
    losses = losses_by(model, (drawn, CORPUS[1]))
    assert losses[way_of(made)] == pytest.approx(min(losses.values()), abs=1e-5)
    kind, premise = way_of(made)
    assert kind != "token_mean", "or the scores before the choice would do"

    named = prepare(
        tmp_path / "data.jsonl",
        settings={
            **QUICK,
            "lm.model": str(model),
            "lm.normalization": kind,
            "lm.pmi_context": premise,
        },
        out=tmp_path / "named",
        labeler=told_labels(CORPUS),
    ).start()
    first, chosen = blocks(made, CORPUS)
    (as_named,) = blocks(named, CORPUS)
    assert np.array_equal(first.phi, chosen.phi)
    assert np.allclose(chosen.base, as_named.base, rtol=1e-9)
    assert not np.allclose(first.base, chosen.base)
    assert choice_of(made)["temperature"] == pytest.approx(
        named.folder.resolved()["lm_temperature"]
    )

    gaps = {item.id: margin(inputs.offset) for item, inputs in zip(CORPUS[0], chosen, strict=True)}
    least = sorted(gaps.keys() - {item.id for item in drawn}, key=gaps.__getitem__)[:4]
    assert [each.item for each in bought[FIRST:]] == least, "by margins of the scores chosen"

    place = {item.id: n for n, item in enumerate(CORPUS[0])}
    scores = [np.array(chosen[place[each.item]].offset) for each in bought]
    scale = fitted_temperature(scores, [CORPUS[1][each.item] for each in bought], 1.0)
    (refitted,) = rows_of(made, "refit")
    temperature = choice_of(made)["temperature"] * scale
    assert refitted.payload["temperature"] == pytest.approx(temperature)
    for lesson, own in zip(lessons[0], scores, strict=True):
        assert lesson.reference == pytest.approx(own / scale)

    about = json.loads((made.path / "model" / "lm.json").read_text())
    assert (about["normalization"], about["pmi_context"]) == way_of(made)
    test = facts_of(made).curve[-1].accuracy
    assert made.evaluate(tmp_path / "test.jsonl")["accuracy"] == test
    assert made.replay()["labels"] == 10


def test_items_added_after_the_choice_have_its_scores(model: Path, tmp_path: Path) -> None:
    made = left_after(model, tmp_path, after=8, open_questions=2, lm={"refit_at": "0.8,1"})
    assert [row.payload["epoch"] for row in rows_of(made, "refreshed")] == [1, 2]
    made.change(items=write_more(tmp_path / "more.jsonl"), later=True)
    made.change(budget=20, later=True)
    items, answers = questions(12, seed=9)
    named = {f"n-{name}": gold for name, gold in answers.items()}
    sizes = {item.id: len(item.candidates) for item in CORPUS[0]}
    sizes |= {f"n-{item.id}": len(item.candidates) for item in items}
    made.resume(labeler=OracleLabeler(CORPUS[1] | named, sizes))
    assert any(each.item.startswith("n-") for each in bought_of(made))
    kind, premise = way_of(made)
    items = [each for each in RunSpec.open(made.folder).dataset.items if each.id[:2] == "n-"]
    choices = ModelChoices(str(model), device="cpu", pmi_context=premise)  # type: ignore[arg-type]
    expected = np.concatenate(LanguageModel(choices).scores(items, kind))  # type: ignore[index]
    place = made.folder.features / "epoch-01" / "more-1"
    block = load_block(place, None, [item.id for item in items])
    assert block.base == pytest.approx(expected / choice_of(made)["temperature"], abs=1e-4)
    assert made.replay()["labels"] == 20


def test_people_get_the_rest_once_they_have_answered_the_first(model: Path, tmp_path: Path) -> None:
    made = begin_choice(
        model, tmp_path, "file", open_questions=8, sheets="csv", annotators="anna", audit=0
    )
    gold = {item.prompt: item.candidates[CORPUS[1][item.id]] for item in CORPUS[0]}

    def answer(count: int) -> list[str]:
        (sheet,) = sheets(made)
        rows = read_rows(sheet)
        for row in [row for row in rows if not row["answer"]][:count]:
            row["answer"] = gold[row["prompt"]]
        made.answer(write_rows(sheet, rows))
        return [each.reason for each in bought_of(made)]

    assert len(bought_of(made)) == FIRST
    assert answer(FIRST - 2) == ["drawn"] * FIRST
    assert not choice_of(made)
    assert answer(2) == ["drawn"] * FIRST + ["rank"] * 4
    answer(4)
    assert made.status()["state"] == "finished"
    assert made.replay()["labels"] == 10


def test_owned_labels_choose_before_the_first_round(model: Path, tmp_path: Path) -> None:
    corpus = questions(10, seed=3)
    owned = write_corpus(tmp_path / "owned.jsonl", corpus)
    made = begin_choice(model, tmp_path, owned=str(owned), budget=4)
    recorded, losses = made.folder.resolved(), losses_by(model, corpus)
    way = recorded["lm_normalization"], recorded["lm_pmi_context"]
    assert losses[way] == pytest.approx(min(losses.values()), abs=1e-5)
    assert made.status()["state"] == "finished"
    assert made.replay()["labels"] == 4 + 10


def test_a_stream_without_labels_refuses_it(model: Path) -> None:
    given = {"model": str(model), "adapt": "lora", "normalization": "auto"}
    with pytest.raises(SettingsError, match="got a stream: give --mode pool, --owned FILE"):
        run(*questions(6), lm=given, budget=2)
