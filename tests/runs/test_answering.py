"""What people answer by file: what is taken, learned, paid, kept, named, and freed again."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from stacksl.api import Run
from stacksl.errors import DataError, RunError
from stacksl.ledger.ledger import Ledger
from stacksl.report.wording import plural
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.finish import finish
from stacksl.runs.storage.status import Record

from ..ledgers import accounts_of, bought, handed_rows, open_leases, rows_of
from ..saved_arrays import latest_in
from .changing_cases import POOL
from .people_cases import (
    Killed,
    Row,
    Say,
    answer_all,
    begin,
    copy_of,
    expect_sound,
    facts_of,
    fill,
    gold,
    killed,
    open_rows,
    play,
    read_rows,
    sheets,
    truth,
    write_rows,
    wrong,
)


def first_sheet(waiting: Run) -> tuple[Path, list[Row]]:
    path = sheets(waiting)[0]
    return path, read_rows(path)


def learned(waiting: Run) -> int:
    return sum(row["learned_at"] is not None for row in bought(waiting))


# Files as they come back -------------------------------------------------------------------------


def test_a_file_without_one_readable_row_changes_nothing(tmp_path, monkeypatch) -> None:
    waiting = begin(tmp_path)
    path = sheets(waiting)[0]
    before = bought(waiting)
    monkeypatch.setattr("secrets.randbits", lambda bits: 2)  # each run has a secret of its own
    other = begin(tmp_path, out=tmp_path / "other")
    received = waiting.answer(fill(sheets(other)[0]))
    assert received.accepted == {}
    assert len(received.faults) == 1  # not a line for each of the six rows
    assert "this run knows none of the keys" in received.faults[0]
    assert waiting.answer(path).empty == 6
    (tmp_path / "no.csv").write_text("this is no sheet")
    (tmp_path / "none.csv").write_bytes(b"")
    for name in ("no.csv", "none.csv", "gone.csv"):
        with pytest.raises(DataError):
            waiting.answer(fill(path), tmp_path / name)
    assert bought(waiting) == before  # nothing of any file was taken
    assert open_rows(waiting) == {"0001.csv": 6}


# What is paid and learned -------------------------------------------------------------------------


def test_none_ambiguous_and_broken_are_paid_and_never_learned(tmp_path: Path) -> None:
    waiting = begin(tmp_path, price="2")
    path, rows = first_sheet(waiting)
    words = ["none: a festival", "none", "ambiguous", "broken", "", ""]
    for row, word in zip(rows, words, strict=True):
        row["answer"] = word or gold(row["prompt"])
    received = waiting.answer(write_rows(path, rows))
    assert received.accepted == {"none": 2, "ambiguous": 1, "broken": 1, "label": 2}
    assert learned(waiting) == 2
    status = waiting.status()
    assert (status["answered"], status["asked"], status["money"]["spent"]) == (6, 12, 24.0)
    with waiting.ledger as ledger:
        assert [answer.text for answer in ledger.texts()] == ["a festival"]
    asked = {row["item"] for row in bought(waiting)}
    done = play(waiting)
    assert len(bought(done)) == len({row["item"] for row in bought(done)}) == 24 > len(asked)
    facts = facts_of(done)
    assert facts.budget.answered == learned(done) == 20
    assert (facts.asking.none_of_these, facts.asking.ambiguous, facts.asking.broken) == (2, 1, 1)
    expect_sound(done)


def test_a_contradiction_is_kept_unpaid_and_listed(tmp_path: Path) -> None:
    waiting = begin(tmp_path, price="2")
    path, rows = first_sheet(waiting)
    waiting.answer(fill(path))
    paid, said = waiting.status()["money"]["spent"], bought(waiting, state="answered")
    other = write_rows(tmp_path / "other.csv", rows)
    received = waiting.answer(fill(other, wrong, keys=[rows[0]["key"], rows[1]["key"]]))
    assert (received.accepted, received.disputed, received.repeated) == ({}, 2, 0)
    again = waiting.answer(other)
    assert (again.disputed, again.repeated) == (0, 2)
    assert waiting.status()["money"]["spent"] == paid
    assert bought(waiting, state="answered") == said
    with waiting.ledger as ledger:
        disputes, late = ledger.uncharged()
    assert (len(disputes), late) == (2, [])
    done = play(waiting)
    assert facts_of(done).asking.disputes == 2  # type: ignore[union-attr]
    expect_sound(done)


# Rows given up -----------------------------------------------------------------------------------


def test_freed_rows_go_to_somebody_else_and_the_old_sheet_still_counts(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna,ben")
    old = next(path for path in sheets(waiting) if "ben" in path.name)
    rows = read_rows(old)
    assert waiting.people(free="ben") == 3
    assert open_rows(waiting) == {"0002-anna.csv": 6}
    new = next(path for path in sheets(waiting) if path.name == "0002-anna.csv")
    assert {row["prompt"] for row in read_rows(new)} > {row["prompt"] for row in rows}
    assert not {row["key"] for row in read_rows(new)} & {row["key"] for row in rows}
    assert waiting.answer(fill(old, keys=[rows[0]["key"]])).accepted == {"label": 1}
    assert open_rows(waiting) == {"0002-anna.csv": 5, "0003-ben.csv": 1}
    received = waiting.answer(fill(new, wrong))
    assert (received.accepted, received.disputed, received.late) == ({"label": 5}, 0, 1)
    late = waiting.answer(fill(old))
    assert (late.accepted, late.disputed, late.late, late.repeated) == ({}, 0, 2, 1)
    assert waiting.answer(fill(old)).late == 0, "kept once"
    assert waiting.status()["spent"] == 6 + 6
    done = play(waiting)
    assert len(bought(done, state="answered")) == 24
    expect_sound(done)


def test_nobody_answers_twice_and_who_is_away_gets_nothing(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna,ben", sheets={"overlap": 12}, budget=30)
    bens = sum(row.annotator == "ben" for row in handed_rows(waiting))
    assert waiting.people(away="ben") == bens == 3
    for _ in range(3):
        assert {path.stem.split("-")[1] for path in sheets(waiting)} == {"anna"}
        answer_all(waiting)
    with pytest.raises(RunError, match="an annotator left to answer"):
        waiting.people(away="anna")
    waiting.people(back="ben")
    with pytest.raises(RunError, match="got 'ben': nobody is away"):
        waiting.people(back="ben")
    done = play(waiting)
    rows = handed_rows(done)
    assert accounts_of(done).doubled > 0, "with two there, rows go to both again"
    assert sum(row.annotator == "ben" for row in rows) > bens
    for item in {row.item for row in rows}:
        answered = [row.annotator for row in rows if row.item == item]
        assert len(set(answered)) == len(answered), "never two slots for one annotator"
    assert done.status()["spent"] == 30
    expect_sound(done)


@POOL
def test_a_dropped_row_gives_its_label_to_another_item(tmp_path: Path, mode: str) -> None:
    waiting = begin(tmp_path, mode=mode)
    path, rows = first_sheet(waiting)
    assert waiting.people(keys=[rows[0]["key"].upper(), rows[1]["key"]], drop=True) == 2
    assert open_rows(waiting) == {"0002.csv": 6}
    assert waiting.status()["spent"] == 6
    prompts = {row["prompt"] for row in read_rows(path.parent / "0002.csv")}
    assert prompts & {row["prompt"] for row in rows} == {row["prompt"] for row in rows[2:]}
    dropped = {row["prompt"] for row in rows[:2]}
    done = play(waiting, lambda row: "" if row["prompt"] in dropped else truth(row))
    assert Counter(row["state"] for row in bought(done)) == {"answered": 24, "released": 2}
    received = done.answer(fill(path))  # the two that nobody answered, and no money left for them
    assert (received.accepted, received.repeated, received.late) == ({}, 4, 2)
    assert done.status()["state"] == "finished"
    assert done.status()["spent"] == 24
    expect_sound(done)


def test_dropped_rows_of_both_kinds_stay_away_and_an_audit_counts_them_as_unknown(tmp_path) -> None:
    waiting = begin(tmp_path, audit=6, open_questions=12)
    measured = {str(row["item"]) for row in bought(waiting, purpose="audit")}
    asked = {row.item for row in handed_rows(waiting)}
    assert waiting.people(free=True, drop=True) == 12
    leased = {lease.item for lease in open_leases(waiting)}
    assert not leased & asked
    assert measured - asked <= leased
    done = play(waiting)
    audit = facts_of(done).audit
    assert (audit.n, audit.unknown) == (6, len(measured & asked))
    assert facts_of(done).budget.released == 12, "as many as the command freed"
    words = f"{plural(len(measured & asked), 'label')} of withdrawn audited rows"
    assert done.status()["unspent"] == f"{words} cannot be spent on others."
    expect_sound(done)


def test_a_dropped_row_shows_its_purpose_neither_in_numbers_nor_by_coming_back(tmp_path) -> None:
    told = {}
    for purpose in ("train", "audit"):
        folder = tmp_path / purpose
        folder.mkdir()
        waiting = begin(folder, audit=6, open_questions=12, price="0.5")
        path, _ = first_sheet(waiting)
        items = {str(row["item"]) for row in bought(waiting, purpose=purpose)}
        key = next(row.key for row in handed_rows(waiting) if row.item in items)
        waiting.people(keys=[key], drop=True)
        shown = ("asked", "answered", "spent", "left", "money")
        numbers = [waiting.status()[name] for name in shown]
        late = waiting.answer(fill(path, keys=[key]))
        assert (late.accepted, late.late) == ({}, 1)
        after = [waiting.status()[name] for name in shown]
        told[purpose] = [numbers, after, open_rows(waiting)]
        expect_sound(play(waiting))
    assert told["train"] == told["audit"]


@pytest.mark.parametrize("before", [pytest.param(1, marks=pytest.mark.slow), 6])
def test_freeing_that_is_cut_off_frees_nothing(tmp_path, before: int, monkeypatch) -> None:
    waiting = begin(tmp_path, audit=2, open_questions=12)
    rows, record, again = bought(waiting), Ledger.record, itertools.count(1)

    def cut(ledger: Ledger, event: str, *data: object, **fields: object) -> None:
        if event == "reserved" and next(again) == before:
            raise KeyboardInterrupt
        record(ledger, event, *data, **fields)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", cut)
        with pytest.raises(KeyboardInterrupt):
            waiting.people(free=True)
    assert bought(waiting) == rows
    assert waiting.people(free=True) == 12
    assert {row["state"] for row in bought(waiting)} == {"open"}
    expect_sound(play(waiting))


def test_what_cannot_be_freed_is_a_sentence(tmp_path: Path) -> None:
    waiting = begin(tmp_path)
    with pytest.raises(RunError, match="no annotator of this run"):
        waiting.people(free="carl")
    with pytest.raises(RunError, match="dropping needs rows to drop"):
        waiting.people(drop=True)
    with pytest.raises(RunError, match="unknown key k7f3-q: use a key"):
        waiting.people(keys=["k7f3-q"])
    path, rows = first_sheet(waiting)
    waiting.answer(fill(path))
    with pytest.raises(RunError, match="no such row of the run"):
        waiting.people(keys=[rows[0]["key"]])


# Runs that wait for nobody -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run with an audit of six, which tests copy."""
    return play(begin(tmp_path_factory.mktemp("measured"), audit=6))


