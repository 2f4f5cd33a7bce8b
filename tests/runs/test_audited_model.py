"""An audit of an adapted language model: judged by the adapter alone, as `predict` answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.api import run
from stacksl.report.facts import Facts

from .lm_cases import QUICK, questions, tiny_model

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's own
def test_the_audit_is_of_what_the_model_predicts(tmp_path: Path) -> None:
    items, answers = questions(30)
    made = run(
        items,
        answers,
        out=tmp_path / "run",
        **{"lm.model": str(tiny_model(tmp_path / "base")), "lm.adapt": "lora"},
        **{**QUICK, "budget": 16, "audit": 10, "lm.refit_at": "1"},
    )
    audit = Facts.from_json((made.path / "facts.json").read_text()).audit
    kept = {str(row["item"]) for row in made.ledger.export() if row["purpose"] == "audit"}
    assert len(kept) == audit.n == 10
    said = {row["id"]: row["index"] for row in made.predict([i for i in items if i.id in kept])}
    assert audit.correct == sum(said[item] == answers[item] for item in kept)
    learned = {row["item"] for row in made.ledger.export() if row["learned_at"] is not None}
    assert len(learned) == 6
    assert not learned & kept
    assert "10 audited items" in (made.path / "README.md").read_text()
