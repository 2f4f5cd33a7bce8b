"""A run that adapts a language model goes on without the item."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacksl.api import Run, run
from stacksl.runs.changes.forgetting import forget

from .forgetting_cases import learnt_of, stopping, verify


def test_a_language_model_goes_on_without_the_item(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from ..lm_cases import QUICK, questions, tiny_model

    items, answers = questions(24)
    spec = {
        **QUICK,
        "lm.model": str(tiny_model(tmp_path / "model")),
        "lm.adapt": "lora",
        "audit": 0,
    }
    spec |= {"lm.refit_at": "0.5,1", "mode": "stream", "budget": 8, "update.kl_on_skips": True}
    with pytest.raises(KeyboardInterrupt):
        run(items, answers, out=tmp_path / "r", labeler=stopping(answers, 5), **spec)
    made = Run(tmp_path / "r")
    learnt = learnt_of(made)
    assert len(learnt) == 5
    with made.ledger as ledger:
        unseen = [item.id for item in items if not ledger.seen(item.id)]
    told = forget(made.path, next(iter(learnt)))
    assert any("every adapter trained since" in sentence for sentence in told.remains)
    forget(made.path, unseen[0])
    made.resume(labeler=stopping(answers, None))
    assert made.status()["state"] == "finished"
    assert made.replay()["labels"] == 7
    verify(made.path)
    texts = {item.prompt for item in items if item.id in (next(iter(learnt)), unseen[0])}
    for path in (p for p in made.path.rglob("*") if p.is_file()):
        assert not any(f'"{text}"'.encode() in path.read_bytes() for text in texts), path