@pytest.fixture
def done(measured: Run, tmp_path: Path) -> Run:
    return copy_of(measured, tmp_path)


def test_an_old_sheet_does_not_undo_a_refit_with_the_audit(done: Run) -> None:
    assert done.refit_with_audit() == 6
    model = (done.path / "model" / "head.safetensors").read_bytes()
    audit = facts_of(done).audit
    assert audit.trained_on == 6
    for change in (lambda: done.answer(fill(done.path / "ask" / "0002.csv", wrong)), done.resume):
        change()
        assert done.status()["state"] == "finished"
        assert (done.path / "model" / "head.safetensors").read_bytes() == model
        assert facts_of(done).audit == audit
    done.change(budget=40, later=True)
    later = facts_of(play(done.resume())).audit  # what was learned since then has no part of it
    assert (later.trained_on, later.shown_at, later.learned) == (0, 18, 34)


def test_the_secret_decides_keys_order_and_who_gets_which_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, rows = [], []
    for secret in (1, 2):
        folder = tmp_path / str(secret)
        folder.mkdir()
        monkeypatch.setattr("secrets.randbits", lambda bits, secret=secret: secret)
        done.append(play(begin(folder, audit=6, seed=5, annotators="anna,ben")))
        rows.append([(row.key, row.item, row.annotator) for row in handed_rows(done[-1])])
    assert not {key for key, _, _ in rows[0]} & {key for key, _, _ in rows[1]}
    assert {item for _, item, _ in rows[0]} == {item for _, item, _ in rows[1]}
    assert [item for _, item, _ in rows[0]] != [item for _, item, _ in rows[1]]
    assert {(item, who) for _, item, who in rows[0]} != {(item, who) for _, item, who in rows[1]}
    arrays = [latest_in(each.path).data for each in done]
    assert arrays[0] == arrays[1]
    heads = [(each.path / "model" / "head.safetensors").read_bytes() for each in done]
    assert heads[0] == heads[1]
    accounts = [
        [{**row, "labeler": "", "learned_at": None} for row in bought(each)] for each in done
    ]
    assert accounts[0] == accounts[1]


