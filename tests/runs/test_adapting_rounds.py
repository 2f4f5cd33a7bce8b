"""A run that adapts a language model: budgets, gates, followers, and what a refit gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.api import run
from stacksl.core.learner import loss_set
from stacksl.lm.model import LanguageModel, Lesson

from ..ledgers import rows_of
from .lm_cases import QUICK, SHORT, Corpus, adapt, blocks, last_weights, questions, sentences

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("mode", "gate"),
    [
        ("stream", "margin"),
        ("pool", "margin"),
        *(pytest.param("stream", gate, marks=SLOW) for gate in ("random", "first", "information")),
        *(pytest.param("pool", gate, marks=SLOW) for gate in ("random", "information")),
    ],
)
def test_the_budget_is_exact(model: Path, tmp_path: Path, mode: str, gate: str) -> None:
    made = adapt(
        model, questions(20), tmp_path / "run", mode=mode, gate=gate, open_questions=4, **SHORT
    )
    status = made.status()
    rounds = 20 if mode == "stream" else 6
    assert (status["state"], status["rounds"]) == ("finished", rounds)
    assert len(rows_of(made, "learned")) == status["asked"] <= 6
    assert status["asked"] == 6, "every gate spends all of it"
    adapted = [row for row in rows_of(made, "refit") if "adapter" in row.payload]
    assert adapted[-1].payload["labels"] == status["asked"]
    assert made.replay()["rounds"] == rounds


@pytest.fixture
def refitted(monkeypatch: pytest.MonkeyPatch) -> list[list[Lesson]]:
    """What each refit of the runs of a test was given."""
    given: list[list[Lesson]] = []
    original = LanguageModel.refit

    def noted(self: LanguageModel, bought: Any, *words: Any) -> Any:
        given.append(list(bought))
        return original(self, bought, *words)

    monkeypatch.setattr(LanguageModel, "refit", noted)
    return given


@pytest.mark.parametrize("objective", ["ce-hard", "stacksl"])
def test_hard_candidates_are_those_presented_or_all_others(
    model: Path, corpus: Corpus, tmp_path: Path, refitted: list[list[Lesson]], objective: str
) -> None:
    settings = {**SHORT, "top_k": 1, "gate": "first", "lm.objective": objective}
    made = adapt(model, corpus, tmp_path / "run", **settings)
    shown = {row.decision().item: row.decision().presented for row in rows_of(made, "round")}
    assert [len(each) for each in refitted] == [3, 6]
    outside = 0
    for each in refitted[-1]:
        gold = corpus[1][each.item.id]
        assert each.label == gold
        assert len(shown[each.item.id]) == 2
        assert each.candidates == loss_set(shown[each.item.id], gold, len(each.item.candidates))
        outside += gold not in shown[each.item.id]
    assert outside, "some gold answer was not among those presented"
    assert made.replay()["labels"] == 6


def test_skipped_items_since_the_last_refit_are_held_where_they_were(
    model: Path, corpus: Corpus, tmp_path: Path, refitted: list[list[Lesson]]
) -> None:
    made = adapt(model, corpus, tmp_path / "run", **{"update.kl_on_skips": True}, **SHORT)
    base = next(blocks(made, corpus))
    place = {item.id: n for n, item in enumerate(corpus[0])}
    skipped: list[list[str]] = [[]]
    for row in rows_of(made):
        if row.event == "refit":
            skipped.append([])
        elif row.event == "round" and not row.decision().asked:
            skipped[-1] += [row.decision().item] if row.decision().reason != "spent" else []
    assert all(skipped[:2]), "both refits have some"
    first = made.folder.resolved()["lm_temperature"]
    fitted = [row.payload["temperature"] for row in rows_of(made, "refit")]
    for each, expected, temperature in zip(refitted, skipped, fitted, strict=False):
        held = [b for b in each if b.label is None]
        assert [b.item.id for b in held] == expected
        for bought in each:
            offset = base[place[bought.item.id]].offset * first / temperature
            assert bought.reference == pytest.approx(tuple(offset), rel=1e-12)
    plain = adapt(model, corpus, tmp_path / "plain", **SHORT)
    assert last_weights(made) != last_weights(plain), "the terms pull"


@pytest.mark.parametrize("protocol", ["option", pytest.param("letter", marks=SLOW)])
def test_fixed_classes_from_a_table(model: Path, tmp_path: Path, protocol: str) -> None:
    items, answers = sentences(12)
    table = tmp_path / "data.csv"
    lines = [f"{item.prompt},{item.candidates[answers[item.id]]}" for item in items]
    table.write_text("\n".join(["text,label", *lines]) + "\n")
    given = {**QUICK, **SHORT, "lm.answer_format": protocol, "lm.objective": "ce"}
    made = run(table, test=table, out=tmp_path / "run", **{"lm.model": str(model)}, **given)
    assert made.status()["asked"] == 6
    assert set(made.model.classes or ()) == {"bread", "sea", "night"}
    gold = [item.candidates[answers[item.id]] for item in items]
    right = [row["choice"] == name for row, name in zip(made.predict(table), gold, strict=True)]
    assert made.evaluate(table)["correct"] == sum(right)
    assert made.replay()["labels"] == 6
