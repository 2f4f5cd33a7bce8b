"""A run that adapts a language model, given another budget or more items, on its way or after."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.errors import LabelerError
from stacksl.features.store import load_block
from stacksl.runs.changes.forgetting import forget

from ..ledgers import bought, rows_of, verify
from .lm_cases import QUICK, Corpus, Refusing, questions, write_corpus
from .people_cases import facts_of

Left = Callable[..., Run]


@pytest.fixture(scope="module")
def unfinished_runs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of 12 labels in each mode, whose labeler left after 4."""
    corpus, found = questions(40), {}
    for mode in ("stream", "pool"):
        found[mode] = tmp_path_factory.mktemp("left") / mode
        given = {
            "budget": 12,
            "gate": "margin",
            **QUICK,
            "lm.epochs": 1,
            "mode": mode,
            "open_questions": 4,
        }
        with pytest.raises(LabelerError, match="gone home"):
            run(
                *corpus,
                out=found[mode],
                **{"lm.model": str(model), "lm.adapt": "lora"},
                labeler=Refusing(corpus, 4),
                **given,
            )
    return found


@pytest.fixture
def copied(unfinished_runs: dict[str, Path], tmp_path: Path) -> Left:
    """Copies the one in a mode."""

    def copied(mode: str = "stream", name: str = "run") -> Run:
        shutil.copytree(unfinished_runs[mode], tmp_path / name)
        return Run.open(tmp_path / name)

    return copied


def refits(made: Run) -> list[int]:
    """The labels that each refit was trained on."""
    return [int(row.payload["labels"]) for row in rows_of(made, "refit")]


def resumed(made: Run, good: int = 100) -> Run:
    return made.resume(labeler=Refusing(questions(40), good))


def more_questions(count: int) -> Corpus:
    """Other questions, by other ids."""
    items, answers = questions(count, seed=9)
    named = {f"n-{name}": gold for name, gold in answers.items()}
    return [replace(item, id=f"n-{item.id}") for item in items], named


def resumed_with_more(made: Run, good: int = 100) -> Run:
    corpus, more = questions(40), more_questions(12)
    both = [*corpus[0], *more[0]], corpus[1] | more[1]
    return made.resume(labeler=Refusing(both, good))


def expect_whole(made: Run, labels: int) -> None:
    """Hold that a run finished with so many labels, and that its ledger plays again."""
    status = made.status()
    assert (status["state"], status["asked"], status["left"]) == ("finished", labels, 0)
    verify(made)
    assert made.replay()["labels"] == labels
    facts = facts_of(made)
    assert facts.budget.labels == labels


@pytest.mark.parametrize("mode", ["stream", pytest.param("pool", marks=pytest.mark.slow)])
def test_refits_follow_a_budget_raised_on_the_way(copied: Left, tmp_path: Path, mode: str) -> None:
    made = copied(mode)
    before = refits(made)
    made.change(budget=20, later=True)
    resumed(made)
    expect_whole(made, 20)
    assert before == [1, 2, 3] if mode == "stream" else [4]
    assert refits(made) == [*before, 5, 10, 20] if mode == "stream" else [4, 8, 12, 20]


def test_a_run_cut_off_after_the_change_ends_as_an_undisturbed_one(copied: Left, tmp_path) -> None:
    ends = []
    for name, cuts in (("whole", ()), ("cut", (2, 5))):
        made = copied(name=name)
        made.change(budget=20, later=True)
        for good in cuts:
            with pytest.raises(LabelerError, match="gone home"):
                resumed(made, good)
        expect_whole(resumed(made), 20)
        ends.append((made.folder.model / "adapter_model.safetensors").read_bytes())
    assert ends[0] == ends[1]


def write_more(path: Path) -> Path:
    """A file of other questions with their answers."""
    items, answers = more_questions(12)
    return write_corpus(path, ([replace(i, prompt=f"more {i.prompt}") for i in items], answers))


@pytest.mark.parametrize("mode", ["stream", pytest.param("pool", marks=pytest.mark.slow)])
def test_items_that_come_in_an_epoch_have_its_features(copied: Left, tmp_path, mode: str) -> None:
    made = copied(mode)
    made.change(items=write_more(tmp_path / "more.jsonl"), later=True)
    made.change(budget=24, later=True)
    resumed_with_more(made)
    expect_whole(made, 24)
    new = {str(row["item"]) for row in bought(made) if str(row["item"]).startswith("n-")}
    assert new, "some of what came was chosen"
    epochs = sorted((made.path / "features").glob("epoch-*"))
    (held,) = [path for path in epochs if (path / "more-1").is_dir()]
    part = load_block(held / "more-1", None, [f"n-q{n}" for n in range(12)])
    initial = load_block(made.path / "features" / "more-1", None, [f"n-q{n}" for n in range(12)])
    # a pool is ranked by scores alone, so that no states are computed
    assert part.phi.any(axis=1).all() == (mode == "stream")
    assert not np.array_equal(part.base, initial.base), "the adapter of the epoch made them"


def test_a_finished_pool_buys_on_by_what_its_model_says(copied: Left, tmp_path: Path) -> None:
    made = resumed(copied("pool"))
    before = len(rows_of(made, "round"))
    made.change(budget=20, later=True)
    resumed(made)
    rounds = [row.decision() for row in rows_of(made, "round")][before:]
    picks = [decision for decision in rounds if decision.asked]
    assert len(picks) == 8
    assert all(d.statistic != 0.0 for d in picks), "a margin of 0 is that of features that are gone"
    expect_whole(made, 20)


def test_what_came_in_an_epoch_is_erased_from_it(copied: Left, tmp_path: Path) -> None:
    made = copied("pool")
    made.change(items=write_more(tmp_path / "more.jsonl"), later=True)
    with pytest.raises(LabelerError, match="gone home"):
        resumed_with_more(made, 3)
    (held,) = (made.path / "features").glob("epoch-*/more-1")
    ids = [f"n-q{n}" for n in range(12)]
    block = load_block(held, None, ids)
    assert block.take([5]).base.any()  # type: ignore[union-attr]
    name = forget(made.path, "n-q5").name
    ids[5] = name
    assert not load_block(held, None, ids).take([5]).base.any()  # type: ignore[union-attr]
    resumed_with_more(made)
    assert made.status()["state"] == "finished"
