"""Replay: the ledger rebuilds the learner bit for bit, and an edited decision is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from stacksl.core import Hard, Learner, SharedBlock, make_scorer
from stacksl.errors import LedgerCorrupt, LedgerError, RunError
from stacksl.files import arrays
from stacksl.ledger.events import Row
from stacksl.ledger.purchases import Answer
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.session.replay import replay
from stacksl.types import Label

from ..saved_arrays import drop
from .conftest import class_items, game_of, streamed


class Refused(LinearTrainer):
    """A trainer of runs that are never refitted."""

    def replay(self, row: Row, after: int) -> None:
        if row.event == "refit":
            pytest.fail("a stream without refits has no refit row")
        super().replay(row, after)


def fresh(game: Game, folder: Path, trainer: type[LinearTrainer] = Refused, **given: Any) -> Game:
    """A game with a learner that knows nothing yet, over the same ledger."""
    folder.mkdir()
    other = game_of(folder, class_items(40), **given)
    other.ledger.close()
    made = trainer(other.examples, other.learner, game.ledger, on_the_way=False)
    return replace(other, ledger=game.ledger, trainer=made)


@pytest.fixture
def played(tmp_path) -> Game:
    game = game_of(tmp_path, class_items(40), budget=9)
    for _ in streamed(game):
        pass
    return game


def test_replay_gives_the_same_bits(played, tmp_path) -> None:
    other = fresh(played, tmp_path / "b", budget=9)
    effects = replay(played.ledger.rows(), other, after=0, compare=True)
    assert effects == 40 + 9
    mine, theirs = played.learner.state(), other.learner.state()
    assert mine.keys() == theirs.keys()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)
    assert other.examples.bought == played.examples.bought


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_replay_from_the_middle_only_counts_what_came_before(played, tmp_path, cut) -> None:
    rows = list(played.ledger.rows())
    other = fresh(played, tmp_path / "b", budget=9)
    replay(rows[:cut], other, after=0, compare=True)
    bits = other.learner.state()
    third = fresh(played, tmp_path / "c", budget=9)
    third.learner.restore({name: np.array(array) for name, array in bits.items()})
    replay(rows, third, after=rows[cut - 1].seq, compare=True)
    mine, theirs = played.learner.state(), third.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)
    assert third.examples.bought == played.examples.bought


@pytest.mark.parametrize(
    "edit", [("statistic", 0.125), ("threshold", 9.0), ("choice", 2), ("state", [0.0, 1.0, 2.0])]
)
def test_a_decision_that_differs_is_named(played, tmp_path, edit) -> None:
    rows = list(played.ledger.rows())
    spot = next(n for n, row in enumerate(rows) if row.event == "round" and row.round == 17)
    name, value = edit
    if name == "choice":
        value = (rows[spot].payload["choice"] + 1) % 3
    rows[spot] = replace(rows[spot], payload={**rows[spot].payload, name: value})
    other = fresh(played, tmp_path / "b", budget=9)
    said = "round 17 was .* but the replay got .*status RUN --settings"
    with pytest.raises(RunError, match=said):
        replay(rows, other, after=0, compare=True)


def test_another_labels_learnt_changes_a_later_decision(played, tmp_path) -> None:
    rows = list(played.ledger.rows())
    spot = next(n for n, row in enumerate(rows) if row.event == "learnt")
    index = (rows[spot].payload["index"] + 1) % 3
    rows[spot] = replace(rows[spot], payload={"index": index})
    other = fresh(played, tmp_path / "b", budget=9)
    with pytest.raises(RunError, match="was recorded as"):
        replay(rows, other, after=0, compare=True)


def test_changed_terms_have_their_effect_in_order(played, tmp_path) -> None:
    ledger = played.ledger
    ledger.set_budget(12, None, {"train": 11, "rounds": 44, "items": 40})
    ledger.add_class("more", 4)
    ledger.set_budget(13, None, {"train": 12, "rounds": 45, "items": 41})
    rows = list(ledger.rows())
    found = []
    for after in (0, rows[-2].seq):  # saved arrays hold the classes, not the budget
        other = fresh(played, tmp_path / str(after), budget=9)
        replay(rows, other, after=after, compare=True)
        learner = other.learner
        found.append((learner.budget, learner.horizon, other.examples.block[0].size))
    assert found == [(12, 45, 4), (12, 45, 3)]


def test_audits_second_slots_and_other_answers_change_nothing_but_counts(tmp_path) -> None:
    """The learner of a run with all of these, and that of its replay, are those of one without."""
    plain = game_of(tmp_path, class_items(40), budget=9)
    (tmp_path / "b").mkdir()
    mixed = game_of(tmp_path / "b", class_items(40), budget=9)
    terms = {"train": 8, "rounds": 40, "items": 40}
    mixed.ledger.set_budget(14, None, terms)
    mixed.learner.budget = plain.learner.budget = 8
    (audit,) = mixed.ledger.reserve([mixed.corpus.ids[39]])
    mixed.ledger.take([Answer(audit.item, 0, 1, 0, "me")])
    for game in (plain, mixed):
        for _ in streamed(game, range(30)):
            pass
    taught = next(row for row in mixed.ledger.rows() if row.event == "learnt")
    (second,) = mixed.ledger.reserve([str(taught.item)], "train")
    mixed.ledger.take([Answer(second.item, 1, 1, (taught.label().index + 1) % 3, "you")])
    mixed.ledger.correct(second.item, 2, "you", slot=1)
    assert mixed.ledger.said() == {
        "label": plain.ledger.learnt + 2, "none": 0, "ambiguous": 0, "broken": 0,
    }  # fmt: skip
    other = fresh(mixed, tmp_path / "c", budget=9)
    replay(mixed.ledger.rows(), other, after=0, compare=True)
    assert plain.examples.bought == mixed.examples.bought == other.examples.bought
    mine, theirs, again = (t.learner.state() for t in (plain, mixed, other))
    assert all(mine[k].tobytes() == theirs[k].tobytes() == again[k].tobytes() for k in mine)


def test_owned_labels_are_learnt_again(tmp_path) -> None:
    game = game_of(tmp_path, class_items(40), budget=9)
    for decision, label in game.ledger.own(
        [(game.corpus.ids[5], 2), (game.corpus.ids[7], 1)], "old.csv"
    ):
        game.teach(decision, label)
    for _ in streamed(game, range(5)):
        pass
    other = fresh(game, tmp_path / "b", budget=9)
    replay(game.ledger.rows(), other, after=0, compare=True)
    assert other.examples.bought == game.examples.bought
    assert game.examples.bought[:2] == [(5, 2, -1), (7, 1, -1)]
    mine, theirs = game.learner.state(), other.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_finished_run_is_replayed_in_whole(request, which) -> None:
    finished = request.getfixturevalue(which)
    told = finished.run.replay()
    count, refits = (12, 2) if which == "classes" else (10, 1)  # names make a head at the start
    assert told == {
        "rows": len(finished.items) + count + refits,
        "rounds": len(finished.items),
        "labels": count,
    }


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_theta_after_replay_is_the_models(request, spoil, which) -> None:
    finished = request.getfixturevalue(which)
    again = spoil(finished)
    drop(again.path)
    for path in (again.path / "model").iterdir():
        path.unlink()
    again.resume()
    for name in ("online", "head"):
        mine = arrays.load(finished.run.path / "model" / f"{name}.safetensors")
        theirs = arrays.load(again.path / "model" / f"{name}.safetensors")
        assert mine.keys() == theirs.keys()
        assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)


def test_an_edited_ledger_stops_a_resume(classes, spoil) -> None:
    import sqlite3
    from contextlib import closing

    again = spoil(classes)
    with closing(sqlite3.connect(again.path / "run.db")) as database:
        database.execute("update events set payload = replace(payload, '1', '2') where seq = 8")
        database.commit()
    with pytest.raises(LedgerCorrupt, match="8"):
        again.resume()
    assert again.status()["state"] == "failed"


def test_a_cut_ledger_stops_a_resume(classes, spoil) -> None:
    import sqlite3
    from contextlib import closing

    again = spoil(classes)
    with closing(sqlite3.connect(again.path / "run.db")) as database:
        database.execute("delete from events where seq = (select max(seq) from events)")
        database.commit()
    with pytest.raises(LedgerCorrupt):
        again.resume()


def renew(examples: Examples, learner: Learner) -> None:
    """Other features of the same items, as a refitted language model gives them."""
    block = examples.block
    assert isinstance(block, SharedBlock)
    examples.block = SharedBlock(np.ascontiguousarray(block.h[:, ::-1]), block.classes)


def rebuild(examples: Examples, learner: Learner) -> None:
    """The learner as new, then every bought label under the features of the new epoch."""
    renew(examples, learner)
    learner.scorer.restore(make_scorer("ridge", dim=examples.block.dim, classes=3).state())
    for row, label, choice in examples.bought:
        inputs = examples.block[row]
        shown = examples.shown.get(row, tuple(range(inputs.size)))
        learner.scorer.step(inputs, shown, choice, Label(label))


@pytest.fixture
def two_epochs(tmp_path) -> tuple[Game, int]:
    """A stream whose features are renewed after round 20; the row that says so."""
    game = game_of(tmp_path, class_items(40), budget=9)
    rounds = streamed(game)
    for _ in range(20):
        next(rounds)
    rebuild(game.examples, game.learner)
    game.ledger.note_refreshed(len(game.examples.bought), {})
    seq = game.ledger.head.count
    for _ in rounds:
        pass
    return game, seq


class Renewing(LinearTrainer):
    """A trainer whose features are renewed, as a language model's are."""

    told: list[tuple[int | None, bool, int]]

    def replay(self, row: Row, after: int) -> None:
        assert row.event == "refreshed"
        effective = row.seq > after
        self.told = [(row.number, effective, len(self.examples.bought))]
        (rebuild if effective else renew)(self.examples, self.learner)