# What is measured stays untold until the end -----------------------------------------------------


def traces(waiting: Run) -> list[object]:
    """What somebody sees who looks into a waiting run everywhere but into its ledger."""
    places = ("run", "data", "created", "sheets", "resume")
    status = {name: value for name, value in waiting.status().items() if name not in places}
    names = sorted(path.name for path in waiting.path.rglob("*"))
    assert not {"facts.json", "report.html", "README.md"} & set(names)
    written = [path.read_bytes() for path in sheets(waiting)]
    return [status, names, *written, latest_in(waiting.path).data]


def test_nothing_but_the_ledger_depends_on_what_the_audit_says(tmp_path: Path) -> None:
    seen: dict[Say, list[object]] = {truth: [], wrong: []}
    right = []
    for say, found in seen.items():
        folder = tmp_path / say.__name__
        folder.mkdir()
        waiting = begin(folder, audit=8, budget=30, open_questions=10)
        measuring = {str(row["item"]) for row in bought(waiting, purpose="audit")}
        while waiting.status()["state"] == "waiting":
            found += traces(waiting)
            keys = {row.key for row in handed_rows(waiting) if row.item in measuring}
            certified = {row.item for row in rows_of(waiting, "round")}
            assert not certified & measuring  # no prediction of them is anywhere
            for path in sheets(waiting):
                fill(path)
                found.append(waiting.answer(fill(path, say, keys=keys)))
        audit = facts_of(waiting).audit
        right.append(audit.correct)
    assert len(seen[truth]) > 12
    assert seen[truth] == seen[wrong]
    assert right[0] != right[1]


