"""A change of a run that is killed at its commit, and one that adds annotators."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run
from stacksl.cli.entry import call
from stacksl.errors import SettingsError, StackslError
from stacksl.ledger.store.database import Store

from ..ledgers import bought, verify
from ..saved_arrays import latest_in
from .changing_cases import labeled, purchases, two_of, unnamed
from .people_cases import (
    Row,
    answer_all,
    begin,
    expect_sound,
    gold,
    open_rows,
    play,
    sheets,
    write_pool,
)


def grudging(row: Row) -> str:
    topic = gold(row["prompt"])
    if topic in row["options"]:
        return topic
    return "[none]: night" if len(row["prompt"]) % 2 else "[none]"


@pytest.fixture(scope="module", params=["pool", pytest.param("stream", marks=pytest.mark.slow)])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run that was given two of three topics, with the files that are to come."""
    home = tmp_path_factory.mktemp("cut")
    made = begin(
        home, classes=two_of(home), budget=14, open_questions=14, audit=0, count=30,
        mode=request.param,
    )  # fmt: skip
    answer_all(made, grudging)
    assert made.status()["state"] == "finished"
    return made


def wanted(home: Path) -> dict[str, Any]:
    return {
        "budget": 30,
        "items": write_pool(home, 20, seed=3, first=100),
        "owned": labeled(home / "owned.csv", ids=True, first=700, count=6),
        "classes": {"night": "what is seen in the dark"},
        "reopen": True,
        "annotators": "ben",
    }


def cut_at(cut: str | None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Kill the process at its first commit; gives how many commits there were."""
    commits = 0
    commit = Store.commit

    def counted(store: Store) -> None:
        nonlocal commits
        commits += 1
        if cut == "before":
            raise KeyboardInterrupt
        commit(store)
        if cut == "after":
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "commit", counted)
    return lambda: commits


def change_cut(made: Run, change: dict[str, Any], cut: str | None) -> None:
    """Change a run, killed at the commit where `cut` says so."""
    with pytest.MonkeyPatch.context() as patch:
        commits = cut_at(cut, patch)
        with nullcontext() if cut is None else pytest.raises(KeyboardInterrupt):
            made.change(**change, later=True)
        assert commits() == 1, "a change is one transaction"


@pytest.mark.parametrize("cut", ["before", "after", None])
def test_a_change_that_is_killed_has_happened_whole_or_not_at_all(
    played: Run, tmp_path: Path, cut: str | None
) -> None:
    for name in ("run", "twin"):
        shutil.copytree(played.path, tmp_path / name)
    made, twin, change = Run(tmp_path / "run"), Run(tmp_path / "twin"), wanted(tmp_path)
    before, status = standing(made), made.status()
    expected = twin.change(**change)
    change_cut(made, change, cut)
    verify(made)
    if cut == "before":
        assert standing(made) == before
        assert made.status() == status
        assert made.change(**change, later=True) == expected
    assert made.status()["state"] == "stopped"
    made.resume()
    assert purchases(made) == purchases(twin)
    ours, theirs = latest_in(made.path).arrays, latest_in(twin.path).arrays
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert np.array_equal(array, theirs[name], equal_nan=True), name
    assert made.folder.settings() == twin.folder.settings()
    assert made.folder.classes() == twin.folder.classes()
    expect_sound(play(made, unnamed))
    assert made.model.classes == ("bread", "sea", "night")


def test_a_change_that_is_refused_in_part_is_refused_whole(tmp_path: Path) -> None:
    waiting = begin(tmp_path, annotators="anna,ben", price="3")
    before, rows = standing(waiting), purchases(waiting)
    more = write_pool(tmp_path, 10, seed=2, first=500)
    for wrong in (
        {"budget": 2},
        {"classes": "bread"},
        {"owned": tmp_path / "gone.csv"},
        {"annotators": "carl", "budget": "$2"},
        {"annotators": "anna"},
        {"reopen": True},
    ):
        with pytest.raises(StackslError):
            waiting.change(**{"budget": 30, "items": more} | wrong)
    assert standing(waiting) == before
    assert purchases(waiting) == rows


def test_an_annotator_who_joins_gets_new_rows_alone(tmp_path: Path) -> None:
    waiting = begin(tmp_path, price="2.50")
    assert waiting.change(annotators="ben").annotators == ("anna", "ben")
    assert open_rows(waiting) == {"0001.csv": 6}, "what is out stays, under its name"
    answer_all(waiting)
    assert set(open_rows(waiting)) == {"0002-anna.csv", "0002-ben.csv"}
    done = play(waiting)
    prices = {(row["labeler"], row["price"]) for row in bought(done, state="answered")}
    assert prices == {("anna", 2_500_000), ("ben", 2_500_000)}
    expect_sound(done)


@pytest.mark.parametrize(
    ("added", "sentence"),
    [("anna", "anna is an annotator of this run already: .* --back"), ("ben=3", "different names")],
)
def test_an_annotator_who_cannot_join_is_a_sentence(
    tmp_path: Path, added: str, sentence: str
) -> None:
    waiting = begin(tmp_path, price="3")
    with pytest.raises(SettingsError, match=sentence):
        waiting.change(annotators=added)
    with pytest.raises(SettingsError, match="one price, whoever answers it"):
        waiting.change(annotators={added: "2"})  # type: ignore[arg-type]
    assert waiting.status()["state"] == "waiting"
    assert len(sheets(waiting)) == 1


def standing(made: Run) -> list[object]:
    """What a refusal leaves as it is: state, settings, classes, ledger and sheets."""
    files = [*made.path.glob("*.json"), *(made.path / "ask").glob("*")]
    folder = made.folder
    with made.ledger as ledger:
        head = ledger.head
    tables = [folder.settings(), folder.classes(), folder.read_state()]
    return [head, *tables, {path: path.read_bytes() for path in files}]


REFUSED = ("annotators=anna,ben", "price=9", "budget=40", "gate=llf", "learning_rate=-1", "no=1")


@pytest.mark.parametrize("state", ["waiting", "finished"])
def test_a_refused_setting_leaves_the_run_as_it_is(tmp_path: Path, state: str) -> None:
    made = begin(tmp_path, budget=6)
    if state == "finished":
        play(made)
    before = standing(made)
    for text in REFUSED:
        assert call(["change", str(made.path), "--set", text, "--quiet"]) == 2, text
        assert standing(made) == before, text
    assert made.status()["state"] == state
    play(made.resume())