def test_replay_renews_the_features_where_the_run_did(two_epochs, tmp_path) -> None:
    game, _ = two_epochs
    other = fresh(game, tmp_path / "b", Renewing, budget=9)
    effects = replay(game.ledger.rows(), other, after=0, compare=True)
    assert effects == 40 + 9 + 1
    labels = next(r for r in game.ledger.rows() if r.event == "refreshed").payload["labels"]
    assert cast("Renewing", other.trainer).told == [(1, True, labels)]
    mine, theirs = game.learner.state(), other.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)
    assert other.examples.bought == game.examples.bought


@pytest.mark.parametrize("behind", [0, 4])
def test_arrays_of_the_new_epoch_is_told_without_an_effect(two_epochs, tmp_path, behind) -> None:
    game, seq = two_epochs
    rows = list(game.ledger.rows())
    other = fresh(game, tmp_path / "b", Renewing, budget=9)
    replay(rows[: seq + behind], other, after=0, compare=True)
    saved = {name: np.array(array) for name, array in other.learner.state().items()}
    third = fresh(game, tmp_path / "c", Renewing, budget=9)
    third.learner.restore(saved)
    replay(rows, third, after=seq + behind, compare=True)
    assert [effective for _, effective, _ in cast("Renewing", third.trainer).told] == [False]
    mine, theirs = game.learner.state(), third.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)


