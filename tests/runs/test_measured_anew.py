"""What measures a run whose budget changed: its audit, a fresh one, or one that was shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.errors import SettingsError
from stacksl.runs.spec import RunSpec

from ..ledgers import bought
from .changing_cases import POOL, audits, finished, labeled
from .conftest import class_items
from .people_cases import copy_of, expect_sound, facts_of


@POOL
def test_a_finished_run_goes_on_and_is_measured_anew(tmp_path: Path, mode: str) -> None:
    done = finished(tmp_path, mode=mode, audit=6)
    before = audits(done)
    model = (done.path / "model" / "head.safetensors").read_bytes()
    if mode == "stream":  # every item has passed
        with pytest.raises(SettingsError, match="stacksl change RUN --items FILE"):
            done.change(budget=120, later=True)
        assert done.status()["state"] == "finished"
        more = labeled(tmp_path / "more.csv", ids=True, first=700, count=120)
        done.change(items=more, later=True)
    assert done.change(budget=120, later=True).labels == 120
    assert done.status()["state"] == "stopped"
    done.resume()
    assert done.status()["state"] == "finished"
    assert done.status()["spent"] == 120
    fresh = audits(done)[len(before) :]
    assert len(fresh) == 25  # min(max(100 / 10, 50), 200, 100 / 4)
    learned = {row["item"] for row in bought(done, purpose="train")}
    assert len(learned) == 120 - 25 - 6
    assert not learned & {*fresh, *before}
    facts = facts_of(done)
    items = 160 if mode == "pool" else 280
    assert (facts.audit.n, facts.audit.passed_over) == (25, pytest.approx(20 / items))
    seen = len(learned) if mode == "pool" else items - 6 - 25  # a pool records what it asks
    assert facts.budget.rounds == done.status()["rounds"] == seen
    assert (done.path / "model" / "head.safetensors").read_bytes() != model
    expect_sound(done)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished(tmp_path_factory.mktemp("audited"), audit=6)


@pytest.fixture
def done(audited: Run, tmp_path: Path) -> Run:
    """A copy of a finished run with an audit of six."""
    return copy_of(audited, tmp_path)


def test_a_few_labels_more_are_measured_by_the_audit_that_was_shown(done: Run) -> None:
    first = facts_of(done).audit
    for labels in (40, 60):
        found = done.change(budget=labels)
        assert "the one that was shown measures" in str(found.measures)
        assert len(audits(done)) == 6
        second = facts_of(done).audit
        assert (second.n, second.number, second.passed_over) == (6, 1, 0.0)
        assert (first.shown_at, second.shown_at, second.learned) == (14, 14, labels - 6)
        assert (first.shown_before, second.shown_before) == (False, True)
        page = (done.path / "report.html").read_text()
        assert "This audit was shown before, when the model had learned 14 labels" in page
    expect_sound(done)


def test_labels_held_elsewhere_do_not_make_an_old_audit_new(done: Run, tmp_path: Path) -> None:
    done.change(owned=labeled(tmp_path / "owned.csv", ids=True, first=700, count=15), later=True)
    done.resume()
    audit = facts_of(done).audit
    assert (audit.number, audit.shown_at, audit.learned) == (1, 14, 29)


def test_an_audit_that_was_leased_stays_with_further_changes(done: Run) -> None:
    found = done.change(budget=100, later=True)
    assert (found.audit, len(audits(done))) == (20, 26), "leased with the change"
    assert f"20 of the {found.more} added labels pay a second audit" in str(found.measures)
    for labels in (140, 120):
        found = done.change(budget=labels, later=True)
        assert found.audit == 20
        assert f"20 of the {labels} labels pay a second audit" in str(found.measures)
    assert RunSpec.open(done.folder).terms.audits == (6, 20)
    with pytest.raises(SettingsError, match="give at least 40"):
        done.change(budget=20)
    done.resume()
    assert (len(audits(done)), done.status()["spent"]) == (26, 120)
    assert facts_of(done).audit.n == 20  # type: ignore[union-attr]
    expect_sound(done)


@pytest.mark.parametrize("tested", [True, False])
def test_who_wanted_no_audit_gets_none(tmp_path: Path, tested: bool) -> None:
    own: dict[str, Any] = {"test": class_items(20, seed=9)} if tested else {"audit": 0}
    done = finished(tmp_path, **own)
    done.change(budget=120, later=True)
    assert audits(done.resume()) == []
    assert done.status()["asked"] == 120
