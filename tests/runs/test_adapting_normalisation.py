"""`--normalisation auto`: labels held elsewhere choose how a language model's scores are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import SettingsError
from stacksl.lm import LanguageModel, ModelChoices
from stacksl.lm.scoring.normalise import calibrated_loss

from .lm_cases import QUICK, last_weights, questions, written

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

OWNED = questions(25, seed=3)


def begun(model: Path, folder: Path, **settings: Any) -> Run:
    folder.mkdir(exist_ok=True)
    owned = written(folder / "owned.jsonl", OWNED)
    data = written(folder / "data.jsonl", questions(12))
    given = {**QUICK, "budget": 4, "owned": str(owned), "lm.normalisation": "auto", **settings}
    return run(data, out=folder / "run", **{"lm.model": str(model), "lm.adapt": "lora"}, **given)


def way_of(made: Run) -> tuple[str, str]:
    recorded = made.folder.resolved()
    return recorded["lm_normalisation"], recorded["lm_pmi_context"]


def test_owned_labels_choose_before_the_first_round(model: Path, tmp_path: Path) -> None:
    made = begun(model, tmp_path / "auto")
    items, answers = OWNED
    gold = [answers[item.id] for item in items]
    losses = {}
    for premise in ("template", "last_line", "empty"):
        base = LanguageModel(ModelChoices(str(model), device="cpu", pmi_context=premise))
        for kind, scores in base.scores(items).items():
            losses[kind, premise] = calibrated_loss(scores, gold)
    assert losses[way_of(made)] == pytest.approx(min(losses.values()), abs=1e-5)
    assert made.status()["state"] == "finished"
    assert made.replay()["labels"] == 4 + len(items)
    kind, premise = way_of(made)
    named = begun(
        model,
        tmp_path / "named",
        lm={"normalisation": kind, "pmi_context": premise},
    )
    assert last_weights(named) == last_weights(made)


def test_a_stream_without_labels_refuses_it(model: Path) -> None:
    with pytest.raises(SettingsError, match="got a stream: give --mode pool, --owned FILE"):
        run(
            *questions(6),
            lm={"model": str(model), "adapt": "lora", "normalisation": "auto"},
            budget=2,
        )
