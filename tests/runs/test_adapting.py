"""A run that adapts a language model: when it refits, what from, and what the head then holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run
from stacksl.errors import RunError
from stacksl.features import store
from stacksl.features.store import save_block
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.lm.model import LanguageModel
from stacksl.lm.scoring.normalize import fitted_temperature
from stacksl.runs.settings.budget import due_at

from ..ledgers import rows_of, verify
from ..saved_arrays import latest_in
from .lm_cases import BUDGET, COUNT, QUICK, Corpus, adapt, blocks, last_weights

SHARES = (1, 2, 3, 6, 12)  # of 12 labels: 5, 10, 25, 50 and 100%, rounded up


@pytest.fixture(scope="module")
def finished(model: Path, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An undisturbed run by the default gate, with its refits at the default shares."""
    return adapt(model, corpus, tmp_path_factory.mktemp("run") / "run")


class Late:
    """Answers each purchase only when `delay` others were asked after it; tells all at `open`."""

    name = "late"
    repeatable = False

    def __init__(self, corpus: Corpus, delay: int) -> None:
        self._answers, self._delay = corpus[1], delay
        self._asked: list[Purchase] = []
        self._told = 0

    def ask(self, purchases: Any) -> None:
        known = {(p.item, p.token) for p in self._asked}
        self._asked += [p for p in purchases if (p.item, p.token) not in known]

    def answers(self) -> list[Answer]:
        until = max(self._told, len(self._asked) - self._delay)
        given, self._told = self._asked[self._told : until], until
        return [
            Answer(p.item, p.slot, p.token, self._answers[p.item], self.name, p.price)
            for p in given
        ]

    def pending(self) -> list[Any]:
        return []


# --- before anything is learned ---------------------------------------------------------------


# --- the head --------------------------------------------------------------------------------


class ByHand:
    """The Newton head in dense algebra: scores are offset + θᵀφ, H = I + Σ Cov_π(φ)."""

    def __init__(self, dim: int) -> None:
        self.theta, self.gram = np.zeros(dim), np.eye(dim)

    def scores(self, features: Any) -> Any:
        return features.offset + features.phi.astype(np.float64) @ self.theta

    def information(self, features: Any) -> tuple[Any, Any]:
        scores, phi = self.scores(features), features.phi.astype(np.float64)
        policy = np.exp(scores - scores.max())
        policy /= policy.sum()
        mean = policy @ phi
        return policy, (phi - mean).T @ np.diag(policy) @ (phi - mean)

    def learn(self, features: Any, gold: int) -> None:
        policy, before = self.information(features)
        policy[gold] -= 1.0
        slope = policy @ features.phi.astype(np.float64)
        self.theta = self.theta - np.linalg.solve(self.gram + before, slope)
        self.gram = self.gram + self.information(features)[1]


def test_the_head_is_offset_plus_theta_phi_and_rebuilt_at_each_epoch(
    finished: Run, corpus: Corpus
) -> None:
    """The whole run by hand: every decision's score, and θ and H at the end."""
    epochs, place = blocks(finished, corpus), {item.id: n for n, item in enumerate(corpus[0])}
    block = next(epochs)
    head, learned = ByHand(block.dim), []
    for row in rows_of(finished):
        if row.event == "round":
            decision = row.decision()
            scores = head.scores(block[place[decision.item]])
            assert decision.score == pytest.approx(scores[decision.choice], abs=1e-8)
            assert decision.choice == int(np.argmax(scores))
        elif row.event == "learned":
            learned.append((place[str(row.item)], row.label().index))
            head.learn(block[learned[-1][0]], learned[-1][1])
        elif row.event == "refreshed":
            block, head = next(epochs), ByHand(block.dim)
            for index, gold in learned:
                head.learn(block[index], gold)
    saved = latest_in(finished.path).arrays
    assert np.allclose(saved["scorer/theta"], head.theta, atol=1e-8)
    (inverse,) = [v for k, v in saved.items() if "gram_inv" in k]
    assert np.allclose(inverse, np.linalg.inv(head.gram), atol=1e-8)
    assert np.abs(head.theta).max() > 0.1, "it learned something"


# --- refits and epochs -----------------------------------------------------------------------


def test_refits_come_at_their_shares_and_begin_epochs(finished: Run, corpus: Corpus) -> None:
    assert due_at(QUICK.get("refit_at", "0.05,0.1,0.25,0.5,1"), BUDGET) == SHARES
    epoch, learned, seen = 0, 0, []
    for row in rows_of(finished):
        if row.event == "learned":
            learned += 1
        elif row.event == "refit":
            assert row.payload["labels"] == learned
            seen.append(learned)
            assert row.payload["adapter"] == len(seen)
        elif row.event == "refreshed":
            epoch += 1
            assert (row.payload["epoch"], row.payload["labels"]) == (epoch, learned)
    assert tuple(seen) == SHARES
    assert epoch == len(SHARES) - 1, "after the last label nothing can be asked"
    assert len({row.payload["weights"] for row in rows_of(finished, "refit")}) == len(SHARES)
    folders = sorted(p.name for p in (finished.path / "adapters").iterdir() if p.is_dir())
    assert folders == ["01", "02", "03", "04", "05"], "and no half-trained one stays behind"


