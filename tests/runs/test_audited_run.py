"""A run with an audit: bought first, kept apart, judged at the end, and only then told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.core.heads.linear import refit
from stacksl.errors import RunError
from stacksl.models.linear import Model
from stacksl.runs.finish.finish import finish
from stacksl.runs.session import session

from .changing_cases import audits
from .conftest import class_items
from .people_cases import facts_of

ITEMS, ANSWERS = class_items(160)
BUDGET = 100
SIZE = 25  # min(max(100 / 10, 50), 200, 100 / 4)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(ITEMS, ANSWERS, budget=BUDGET, out=tmp_path_factory.mktemp("audited") / "run")


def test_the_verdict_is_that_of_the_final_model_on_items_it_never_learned(done: Run) -> None:
    audit = facts_of(done).audit
    items = audits(done)
    assert len(items) == len(set(items)) == audit.n == SIZE
    learned = {row["item"] for row in done.ledger.export() if row["learned_at"] is not None}
    assert len(learned) == BUDGET - SIZE
    assert not learned & set(items)
    kept = [item for item in ITEMS if item.id in items]
    said = {row["id"]: row["index"] for row in done.predict(kept)}
    assert audit.correct == sum(said[item] == ANSWERS[item] for item in items)
    assert audit.accuracy == audit.worst == audit.best == audit.correct / SIZE


Caught = list[tuple[Any, ...]]


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Caught:
    """What runs give to `finish`, while the ledger can still be asked: the refit is made there."""
    seen: Caught = []

    def watch(*given: Any) -> None:
        finish(*given)
        seen.append(given)

    monkeypatch.setattr(session, "finish", watch)
    return seen


@pytest.mark.parametrize("names", [True, False])
def test_a_refit_with_the_audit_learns_its_labels_and_says_so(
    names: bool, caught: Caught, tmp_path: Path
) -> None:
    made = run(ITEMS, ANSWERS, budget=BUDGET, out=tmp_path / "run", class_names=names)
    before = {p.name: p.read_bytes() for p in made.folder.model.iterdir()}
    assert made.refit_with_audit() == SIZE
    after = {p.name: p.read_bytes() for p in made.folder.model.iterdir()}
    assert after["head.safetensors"] != before["head.safetensors"]
    assert {n for n in after if after[n] != before[n]} == {"head.safetensors"}
    game = caught[0][0].game
    examples, corpus = game.examples, game.corpus
    rows = [corpus.row[str(row["item"])] for row in made.ledger.export()]
    rows = [row for row, _, _ in examples.bought] + [r for r in rows if r in corpus.outside_pool()]
    assert len(rows) == BUDGET
    if not names:
        gold = np.array([ANSWERS[corpus.ids[row]] for row in rows])
        head = refit(examples.block.take(rows), gold, game.learner.scorer.theta, tune=True)
        mine = Model.load(made.folder.model).probabilities(examples.block)
        assert np.array(mine) == pytest.approx(
            np.array(head.probabilities(examples.block)), abs=1e-6
        )
    for name in ("report.html", "README.md"):
        page = (made.path / name).read_text().replace("&#39;", "'")
        assert f"also trained on the audit's {SIZE} labels" in page
    facts = facts_of(made)
    assert facts.audit.trained_on == SIZE
    assert facts.audit.n == SIZE
    assert game.trainer.labels == BUDGET - SIZE


def test_without_an_audit_or_a_final_head_nothing_is_refitted(tmp_path: Path) -> None:
    made = run(ITEMS, ANSWERS, budget=40, out=tmp_path / "run")
    with pytest.raises(RunError, match="an audit with labels to train on, got none"):
        made.refit_with_audit()
    assert made.status()["state"] == "finished"
    assert "accuracy on new items is not known" in (made.path / "README.md").read_text()
    assert facts_of(made).audit is None
    made = run(ITEMS, ANSWERS, budget=BUDGET, out=tmp_path / "paper", preset="paper")
    with pytest.raises(RunError, match="final head"):
        made.refit_with_audit()