@pytest.mark.parametrize("step", ["write_atomic", pytest.param("facts_of", marks=pytest.mark.slow)])
def test_a_killed_refit_with_the_audit_is_finished_by_a_resume(
    done: Run, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Record, "restore_before", lambda _: None)  # as a kill leaves the state
        patched.setattr(Record, "recording_failure", lambda _: nullcontext())
        patched.setattr(finish, step, killed)
        with pytest.raises(Killed):
            done.refit_with_audit()
    assert done.status()["state"] == "interrupted"
    again = Run.open(done.path)
    assert again.resume().status()["state"] == "finished"
    assert again.status()["audit"]["trained_on"] == 6
    assert "was also trained on" in (done.path / "report.html").read_text()
    expect_sound(again)


def test_a_forgotten_item_leaves_what_the_audit_has_shown(done: Run) -> None:
    done.refit_with_audit()
    done.change(budget=40, later=True)
    play(done.resume())
    done.refit_with_audit()
    before = facts_of(done).audit
    forget(done.path, str(bought(done, purpose="audit")[0]["item"]))
    after = facts_of(done.resume()).audit
    assert (before.shown_before, before.shown_at, before.trained_on) == (True, 18, 6)
    assert (after.shown_before, after.shown_at, after.trained_on) == (True, 18, 5)
    forget(done.path, str(bought(done, purpose="train")[0]["item"]))
    done.change(budget=44, later=True)
    later = facts_of(play(done.resume())).audit
    assert (later.number, later.shown_at) == (1, 18)
    expect_sound(done)