def test_each_refit_has_a_temperature_of_the_labels_before_it(
    finished: Run, corpus: Corpus
) -> None:
    first = finished.folder.resolved()["lm_temperature"]
    base, place = next(blocks(finished, corpus)), {item.id: n for n, item in enumerate(corpus[0])}
    scores, gold, seen = [], [], []
    for row in rows_of(finished):
        if row.event == "learned":
            scores.append(base[place[str(row.item)]].offset * first)
            gold.append(row.label().index)
        elif row.event == "refit":
            seen.append(row.payload["temperature"])
            assert seen[-1] == pytest.approx(fitted_temperature(scores, gold, first), rel=1e-4)
    assert len({first, *seen}) == 1 + len(SHARES)
    model = finished.model
    assert model.model.temperature == seen[-1]


def test_a_replay_compares_temperatures(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finished.replay()["labels"] == BUDGET
    monkeypatch.setattr("stacksl.runs.loop.language_trainer.fitted_temperature", lambda *given: 1.5)
    with pytest.raises(RunError, match="row .* the event 'refit' .* but the replay got"):
        finished.replay()


@pytest.fixture(scope="module")
def once(model: Path, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that refits once, on the first labels of the stream."""
    return adapt(
        model, corpus, tmp_path_factory.mktemp("once") / "run", gate="first", lm={"refit_at": "1"}
    )


def test_the_last_adapter_depends_on_the_labels_alone(
    once: Run, model: Path, corpus: Corpus, tmp_path: Path
) -> None:
    often = adapt(model, corpus, tmp_path / "often", gate="first")
    assert [row.payload["labels"] for row in rows_of(once, "refit")] == [BUDGET]
    assert len(rows_of(often, "refit")) == len(SHARES)
    assert last_weights(often) == last_weights(once)
    weights = [made.folder.model / "adapter_model.safetensors" for made in (often, once)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_what_cannot_be_asked_any_more_is_zero_and_never_read(
    finished: Run, model: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[set[str]] = [set()]
    gone, bought = set(), set()
    for row in rows_of(finished):
        gone |= {str(row.item)} if row.event == "round" else set()
        bought |= {str(row.item)} if row.event == "learned" else set()
        if row.event == "refreshed":
            over.append(gone - bought)
    for block, zero in zip(blocks(finished, corpus), over, strict=True):
        empty = {item.id for n, item in enumerate(corpus[0]) if not block[n].phi.any()}
        assert empty == zero
        assert all(not block[n].offset.any() for n, i in enumerate(corpus[0]) if i.id in zero)
    assert len(over[-1]) > 2

    def poisoned(folder: Path, block: Any, *words: Any) -> None:
        phi, base = np.array(block.phi), np.array(block.base)
        unread = ~phi.any(axis=1)
        phi[unread], base[unread] = np.nan, np.nan
        save_block(folder, type(block)(phi, block.offsets, base), *words)

    monkeypatch.setattr(store, "save_block", poisoned)
    again = adapt(model, corpus, tmp_path / "run")
    decisions = [[row.payload | {"item": ""} for row in rows_of(made, "round")]
                 for made in (finished, again)]  # fmt: skip
    assert decisions[0] == decisions[1]
    assert last_weights(again) == last_weights(finished)


def test_a_ledger_plays_again_without_the_model(finished: Run, monkeypatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a replay loads no language model")

    monkeypatch.setattr(LanguageModel, "__init__", never)
    verify(finished)
    told = finished.replay()
    assert (told["rounds"], told["labels"]) == (COUNT, BUDGET)


# --- who answers -----------------------------------------------------------------------------


def test_late_labels_join_the_next_refit(once: Run, model: Path, corpus: Corpus, tmp_path) -> None:
    late = Late(corpus, delay=2)
    made = adapt(model, corpus, tmp_path / "run", late, gate="first")
    assert made.status()["state"] == "waiting"
    assert made.status()["answered"] == BUDGET - 2
    assert [row.payload["labels"] for row in rows_of(made, "refit")] == [1, 2, 3, 6]
    late._delay = 0
    made.resume(labeler=late)
    assert made.status()["state"] == "finished"
    assert [row.payload["labels"] for row in rows_of(made, "refit")] == [*SHARES]
    assert last_weights(made) == last_weights(once), "the same labels in the same order"
    assert made.replay()["labels"] == BUDGET
