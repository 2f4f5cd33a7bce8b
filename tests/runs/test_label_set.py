"""The set for softmax labels at a pool's refits: each loss under the head that the label met."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.core.blocks import SharedBlock
from stacksl.ledger.ledger import Ledger
from stacksl.runs.loop.linear_trainer import LinearTrainer, linear_trainer

from .conftest import class_items, game_of, pair_items, pooled


def stated(done: Run) -> Any:
    return json.loads((done.path / "facts.json").read_text())["set_at_refits"]


def refits(done: Run) -> list[dict[str, Any]]:
    with done.ledger as ledger:
        return [dict(row.payload) for row in ledger.rows() if row.event == "refit"]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Run:
    items, answers = class_items(60)
    out = tmp_path_factory.mktemp("pool") / "run"
    return run(items, answers, mode="pool", budget=20, batch=5, checkpoint_every=5, out=out)


def test_labels_of_a_batch_count_under_the_head_that_chose_it(tmp_path) -> None:
    """Not under one that has seen any label of their own batch."""
    names = np.eye(3, 8, dtype=np.float32)
    game = game_of(tmp_path, class_items(40), budget=14, names=names, ranks=True, batch=4)
    trainer, expected = linear_trainer(game), 0.0
    batches = pooled(game)
    game.refit_if_due()
    for _ in range(4):
        head, before = trainer.head, len(game.examples.bought)
        next(batches)
        for row, label, _ in game.examples.bought[before:]:
            assert head is not None
            expected -= math.log(head.probabilities(game.examples.block.take([row]))[0][label])
        game.refit_if_due()
        assert trainer.foreseen[-1] == (len(game.examples.bought), pytest.approx(expected))
    payloads = [row.payload for row in game.ledger.rows() if row.event == "refit"]
    assert [(each["labels"], each["foreseen"]) for each in payloads] == trainer.foreseen


def test_the_set_at_refits_keeps_the_truth(tmp_path) -> None:
    """Softmax labels of pools with coverage: at every refit at once, in 5 % of the runs at most."""
    lost = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        h, truth = rng.normal(size=(60, 8)), rng.normal(size=(3, 8))
        h /= np.linalg.norm(h, axis=1, keepdims=True)
        scores = 3.0 * h @ truth.T
        losses = np.log(np.exp(scores).sum(axis=1, keepdims=True)) - scores
        items, _ = class_items(60)
        drawn = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).tolist()
        answers = {item.id: label for item, label in zip(items, drawn, strict=True)}
        folder = tmp_path / str(seed)
        folder.mkdir()
        game = game_of(folder, (items, answers), budget=40, ranks=True, batch=5)
        game.examples.block = SharedBlock(h, 3)
        for _ in pooled(game):
            pass
        total = np.cumsum([losses[row, label] for row, label, _ in game.examples.bought])
        at_refits = linear_trainer(game).foreseen
        assert at_refits[-1][0] == 40
        lost += any(total[labels - 1] > nats + math.log(20.0) for labels, nats in at_refits if nats)
        game.ledger.close()
    assert lost <= 1


def test_a_pool_states_it_and_a_stream_does_not(pool: Run, pairs, tmp_path) -> None:
    held = stated(pool)
    assert held["labels"] == [5, 10, 15, 20, 20]
    named = [each for each in refits(pool) if each["labels"]]
    assert held["loss"] == [each["foreseen"] + math.log(20.0) for each in named]
    assert held["guessing"] == pytest.approx(20 * math.log(3.0))
    assert held["tied"] <= held["checked"] == 50
    stream = run(*class_items(20), mode="stream", budget=8, coverage=False, out=tmp_path / "run")
    assert stated(stream) is None
    assert stated(pairs.run) is None
    assert all("foreseen" not in each for each in refits(pairs.run))


def test_pairs_in_a_pool_have_both_sets(tmp_path) -> None:
    items, answers = pair_items(40)
    done = run(items, answers, mode="pool", budget=15, batch=5, out=tmp_path / "run")
    held = stated(done)
    assert held["labels"] == [5, 10, 15, 15]
    assert (held["tied"], held["checked"]) == (0, 0)
    assert json.loads((done.path / "facts.json").read_text())["label_set"]["checked"] == 40
    assert held["guessing"] == pytest.approx(
        sum(math.log(len(item.candidates)) for item in items if item.id in bought(done))
    )


def bought(done: Run) -> set[str]:
    return {str(row["item"]) for row in done.ledger.export()}


def test_it_changes_no_choice(pool: Run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(LinearTrainer, "_loss_foreseen", lambda _: None)
    items, answers = class_items(60)
    other = run(items, answers, mode="pool", budget=20, batch=5, out=tmp_path / "run")
    assert [row["item"] for row in other.ledger.export()] == [
        row["item"] for row in pool.ledger.export()
    ]
    for file in sorted(path.name for path in (pool.path / "model").iterdir()):
        assert (other.path / "model" / file).read_bytes() == (
            pool.path / "model" / file
        ).read_bytes()
    assert stated(other) is None


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_a_resumed_run_states_the_same(pool: Run, tmp_path, monkeypatch, cut: int) -> None:
    class Cut(Exception):
        pass

    post, calls = Ledger.post, []

    def failing(self: Ledger, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == cut:
            raise Cut
        return post(self, *args)

    items, answers = class_items(60)
    monkeypatch.setattr(Ledger, "post", failing)
    with pytest.raises(Cut):
        run(
            items, answers, mode="pool", budget=20, batch=5, checkpoint_every=5,
            out=tmp_path / "run",
        )  # fmt: skip
    monkeypatch.undo()
    done = Run.open(tmp_path / "run").resume()
    assert stated(done) == stated(pool)
    assert refits(done) == refits(pool)


def test_a_corrected_label_or_a_new_class_ends_it(tmp_path) -> None:
    items = class_items(40)
    for name in ("corrected", "class"):
        (tmp_path / name).mkdir()
        game = game_of(tmp_path / name, items, budget=8, ranks=True, batch=4)
        batches, trainer = pooled(game), linear_trainer(game)
        next(batches)
        game.refit_if_due()
        assert trainer.foreseen[-1][1] == pytest.approx(4 * math.log(3.0)), "there was no head"
        if name == "corrected":
            row, label, _ = game.examples.bought[0]
            game.examples.relabel(game.corpus.ids[row], (label + 1) % 3)
        else:
            trainer.widen(4)
        game.refit_if_due()
        assert trainer.foreseen[-1] == (4, None)


def test_the_norm_is_refuted_where_labels_need_a_longer_one(tmp_path: Path) -> None:
    items, answers = class_items(200)
    sure = run(items, answers, mode="pool", budget=100, batch=20, out=tmp_path / "sure")
    held = stated(sure)
    assert held["refuted"] in held["labels"], "topics of words are no draws of so even a softmax"
    long = run(
        items, answers, mode="pool", budget=100, batch=20, norm_bound=1000.0, out=tmp_path / "long"
    )
    assert stated(long)["refuted"] is None
    assert stated(long)["loss"] == held["loss"], "the bound on L needs no norm"
