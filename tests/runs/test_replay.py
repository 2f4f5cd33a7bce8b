"""Replay: the ledger rebuilds the learner bit for bit, and an edited decision is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stacksl.errors import LedgerCorrupt, LedgerError, RunError
from stacksl.game import Hard, PairBlock, Scorer, SharedBlock, make_scorer
from stacksl.items import Label
from stacksl.labels.purchases import Answer
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


@pytest.mark.parametrize("event", ["sent", "reset"])
def test_rows_of_later_versions_are_refused_in_a_sentence(played, tmp_path, event) -> None:
    rows = list(played.ledger.rows())
    rows.append(replace(rows[-1], event=event))
    other = fresh(played, tmp_path / "b", budget=9)
    with pytest.raises(LedgerError, match=f"is '{event}', .*use the version that wrote it"):
        replay(rows, other, after=0, refit=refuse, compare=True)


@pytest.mark.parametrize("event", ["budget", "class_added"])
def test_changed_terms_need_one_who_replays_them(played, tmp_path, event) -> None:
    rows = list(played.ledger.rows())
    rows.append(replace(rows[-1], event=event))
    with pytest.raises(LedgerError, match=rf"row {rows[-1].seq} says .* is not replayed here"):
        replay(rows, fresh(played, tmp_path / "b", budget=9), after=0, refit=refuse, compare=True)


def test_changed_terms_are_told_in_order(played, tmp_path) -> None:
    ledger = played.ledger
    ledger.set_budget(12, None, {"train": 11, "rounds": 44})
    ledger.add_class("more", 4)
    ledger.set_budget(13, None, {})
    rows = list(ledger.rows())
    told: list[tuple[object, ...]] = []
    replay(
        rows,
        fresh(played, tmp_path / "b", budget=9),
        after=rows[-2].seq,
        refit=refuse,
        budget=lambda row: told.append(("budget", dict(row.payload))),
        class_added=lambda row, fresh: told.append((row.payload["size"], fresh)),
        compare=True,
    )
    assert told == [
        ("budget", {"budget": 12, "money": None, "train": 11, "rounds": 44}),
        (4, False),
        ("budget", {"budget": 13, "money": None}),
    ]


def test_audits_second_slots_and_other_answers_change_nothing_but_counts(tmp_path) -> None:
    """The learner of a run with all of these, and that of its replay, are those of one without."""
    plain = table_of(tmp_path, class_items(40), budget=9)
    (tmp_path / "b").mkdir()
    mixed = table_of(tmp_path / "b", class_items(40), budget=9)
    mixed.ledger.set_budget(14, None, {})
    mixed.learner.budget = plain.learner.budget = 8
    (audit,) = mixed.ledger.reserve([mixed.ids[39]])
    mixed.ledger.take([Answer(audit.item, 0, 1, 0, "me")])
    for table in (plain, mixed):
        for _ in stream(range(30), table):
            pass
    taught = next(row for row in mixed.ledger.rows() if row.event == "learnt")
    (second,) = mixed.ledger.reserve([str(taught.item)], "train")
    mixed.ledger.take([Answer(second.item, 1, 1, (taught.label().index + 1) % 3, "you")])
    mixed.ledger.correct(second.item, 2, "you", slot=1)
    assert mixed.ledger.said() == {
        "label": plain.ledger.learnt + 2, "none": 0, "ambiguous": 0, "broken": 0,
    }  # fmt: skip
    other = fresh(mixed, tmp_path / "c", budget=9)
    other.learner.budget = 8
    replay(mixed.ledger.rows(), other, after=0, refit=refuse, budget=lambda row: None, compare=True)
    assert plain.bought == mixed.bought == other.bought
    mine, theirs, again = (t.learner.state() for t in (plain, mixed, other))
    assert all(mine[k].tobytes() == theirs[k].tobytes() == again[k].tobytes() for k in mine)


def test_owned_labels_are_learnt_again(tmp_path) -> None:
    table = table_of(tmp_path, class_items(40), budget=9)
    for decision, label in table.ledger.own([(table.ids[5], 2), (table.ids[7], 1)], "old.csv"):
        table.learn(decision, label)
    for _ in stream(range(5), table):
        pass
    other = fresh(table, tmp_path / "b", budget=9)
    replay(table.ledger.rows(), other, after=0, refit=refuse, compare=True)
    assert other.bought == table.bought
    assert table.bought[:2] == [(5, 2, -1), (7, 1, -1)]
    mine, theirs = table.learner.state(), other.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)


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


def renewed(table: Table) -> PairBlock | SharedBlock:
    """Other features of the same items, as a refitted language model gives them."""
    block = table.block
    assert isinstance(block, SharedBlock)
    return SharedBlock(np.ascontiguousarray(block.h[:, ::-1]), block.classes)


def rebuild(table: Table, block: SharedBlock | PairBlock) -> None:
    """The learner as new, then every bought label under the features of the new epoch."""
    table.block = block
    table.learner.scorer.restore(table_scorer(table).state())
    for row, label, choice in table.bought:
        inputs = table.block[row]
        shown = table.shown.get(row, tuple(range(inputs.size)))
        table.learner.scorer.step(inputs, shown, choice, Label(label))


def table_scorer(table: Table) -> Scorer:
    return make_scorer("ridge", dim=table.block.dim, classes=3)


@pytest.fixture
def two_epochs(tmp_path) -> tuple[Table, int]:
    """A stream whose features are renewed after round 20; the row that says so."""
    table = table_of(tmp_path, class_items(40), budget=9)
    rounds = stream(range(40), table)
    for _ in range(20):
        next(rounds)
    rebuild(table, renewed(table))
    table.ledger.note_refreshed(len(table.bought), {})
    seq = table.ledger.head.count
    for _ in rounds:
        pass
    return table, seq


def test_replay_renews_the_features_where_the_run_did(two_epochs, tmp_path) -> None:
    table, _ = two_epochs
    other = fresh(table, tmp_path / "b", budget=9)
    other.block, before = table_before(table), []

    def refreshed(row: Row, effective: bool) -> None:
        before.append((row.number, effective, len(other.bought)))
        rebuild(other, renewed(other))

    effects = replay(
        table.ledger.rows(), other, after=0, refit=refuse, refreshed=refreshed, compare=True
    )
    assert effects == 40 + 9 + 1
    assert before == [(1, True, next(r for r in refreshed_rows(table)).payload["labels"])]
    mine, theirs = table.learner.state(), other.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)
    assert other.bought == table.bought


def table_before(table: Table) -> SharedBlock | PairBlock:
    return renewed(table)  # renewed twice is as it was


def refreshed_rows(table: Table) -> list[Row]:
    return [row for row in table.ledger.rows() if row.event == "refreshed"]


@pytest.mark.parametrize("behind", [0, 4])
def test_a_checkpoint_of_the_new_epoch_is_told_without_an_effect(
    two_epochs, tmp_path, behind
) -> None:
    table, seq = two_epochs
    rows = list(table.ledger.rows())
    other = fresh(table, tmp_path / "b", budget=9)
    other.block = table_before(table)
    told = []

    def whole(row: Row, effective: bool) -> None:
        rebuild(other, renewed(other))

    replay(rows[: seq + behind], other, after=0, refit=refuse, refreshed=whole, compare=True)
    saved = {name: np.array(array) for name, array in other.learner.state().items()}
    third = fresh(table, tmp_path / "c", budget=9)
    third.block = table_before(table)
    third.learner.restore(saved)

    def thaw(row: Row, effective: bool) -> None:
        told.append(effective)
        third.block = renewed(third)

    replay(rows, third, after=seq + behind, refit=refuse, refreshed=thaw, compare=True)
    assert told == [False]
    mine, theirs = table.learner.state(), third.learner.state()
    assert all(mine[k].tobytes() == theirs[k].tobytes() for k in mine)


def test_renewed_features_are_refused_where_the_run_has_no_model(two_epochs, tmp_path) -> None:
    table, seq = two_epochs
    other = fresh(table, tmp_path / "b", budget=9)
    other.block = table_before(table)
    with pytest.raises(LedgerError, match=f"row {seq} .* has no model to refit"):
        replay(table.ledger.rows(), other, after=0, refit=refuse, compare=True)


def test_the_table_keeps_what_was_shown_of_items_not_presented_whole(tmp_path) -> None:
    table = table_of(tmp_path, class_items(40), budget=9)
    hard = replace(table, follower=Hard(1))
    for _ in stream(range(40), hard):
        pass
    assert len(hard.bought) == 9
    assert hard.shown.keys() == {row for row, _, _ in hard.bought}
    posted = {r.item: r.decision() for r in hard.ledger.rows() if r.event == "round"}
    for row, shown in hard.shown.items():
        assert shown == posted[hard.ids[row]].presented
        assert len(shown) == 2
    other = replace(fresh(hard, tmp_path / "b", budget=9), follower=Hard(1))
    replay(hard.ledger.rows(), other, after=hard.ledger.head.count, refit=refuse, compare=True)
    assert (other.shown, other.bought) == (hard.shown, hard.bought)


def test_what_is_presented_whole_is_not_kept_twice(played) -> None:
    assert len(played.bought) == 9
    assert played.shown == {}
