"""Replay: the ledger rebuilds the learner bit for bit, and an edited decision is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import LedgerCorrupt, LedgerError, RunError
from stacksl.labels.rows import Row
from stacksl.runs import arrays
from stacksl.runs.replay import replay
from stacksl.runs.rounds import Table, stream

from .conftest import class_items, table_of


def fresh(table: Table, folder: Path, **options: object) -> Table:
    """A table with a learner that knows nothing yet, over the same ledger."""
    folder.mkdir()
    other = table_of(folder, class_items(40), **options)  # type: ignore[arg-type]
    other.ledger.close()
    return replace(other, ledger=table.ledger)


@pytest.fixture
def played(tmp_path) -> Table:
    table = table_of(tmp_path, class_items(40), budget=9)
    for _ in stream(range(40), table):
        pass
    return table


def refuse(row: Row) -> None:
    pytest.fail(f"a stream without refits has no {row.event} row")


def test_replay_gives_the_same_bits(played, tmp_path) -> None:
    other = fresh(played, tmp_path / "b", budget=9)
    effects = replay(played.ledger.rows(), other, after=0, refit=refuse, compare=True)
    assert effects == 40 + 9
    mine, theirs = played.learner.state(), other.learner.state()
    assert mine.keys() == theirs.keys()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)
    assert other.bought == played.bought


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_replay_from_the_middle_only_counts_what_came_before(played, tmp_path, cut) -> None:
    rows = list(played.ledger.rows())
    other = fresh(played, tmp_path / "b", budget=9)
    replay(rows[:cut], other, after=0, refit=refuse, compare=True)
    bits = other.learner.state()
    third = fresh(played, tmp_path / "c", budget=9)
    third.learner.restore({name: np.array(array) for name, array in bits.items()})
    replay(rows, third, after=rows[cut - 1].seq, refit=refuse, compare=True)
    mine, theirs = played.learner.state(), third.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)
    assert third.bought == played.bought


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
    with pytest.raises(RunError, match=r"round 17 was recorded as .* but is .*resolved\.toml"):
        replay(rows, other, after=0, refit=refuse, compare=True)


def test_another_labels_learnt_changes_a_later_decision(played, tmp_path) -> None:
    rows = list(played.ledger.rows())
    spot = next(n for n, row in enumerate(rows) if row.event == "learnt")
    index = (rows[spot].payload["index"] + 1) % 3
    rows[spot] = replace(rows[spot], payload={"index": index})
    other = fresh(played, tmp_path / "b", budget=9)
    with pytest.raises(RunError, match="was recorded as"):
        replay(rows, other, after=0, refit=refuse, compare=True)


@pytest.mark.parametrize("event", ["sent", "reset", "class_added", "budget"])
def test_rows_of_later_versions_are_refused_in_a_sentence(played, tmp_path, event) -> None:
    rows = list(played.ledger.rows())
    rows.append(replace(rows[-1], event=event))
    other = fresh(played, tmp_path / "b", budget=9)
    with pytest.raises(LedgerError, match=f"is '{event}' .*use the version that wrote it"):
        replay(rows, other, after=0, refit=refuse, compare=True)


@pytest.mark.parametrize("purpose", ["audit", "owned"])
def test_purposes_of_later_versions_too(played, tmp_path, purpose) -> None:
    rows = [replace(row, purpose=purpose) for row in played.ledger.rows()]
    with pytest.raises(LedgerError, match=f"'{purpose}'"):
        replay(rows, fresh(played, tmp_path / "b", budget=9), after=0, refit=refuse, compare=True)


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_finished_run_is_replayed_in_whole(request, which) -> None:
    finished = request.getfixturevalue(which)
    told = finished.run.replay()
    count = 12 if which == "classes" else 10
    assert told == {
        "rows": len(finished.items) + count + 1,
        "rounds": len(finished.items),
        "labels": count,
    }


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_theta_after_replay_is_the_models(request, spoil, which) -> None:
    finished = request.getfixturevalue(which)
    again = spoil(finished)
    for path in (again.path / "checkpoints").iterdir():
        path.unlink()
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
    with closing(sqlite3.connect(again.path / "ledger.db")) as database:
        database.execute("update events set payload = replace(payload, '1', '2') where seq = 9")
        database.commit()
    with pytest.raises(LedgerCorrupt, match="9"):
        again.resume()
    assert again.status()["state"] == "failed"


def test_a_cut_ledger_stops_a_resume(classes, spoil) -> None:
    import sqlite3
    from contextlib import closing

    again = spoil(classes)
    with closing(sqlite3.connect(again.path / "ledger.db")) as database:
        database.execute("delete from events where seq = (select max(seq) from events)")
        database.commit()
    with pytest.raises(LedgerCorrupt):
        again.resume()


def test_another_dataset_stops_a_resume(classes, spoil, tmp_path) -> None:
    again = spoil(classes)
    source = (classes.run.path / "data.jsonl").read_text()
    (tmp_path / "moved.jsonl").write_text(source.replace(classes.items[3].prompt, "another text"))
    with pytest.raises(LedgerError, match="i3"):
        again.resume(data=tmp_path / "moved.jsonl")
    (tmp_path / "moved.jsonl").write_text(source)
    again.resume(data=tmp_path / "moved.jsonl")
    assert again.status()["state"] == "finished"
