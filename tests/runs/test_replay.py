"""A recorded run is played again bit for bit, and a decision or refit that differs is found."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import run
from stacksl.core import Hard, Learner, SharedBlock, make_scorer
from stacksl.core.heads.coverage import most_covering
from stacksl.errors import LedgerCorrupt, LedgerError, RunError
from stacksl.files import arrays
from stacksl.ledger.events import Row
from stacksl.ledger.purchases import Answer
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.loop.choosers import Pool, Stream
from stacksl.runs.loop.examples import Examples
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.session.playback import Playback
from stacksl.types import Label

from ..saved_arrays import drop
from .conftest import CLASSES, class_items, game_of, pooled, streamed


def playback(
    game: Game,
    folder: Path,
    *,
    after: int = 0,
    saved: dict[str, Any] | None = None,
    trainer: type[LinearTrainer] = LinearTrainer,
    chooser: Stream | Pool | None = None,
    **given: Any,
) -> Playback:
    """The record of a game, played by a learner that knows nothing or what was `saved`."""
    folder.mkdir()
    other = game_of(folder, class_items(40), **given)
    other.ledger.close()
    chooser = chooser or Stream()
    game.ledger.stand_at(after, stream=isinstance(chooser, Stream))
    made = trainer(
        other.examples, other.learner, game.ledger, on_the_way=not isinstance(chooser, Stream)
    )
    found = Playback(
        ledger=game.ledger,
        learner=other.learner,
        labeler=other.labeler,
        examples=other.examples,
        trainer=made,
        chooser=chooser,
    )
    found.remember()
    if saved is not None:
        found.set_state(saved)
    found.play()
    assert game.ledger.recorded is None
    return found


def same(one: Game, other: Game) -> bool:
    """Whether two games have learnt the same, to the bit."""
    mine, theirs = one.state(), other.state()
    assert mine.keys() == theirs.keys()
    equal = all(np.asarray(mine[k]).tobytes() == np.asarray(theirs[k]).tobytes() for k in mine)
    return equal and one.examples.bought == other.examples.bought


@pytest.fixture
def played(tmp_path) -> Game:
    game = game_of(tmp_path, class_items(40), budget=9)
    for _ in streamed(game):
        pass
    return game


def edited(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Row, dict[str, Any]], dict[str, Any] | None]
) -> None:
    """Let ledgers read rows with other payloads, where `change` gives one."""
    pages = LedgerReader._pages

    def read(self: LedgerReader, *given: Any, **more: Any) -> Iterator[list[Row]]:
        for rows in pages(self, *given, **more):
            for place, row in enumerate(rows):
                if (payload := change(row, dict(row.payload))) is not None:
                    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
                    rows[place] = replace(row, text=text)
            yield rows

    monkeypatch.setattr(LedgerReader, "_pages", read)


def test_a_record_gives_the_same_bits(played, tmp_path) -> None:
    rows = list(played.ledger.rows())
    assert same(playback(played, tmp_path / "b", budget=9), played)
    assert list(played.ledger.rows()) == rows, "nothing is written twice"
    played.ledger.verify()


@pytest.mark.parametrize("rounds", [1, 10, 39])
def test_the_rest_is_played_from_saved_arrays(tmp_path, rounds) -> None:
    game = game_of(tmp_path, class_items(40), budget=9)
    play = streamed(game)
    for _ in range(rounds):
        next(play)
    saved = {name: np.array(array) for name, array in game.state().items()}
    game.ledger.flush()
    after = game.ledger.head.count
    for _ in play:
        pass
    assert same(playback(game, tmp_path / "b", after=after, saved=saved, budget=9), game)


def test_what_follows_the_record_is_written(played, tmp_path) -> None:
    count = len(list(played.ledger.rows()))
    other = playback(played, tmp_path / "b", budget=9)
    other.ledger.set_budget(12, None, {"train": 11, "rounds": 44, "items": 40})
    other.ledger.verify()
    assert len(list(other.ledger.rows())) == count + 1


@pytest.mark.parametrize(
    "edit", [("statistic", 0.125), ("threshold", 9.0), ("choice", None), ("state", [0.0, 1.0, 2.0])]
)
def test_a_decision_that_differs_is_named(played, tmp_path, monkeypatch, edit) -> None:
    name, value = edit

    def change(row: Row, payload: dict[str, Any]) -> dict[str, Any] | None:
        if row.event != "round" or row.round != 17:
            return None
        return payload | {name: (payload["choice"] + 1) % 3 if name == "choice" else value}

    edited(monkeypatch, change)
    said = "round 17 was .* but the replay got .*status RUN --settings"
    with pytest.raises(RunError, match=said):
        playback(played, tmp_path / "b", budget=9)


def test_another_labels_learnt_changes_a_later_decision(played, tmp_path, monkeypatch) -> None:
    spot = next(row.seq for row in played.ledger.rows() if row.event == "learnt")

    def change(row: Row, payload: dict[str, Any]) -> dict[str, Any] | None:
        return {"index": (payload["index"] + 1) % 3} if row.seq in (spot, spot - 1) else None

    edited(monkeypatch, change)
    with pytest.raises(RunError, match="was recorded as"):
        playback(played, tmp_path / "b", budget=9)


def test_the_batches_and_refits_of_a_pool_are_made_again(tmp_path) -> None:
    game = game_of(tmp_path, class_items(40), budget=30, ranks=True, batch=7)
    for _ in pooled(game):
        pass
    rows = list(game.ledger.rows())
    assert sum(row.event == "refit" for row in rows) > 2
    assert same(playback(game, tmp_path / "b", chooser=Pool(coverage=True), budget=30), game)
    assert list(game.ledger.rows()) == rows


def test_a_batch_that_differs_is_named(tmp_path, monkeypatch) -> None:
    game = game_of(tmp_path, class_items(40), budget=30, ranks=True, batch=7)
    for _ in pooled(game):
        pass
    monkeypatch.setattr(
        "stacksl.runs.loop.choosers.most_covering",
        lambda *given: (found := most_covering(*given))._replace(items=found.items[::-1]),
    )
    with pytest.raises(
        RunError, match="round 1 was recorded .* the replay got a decision about another item"
    ):
        playback(game, tmp_path / "b", chooser=Pool(coverage=True), budget=30)


def test_batches_before_a_change_of_settings_are_taken_as_recorded(tmp_path, monkeypatch) -> None:
    """The items, annotators and settings of that time are not known any more."""
    game = game_of(tmp_path, class_items(40), budget=30, ranks=True, batch=7)
    batches = pooled(game)
    next(batches)
    next(batches)
    game.ledger.change_settings({})
    for _ in batches:
        pass
    again: list[int] = []

    class Counted(Pool):
        def again(self, game: Game, recorded: Any) -> Any:
            again.append(len(recorded))
            return super().again(game, recorded)

    assert same(playback(game, tmp_path / "b", chooser=Counted(), budget=30), game)
    assert again == [], "nor is what the later ones were chosen by the same to the bit"


def test_a_finished_pool_that_was_given_more_items_is_replayed(tmp_path) -> None:
    """Its first model was made of fewer items, so the next batch cannot be chosen again."""
    files = []
    for name, count, seed in (("first", 60, 0), ("more", 30, 5)):
        items, answers = class_items(count, seed)
        files.append(tmp_path / f"{name}.csv")
        with files[-1].open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(["id", "text", "label"])
            table.writerows(
                [f"{name}{i.id}", f"{i.prompt} {name}", CLASSES[answers[i.id]]] for i in items
            )
    made = run(files[0], budget=16, batch=8, out=tmp_path / "run", features="hashing")
    made.change(items=files[1])
    made.change(budget=24)
    assert made.replay()["labels"] == 24


def test_changed_terms_have_their_effect_in_order(played, tmp_path) -> None:
    ledger = played.ledger
    saved = {name: np.array(array) for name, array in played.state().items()}
    before = ledger.head.count
    ledger.set_budget(12, None, {"train": 11, "rounds": 44, "items": 40})
    ledger.add_class("more", 4)
    ledger.set_budget(13, None, {"train": 12, "rounds": 45, "items": 41})
    ledger.flush()
    found = []
    for after, arrays_ in ((0, None), (before, saved)):
        other = playback(played, tmp_path / str(after), after=after, saved=arrays_, budget=9)
        learner = other.learner
        found.append((learner.budget, learner.horizon, other.examples.block[0].size))
    assert found == [(12, 45, 4)] * 2


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
        "label": plain.ledger.accounts.learnt + 2, "none": 0, "ambiguous": 0, "broken": 0,
    }  # fmt: skip
    other = playback(mixed, tmp_path / "c", budget=9)
    assert plain.examples.bought == mixed.examples.bought
    assert same(other, mixed)
    assert all(
        np.asarray(array).tobytes() == np.asarray(mixed.learner.state()[name]).tobytes()
        for name, array in plain.learner.state().items()
    )


def test_owned_labels_are_learnt_again(tmp_path) -> None:
    game = game_of(tmp_path, class_items(40), budget=9)
    for decision, label in game.ledger.own(
        [(game.corpus.ids[5], 2), (game.corpus.ids[7], 1)], "old.csv"
    ):
        game.teach(decision, label)
    for _ in streamed(game, range(5)):
        pass
    assert same(playback(game, tmp_path / "b", budget=9), game)
    assert game.examples.bought[:2] == [(5, 2, -1), (7, 1, -1)]


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_finished_run_is_replayed_in_whole(request, which) -> None:
    finished = request.getfixturevalue(which)
    told = finished.run.replay()
    count, refits = (12, 2) if which == "classes" else (10, 1)  # names make a head at the start
    assert told == {
        "rows": len(finished.items) + count + refits,
        "rounds": len(finished.items),
        "labels": count,
        "after": 0,
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

    def again(self, row: Row) -> None:
        assert row.event == "refreshed"
        rebuild(self.examples, self.learner)
        self.ledger.note_refreshed(len(self.examples.bought), {})


def test_the_features_are_renewed_where_the_run_renewed_them(two_epochs, tmp_path) -> None:
    game, _ = two_epochs
    assert same(playback(game, tmp_path / "b", trainer=Renewing, budget=9), game)


def test_renewed_features_are_refused_where_the_run_has_no_model(two_epochs, tmp_path) -> None:
    game, seq = two_epochs
    with pytest.raises(LedgerError, match=f"row {seq} .* has no model to refit"):
        playback(game, tmp_path / "b", budget=9)


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
    other = playback(hard, tmp_path / "b", budget=9, follower=Hard(1))
    assert other.examples.shown == hard.examples.shown
    assert same(other, hard)


def test_what_is_presented_whole_is_not_kept_twice(played) -> None:
    assert len(played.examples.bought) == 9
    assert played.examples.shown == {}
