"""A run that adapts a language model, given another budget on its way or after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run, run
from stacksl.errors import LabelerError, RunError
from stacksl.labels.labelers import OracleLabeler
from stacksl.report.facts import Facts

from .lm_cases import QUICK, Corpus, questions, tiny_model

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("lm") / "model")


class Leaving(OracleLabeler):
    """Answers so many purchases, then goes home."""

    def __init__(self, corpus: Corpus, good: int) -> None:
        super().__init__(corpus[1], {item.id: len(item.candidates) for item in corpus[0]})
        self._good = good

    def ask(self, purchases: Any) -> None:
        self._good -= len(purchases)
        if self._good < 0:
            raise LabelerError("the labeler has gone home")
        super().ask(purchases)


def left(model: Path, folder: Path, *, after: int, **settings: Any) -> Run:
    """A run of 12 labels whose labeler left after so many."""
    corpus = questions(40)
    given = {"budget": 12, "gate": "margin", **QUICK, "epochs": 1, **settings}
    with pytest.raises(LabelerError, match="gone home"):
        run(*corpus, out=folder, model=str(model), adapt="lora", labeler=Leaving(corpus, after),
            **given)  # fmt: skip
    return Run.open(folder)


def refits(made: Run) -> list[int]:
    """The labels that each refit was trained on."""
    with made.ledger as ledger:
        return [int(row.payload["labels"]) for row in ledger.rows() if row.event == "refit"]


def resumed(made: Run, good: int = 100) -> Run:
    return made.resume(labeler=Leaving(questions(40), good))


def expect_whole(made: Run, labels: int) -> None:
    """Hold that a run finished with so many labels, and that its ledger plays again."""
    status = made.status()
    assert (status["state"], status["asked"], status["left"]) == ("finished", labels, 0)
    with made.ledger as ledger:
        ledger.verify()
    assert made.replay()["labels"] == labels
    facts = Facts.from_json((made.path / "facts.json").read_text())
    assert facts.budget.labels == labels


@pytest.mark.parametrize("mode", ["stream", "pool"])
def test_refits_follow_a_budget_raised_on_the_way(model: Path, tmp_path: Path, mode: str) -> None:
    made = left(model, tmp_path / "run", after=4, mode=mode, batch=4)
    before = refits(made)
    made.change_budget(20)
    resumed(made)
    expect_whole(made, 20)
    assert before == [1, 2, 3] if mode == "stream" else [4]
    assert refits(made) == [*before, 5, 10, 20] if mode == "stream" else [4, 8, 12, 20]


def test_refits_follow_a_budget_lowered_on_the_way(model: Path, tmp_path: Path) -> None:
    made = left(model, tmp_path / "run", after=4)
    made.change_budget(8)
    expect_whole(resumed(made), 8)
    assert refits(made) == [1, 2, 3, 5, 8], "the fifth was promised before the change"


def test_a_finished_run_goes_on_in_a_new_epoch(model: Path, tmp_path: Path) -> None:
    made = resumed(left(model, tmp_path / "run", after=4, mode="pool", batch=4))
    expect_whole(made, 12)
    weights = (made.folder.model / "adapter_model.safetensors").read_bytes()
    with made.ledger as ledger:
        epochs = sum(row.event == "refreshed" for row in ledger.rows())
    made.change_budget(20)
    expect_whole(resumed(made), 20)
    with made.ledger as ledger:  # the last refit of 12 labels steers what is bought next
        assert sum(row.event == "refreshed" for row in ledger.rows()) > epochs
    assert (made.folder.model / "adapter_model.safetensors").read_bytes() != weights


def test_a_run_cut_off_after_the_change_ends_as_an_undisturbed_one(
    model: Path, tmp_path: Path
) -> None:
    ends = []
    for name, cuts in (("whole", ()), ("cut", (2, 5))):
        made = left(model, tmp_path / name, after=4)
        made.change_budget(20)
        for good in cuts:
            with pytest.raises(LabelerError, match="gone home"):
                resumed(made, good)
        expect_whole(resumed(made), 20)
        ends.append((made.folder.model / "adapter_model.safetensors").read_bytes())
    assert ends[0] == ends[1]


def test_its_items_are_those_it_began_with(model: Path, tmp_path: Path) -> None:
    made = left(model, tmp_path / "run", after=4)
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "n1", "prompt": "owl", "choices": ["a", "b"], "label": 0}\n')
    for owned in (False, True):
        with pytest.raises(RunError, match="start a new run.*or give this one another budget"):
            made.extend(more, owned=owned)
    assert resumed(made).status()["state"] == "finished"
