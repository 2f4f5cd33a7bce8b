"""A finished run forgets an item: its report, its model, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stacksl.api import Run, run
from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.runs.changes.forgetting import Forgotten, forget
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.derived import DERIVED
from stacksl.runs.storage.folder import RunFolder

from ..conftest import Finished, class_items


def test_texts_without_ids_keep_their_ids(tmp_path: Path) -> None:
    texts = [f"card{n % 5} w{n % 7} n{n}" for n in range(30)]
    made = run(
        texts, classes=["a", "b"], labeler="file", budget=10, audit=4, batch=3, sheets="csv",
        features="hashing", out=tmp_path / "run",
    )  # fmt: skip
    for _ in range(2):
        with made.ledger as ledger:
            item = ledger.open_purchases()[0].item
        forget(made.path, item)
        assert Run.open(made.path).resume().status()["state"] == "waiting"
    items = RunSpec.open(RunFolder(made.path)).dataset.items
    assert sum(each.id == f"row-{n:06d}" for n, each in enumerate(items, start=1)) == 28


def test_the_report_shows_it_no_more(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made = spoil(pairs)
    facts = formats.from_json((made.path / "facts.json").read_text())
    item = next(each for each in pairs.items if each.id == facts["contested"][2]["item"])
    assert item.prompt in (made.path / "report.html").read_text(encoding="utf-8")
    forget(made.path, item.id)
    assert not any((made.path / name).exists() for name in DERIVED)
    assert made.status()["resume"] == f"stacksl resume {made.path}"
    assert made.resume().status()["state"] == "finished"
    again = formats.from_json((made.path / "facts.json").read_text())
    assert item.id not in {each["item"] for each in again["contested"]}
    assert item.prompt not in (made.path / "report.html").read_text(encoding="utf-8")
    other = Run(pairs.run.path)  # the run that was copied is as it was
    assert item.prompt in (other.path / "report.html").read_text(encoding="utf-8")


def test_a_sentence_that_names_it_is_deleted(
    pairs: Finished, spoil: Callable[[Finished], Run]
) -> None:
    made, item = spoil(pairs), pairs.items[5]
    said = ["12 texts were cut", "3 are gone (p1, p5, p50)", "see the item 'p5'", "xp5 p5-x"]
    made.folder.write_state("failed", warnings=said, sentence=f"so {item.prompt} it is")
    forget(made.path, item.id)
    state = made.folder.read_state()
    assert state["warnings"] == [said[0], said[3]]
    assert "sentence" not in state


def test_what_is_told_is_plain(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made = spoil(pairs)
    told = forget(made.path, pairs.items[0].id)
    assert isinstance(told, Forgotten)
    assert told.name.startswith("forgotten-")
    assert RunFolder(made.path).path.stat().st_mode & 0o777 == 0o700
    for path in made.path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_refit_on_the_audit_is_to_be_made_again(tmp_path: Path) -> None:
    items, answers = class_items(40)
    made = run(items, answers, budget=16, audit=4, out=tmp_path / "run", features="hashing")
    made.refit_with_audit()
    forget(made.path, items[0].id)
    with pytest.raises(RunError, match="finish it first with `stacksl resume`"):
        made.refit_with_audit()
    assert made.resume().refit_with_audit() >= 3


def test_the_final_model_is_fitted_again_without_its_label(tmp_path: Path) -> None:
    """And on every label that is bought afterwards."""
    items, answers = class_items(60)
    made = run(items, answers, budget=12, out=tmp_path / "run", features="hashing", mode="pool")
    before = (made.folder.model / "head.safetensors").read_bytes()
    with made.ledger as ledger:
        learnt = [row for row in ledger.rows() if row.event == "learnt"]
    forget(made.path, str(learnt[4].item))
    made.resume()
    assert (made.folder.model / "head.safetensors").read_bytes() != before
    left = {item.id: answers[item.id] for item in items if item.id != learnt[4].item}
    made.change(budget=14, labeler=lambda request: left[request.item])
    with made.ledger as ledger:
        last = [row.payload for row in ledger.rows() if row.event == "refit"][-1]
    assert (last["labels"], last["tune"]) == (13, True)