def test_renewed_features_are_refused_where_the_run_has_no_model(two_epochs, tmp_path) -> None:
    game, seq = two_epochs
    other = fresh(game, tmp_path / "b", budget=9)
    with pytest.raises(LedgerError, match=f"row {seq} .* has no model to refit"):
        replay(game.ledger.rows(), other, after=0, compare=True)


def test_the_table_keeps_what_was_shown_of_items_not_presented_whole(tmp_path) -> None:
    hard = game_of(tmp_path, class_items(40), budget=9, follower=Hard(1))
    for _ in streamed(hard):
        pass
    assert len(hard.examples.bought) == 9
    assert hard.examples.shown.keys() == {row for row, _, _ in hard.examples.bought}
    posted = {r.item: r.decision() for r in hard.ledger.rows() if r.event == "round"}
    for row, shown in hard.examples.shown.items():
        assert shown == posted[hard.corpus.ids[row]].presented
        assert len(shown) == 2
    other = fresh(hard, tmp_path / "b", budget=9, follower=Hard(1))
    replay(hard.ledger.rows(), other, after=hard.ledger.head.count, compare=True)
    assert (other.examples.shown, other.examples.bought) == (
        hard.examples.shown,
        hard.examples.bought,
    )


def test_what_is_presented_whole_is_not_kept_twice(played) -> None:
    assert len(played.examples.bought) == 9
    assert played.examples.shown == {}
