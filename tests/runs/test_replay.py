"""A recorded run is played again bit for bit, and a decision or refit that differs is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import run
from stacksl.core.heads.coverage import most_covering
from stacksl.errors import RunError
from stacksl.ledger.events import Row
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.loop.choosers import Pool, Stream
from stacksl.runs.loop.game import Game
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.session.playback import Playback

from ..saved_arrays import latest_in
from .conftest import class_items, game_of, pooled, streamed


def playback(
    game: Game,
    folder: Path,
    *,
    after: int = 0,
    saved: dict[str, Any] | None = None,
    chooser: Stream | Pool | None = None,
    **given: Any,
) -> Playback:
    """The record of a game, played by a learner that knows nothing or what was `saved`."""
    folder.mkdir()
    other = game_of(folder, class_items(40), **given)
    other.ledger.close()
    chooser = chooser or Stream()
    game.ledger.stand_at(after, stream=isinstance(chooser, Stream))
    made = LinearTrainer(
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
    """Whether two games have learned the same, to the bit."""
    mine, theirs = one.state(), other.state()
    assert mine.keys() == theirs.keys()
    equal = all(np.asarray(mine[k]).tobytes() == np.asarray(theirs[k]).tobytes() for k in mine)
    return equal and one.examples.bought == other.examples.bought


@pytest.fixture
def game(tmp_path) -> Game:
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


def test_a_record_gives_the_same_bits(game, tmp_path) -> None:
    rows = list(game.ledger.rows())
    assert same(playback(game, tmp_path / "b", budget=9), game)
    assert list(game.ledger.rows()) == rows, "nothing is written twice"
    game.ledger.verify()


@pytest.mark.parametrize("rounds", [1, 20])
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


@pytest.mark.parametrize(
    "edit", [("statistic", 0.125), ("threshold", 9.0), ("choice", None), ("state", [0.0, 1.0, 2.0])]
)
def test_a_decision_that_differs_is_named(game, tmp_path, monkeypatch, edit) -> None:
    name, value = edit

    def change(row: Row, payload: dict[str, Any]) -> dict[str, Any] | None:
        if row.event != "round" or row.round != 17:
            return None
        return payload | {name: (payload["choice"] + 1) % 3 if name == "choice" else value}

    edited(monkeypatch, change)
    said = "round 17 was .* but the replay got .*status RUN --settings"
    with pytest.raises(RunError, match=said):
        playback(game, tmp_path / "b", budget=9)


def test_replay_notices_another_learner(tmp_path) -> None:
    items, answers = class_items(60)
    done = run(items, answers, budget=12, out=tmp_path / "run")
    assert done.replay()["labels"] == 12
    saved = latest_in(done.path)
    theta = np.array(saved.arrays["scorer/theta"])
    theta[0, 0] += 1e-12
    with Ledger.open(done.path / "run.db") as ledger:
        ledger.save_arrays(saved.round, {**saved.arrays, "scorer/theta": theta})
    with pytest.raises(RunError, match="scorer/theta"):
        done.replay()


def test_another_labels_learned_changes_a_later_decision(game, tmp_path, monkeypatch) -> None:
    spot = next(row.seq for row in game.ledger.rows() if row.event == "learned")

    def change(row: Row, payload: dict[str, Any]) -> dict[str, Any] | None:
        return {"index": (payload["index"] + 1) % 3} if row.seq in (spot, spot - 1) else None

    edited(monkeypatch, change)
    with pytest.raises(RunError, match="was recorded as"):
        playback(game, tmp_path / "b", budget=9)


def test_batches_and_refits_of_a_pool_are_made_again_and_what_differs_is_named(
    tmp_path, monkeypatch
) -> None:
    game = game_of(tmp_path, class_items(40), budget=30, ranks=True, batch=7)
    for _ in pooled(game):
        pass
    rows = list(game.ledger.rows())
    assert sum(row.event == "refit" for row in rows) > 2
    assert same(playback(game, tmp_path / "b", chooser=Pool(coverage=True), budget=30), game)
    assert list(game.ledger.rows()) == rows
    monkeypatch.setattr(
        "stacksl.runs.loop.choosers.most_covering",
        lambda *given: (found := most_covering(*given))._replace(items=found.items[::-1]),
    )
    with pytest.raises(
        RunError, match="round 1 was recorded .* the replay got a decision about another item"
    ):
        playback(game, tmp_path / "c", chooser=Pool(coverage=True), budget=30)


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
